"""Phases: what a task's next batch is for, read off what its batches brought.

    VERIFY ──nothing more──▶ DESCEND ──nothing more──▶ VERIFY ──▶ …

VERIFY measures the drafts that promise most, wherever in the space they are; DESCEND goes on from the best
that was found, one small step at a time. Either is kept up for as long as it pays, by the
results told so far, so that a run which was killed is in the same phase when it continues.
Source: descent as in Droplet search (Canesche et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

# relative gain of a batch below which it brought nothing: two timings of one kernel differ by so much
WORTH = 0.01
FIRST = 2  # batches of drafts before the first descent: the model has no rows of the task before


class Phase(Enum):
    VERIFY = "verify"
    DESCEND = "descend"


def phase(gains: Sequence[float]) -> Phase:
    """The phase of the next batch. gains: relative improvement by every batch so far.

    >>> [phase((1.0, 0.2, *g)).value for g in ((), (0.0,), (0.0, 0.05), (0.0, 0.05, 0.0))]
    ['verify', 'descend', 'descend', 'verify']
    """
    now = Phase.VERIFY
    for n, gain in enumerate(gains, 1):
        if n >= FIRST and gain < WORTH:
            now = Phase.DESCEND if now is Phase.VERIFY else Phase.VERIFY
    return now


def relative_gain(before_s: float, after_s: float) -> float:
    """By which share of it a time became shorter; 1 for the first time of all.

    >>> relative_gain(4.0, 3.0), relative_gain(float("inf"), 3.0), relative_gain(3.0, 3.0)
    (0.25, 1.0, 0.0)
    """
    if not after_s < before_s:
        return 0.0
    return 1.0 if before_s == float("inf") else (before_s - after_s) / before_s
