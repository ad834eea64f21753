"""A tuning run: tasks in, best schedules out. The only place that ties proposer, measurer and log together.

    choose task ─▶ tuner.ask ─▶ journal.begin ─▶ measure ─▶ journal.finish ─▶ tuner.tell ─▶ …
         └─ no more trials for this task ─▶ final race: its best and its default, side by side

Trials are acknowledged by the log before the search learns of them; a run that was killed is told what the
log knows, round by round in the order in which it happened, and then continues as if it had not been killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from autotensor.base import log
from autotensor.base.errors import InputError, MeasureError
from autotensor.resolve import gain
from autotensor.schedule.algorithm import FEWEST_OPERATIONS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.sketch import Sketch
from autotensor.search.allocate import CLOSE, NEAR_LIMIT, Standing, choose, stop_reason
from autotensor.search.events import Improved, Listener, Raced, Resumed, RoundDone, TaskDone
from autotensor.search.final import Final, final_race
from autotensor.search.journal import ALL_FINISHED, Journal, decisions_of, open_journal, retell, run_key
from autotensor.search.model import CostModel, PriorModel, RandomModel, XGBModel
from autotensor.search.prior import Rates
from autotensor.search.request import Measurer, OutOfTime
from autotensor.search.task import Candidate, Task
from autotensor.search.tuner import SearchOptions, Tuner
from autotensor.te.workload import Workload
from tuning_db import TrialStore
from tuning_db.records import Status, TrialRecord

MODELS = ("xgb", "prior", "random")
LEARNED = 4000  # newest rows of other runs that the model learns from at the start
# what a final race takes, roughly; so much is kept of a deadline for each, this share of it at most
RACE_S = 1.8
RACES_SHARE = 0.2
# the time beside it is the race's: the trial was lucky, or others used the cores while it was raced
RACED_SLOWER = "one trial came within 3 % of the limit"
NOTHING_LEFT = "nothing is left to ask"
FINISHED_BEFORE = "an earlier run finished it"


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How much and how to search."""

    trials: int = 1000  # ceiling over all tasks
    seed: int = 0
    model: str = "xgb"  # or "prior" (no learning), "random" (the baseline)
    batch: int = 8
    deadline_s: float | None = None
    least_gain: float = 0.01  # a task stops when a batch is not expected to save this share of its time
    fresh: bool = False  # start anew instead of continuing
    warm_start: bool = True  # learn from other workloads in the log
    patience: bool = True  # False: never stop a task early

    def __post_init__(self) -> None:
        if not hasattr(self.trials, "__index__") or self.trials < 1:
            raise InputError(f"trials is {self.trials!r}; it must be a whole number, at least 1.")
        if self.model not in MODELS:
            raise InputError(f"cost model {self.model!r} is unknown.", fix=f"Known: {', '.join(MODELS)}.")
        if self.batch < 1:
            raise InputError(f"batch is {self.batch}; it must be at least 1.")
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InputError(f"deadline is {self.deadline_s} s; it must be positive.")


@dataclass(frozen=True, slots=True, repr=False)
class TaskReport:
    """How one task went. With `raced`, both times are of the final race, taken side by side."""

    task: Task
    default_s: float | None
    best_s: float | None
    best: Candidate | None
    trials: int
    failures: int
    reason: str  # why it got no more trials
    raced: bool = False
    rejected: int = 0  # refused by their machine code, beside the trials

    def __repr__(self) -> str:
        """One line; the candidate's sketch alone would fill pages."""
        if self.best_s is None:
            return f"{self.task.label}: no time after {self.trials} trials ({self.reason})"
        than = f", {gain(self.default_s, self.best_s, 'the default')}" if self.default_s else ""
        return f"{self.task.label}: {self.best_s * 1e6:,.1f} us{than}, {self.trials} trials ({self.reason})"


@dataclass(frozen=True, slots=True, repr=False)
class TuneReport:
    """How a run went. Prints as a line per task and one about the run."""

    tasks: tuple[TaskReport, ...]
    trials: int
    reused: int  # of these, read from the log
    elapsed_s: float
    reason: str
    shares: dict[str, float] = field(default_factory=dict)  # seconds by kind: search, measure, log, race
    log: str = ""  # where the trials are, for people; "" for a store that the caller opened

    def __repr__(self) -> str:
        log = f"; log: {self.log}" if self.log else ""
        run = (
            f"{self.trials} trials ({self.reused} from the log) in {self.elapsed_s:.0f} s: {self.reason}{log}"
        )
        return "\n".join([*map(repr, self.tasks), run])


