"""Phases: the purpose of a task's next batch, which depends on the gains of its batches so far.

    VERIFY ──no gain──▶ DESCEND ──no gain──▶ VERIFY ──▶ …

VERIFY measures the most promising drafts, from anywhere in the space. DESCEND continues from the best
candidate so far, one small step at a time. A phase lasts while it gains. The phase depends only on results,
so a run that was killed continues in the same phase.
Source: descent as in Droplet search (Canesche et al., 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

# a batch with a smaller relative gain brought nothing: two timings of one kernel differ by this share
WORTH = 0.01
FIRST = 2  # batches of drafts before the first descent, so that the model has rows of the task


class Phase(Enum):
    VERIFY = "verify"
    DESCEND = "descend"


def phase(gains: Sequence[float]) -> Phase:
    """The phase of the next batch. gains: the relative improvement by every batch so far.

    >>> [phase((1.0, 0.2, *g)).value for g in ((), (0.0,), (0.0, 0.05), (0.0, 0.05, 0.0))]
    ['verify', 'descend', 'descend', 'verify']
    """
    now = Phase.VERIFY
    for n, gain in enumerate(gains, 1):
        if n >= FIRST and gain < WORTH:
            now = Phase.DESCEND if now is Phase.VERIFY else Phase.VERIFY
    return now


def relative_gain(before_s: float, after_s: float) -> float:
    """The decrease of a time, as a share of it. It is 1 for the first time.

    >>> relative_gain(4.0, 3.0), relative_gain(float("inf"), 3.0), relative_gain(3.0, 3.0)
    (0.25, 1.0, 0.0)
    """
    if not after_s < before_s:
        return 0.0
    return 1.0 if before_s == float("inf") else (before_s - after_s) / before_s
