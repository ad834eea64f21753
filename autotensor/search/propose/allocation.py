"""The task that gets the next batch of trials: the one that promises to save most of the model's time per
second.

    promise per second = weight × seconds × expected relative gain of its next batch / seconds of that batch

First, every task gets one batch. After that, the expected gain is the mean of two estimates. One is the gain
of the task's recent batches. The other is the gain that the cost model expects from unmeasured candidates
(`stopping.Outlook`). The expected gain is at most the gain that the roofline leaves. Both estimates decay
while batches bring nothing. The time of a batch is estimated from earlier batches in the log, so a run that
was killed makes the same choices.
Source: the idea of Ansor's gradient scheduler (Zheng et al., OSDI 2020, section 6), with a roofline bound and
a model's expectation instead of similarity between tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotensor.search.propose.stopping import Outlook, confident, quiet_batches
from autotensor.search.task import Task

HOPE = 0.25  # share of its time that an untuned task may still save, if nothing is known
DECAY = 0.5  # factor on that share for each batch that brought nothing
DEAD = 3  # batches without a single candidate that works
CLOSE = 1.03  # a task is finished if its time is at most this many times its lower bound
TOO_LITTLE = "its next batch promises too little"
NEAR_LIMIT = "within 3 % of the machine's limit"
SURE = "less than 2 % is left, in all likelihood"
# seconds of a trial besides building and running; number of runs of a candidate: checks, warm-up, samples
TRIAL_S, RUNS = 0.1, 100


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a task."""

    task: Task
    best_s: float
    bound_s: float  # the roofline's lower bound of the time
    batches: int
    last_gains: tuple[float, ...]  # relative improvement of every batch so far
    exhausted: bool
    outlook: Outlook | None = None  # the model's estimate; None: the model gives none
    batch_s: float = 1.0  # seconds that a batch takes

    @property
    def share(self) -> float:
        """The estimated relative gain of one more batch."""
        hope = HOPE
        for gain in self.last_gains[1:]:
            hope = max(gain, hope * DECAY)
        if self.outlook is not None:
            hope = 0.5 * (hope + self.outlook.gain * DECAY ** quiet_batches(self.last_gains))
        left = max(0.0, 1.0 - self.bound_s / self.best_s) if self.best_s < float("inf") else 1.0
        return min(hope, left)

    @property
    def gain_s(self) -> float:
        """Seconds of the whole model that one more batch may save."""
        if self.best_s == float("inf"):
            return 0.0 if self.batches >= DEAD else float("inf")
        return self.task.weight * self.best_s * self.share

    @property
    def rate(self) -> float:
        """Seconds of the whole model that the next batch is expected to save, per second of tuning."""
        return self.gain_s / self.batch_s


def stop_reason(s: Standing, least_s: float) -> str | None:
    """The reason why a task gets no more trials; None if it may get some.

    least_s: seconds of the whole model that the next batch must promise to save. If negative, a small gain
    does not stop the task.
    """
    if s.exhausted:
        return "all candidates were measured"
    if s.batches >= DEAD and s.best_s == float("inf"):
        return "nothing that was measured works"
    if least_s < 0:
        return None
    if s.batches >= 1 and s.best_s <= CLOSE * s.bound_s:
        return NEAR_LIMIT
    if s.outlook is not None and confident(s.outlook.chance, s.last_gains):
        return SURE
    if s.batches >= 3 and s.gain_s < least_s:
        return TOO_LITTLE
    return None


def choose(standings: Sequence[Standing], least_s: float) -> Standing | None:
    """The task to measure next; None when all are finished. New tasks come first, in falling weight."""
    open_ = [s for s in standings if stop_reason(s, least_s) is None]
    fresh = [s for s in open_ if s.batches == 0]
    if fresh:
        return fresh[0]
    return max(open_, key=lambda s: s.rate, default=None)


def seconds_of(build_s: Sequence[float | None], median_s: Sequence[float | None]) -> float:
    """Estimated seconds of a batch, from the seconds for building each candidate and for running each once.

    These constants explain nine tenths of the variance of 95 batches of eight models on two cores (2026-11).
    """
    built = sum(s for s in build_s if s is not None)
    ran = sum(s for s in median_s if s is not None)
    return TRIAL_S * len(build_s) + built + RUNS * ran
