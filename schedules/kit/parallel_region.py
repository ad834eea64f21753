"""Which kernels are too small for a parallel region, and what a region costs: asked by every rule.

    divided("C", "i.0", op, lanes)              (Parallel("C", "i.0"),), or () where one thread is as fast
    divided_as_one("C", ("i", "j"), op, lanes)  (Fuse(i, j), Parallel("C", "(i*j)")), or ()
    is_worth_cutting(cycles(op, lanes))         whether a sum is sooner done in parts, which are then added

To start a team and to meet again takes REGION cycles of a core, whatever the kernel. A second thread saves at
most half of a kernel's time: one of less than twice as many cycles stays with the thread that called. They
are estimated from below: a vector operation a cycle, or the bytes that move at the second cache's rate.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.kit.analysis import is_expensive
from schedules.kit.shared_steps import fused

# 0.7 us: libgomp's region of two threads. Our own pool's takes less, but what one core wrote the other has
# to fetch: small_cnn, whose kernels have up to 4,600 cycles, takes both cores longer than one. Alone, with
# the pool, sums of 8192 elements take two threads 0.6 us after 0.9, a 3x3 of 4x4x32 1.1 after 1.8. The
# calibration measures regions, too, but schedules do not depend on it: a workload has the same default on all
# machines of a kind (Zen 4, 3.5 GHz, 2026-11)
REGION = 2_500
# 0.7 us as well: to fetch the sums that another core has written and to add them. Products of 1 to 6 rows and
# 32 or 64 columns in two parts take longer than whole ones up to 6,000 cycles, less from 11,000 (1.1 to 1.2 x
# as fast; at 22,000 1.5 x); sums of numbers likewise (libgomp, Zen 4, 2026-11)
JOIN = REGION
L2_RATE = 24.0  # bytes a cycle, of one core (Zen 4, 2026-11)
CALLED = 8.0  # operations that a function of a number (tanh) counts for


def divided(stage: str, loop: str, op: StageOp, lanes: int) -> tuple[Step, ...]:
    """`loop` of `stage` in parallel, if the work of `op`, which is done inside, is worth a region."""
    return (Parallel(stage, loop),) if is_worth_a_region(cycles(op, lanes)) else ()


def divided_as_one(stage: str, loops: Sequence[str], op: StageOp, lanes: int) -> tuple[Step, ...]:
    """The same for neighbouring loops, which become one for it."""
    steps, outer = fused(stage, loops)
    parallel = divided(stage, outer, op, lanes)
    return (*steps, *parallel) if parallel else ()


def is_worth_a_region(work: float) -> bool:
    """Whether so many cycles of one core are done sooner by a team.

    >>> is_worth_a_region(2 * REGION), is_worth_a_region(REGION)
    (True, False)
    """
    return work >= 2 * REGION


def is_worth_cutting(work: float) -> bool:
    """Whether a reduction that keeps one core busy for so many cycles is sooner done in parts by all.

    >>> is_worth_cutting(4 * REGION), is_worth_cutting(3 * REGION)
    (True, False)
    """
    return work >= 2 * (REGION + JOIN)


def cycles(op: StageOp, lanes: int) -> float:
    """Of one core: its operations in vectors of `lanes`, or what it reads and writes if that takes longer."""
    operations = op.points() / lanes * (CALLED if is_expensive(op) else 1.0)
    arrays = (*op.reads(), *op.buffers)
    touched = (min(b.bytes, op.points() * b.dtype.bytes) for b in arrays)  # tables in part
    return max(operations, sum(touched) / L2_RATE)
