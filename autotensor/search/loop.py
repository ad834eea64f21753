"""A tuning run: tasks in, best schedules out. The only place that ties proposer, measurer and log together.

    choose task ─▶ tuner.ask ─▶ journal.begin ─▶ measure ─▶ journal.finish ─▶ tuner.tell ─▶ …

Trials are acknowledged by the log before the search learns of them; a run that was killed continues from the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from autotensor.base.errors import InputError
from autotensor.search.allocate import Standing, choose, stop_reason
from autotensor.search.events import Event, Improved, Listener, Resumed, RoundDone, TaskDone
from autotensor.search.journal import Journal, open_journal, retell, run_key
from autotensor.search.model import CostModel, PriorModel, RandomModel, XGBModel
from autotensor.search.prior import Rates
from autotensor.search.request import Measurer
from autotensor.search.task import Candidate, Task
from autotensor.search.tuner import SearchOptions, Tuner
from autotensor.te.workload import Workload
from schedules.generate import generate
from tuning_db import TrialStore
from tuning_db.records import TrialRecord

MODELS = ("xgb", "prior", "random")


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
        if self.trials < 1:
            raise InputError(f"trials is {self.trials}; it must be at least 1.")
        if self.model not in MODELS:
            raise InputError(f"cost model {self.model!r} is unknown.", fix=f"Known: {', '.join(MODELS)}.")
        if self.batch < 1:
            raise InputError(f"batch is {self.batch}; it must be at least 1.")
        if self.deadline_s is not None and self.deadline_s <= 0:
            raise InputError(f"deadline is {self.deadline_s} s; it must be positive.")


@dataclass(frozen=True, slots=True)
class TaskReport:
    """How one task went."""

    task: Task
    default_s: float | None
    best_s: float | None
    best: Candidate | None
    trials: int
    failures: int
    reason: str  # why it got no more trials


@dataclass(frozen=True, slots=True)
class TuneReport:
    """How a run went."""

    tasks: tuple[TaskReport, ...]
    trials: int
    reused: int  # of these, read from the log
    elapsed_s: float
    reason: str
    shares: dict[str, float] = field(default_factory=dict)  # seconds by kind: search, measure, log


@dataclass(slots=True)
class _Run:
    """Mutable bookkeeping of one task."""

    task: Task
    tuner: Tuner
    bound_s: float
    default_s: float | None = None
    batches: int = 0
    trials: int = 0
    gains: list[float] = field(default_factory=list)
    reason: str = ""
    announced: bool = False

    def standing(self) -> Standing:
        return Standing(
            self.task, self.tuner.best_seconds, self.bound_s, self.batches, tuple(self.gains), self.tuner.exhausted
        )


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

    stopped: asked between batches; True ends the run (Ctrl-C in the command line).
    """
    started = time.monotonic()
    say = listener or (lambda event: None)
    model = make_model(options.model, options.seed)
    chosen = search or SearchOptions(random_only=options.model == "random")
    merged = merge(tasks)
    key = run_key(merged, merged[0].target.key(), _key_options(options), options.seed)
    journal = open_journal(store, merged, key, options.seed, asdict(options), seeds, residency, options.fresh)
    runs = [
        _Run(t, Tuner(t, model, rates, seed=options.seed, options=chosen), lower_bound(t.workload, t, rates))
        for t in merged
    ]
    clock = {"search": 0.0, "measure": 0.0, "log": 0.0}
    if options.warm_start and options.model == "xgb":
        _learn_from_log(store, journal, runs, model, rates)
    reused = sum(_resume(journal, run) for run in runs)
    if reused:
        say(Resumed(reused))
    trials, reason = reused, "all tasks are finished"
    while True:
        if trials >= options.trials:
            reason = "all trials are spent"
            break
        if options.deadline_s is not None and time.monotonic() - started > options.deadline_s:
            reason = "the deadline is reached"
            break
        if stopped():
            reason = "it was stopped"
            break
        _announce(runs, options, say)
        run = _next(runs, options)
        if run is None:
            break
        trials += _round(run, runs, options, journal, measurer, say, trials, started, clock)
    store.end_session(journal.session.id, reason)
    reports = tuple(_report(r, options) for r in runs)
    return TuneReport(reports, trials, reused, time.monotonic() - started, reason, clock)


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


def lower_bound(workload: Workload, task: Task, rates: Rates) -> float:
    """Seconds that no schedule of the direct algorithm can beat: operations at peak, or bytes of weights and outputs."""
    dag = workload.dag
    cores = task.target.num_cores
    weights = sum(b.bytes for b in dag.inputs if b.name in dag.constants)
    return max(dag.flops() / (rates.flops * cores), weights / rates.memory_bandwidth)