@dataclass(slots=True)
class _Run:
    """Mutable bookkeeping of one task."""

    task: Task
    tuner: Tuner
    bound_s: float
    default_s: float | None = None
    batches: int = 0
    trials: int = 0
    failures: int = 0
    rejected: int = 0
    gains: list[float] = field(default_factory=list)
    ended: str = ""  # why it cannot go on, whatever its standing
    announced: bool = False
    final: Final | None = None
    raced: bool = False

    def standing(self) -> Standing:
        best, gains = self.tuner.best_seconds, tuple(self.gains)
        return Standing(self.task, best, self.bound_s, self.batches, gains, self.tuner.exhausted)

    def count(self, before: float, statuses: Sequence[Status]) -> None:
        """A batch was told; `before` is the best time before it. What was rejected took no measurement."""
        after = self.tuner.best_seconds
        ran = [s for s in statuses if s is not Status.REJECTED]
        self.batches += 1
        self.trials += len(ran)
        self.failures += len(ran) - ran.count(Status.OK)
        self.rejected += len(statuses) - len(ran)
        found_first = before == float("inf") and after < before
        self.gains.append(1.0 if found_first else (before - after) / before if after < before else 0.0)


def tune(
    tasks: Sequence[Task],
    options: TuneOptions,
    store: TrialStore,
    measurer: Measurer,
    rates: Rates,
    *,
    listener: Listener | None = None,
    search: SearchOptions | None = None,
    seeds: tuple[int, ...] = (0, 1),
    residency: str = "graph",
    stopped: Callable[[], bool] = lambda: False,
) -> TuneReport:
    """Measures candidates of all tasks until the budget, the deadline or the tasks end.

    Tasks whose reference cannot be built or run are left out, with the reason in their report. Raises
    MeasureError when that is so of all of them.
    stopped: asked between batches; True ends the run (Ctrl-C in the command line).
    """
    loop = _Loop(tasks, options, store, measurer, rates, listener, search, seeds, residency, stopped)
    return loop.run()


