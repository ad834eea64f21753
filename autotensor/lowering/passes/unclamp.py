"""unclamp: indices lose the limits that the Select around their load implies.

    if_then_else(i >= 4, A[max(i - 4, 0)], 0)     ──▶     if_then_else(i >= 4, A[i - 4], 0)

In a vectorized loop, the left side is a gather. The right side is a load of neighbouring elements under a
mask, which `protect` adds.
"""

from __future__ import annotations

from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.stmt import Stmt
from autotensor.te.clamped_choices import Unclamper, has_clamped_choice


def unclamp(body: Stmt) -> Stmt:
    return Unclamper(bounds(NO_RANGES)).stmt(body) if has_clamped_choice(body) else body


__all__ = ["unclamp"]
