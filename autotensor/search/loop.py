"""A tuning run: tasks in, best schedules out. Only this module connects proposer, measurer and log.

    choose task ─▶ tuner.ask ─▶ journal.begin ─▶ submit ─▶ journal.finish ─▶ tuner.tell ─▶ …
         └─ no more trials for this task ─▶ final race: its best and its default, side by side

A measurer may work on batches of several tasks at once (`flights`). Their results reach the tuners in the
order in which the batches were submitted, in whatever order they are ready. So the next batch depends only on
results, never on clocks.

The log stores every trial before the search learns from it. A run that was killed reads its rounds back from
the log, in their order, and then continues as if it had not been killed. The last rounds may have been in
flight together. They are put in flight again, with their answers ready.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotensor.base import log
from autotensor.base.counted import counted
from autotensor.base.doors import inside, name_of
from autotensor.base.errors import InputError, MeasureError
from autotensor.base.target import Target
from autotensor.resolve import median_s
from autotensor.schedule.sketch import Sketch
from autotensor.search.doors import MODELS, POLICIES, ModelFactory
from autotensor.search.effort import BATCHES_SPENT, COVERED, EFFORT_SPENT, too_little
from autotensor.search.events import Improved, Raced, Resumed, RoundDone, TaskDone
from autotensor.search.final_race import final_race
from autotensor.search.journal import (
    ALL_FINISHED,
    Journal,
    Proposed,
    decisions_of,
    opened_journal,
    retell,
    run_key,
)
from autotensor.search.knowledge import recall
from autotensor.search.machine.lease import WorkedOn
from autotensor.search.measuring.measure_request import (
    Measurer,
    OutOfTime,
    batches_at_once,
    workers_of,
)
from autotensor.search.metric import checked_metric, figure_of
from autotensor.search.propose.allocation import (
    CLOSE,
    NEAR_LIMIT,
    TOO_LITTLE,
    choose,
    stop_reason,
)
from autotensor.search.propose.policy import Policy
from autotensor.search.propose.stopping import Outlook
from autotensor.search.report import (
    FINISHED_BEFORE,
    LATE,
    NOTHING_LEFT,
    RACED_SLOWER,
    SPENT,
    TaskReport,
    TuneReport,
    finished_before,
    untouched,
)
from autotensor.search.run import TuningRun
from autotensor.search.run_identity import final_reasons, key_options
from autotensor.search.score.cost_model import CostModel
from autotensor.search.score.roofline import lower_bound
from autotensor.search.shipped_knowledge import with_shipped
from autotensor.search.stopwatch import Stopwatch
from autotensor.search.task import Candidate, Task, merge
from autotensor.search.underway.course import Course, Flight, Known, measured
from autotensor.search.underway.flights import Flights
from autotensor.search.underway.pace import Pace
from schedules.generate import generate
from schedules.prior.rates import Rates
from tuning_db.records import TrialRecord

RACE_S = 0.8  # rough seconds of a final race without its timing
RACES_SHARE = 0.2  # largest share of the deadline that is kept for the final races
# in a fleet: the most batches of a task that are proposed at once; and the fewest rounds that a task keeps
MOST_TOGETHER, LEAST_ROUNDS = 4, 8
FEWEST_EACH = 4  # trials of a task, on average, for which a search is worth its name: the default and three
LEAST_RACE_S = 0.2  # least seconds of timing, because a shorter race decides nothing


def tune(run: TuningRun, measurer: Measurer, rates: Rates) -> TuneReport:
    """Measures candidates of all tasks until the budget, the deadline or the tasks end.

    If another process works on the same run, this one waits, and continues where the other ended. A task
    whose reference cannot be built or run is left out, and its report says why. Raises MeasureError when all
    tasks are left out, and InputError for an unusable cost model or policy.
    """
    rates = replace(rates, warm_weights=run.residency == "hot")
    loop = _Loop(run, measurer, rates)
    try:
        with opened_journal(run, loop.key, rates) as journal:
            return loop.run(journal)
    except WorkedOn as other:
        return untouched(run.tasks, f"{other.what} works on the same run")


class _Loop:
    """One call of `tune`."""

    def __init__(self, asked: TuningRun, measurer: Measurer, rates: Rates) -> None:
        self.asked, self.options, self.measurer, self.rates = asked, asked.options, measurer, rates
        self.say, self.stopped, self.deadline = asked.listener, asked.stopped, asked.deadline
        self.started, self.watch = time.monotonic(), Stopwatch()
        options, merged = asked.options, merge(asked.tasks)
        target = merged[0].target
        self.metric = checked_metric(options.metric)
        self.policy = POLICIES.get(options.proposer)
        self.warm = options.warm_start and self.policy.warm
        self.model = made_model(options.model, options.seed, target if self.warm else None)
        identity = key_options(options, target, asked.residency, asked.code)
        self.key = run_key(merged, target.key(), identity, options.seed)
        self.journal: Journal  # exists while the loop runs
        self.runs = [self._course(t) for t in merged]
        self.trials = 0
        self.late = False  # whether the deadline is too near for another batch
        self.depth = batches_at_once(measurer)
        if hasattr(self.model, "rows_in_flight"):
            self.model.rows_in_flight = options.batch * min(self.depth, len(merged) * self._together())
        self.flights: Flights  # exists while the loop runs
        self.landed = 0.0  # time.perf_counter when the last results reached their tuner
        self.pace = Pace()
        self._leave_light()

    def _course(self, task: Task) -> Course:
        tuner = self._tuner(task)
        cold = self.asked.residency == "graph"
        bound_s = lower_bound(task, self.rates, cold=cold, sketches=tuner.sketches)
        # a bound from guessed rates may be wrong, so it must not end a task
        holds = self.metric is median_s and not self.rates.guessed
        return Course(task, tuner, bound_s, bound_s if holds else 0.0)

    def _tuner(self, task: Task) -> Policy:
        """The proposer of a task. It begins with the tuned records that are shipped with the package."""
        sketches: tuple[Sketch, ...] = generate(task.workload.dag, task.target)
        seeds: tuple[Candidate, ...] = ()
        if self.warm:
            sketches, seeds = with_shipped(task, sketches)
        with inside("search policy", self.policy, "while it is made"):
            tuner = self.policy(task, self.model, self.rates, seed=self.options.seed, sketches=sketches)
            tuner.suggest(seeds)
        return tuner

    def _outlook(self, run: Course) -> Outlook | None:
        """The gain that the policy still expects. Raises InputError for anything else."""
        with inside("search policy", self.policy, "in outlook"):
            found = run.tuner.outlook(self.options.batch)
        if not isinstance(found, Outlook | None):
            raise InputError(
                f"search policy {name_of(self.policy)!r} has the outlook {found!r}.",
                fix="outlook must give an Outlook of search/propose/stopping.py, or None.",
            )
        return found

    def _leave_light(self) -> None:
        """Ends the tasks that the effort leaves out. Together they take a small share of the model's time."""
        expected = [(r.expected_s(), r) for r in self.runs]
        left_s = (1.0 - self.options.means.coverage) * sum(s for s, _ in expected)
        for seconds, run in sorted(expected[1:], key=lambda e: e[0]):  # the heaviest task is never left out
            left_s -= seconds
            if left_s < 0.0:
                return
            run.ended = COVERED

    def run(self, journal: Journal) -> TuneReport:
        self.journal = journal
        self.flights = Flights(journal, self.measurer, self.watch, min(self.depth, len(self.runs)))
        with self.watch("search"):
            if self.warm and self.model.learns:
                self._recall()
            reused = self._resume()
        if reused:
            self.say(Resumed(reused))
        active = sum(not r.ended for r in self.runs)
        if self.options.limit_s is None:
            self._advise(active)
        while not (reason := self._over()):
            self._fill()
            if self.flights:
                self._land(self.flights.next())
            elif not self.late:
                reason = self._why_finished()
                break
        self.flights.cancel()
        while self.flights:
            self._land(self.flights.next())
        if not self.stopped():
            for run in sorted(self.runs, key=Course.expected_s, reverse=True):
                self._race(run)
        # a deadline may end the run before the trials
        if reason == SPENT and self.options.limit_s is not None:
            self._advise(active)
        before = self.journal.earlier_ends()
        reports = tuple(self._report(r, reason, before) for r in self.runs)
        self.journal.end(reason, {r.task.workload.key: r.reason for r in reports})
        elapsed = time.monotonic() - self.started
        return TuneReport(reports, self.trials, reused, elapsed, reason, self.watch.seconds)

    def _recall(self) -> None:
        """Teaches the model the log's trials. Tasks begin with candidates that were fast elsewhere."""
        target = self.runs[0].task.target
        known = recall(self.journal, target)
        known.teach(self.model, target, self.rates, [r.tuner for r in self.runs], self.metric)
        for run in self.runs:
            run.tuner.suggest(known.seeds(run.tuner))

    def _advise(self, tasks: int) -> None:
        """Warns of a budget that is spent almost wholly on the tasks' defaults."""
        trials = self.options.trials
        if tasks > 1 and trials < FEWEST_EACH * tasks:
            log.warn(
                f"{counted(trials, 'trial')} for {tasks} tasks are few: each task first times its default "
                f"schedule. {tasks * self.options.batch} trials are a batch for each; effort quick tunes "
                "only the heaviest tasks."
            )

    def _over(self) -> str:
        """The reason why the whole run ends; "" while it continues."""
        if self.trials >= self.options.trials:
            return SPENT
        if self.late or self._left_s() <= 0.0:
            return LATE
        return "it was stopped" if self.stopped() else ""

    def _left_s(self) -> float:
        """Seconds until the deadline, without the seconds that are kept for the coming final races."""
        each = RACE_S + self.options.means.race_s
        open_races = sum(not r.raced and r.trials > 1 for r in self.runs)
        return self.deadline.left_s() - min(RACES_SHARE * self.deadline.given_s, each * open_races)

    def _reason(self, run: Course) -> str:
        """The reason why a task gets no more trials; "" while it may get some."""
        batches = self.options.means.batches
        if not run.ended and batches is not None and run.batches >= batches:
            return BATCHES_SPENT
        return run.ended or stop_reason(run.standing(), self._least_s()) or ""

    def _why_finished(self) -> str:
        """The reason why no task is left."""
        reasons = {self._reason(r) for r in self.runs}
        if FINISHED_BEFORE in reasons:  # this effort has finished the task; a greater effort would continue
            return self.journal.ended_before
        if reasons & {COVERED, BATCHES_SPENT}:
            return EFFORT_SPENT
        return too_little(self.options.least_gain) if TOO_LITTLE in reasons else ALL_FINISHED

    def _least_s(self) -> float:
        """The least seconds that the next batch must be expected to save. If negative, no task ends for this
        reason."""
        if not self.options.patience:
            return -1.0
        return self.options.least_gain * sum(map(Course.expected_s, self.runs))

    def _fill(self) -> None:
        """Submits batches until the measurer takes no more, or until no other task is open."""
        while True:
            self._finish_tasks()
            run = self._next()
            if run is None:
                return
            self._launch(run)

    def _next(self) -> Course | None:
        """The task whose batch is submitted next; None if enough are in flight, or no task is open."""
        if self.late or len(self.flights) >= self.depth or self._trials_left() <= 0:
            return None
        open_ = [r for r in self.runs if not self._flies(r) and not self._reason(r)]
        found = choose([r.standing() for r in open_], self._least_s())
        return None if found is None else next(r for r in open_ if r.task is found.task)

    def _flies(self, run: Course) -> bool:
        return self.flights.flies(run)

    def _trials_left(self) -> int:
        """Trials of the budget that are neither done nor in flight."""
        return self.options.trials - self.trials - self.flights.trials

    def _finish_tasks(self) -> None:
        """Reports the finished tasks, and races them."""
        for run in self.runs:
            if self._flies(run):
                continue
            reason = self._reason(run)
            if reason and not run.announced:
                run.announced = True
                self.say(TaskDone(run.task, reason))
                self._race(run)

    # -- one batch ------------------------------------------------------------------------------------------

    def _batch_size(self, run: Course) -> int:
        """The batch size of the options; a smaller one when the deadline is near, and 0 when it is too near.

        The first batch gets at most an equal share of the budget, so that every task can time its default.
        """
        most = self.options.batch * self._together()
        if not run.batches:
            most = min(most, max(1, self.options.trials // len(self.runs)))
        wanted = min(most, self._trials_left())
        left_s = self._left_s() - self._ahead_s()
        return self.pace.fitting(first=not run.batches, left_s=left_s, wanted=wanted)

    def _together(self) -> int:
        """The number of a task's batches that are proposed at once, so that all workers of a fleet have
        one."""
        if workers_of(self.measurer) == 1:
            return 1
        each = self.options.trials // len(self.runs)  # trials
        open_ = sum(not r.announced for r in self.runs)
        return max(1, min(self.depth // open_, each // (LEAST_ROUNDS * self.options.batch), MOST_TOGETHER))

    def _ahead_s(self) -> float:
        """Seconds of work that the measurer must do before it begins a batch submitted now."""
        ahead = [(not f.course.batches, f.size) for f in self.flights.ahead()]
        return sum(self.pace.seconds(first=first, trials=n) for first, n in ahead)

    def _launch(self, run: Course) -> None:
        """Submits a batch of a task."""
        began = time.perf_counter()
        with self.watch("search"):
            size = self._batch_size(run)
            batch = run.tuner.ask(size) if size else []
        if not batch:
            self.late = not size
            run.ended = NOTHING_LEFT if size else run.ended
            return
        self.flights.add(Flight(run, Proposed(run.task, run.batches, batch), began))

    def _land(self, flight: Flight | Known) -> None:
        """Hands the results of a batch to the task's tuner."""
        run = flight.course
        if isinstance(flight, Known):
            self._retell(run, flight.rows)
            run.outlook = self._outlook(run)
            return
        if flight.rows is None:
            self._failed(flight)
            return
        batch, rows = flight.batch.candidates, flight.rows
        before = run.tuner.best_seconds
        seconds = [figure_of(r, self.metric) for r in rows]
        with self.watch("search"):
            with inside("search policy", self.policy, "in tell"):
                run.tuner.tell(batch, seconds)
            self._learn(run, before, rows)
            run.outlook = self._outlook(run)
        now = time.perf_counter()
        took = now - max(flight.began, self.landed)  # before `landed`, the measurer worked on another batch
        self.landed = now
        self.pace.count(first=run.batches == 1, trials=len(batch), seconds=took)
        if run.tuner.best is not None and run.tuner.best_seconds < before:
            self.say(Improved(run.task, run.tuner.best, run.tuner.best_seconds))
        self.say(
            RoundDone(
                run.task,
                tuple(batch),
                tuple(seconds),
                tuple(r.status.value for r in rows),
                run.tuner.best_seconds,
                run.default_s,
                self.trials,
                self.options.trials,
                sum(r.failures for r in self.runs),
                time.monotonic() - self.started,
            )
        )

    def _failed(self, flight: Flight) -> None:
        """Removes a batch that could not be measured from the log."""
        run = flight.course
        try:
            flight.results()
        except MeasureError as error:
            self.journal.forget(flight.batch.candidates)
            if isinstance(error, OutOfTime):
                self.late = True
                return
            run.ended = error.what
            if all(r.ended and not r.trials for r in self.runs):
                self.journal.end(error.what)
                raise

    def _learn(self, run: Course, before: float, rows: Sequence[TrialRecord]) -> None:
        """Counts a batch whose results the tuner has. `before` is the best time before the batch."""
        if rows[0].made_by == "default":
            run.default_s = figure_of(rows[0], self.metric)
        run.count(before, rows)
        self.trials = sum(r.trials for r in self.runs)

    def _race(self, run: Course) -> None:
        """The final race of a task, held once: shorter when the deadline is near, none when it is too
        near."""
        left_s = self.deadline.left_s() - self._ahead_s() - RACE_S
        timing_s = min(self.options.means.race_s, left_s)
        if run.raced or not run.trials or timing_s < LEAST_RACE_S:
            return
        run.raced = True
        self.flights.depart()  # other batches are measured during the race
        default = run.tuner.default().trace.hash
        try:
            with self.watch("race"):
                run.final = final_race(run.task, default, self.journal, self.measurer, timing_s, self.metric)
        except OutOfTime:
            self.late = True
        except MeasureError as error:
            run.ended = run.ended or error.what
        if run.final is not None:
            default_won = run.final.winner.trace_hash == default
            self.say(Raced(run.task, run.final.seconds, run.final.default_s, default_won))

    # -- rounds that are in the log already -----------------------------------------------------------------

    def _resume(self) -> int:
        """Gives this session's earlier rounds to the tuners, in their order. Returns the number of trials."""
        self.journal.bury()
        by_task = {(r.task.workload.key, r.task.target.key()): r for r in self.runs}
        found: dict[tuple[str, str, int], list[TrialRecord]] = {}
        for row in self.journal.store.trials(session=self.journal.session.id):
            if (row.workload, row.target) in by_task:
                found.setdefault((row.workload, row.target, row.round or 0), []).append(row)
        rounds = [(by_task[place[:2]], rows) for place, rows in found.items()]
        ran = sum(measured(rows) for _, rows in rounds)
        flying = self._flying(rounds)
        told = rounds[: len(rounds) - flying]
        last = {id(run): rows for run, rows in told} if ran < self.options.trials else {}
        for run, rows in told:
            self._retell(run, rows)
            if not run.ended and last.get(id(run)) is rows:
                # computed here, as in the run that was killed, because the model learns further rows later
                run.outlook = self._outlook(run)
        self.flights.add_known(Known(run, rows) for run, rows in rounds[len(told) :])
        return ran

    def _flying(self, rounds: Sequence[tuple[Course, Sequence[TrialRecord]]]) -> int:
        """The number of last rounds that may have been in flight when the run was killed."""
        tasks: list[Course] = []
        for run, _ in reversed(rounds):
            if len(tasks) + 1 >= self.depth or any(run is t for t in tasks):
                break
            tasks.append(run)
        return len(tasks)

    def _retell(self, run: Course, rows: Sequence[TrialRecord]) -> None:
        """Gives the trials of one round, read from the log, to the task's tuner."""
        before = run.tuner.best_seconds
        retell(run.tuner, rows, self.metric)
        run.tuner.skip_round()
        self._learn(run, before, rows)
        if (
            rows[0].made_by == "default"
            and rows[0].trace_hash == run.tuner.default().trace.hash
            and self.journal.ended_before in final_reasons(self.options)
        ):
            run.ended = FINISHED_BEFORE  # the same rules have finished the task; new rates do not reopen it

    def _report(self, run: Course, end: str, before: Mapping[str, str]) -> TaskReport:
        """The report of a task. end: why the whole run ended; before: why tasks ended in an earlier run."""
        best = run.tuner.best_seconds
        best_s = best if best < float("inf") else None
        best_candidate, default_s = run.tuner.best, run.default_s
        if run.final is not None:
            winner = run.final.winner
            best_s, default_s = run.final.seconds, run.final.default_s
            best_candidate = run.tuner.candidate(winner.sketch_hash, decisions_of(winner), winner.made_by)
        reason = self._reason(run) or end
        raced = run.final is not None
        if reason == NEAR_LIMIT and (best_s is None or best_s > CLOSE * run.bound_s):
            reason = RACED_SLOWER
        if reason == FINISHED_BEFORE:
            reason = finished_before(before.get(run.task.workload.key))
        return TaskReport(
            run.task, default_s, best_s, best_candidate, run.trials, run.failures, reason, raced, run.rejected
        )


def made_model(model: str | ModelFactory, seed: int, target: Target | None) -> CostModel:
    """A cost model by name, or from a factory. Raises InputError for a model that cannot predict and learn.

    target: the model may begin with the ensemble that is shipped for this target. None: it begins empty.
    """
    factory = MODELS.get(model)
    with inside("cost model", factory, "while it is made"):
        made = factory(seed, target)
    if not isinstance(made, CostModel):
        lacking = [name for name in ("predict", "learn", "learns") if not hasattr(made, name)]
        raise InputError(
            f"cost model {name_of(model)!r} gives {made!r}, which lacks {' and '.join(lacking)}.",
            fix="docs/extend.md shows one.",
        )
    return made
