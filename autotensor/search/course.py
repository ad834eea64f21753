"""One task of a run, as the loop keeps its books: what its batches came to, and which are in flight."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from autotensor.search.final_race import Final
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.propose.allocation import Standing, seconds_of
from autotensor.search.propose.phases import relative_gain
from autotensor.search.propose.policy import Policy
from autotensor.search.propose.stopping import Outlook
from autotensor.search.task import Candidate, Task
from tuning_db.records import Status, TrialRecord


@dataclass(slots=True)
class Course:
    """Mutable bookkeeping of one task."""

    task: Task
    tuner: Policy
    bound_s: float
    limit: float  # nothing comes to less by the run's metric, as far as that is known
    default_s: float | None = None
    batches: int = 0
    trials: int = 0
    failures: int = 0
    rejected: int = 0
    gains: list[float] = field(default_factory=list)
    seconds: float = 0.0  # that its batches took
    outlook: Outlook | None = None
    ended: str = ""  # why it cannot go on, whatever its standing
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
        """Counts a batch; `before` is the best time before it. Rejected candidates were not measured."""
        self.seconds += seconds_of([r.build_s for r in rows], [r.median_s for r in rows])
        ran = [r.status for r in rows if r.status is not Status.REJECTED]
        self.batches += 1
        self.trials += len(ran)
        self.failures += len(ran) - ran.count(Status.OK)
        self.rejected += len(rows) - len(ran)
        self.gains.append(relative_gain(before, self.tuner.best_seconds))

    def expected_s(self) -> float:
        """Seconds of all its runs in one inference: measured, else expected."""
        best = self.tuner.best_seconds
        if best < float("inf"):
            return self.task.weight * best
        return self.task.seconds if self.task.seconds is not None else self.task.weight * self.bound_s


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch that was submitted and has no results yet."""

    course: Course
    batch: Sequence[Candidate]
    answer: Future[list[MeasureResult]]
    began: float  # seconds of time.perf_counter


@dataclass(frozen=True, slots=True)
class Known:
    """A batch that was in flight when an earlier part of the run ended, and that the log has an answer to."""

    course: Course
    batch: Sequence[TrialRecord]


def measured(rows: Sequence[TrialRecord]) -> int:
    """How many were measured; what was rejected was not."""
    return sum(r.status is not Status.REJECTED for r in rows)