def _key_options(options: TuneOptions) -> dict[str, object]:
    """Options that make another run; budgets do not."""
    return {"model": options.model, "batch": options.batch}


def _next(runs: Sequence[_Run], options: TuneOptions) -> _Run | None:
    least = options.least_gain if options.patience else -1.0
    found = choose([r.standing() for r in runs], least)
    return None if found is None else next(r for r in runs if r.task is found.task)


def _announce(runs: Sequence[_Run], options: TuneOptions, say: Listener) -> None:
    for run in runs:
        reason = stop_reason(run.standing(), options.least_gain) if options.patience else None
        if reason is not None and not run.announced:
            run.announced, run.reason = True, reason
            say(TaskDone(run.task, reason))


def _round(
    run: _Run,
    runs: Sequence[_Run],
    options: TuneOptions,
    journal: Journal,
    measurer: Measurer,
    say: Callable[[Event], None],
    trials: int,
    started: float,
    clock: dict[str, float],
) -> int:
    """One batch of one task; gives the number of trials."""
    t0 = time.perf_counter()
    batch = run.tuner.ask(min(options.batch, options.trials - trials))
    t1 = time.perf_counter()
    if not batch:
        run.batches += 1
        run.gains.append(0.0)
        run.tuner.sketches = ()  # nothing is left to ask
        return 0
    journal.begin(run.task, run.batches, batch)
    t2 = time.perf_counter()
    results = measurer.measure(run.task.workload, [c.trace for c in batch])
    t3 = time.perf_counter()
    journal.finish(run.task, run.batches, batch, results)
    t4 = time.perf_counter()
    before = run.tuner.best_seconds
    seconds = [median(r.seconds) if r.ok else None for r in results]
    run.tuner.tell(batch, seconds)
    if run.default_s is None and batch[0].made_by == "default":
        run.default_s = seconds[0]
    run.batches += 1
    run.trials += len(batch)
    after = run.tuner.best_seconds
    run.gains.append(1.0 if before == float("inf") else (before - after) / before)
    clock["search"] += t1 - t0 + time.perf_counter() - t4
    clock["log"] += (t2 - t1) + (t4 - t3)
    clock["measure"] += t3 - t2
    if after < before and run.tuner.best is not None:
        say(Improved(run.task, run.tuner.best, after))
    failures = sum(r.tuner.failures for r in runs)
    say(
        RoundDone(
            run.task,
            tuple(batch),
            tuple(seconds),
            tuple(r.status.value for r in results),
            after,
            run.default_s,
            trials + len(batch),
            options.trials,
            failures,
            time.monotonic() - started,
        )
    )
    return len(batch)


def _resume(journal: Journal, run: _Run) -> int:
    """Tells the tuner what this session measured before it was interrupted; gives the number of trials."""
    rows = journal.store.trials(workload_key=run.task.workload.key, session=journal.session.id)
    mine = sorted((r for r in rows if r.target == run.task.target.key()), key=lambda r: r.id or 0)
    if not mine:
        return 0
    rounds: dict[int, list[TrialRecord]] = {}
    for row in mine:
        rounds.setdefault(row.round or 0, []).append(row)
        if row.made_by == "default":
            run.default_s = row.median_s
    for index in sorted(rounds):
        before = run.tuner.best_seconds
        run.trials += retell(run.tuner, rounds[index])
        after = run.tuner.best_seconds
        run.gains.append(1.0 if before == float("inf") else (before - after) / before)
        run.tuner.skip_round()
    run.batches = len(rounds)
    return run.trials


def _learn_from_log(
    store: TrialStore, journal: Journal, runs: Sequence[_Run], model: CostModel, rates: Rates, limit: int = 4000
) -> None:
    """Teaches the model what other runs on this machine measured, of these and of other workloads."""
    rows = store.trials(machine=journal.session.machine, limit=limit)
    names = {w.key: w for w in store.workloads()}
    by_workload: dict[str, list[TrialRecord]] = {}
    for row in rows:
        if row.session != journal.session.id and row.median_s is not None:
            by_workload.setdefault(row.workload, []).append(row)
    target = runs[0].task.target
    for key, mine in by_workload.items():
        workload = Workload.from_text(names[key].text, names[key].name)
        teacher = Tuner(Task(workload, target), model, rates, sketches=generate(workload.dag, target))
        retell(teacher, [r for r in mine if r.target == target.key()])


def _report(run: _Run, options: TuneOptions) -> TaskReport:
    best = run.tuner.best_seconds
    found = best if best < float("inf") else None
    reason = run.reason or stop_reason(run.standing(), options.least_gain) or "the budget ended"
    return TaskReport(run.task, run.default_s, found, run.tuner.best, run.trials, run.tuner.failures, reason)
