"""Decides which kernels are too small for a parallel region. Every rule uses it.

    divided("C", "i.0", op, lanes, target)              (Parallel("C", "i.0"),); () if one thread is as fast
    divided_as_one("C", ("i", "j"), op, lanes, target)  (Fuse(i, j), Parallel("C", "(i*j)")), or ()
    is_worth_cutting(cycles(op, lanes, target), target) whether a sum is faster in parts, then added

Starting a team and waiting for it takes `Cpu.region` cycles of a core, for every kernel. A second thread
saves at most half of a kernel's time. So a kernel with less than twice as many cycles runs on the calling
thread. The estimate of a kernel's cycles is a lower bound: one vector operation per cycle, or the bytes that
move at the rate of the second cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.target import Target
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.cpu import cpu_of
from schedules.kit.shared_steps import fused
from schedules.kit.stage_analysis import is_expensive


def divided(stage: str, loop: str, op: StageOp, lanes: int, target: Target) -> tuple[Step, ...]:
    """Makes `loop` of `stage` parallel if the work of `op`, which is done inside, is worth a region."""
    return (Parallel(stage, loop),) if is_worth_a_region(cycles(op, lanes, target), target) else ()


def divided_as_one(
    stage: str, loops: Sequence[str], op: StageOp, lanes: int, target: Target
) -> tuple[Step, ...]:
    """Like `divided`, for neighbouring loops, which are fused into one loop."""
    steps, outer = fused(stage, loops)
    parallel = divided(stage, outer, op, lanes, target)
    return (*steps, *parallel) if parallel else ()


def is_worth_a_region(work: float, target: Target) -> bool:
    """Whether a team is faster than one core for this many cycles.

    >>> zen4 = Target.parse("llvm -mcpu=znver4")
    >>> is_worth_a_region(5_000, zen4), is_worth_a_region(4_999, zen4)
    (True, False)
    """
    return work >= 2 * cpu_of(target).region


def is_worth_cutting(work: float, target: Target) -> bool:
    """Whether a reduction that takes one core this many cycles is faster in parts on all cores."""
    cpu = cpu_of(target)
    return work >= 2 * (cpu.region + cpu.join)


def cycles(op: StageOp, lanes: int, target: Target) -> float:
    """Cycles on one core: of the operations in vectors of `lanes`, or of reads and writes if these take
    longer."""
    cpu = cpu_of(target)
    operations = op.points() / lanes * (cpu.called if is_expensive(op) else 1.0)
    arrays = (*op.reads(), *op.buffers)
    touched = (min(b.bytes, op.points() * b.dtype.bytes) for b in arrays)  # the read part of a table
    return max(operations, sum(touched) / cpu.l2_rate)