class _Loop:
    """One call of `tune`."""

    def __init__(
        self,
        tasks: Sequence[Task],
        options: TuneOptions,
        store: TrialStore,
        measurer: Measurer,
        rates: Rates,
        listener: Listener | None,
        search: SearchOptions | None,
        seeds: tuple[int, ...],
        residency: str,
        stopped: Callable[[], bool],
    ) -> None:
        self.options, self.measurer, self.stopped = options, measurer, stopped
        self.started = time.monotonic()
        self.clock = {"search": 0.0, "measure": 0.0, "log": 0.0, "race": 0.0}
        self.say: Listener = listener or (lambda event: None)
        self.model = make_model(options.model, options.seed)
        chosen = search or SearchOptions(random_only=options.model == "random")
        merged = merge(tasks)
        key = run_key(merged, merged[0].target.key(), _key_options(options), options.seed)
        asked = asdict(options)
        self.journal = open_journal(store, merged, key, options.seed, asked, seeds, residency, options.fresh)
        self.runs = [
            _Run(t, tuner, lower_bound(t, rates, cold=residency == "graph", sketches=tuner.sketches))
            for t in merged
            for tuner in [Tuner(t, self.model, rates, seed=options.seed, options=chosen)]
        ]
        self.rates = rates
        self.trials = 0
        self.late = False  # the deadline came while a reference was at work

    def run(self) -> TuneReport:
        began = time.perf_counter()
        if self.options.warm_start and self.options.model == "xgb":
            learn_from_log(self.journal, [r.task for r in self.runs], self.model, self.rates)
        reused = self.trials = self._resume()
        self.clock["search"] += time.perf_counter() - began
        if reused:
            self.say(Resumed(reused))
        while not (reason := self._over()):
            self._finish_tasks()
            run = self._next()
            if run is None:
                reason = ALL_FINISHED
                break
            self._round(run)
        if not self.stopped():
            for run in self.runs:
                if not self._past_deadline():
                    self._race(run)
        self.journal.end(reason)
        reports = tuple(self._report(r) for r in self.runs)
        elapsed = time.monotonic() - self.started
        return TuneReport(reports, self.trials, reused, elapsed, reason, self.clock)

    def _over(self) -> str:
        """Why the whole run ends; "" while it goes on."""
        deadline = self.options.deadline_s
        if self.trials >= self.options.trials:
            return "all trials are spent"
        if deadline is not None:
            open_races = sum(not r.raced and r.trials > 1 for r in self.runs)
            kept = min(RACES_SHARE * deadline, RACE_S * open_races)
            if self.late or time.monotonic() - self.started > deadline - kept:
                return "the deadline is reached"
        return "it was stopped" if self.stopped() else ""

    def _past_deadline(self) -> bool:
        deadline = self.options.deadline_s
        return deadline is not None and time.monotonic() - self.started > deadline

    def _next(self) -> _Run | None:
        open_ = [r for r in self.runs if not r.ended]
        found = choose([r.standing() for r in open_], self._least_gain())
        return None if found is None else next(r for r in open_ if r.task is found.task)

    def _least_gain(self) -> float:
        return self.options.least_gain if self.options.patience else -1.0

    def _finish_tasks(self) -> None:
        """Says which tasks are finished, and races them."""
        for run in self.runs:
            reason = run.ended or stop_reason(run.standing(), self._least_gain())
            if reason and not run.announced:
                run.announced = True
                self.say(TaskDone(run.task, reason))
                self._race(run)

    # -- one batch ------------------------------------------------------------------------------------------

    def _batch_size(self, run: _Run) -> int:
        """As asked for; at first at most an equal share of the budget: every task gets its default."""
        share = max(1, self.options.trials // len(self.runs)) if not run.batches else self.options.batch
        return min(self.options.batch, share, self.options.trials - self.trials)

    def _round(self, run: _Run) -> None:
        """One batch of one task."""
        t0 = time.perf_counter()
        batch = run.tuner.ask(self._batch_size(run))
        t1 = time.perf_counter()
        self.clock["search"] += t1 - t0
        if not batch:
            run.ended = NOTHING_LEFT
            return
        self.journal.begin(run.task, run.batches, batch)
        t2 = time.perf_counter()
        self.clock["log"] += t2 - t1
        try:
            gated = [n for n, c in enumerate(batch) if c.made_by != "default"]  # something must run
            results = self.measurer.measure(run.task.workload, [c.trace for c in batch], gated=gated)
        except OutOfTime:
            self.journal.forget(batch)
            self.late = True
            return
        except MeasureError as error:
            self.journal.forget(batch)
            run.ended = error.what
            if all(r.ended and not r.trials for r in self.runs):
                self.journal.end(error.what)
                raise
            return
        t3 = time.perf_counter()
        self.journal.finish(run.task, run.batches, batch, results)
        t4 = time.perf_counter()
        before = run.tuner.best_seconds
        seconds = [median(r.seconds) if r.ok else None for r in results]
        run.tuner.tell(batch, seconds)
        if run.default_s is None and batch[0].made_by == "default":
            run.default_s = seconds[0]
        run.count(before, [r.status for r in results])
        self.trials = sum(r.trials for r in self.runs)
        self.clock["measure"] += t3 - t2
        self.clock["log"] += t4 - t3
        self.clock["search"] += time.perf_counter() - t4
        if run.tuner.best is not None and run.tuner.best_seconds < before:
            self.say(Improved(run.task, run.tuner.best, run.tuner.best_seconds))
        self.say(
            RoundDone(
                run.task,
                tuple(batch),
                tuple(seconds),
                tuple(r.status.value for r in results),
                run.tuner.best_seconds,
                run.default_s,
                self.trials,
                self.options.trials,
                sum(r.failures for r in self.runs),
                time.monotonic() - self.started,
            )
        )

    def _race(self, run: _Run) -> None:
        """The final race of a task, once."""
        if run.raced or not run.trials:
            return
        began = time.perf_counter()
        run.raced = True
        try:
            run.final = final_race(run.task, run.tuner.default().trace.hash, self.journal, self.measurer)
        except MeasureError as error:
            run.ended = run.ended or error.what
        self.clock["race"] += time.perf_counter() - began
        if run.final is not None:
            default_won = run.final.winner.trace_hash == run.tuner.default().trace.hash
            self.say(Raced(run.task, run.final.seconds, run.final.default_s, default_won))

    # -- what the log knows ---------------------------------------------------------------------------------

    def _resume(self) -> int:
        """Tells what this session measured before it ended, in the order of its rounds; gives the trials."""
        by_task = {(r.task.workload.key, r.task.target.key()): r for r in self.runs}
        rounds: dict[tuple[str, str, int], list[TrialRecord]] = {}
        for row in self.journal.store.trials(session=self.journal.session.id):
            rounds.setdefault((row.workload, row.target, row.round or 0), []).append(row)
        for (workload, target, _), rows in rounds.items():
            run = by_task.get((workload, target))
            if run is None:
                continue
            before = run.tuner.best_seconds
            retell(run.tuner, rows)
            run.tuner.skip_round()
            run.count(before, [r.status for r in rows])
            if rows[0].made_by == "default":
                run.default_s = rows[0].median_s
                if self.journal.finished and rows[0].trace_hash == run.tuner.default().trace.hash:
                    run.ended = FINISHED_BEFORE  # and the rules are the same: other rates change nothing
        return sum(r.trials for r in self.runs)

    def _report(self, run: _Run) -> TaskReport:
        best = run.tuner.best_seconds
        best_s = best if best < float("inf") else None
        best_candidate, default_s = run.tuner.best, run.default_s
        if run.final is not None:
            winner = run.final.winner
            best_s, default_s = run.final.seconds, run.final.default_s
            best_candidate = run.tuner.candidate(winner.sketch_hash, decisions_of(winner), winner.made_by)
        reason = run.ended or stop_reason(run.standing(), self._least_gain()) or "the budget ended"
        raced = run.final is not None
        if reason == NEAR_LIMIT and (best_s is None or best_s > CLOSE * run.bound_s):
            reason = RACED_SLOWER
        return TaskReport(
            run.task, default_s, best_s, best_candidate, run.trials, run.failures, reason, raced, run.rejected
        )


def make_model(name: str, seed: int) -> CostModel:
    match name:
        case "xgb":
            return XGBModel(seed)
        case "prior":
            return PriorModel()
        case _:
            return RandomModel(seed)


def merge(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """One task per workload, weights added, heaviest (by operations) first."""
    found: dict[str, Task] = {}
    for t in tasks:
        old = found.get(t.workload.key)
        found[t.workload.key] = t if old is None else replace(old, weight=old.weight + t.weight)
    if not found:
        raise InputError("there is nothing to tune.")
    return tuple(sorted(found.values(), key=lambda t: -t.weight * t.workload.dag.flops()))


def lower_bound(task: Task, rates: Rates, *, cold: bool = True, sketches: Sequence[Sketch] = ()) -> float:
    """Seconds that no schedule can beat: operations at peak, or weights from memory.

    cold: weights come from memory in every call, as in a whole model. sketches: those that may be used; with
    an algorithm among them, fewer operations do.
    """
    dag = task.workload.dag
    other = any(isinstance(step, UseAlgorithm) for sketch in sketches for step in sketch.steps)
    operations = dag.flops() * (FEWEST_OPERATIONS if other else 1.0)
    weights = sum(b.bytes for b in dag.inputs if b.name in dag.constants) if cold else 0
    return max(operations / (rates.flops * task.target.num_cores), weights / rates.memory_bandwidth)


def _key_options(options: TuneOptions) -> dict[str, object]:
    """Options that make another run; budgets do not."""
    return {"model": options.model, "batch": options.batch}


def learn_from_log(journal: Journal, tasks: Sequence[Task], model: CostModel, rates: Rates) -> int:
    """Teaches the model what other runs on this machine measured, of any workload; gives the rows."""
    store, target = journal.store, tasks[0].target
    known = {w.key: w for w in store.workloads()}
    by_workload: dict[str, list[TrialRecord]] = {}
    for row in store.trials(
        target_key=target.key(), machine=journal.session.machine, status=Status.OK, limit=LEARNED, newest=True
    ):
        if row.session != journal.session.id and row.verified:
            by_workload.setdefault(row.workload, []).append(row)
    taught = 0
    for key, rows in by_workload.items():
        try:
            workload = Workload.from_text(known[key].text, known[key].name, key)
        except InputError as damaged:
            log.warn(f"nothing is learned from it: {damaged.what}")
            continue
        taught += retell(Tuner(Task(workload, target), model, rates), rows)
    return taught
