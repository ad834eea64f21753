"""One task of a run with the loop's records: the results of its batches, and the batches in flight."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from autotensor.search.final_race import Final
from autotensor.search.journal import Proposed
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.propose.allocation import Standing, seconds_of
from autotensor.search.propose.phases import relative_gain
from autotensor.search.propose.policy import Policy
from autotensor.search.propose.stopping import Outlook
from autotensor.search.task import Task
from tuning_db.records import Status, TrialRecord


@dataclass(slots=True)
class Course:
    """The changing state of one task."""

    task: Task
    tuner: Policy
    bound_s: float
    limit: float  # lower bound of the run's metric, as far as it is known
    default_s: float | None = None
    batches: int = 0
    trials: int = 0
    failures: int = 0
    rejected: int = 0
    gains: list[float] = field(default_factory=list)
    seconds: float = 0.0  # seconds that the task's batches took
    outlook: Outlook | None = None
    ended: str = ""  # why it cannot continue, whatever its other state is
    announced: bool = False
    final: Final | None = None
    raced: bool = False

    def standing(self) -> Standing:
        best, gains = self.tuner.best_seconds, tuple(self.gains)
        each = self.seconds / self.batches if self.batches else 1.0
        exhausted = self.tuner.exhausted
        return Standing(
            self.task, best, self.limit, self.batches, gains, exhausted, self.outlook, max(each, 1e-3)
        )

    def count(self, before: float, rows: Sequence[TrialRecord]) -> None:
        """Counts a batch. `before` is the best time before it. Rejected candidates were not measured."""
        self.seconds += seconds_of([r.build_s for r in rows], [r.median_s for r in rows])
        ran = [r.status for r in rows if r.status is not Status.REJECTED]
        self.batches += 1
        self.trials += len(ran)
        self.failures += len(ran) - ran.count(Status.OK)
        self.rejected += len(rows) - len(ran)
        self.gains.append(relative_gain(before, self.tuner.best_seconds))

    def expected_s(self) -> float:
        """Seconds of all the task's runs in one inference: measured, else expected."""
        best = self.tuner.best_seconds
        if best < float("inf"):
            return self.task.weight * best
        return self.task.seconds if self.task.seconds is not None else self.task.weight * self.bound_s


@dataclass(slots=True, eq=False)
class Flight:
    """A batch that was proposed, and whose results have not reached the tuner."""

    course: Course
    batch: Proposed
    began: float  # seconds of time.perf_counter
    answer: Future[list[MeasureResult]] | None = None  # None: the batch is not submitted yet
    rows: Sequence[TrialRecord] | None = None  # rows of the log, if they are already written

    @property
    def size(self) -> int:
        return len(self.batch.candidates)

    @property
    def is_answered(self) -> bool:
        """Whether the batch has results that are not in the log yet."""
        a = self.answer
        return self.rows is None and a is not None and a.done() and not a.cancelled() and not a.exception()

    def results(self) -> list[MeasureResult]:
        """Waits for the results. Raises MeasureError if they could not be measured."""
        assert self.answer is not None
        return self.answer.result()


@dataclass(frozen=True, slots=True)
class Known:
    """A batch that was in flight when an earlier part of the run ended, and whose results are in the log."""

    course: Course
    rows: Sequence[TrialRecord]

    @property
    def size(self) -> int:
        return len(self.rows)


def measured(rows: Sequence[TrialRecord]) -> int:
    """The number of rows that were measured, without the rejected ones."""
    return sum(r.status is not Status.REJECTED for r in rows)
