"""Stages whose results need fewer operations than they are written with, each by an algorithm of its own.

    Σ_k select(p[i], x[i, k], 0)              the condition is tested after the sum, not for every term
    f(x[i]) * y[i, j]                         f(x[i]) is computed once for all j
    Σ_k a[i, k] * a[j, k]                     one half of a symmetric result is copied from the other
    Σ_jk a[i, j] * b[j, k] * c[k, l]          factors are joined in a cheaper order
    Σ_k select(m[i, k], a[i, k] * b[k, j], 0) a is masked once, not each product

The first two save work with any loops, so there is nothing to decide. The others cost memory, and come first
where they save much; otherwise the search may try them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from math import prod

from autotensor.base.target import Target
from autotensor.ir.expr import Var
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import Root, Stage, State
from autotensor.schedule.step import Step
from autotensor.te.stage import IterDef, StageOp, distinct_operations
from schedules.algorithms import factored, invariants, late_choice, masked_operand, mirrored
from schedules.cpu import cpu_of
from schedules.kit.body_work import body_work, fused_joins
from schedules.kit.stage_analysis import is_constant, read_by_choice, undecided
from schedules.registry import Extension, in_turn
from schedules.rules.tiles.tile_cpu import tile_cpu

HALF = 64  # least extent of symmetric axes, so that whole tiles can be left out (chosen, 2026-11)
MANY = 32  # with this many terms, one half comes first (chosen, 2026-11)
SURE = 1.15  # an order comes first if the written sum costs this many times as much (chosen, 2026-11)
HOPELESS = 2.0  # an order that costs this many times as much as the cheapest one is not offered
MASKED = 8  # masking is offered if each element of an operand is in this many terms


def fewer_operations(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if not undecided(state, stage):
        return
    ways = (_late_choice,) if target.is_gpu else (_late_choice, _invariants, _mirrored, _factored, _masked)
    yield from in_turn(ways, state, stage, target)


def _late_choice(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if late_choice.late_choice(state, stage) is not None:
        yield _by(stage, late_choice.NAME)


def _invariants(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if not isinstance(stage.place, Root) or is_constant(state, stage):
        return
    if made := invariants.invariants(state, stage):
        yield Extension((UseAlgorithm(stage.name, invariants.NAME),), again=tuple(s.name for s in made))


def _mirrored(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """One half first if there are many terms: copying the other half costs the same for any number."""
    op = stage.op
    if target.kind != "llvm" or read_by_choice(state, stage) or not op.buffers[0].dtype.is_float:
        return  # for integers, all positions are computed (`unread_points`)
    pair = mirrored.exchangeable(op)
    if pair is None or pair[0].extent < HALF or not _is_read_plainly(state, stage, pair):
        return
    half, both = _by(stage, mirrored.NAME), Extension(onward=True)
    yield from (half, both) if prod(a.extent for a in op.reduce_axes) >= MANY else (both, half)


def _is_read_plainly(state: State, stage: Stage, pair: tuple[IterDef, IterDef]) -> bool:
    """Whether all readers index the two axes by two different axes of their own. At the diagonal, both halves
    would be the same read."""
    where = [n for n, a in enumerate(stage.op.axes) if a in pair]
    reads = [x for c in state.consumers(stage) for x in c.op.loads() if x.buffer in stage.op.buffers]
    across = [tuple(x.indices[n] for n in where) for x in reads]
    return all(isinstance(i, Var) and isinstance(j, Var) and i is not j for i, j in across)


def _factored(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """The cost of an order counts operations and moved elements, but not loops. So an order comes first only
    if it costs much less than the sum as it is written."""
    op = stage.op
    if op.buffers[0].dtype.is_float and target.is_strict:
        return
    found = factored.factorings(op)
    if not found:
        return
    as_written = factored.written_cost(op, _operations(op, target))
    ways = [
        (f.cost, _by(stage, name))
        for name, f in zip(factored.NAMES, found, strict=False)
        if f.cost <= min(HOPELESS * found[0].cost, SURE * as_written)
    ]
    front = [e for cost, e in ways if cost * SURE <= as_written]
    yield from front
    yield Extension(onward=True)
    yield from (e for _, e in ways if e not in front)


def _operations(op: StageOp, target: Target) -> float:
    """The operations of a term as it is written. In register tiles, values of a row or a vector are computed
    once."""
    if not op.axes:
        return distinct_operations(op.bodies[0]) + op.joins() - fused_joins(op)
    return body_work(op, op.axes[-1].name, target).both


def _masked(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """With the masked operand, a term is one operation instead of two. But the masked operand is written and
    read again, and the other operand is searched for infinities and NaN. So masking comes first if both
    operands are read often."""
    if target.kind != "llvm" or read_by_choice(state, stage):
        return
    found = masked_operand.masked(stage.op)
    if found is None:
        return
    points = [prod(a.extent for a in axes) for axes in (found.masked_axes, found.other_axes)]
    often = stage.op.points() / max(points)
    if often < MASKED:
        return
    apart, whole = _masked_apart(state, stage, target), Extension(onward=True)
    yield from (apart, whole) if often >= cpu_of(target).masked_terms else (whole, apart)


def _masked_apart(state: State, stage: Stage, target: Target) -> Extension:
    """The sum as it is written is needed only for operands that are not finite. It gets the first schedule of
    a tile that copies no operand, because a copy would be made in every call, although the sum is rarely
    computed. No measurement could show which schedule is better."""
    step = UseAlgorithm(stage.name, masked_operand.NAME)
    after = step.apply(state)
    mask, *_, each, _ = (s for s in after.stages if s.name not in state.names)
    results = (*after.dag.outputs, *each.op.buffers)  # as if it were an output, so that it has its own loops
    alone = replace(after, dag=replace(after.dag, outputs=results))
    tiles = ((tile, _filled(tile)) for tile in tile_cpu(alone, each, target))
    tile, steps = next(((t, s) for t, s in tiles if _adds_no_nest(alone, s)), (Extension(), ()))
    return Extension((step, *steps), done=tile.done, again=(stage.name,), stays=(mask.name,))


def _filled(tile: Extension) -> tuple[Step, ...]:
    """The steps of a tile with its default decisions."""
    sketch = Sketch(tile.steps, tile.holes)
    return sketch.fill(sketch.defaults()).steps


def _adds_no_nest(state: State, steps: tuple[Step, ...]) -> bool:
    """Whether every stage that the steps add is computed inside another stage."""
    after = reduce(lambda s, step: step.apply(s), steps, state)
    return not any(isinstance(s.place, Root) for s in after.stages if s.name not in state.names)


def _by(stage: Stage, algorithm: str) -> Extension:
    return Extension((UseAlgorithm(stage.name, algorithm),), again=(stage.name,))
