"""Which task gets the next batch of trials: the one from which the whole model can still gain most.

Every task first gets one batch. Then the gain of a batch is estimated as weight × seconds × share, where the
share is what recent batches of the task brought (decaying while they bring nothing) but at most what the
roofline leaves.
Source: the idea of Ansor's gradient scheduler (Zheng et al., OSDI 2020, section 6), with a roofline bound
instead of similarity between tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotensor.search.task import Task

HOPE = 0.25  # share of its time that an untuned task may still save, before anything is known
DECAY = 0.5  # of that hope, per batch that brought nothing
DEAD = 3  # batches without one candidate that works
CLOSE = 1.03  # a task this close to its lower bound is finished
NEAR_LIMIT = "within 3 % of the machine's limit"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a task stands."""

    task: Task
    best_s: float
    bound_s: float  # nothing can be faster (roofline)
    batches: int
    last_gains: tuple[float, ...]  # relative improvement of every batch so far
    exhausted: bool

    @property
    def share(self) -> float:
        """Estimated relative gain of one more batch."""
        hope = HOPE
        for gain in self.last_gains[1:]:
            hope = max(gain, hope * DECAY)
        left = max(0.0, 1.0 - self.bound_s / self.best_s) if self.best_s < float("inf") else 1.0
        return min(hope, left)

    @property
    def gain_s(self) -> float:
        """Seconds of the whole model that one more batch may save."""
        if self.best_s == float("inf"):
            return 0.0 if self.batches >= DEAD else float("inf")
        return self.task.weight * self.best_s * self.share


def stop_reason(s: Standing, least_gain: float) -> str | None:
    """Why a task gets no more trials; None when it may have some.

    least_gain: share of its time that a batch must promise; negative: hope alone is no reason to stop.
    """
    if s.exhausted:
        return "all candidates were measured"
    if s.batches >= DEAD and s.best_s == float("inf"):
        return "nothing that was measured works"
    if least_gain < 0:
        return None
    if s.batches >= 1 and s.best_s <= CLOSE * s.bound_s:
        return NEAR_LIMIT
    if s.batches >= 3 and s.share < least_gain:
        return "recent trials brought nothing"
    return None


def choose(standings: Sequence[Standing], least_gain: float) -> Standing | None:
    """The task to measure next; None when all are finished. New tasks come first, heaviest first."""
    open_ = [s for s in standings if stop_reason(s, least_gain) is None]
    fresh = [s for s in open_ if s.batches == 0]
    if fresh:
        return fresh[0]
    return max(open_, key=lambda s: s.gain_s, default=None)
