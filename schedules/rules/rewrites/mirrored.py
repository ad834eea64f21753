"""Symmetric reductions: both halves are computed, or one half is computed and copied to the other.

The saving grows with the number of terms, and the cost of copying the other half does not. So computing one
half comes first if there are many terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from autotensor.base.target import Target
from autotensor.ir.expr import Var
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import IterDef
from schedules.algorithms.mirrored import NAME, exchangeable
from schedules.kit.stage_analysis import read_by_choice, undecided
from schedules.registry import Extension

LEAST = 64  # least extent of the axes, so that whole tiles can be left out (chosen, 2026-11)
MANY = 32  # with so many terms, one half comes first (chosen, 2026-11)


def mirrored(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    op = stage.op
    if target.kind != "llvm" or not undecided(state, stage):
        return
    if read_by_choice(state, stage) or not op.buffers[0].dtype.is_float:
        return  # for integers, all positions are computed (`unread_points`)
    pair = exchangeable(op)
    if pair is None or pair[0].extent < LEAST or not _is_read_plainly(state, stage, pair):
        return
    half = Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,))
    both = Extension(onward=True)
    yield from (half, both) if prod(a.extent for a in op.reduce_axes) >= MANY else (both, half)


def _is_read_plainly(state: State, stage: Stage, pair: tuple[IterDef, IterDef]) -> bool:
    """Whether all readers index the two axes by two different axes of their own. At the diagonal, both halves
    would be the same read."""
    where = [n for n, a in enumerate(stage.op.axes) if a in pair]
    reads = [x for c in state.consumers(stage) for x in c.op.loads() if x.buffer in stage.op.buffers]
    across = [tuple(x.indices[n] for n in where) for x in reads]
    return all(isinstance(i, Var) and isinstance(j, Var) and i is not j for i, j in across)
