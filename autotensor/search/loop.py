"""A tuning run: tasks in, best schedules out. The only place that ties proposer, measurer and log together.

    choose task ─▶ tuner.ask ─▶ journal.begin ─▶ submit ─▶ journal.finish ─▶ tuner.tell ─▶ …
         └─ no more trials for this task ─▶ final race: its best and its default, side by side

A measurer may work on batches of several tasks at once (`in_flight`). Their answers are told in the order in
which they were asked for, however soon they come: what is asked next depends on what was told, not on clocks.

Trials are acknowledged by the log before the search learns of them; a run that was killed is told what the
log knows, round by round in the order in which it happened, and then continues as if it had not been killed:
the last rounds that may have been in flight together are in flight again, and have been answered.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from autotensor.base.doors import name_of
from autotensor.base.errors import InputError, MeasureError
from autotensor.base.target import Target
from autotensor.resolve import median_s
from autotensor.schedule.sketch import Sketch
from autotensor.search.course import Course, Flight, Known, measured
from autotensor.search.doors import MODELS, POLICIES, ModelFactory
from autotensor.search.effort import BATCHES_SPENT, COVERED, EFFORT_SPENT, too_little
from autotensor.search.events import Improved, Raced, Resumed, RoundDone, TaskDone
from autotensor.search.final_race import final_race
from autotensor.search.journal import ALL_FINISHED, Journal, decisions_of, opened_journal, retell, run_key
from autotensor.search.knowledge import recall
from autotensor.search.machine.lease import WorkedOn
from autotensor.search.measuring.measure_request import (
    Measurer,
    MeasureResult,
    OutOfTime,
    batches_at_once,
)
from autotensor.search.metric import checked_metric, figure_of
from autotensor.search.pace import Pace
from autotensor.search.propose.allocation import (
    CLOSE,
    NEAR_LIMIT,
    TOO_LITTLE,
    choose,
    stop_reason,
)
from autotensor.search.propose.policy import Policy
from autotensor.search.report import (
    FINISHED_BEFORE,
    LATE,
    NOTHING_LEFT,
    RACED_SLOWER,
    SPENT,
    TaskReport,
    TuneReport,
    untouched,
)
from autotensor.search.run import TuningRun
from autotensor.search.run_identity import final_reasons, key_options
from autotensor.search.score.cost_model import CostModel
from autotensor.search.score.prior import Rates
from autotensor.search.score.roofline import lower_bound
from autotensor.search.shipped_knowledge import with_shipped
from autotensor.search.stopwatch import Stopwatch
from autotensor.search.task import Candidate, Task, merge
from schedules.generate import generate
from tuning_db.records import TrialRecord

# what a final race takes besides its timing, roughly; with it, so much is kept of a deadline for each, this
# share of it at most
RACE_S = 0.8
RACES_SHARE = 0.2
LEAST_RACE_S = 0.2  # of timing: what is shorter decides nothing


def tune(run: TuningRun, measurer: Measurer, rates: Rates) -> TuneReport:
    """Measures candidates of all tasks until the budget, the deadline or the tasks end.

    While another process works on the same run, it is waited for, and continued where that one ended. Tasks
    whose reference cannot be built or run are left out, with the reason in their report. Raises
    MeasureError when that is so of all of them, InputError for a cost model or a policy that is none.
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
        self.journal: Journal  # while it runs
        self.runs = [self._course(t) for t in merged]
        self.trials = 0
        self.late = False  # the deadline is too near for another batch
        self.depth = batches_at_once(measurer)
        if hasattr(self.model, "rows_in_flight"):
            self.model.rows_in_flight = options.batch * min(self.depth, len(merged))
        self.flights: deque[Flight | Known] = deque()  # of different tasks, in the order of asking
        self.landed = 0.0  # when the last one was told, of time.perf_counter
        self.pace = Pace()
        self._leave_light()

    def _course(self, task: Task) -> Course:
        tuner = self._tuner(task)
        cold = self.asked.residency == "graph"
        bound_s = lower_bound(task, self.rates, cold=cold, sketches=tuner.sketches)
        # a bound by rates that nobody measured may lie above what the machine does: nothing stops there
        holds = self.metric is median_s and not self.rates.guessed
        return Course(task, tuner, bound_s, bound_s if holds else 0.0)

    def _tuner(self, task: Task) -> Policy:
        """The proposer of a task, which begins with what comes with the package."""
        sketches: tuple[Sketch, ...] = generate(task.workload.dag, task.target)
        seeds: tuple[Candidate, ...] = ()
        if self.warm:
            sketches, seeds = with_shipped(task, sketches)
        tuner = self.policy(task, self.model, self.rates, seed=self.options.seed, sketches=sketches)
        tuner.suggest(seeds)
        return tuner

    def _leave_light(self) -> None:
        """Ends the tasks that the effort does not cover: together they are a small share of the whole."""
        expected = [(r.expected_s(), r) for r in self.runs]
        left_s = (1.0 - self.options.means.coverage) * sum(s for s, _ in expected)
        for seconds, run in sorted(expected[1:], key=lambda e: e[0]):  # the heaviest is never left
            left_s -= seconds
            if left_s < 0.0:
                return
            run.ended = COVERED

    def run(self, journal: Journal) -> TuneReport:
        self.journal = journal
        with self.watch("search"):
            if self.warm and self.model.learns:
                self._recall()
            reused = self._resume()
        if reused:
            self.say(Resumed(reused))
        while not (reason := self._over()):
            self._fill()
            if self.flights:
                self._land(self.flights.popleft())
            elif not self.late:
                reason = self._why_finished()
                break
        self._land_all()
        if not self.stopped():
            for run in sorted(self.runs, key=Course.expected_s, reverse=True):
                self._race(run)
        self.journal.end(reason)
        reports = tuple(self._report(r) for r in self.runs)
        elapsed = time.monotonic() - self.started
        return TuneReport(reports, self.trials, reused, elapsed, reason, self.watch.seconds)

    def _recall(self) -> None:
        """Teaches the model what the log knows, and has each task begin with what was fast elsewhere."""
        target = self.runs[0].task.target
        known = recall(self.journal, target)
        known.teach(self.model, target, self.rates, [r.tuner for r in self.runs], self.metric)
        for run in self.runs:
            run.tuner.suggest(known.seeds(run.tuner))

    def _over(self) -> str:
        """Why the whole run ends; "" while it goes on."""
        if self.trials >= self.options.trials:
            return SPENT
        if self.late or self._left_s() <= 0.0:
            return LATE
        return "it was stopped" if self.stopped() else ""

    def _left_s(self) -> float:
        """Seconds until the deadline, less what the races that are still to be held take of it."""
        each = RACE_S + self.options.means.race_s
        open_races = sum(not r.raced and r.trials > 1 for r in self.runs)
        return self.deadline.left_s() - min(RACES_SHARE * self.deadline.given_s, each * open_races)

    def _reason(self, run: Course) -> str:
        """Why a task gets no more trials; "" while it may have some."""
        batches = self.options.means.batches
        if not run.ended and batches is not None and run.batches >= batches:
            return BATCHES_SPENT
        return run.ended or stop_reason(run.standing(), self._least_s()) or ""

    def _why_finished(self) -> str:
        """Why no task is left."""
        reasons = {self._reason(r) for r in self.runs}
        if FINISHED_BEFORE in reasons:  # by this effort: a greater one goes on
            return self.journal.ended_before
        if reasons & {COVERED, BATCHES_SPENT}:
            return EFFORT_SPENT
        return too_little(self.options.least_gain) if TOO_LITTLE in reasons else ALL_FINISHED

    def _least_s(self) -> float:
        """Seconds of the whole that a task's next batch must promise; negative: hope is no reason to stop."""
        if not self.options.patience:
            return -1.0
        return self.options.least_gain * sum(map(Course.expected_s, self.runs))

    def _fill(self) -> None:
        """Asks for batches until as many are in flight as the measurer takes, or no other task is open."""
        while True:
            self._finish_tasks()
            run = self._next()
            if run is None:
                return
            self._launch(run)

    def _next(self) -> Course | None:
        """The task that another batch is asked for now; None while enough are in flight, or none is open."""
        if self.late or len(self.flights) >= self.depth or self._trials_left() <= 0:
            return None
        open_ = [r for r in self.runs if not self._flies(r) and not self._reason(r)]
        found = choose([r.standing() for r in open_], self._least_s())
        return None if found is None else next(r for r in open_ if r.task is found.task)

    def _flies(self, run: Course) -> bool:
        return any(f.course is run for f in self.flights)

    def _trials_left(self) -> int:
        """Of the budget, when all that is in flight will have been told."""
        return self.options.trials - self.trials - sum(len(f.batch) for f in self.flights)

    def _finish_tasks(self) -> None:
        """Says which tasks are finished, and races them."""
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
        """As asked for; at first at most an equal share of the budget: every task gets its default. Less when
        the deadline is near, 0 when it is too near."""
        share = max(1, self.options.trials // len(self.runs)) if not run.batches else self.options.batch
        wanted = min(self.options.batch, share, self._trials_left())
        left_s = self._left_s() - self._ahead_s()
        return self.pace.fitting(first=not run.batches, left_s=left_s, wanted=wanted)

    def _ahead_s(self) -> float:
        """What the measurer does before it begins with what is asked now, in seconds."""
        ahead = [(not f.course.batches, len(f.batch)) for f in self.flights if isinstance(f, Flight)]
        return sum(self.pace.seconds(first=first, trials=n) for first, n in ahead)

    def _launch(self, run: Course) -> None:
        """Asks for a batch of a task."""
        began = time.perf_counter()
        with self.watch("search"):
            size = self._batch_size(run)
            batch = run.tuner.ask(size) if size else []
        if not batch:
            self.late = not size
            run.ended = NOTHING_LEFT if size else run.ended
            return
        with self.watch("log"):
            self.journal.begin(run.task, run.batches, batch)
        gated = [n for n, c in enumerate(batch) if c.made_by != "default"]  # something must run
        with self.watch("measure"):
            try:
                answer = self.measurer.submit(run.task.workload, [c.trace for c in batch], gated=gated)
            except MeasureError as error:
                answer = Future()
                answer.set_exception(error)
        self.flights.append(Flight(run, batch, answer, began))

    def _land_all(self) -> None:
        """What is still in flight when the run ends: told if it is being measured, else forgotten."""
        while self.flights:
            flight = self.flights.popleft()
            if isinstance(flight, Flight) and flight.answer.cancel():
                self.journal.forget(flight.batch)
            else:
                self._land(flight)

    def _land(self, flight: Flight | Known) -> None:
        """Tells a task what became of its batch, once that is known."""
        run = flight.course
        if isinstance(flight, Known):
            self._retell(run, flight.batch)
            run.outlook = run.tuner.outlook(self.options.batch)
            return
        batch = flight.batch
        with self.watch("measure"):
            results = self._answered(flight)
        if results is None:
            return
        with self.watch("log"):
            rows = self.journal.finish(run.task, run.batches, batch, results)
        before = run.tuner.best_seconds
        seconds = [figure_of(r, self.metric) for r in rows]
        with self.watch("search"):
            run.tuner.tell(batch, seconds)
            self._learn(run, before, rows)
            run.outlook = run.tuner.outlook(self.options.batch)
        now = time.perf_counter()
        took = now - max(flight.began, self.landed)  # before, another one was in flight, too
        self.landed = now
        self.pace.count(first=run.batches == 1, trials=len(batch), seconds=took)
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

    def _answered(self, flight: Flight) -> list[MeasureResult] | None:
        """What became of a batch; None when it could not be measured, and then the log has forgotten it."""
        run = flight.course
        try:
            return flight.answer.result()
        except MeasureError as error:
            self.journal.forget(flight.batch)
            if isinstance(error, OutOfTime):
                self.late = True
                return None
            run.ended = error.what
            if all(r.ended and not r.trials for r in self.runs):
                self.journal.end(error.what)
                raise
            return None

    def _learn(self, run: Course, before: float, rows: Sequence[TrialRecord]) -> None:
        """Counts a batch of which the proposer was told; `before` is the best time before it."""
        if rows[0].made_by == "default":
            run.default_s = figure_of(rows[0], self.metric)
        run.count(before, rows)
        self.trials = sum(r.trials for r in self.runs)

    def _race(self, run: Course) -> None:
        """The final race of a task, once; shorter when the deadline is near, none when it is too near."""
        left_s = self.deadline.left_s() - self._ahead_s() - RACE_S
        timing_s = min(self.options.means.race_s, left_s)
        if run.raced or not run.trials or timing_s < LEAST_RACE_S:
            return
        run.raced = True
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

    # -- what the log knows ---------------------------------------------------------------------------------

    def _resume(self) -> int:
        """Tells what this session measured before it ended, in the order of its rounds; gives the trials."""
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
                run.outlook = run.tuner.outlook(self.options.batch)  # now: the model goes on learning
        self.flights.extend(Known(run, rows) for run, rows in rounds[len(told) :])
        return ran

    def _flying(self, rounds: Sequence[tuple[Course, Sequence[TrialRecord]]]) -> int:
        """How many of the last rounds may not have been told when the next one was asked for."""
        tasks: list[Course] = []
        for run, _ in reversed(rounds):
            if len(tasks) + 1 >= self.depth or any(run is t for t in tasks):
                break
            tasks.append(run)
        return len(tasks)

    def _retell(self, run: Course, rows: Sequence[TrialRecord]) -> None:
        """Tells a task what the log knows of one of its rounds."""
        before = run.tuner.best_seconds
        retell(run.tuner, rows, self.metric)
        run.tuner.skip_round()
        self._learn(run, before, rows)
        if (
            rows[0].made_by == "default"
            and rows[0].trace_hash == run.tuner.default().trace.hash
            and self.journal.ended_before in final_reasons(self.options)
        ):
            run.ended = FINISHED_BEFORE  # and the rules are the same: other rates change nothing

    def _report(self, run: Course) -> TaskReport:
        best = run.tuner.best_seconds
        best_s = best if best < float("inf") else None
        best_candidate, default_s = run.tuner.best, run.default_s
        if run.final is not None:
            winner = run.final.winner
            best_s, default_s = run.final.seconds, run.final.default_s
            best_candidate = run.tuner.candidate(winner.sketch_hash, decisions_of(winner), winner.made_by)
        reason = self._reason(run) or (LATE if self._trials_left() > 0 else "the budget ended")
        raced = run.final is not None
        if reason == NEAR_LIMIT and (best_s is None or best_s > CLOSE * run.bound_s):
            reason = RACED_SLOWER
        return TaskReport(
            run.task, default_s, best_s, best_candidate, run.trials, run.failures, reason, raced, run.rejected
        )


def made_model(model: str | ModelFactory, seed: int, target: Target | None) -> CostModel:
    """A cost model by name or factory. target: for which it may begin with what is shipped; None: with
    nothing. Raises InputError for what cannot predict and learn."""
    made = MODELS.get(model)(seed, target)
    if not isinstance(made, CostModel):
        raise InputError(
            f"cost model {name_of(model)!r} gives {made!r}, which lacks predict, learn or learns.",
            fix="docs/extend.md shows one.",
        )
    return made
