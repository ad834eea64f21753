"""Reductions with another axis last, because their operands or their readers lie across the result.

    C[y, x, d] = Σ_k A[k, y, x] * B[k, y, x + d];   M[y, x] = max_d C[y, x, d]

        ──▶   C.along[d, y, x] = Σ_k …;   M[y, x] = max_d C.along[d, y, x]         vectors of both are along x

If a reader reduces the last axis of a stage, the program does not need this order of axes. Vectors along an
axis that is not reduced need no sums over lanes, and a short reduced axis would not fill vectors. A pointwise
stage in between gets the new order, too. A stage keeps its order if its operands do not lie along the new
last axis. It also keeps its order if its sums are computed inside the reader's loops, one after another
(`nested_sums`); this works for any order.

A product whose result lies across its operands is computed along the operands and transposed, if no tile fits
it. If a tile fits, an operand is packed, or its panels are transposed (`tile_cpu`).

    S[i, j, h] = Σ_k Q[i, h, k] * K[j, h, k]     ──▶     S.along[h, i, j] = Σ_k …;   …

Elements along a batch axis share no operand. So a vector along it loads both operands for every product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import Step
from schedules.algorithms.axis_last import (
    NAME,
    axis_along_memory,
    order_along_memory,
    order_of_batches,
    order_of_readers,
)
from schedules.kit.operand_roles import assign_roles
from schedules.kit.stage_analysis import is_constant, lanes_of, read_by_choice, reads, undecided
from schedules.kit.tiles import column_lanes
from schedules.registry import Extension
from schedules.rules.nested_sums import is_nest

Steps = tuple[Step, ...]

MANY = 8  # least terms of a product whose result is worth transposing (chosen, 2026-12)


def axis_last(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm":
        return
    if stage.name == state.names[-1] and not state.dag.carried:  # steps of a recurrence have their order
        sure, whole = (tuple(_for_readers(state, target, only)) for only in (True, False))
        if whole:
            for steps in dict.fromkeys((sure, whole, ())):
                yield Extension(steps, again=(stage.name,)) if steps else Extension(onward=True)
            return
    if lies_across(state, stage, target) or _has_batches_last(state, stage, target):
        yield Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,))
        yield Extension(onward=True)


def _for_readers(state: State, target: Target, longer: bool) -> Iterator[Step]:
    """The steps that put another axis last in stages whose last axis a reduction consumes. longer: only
    longer axes."""
    for name in reversed(state.names):
        stage = state.stage(name)
        summing = [r for r in state.consumers(stage) if r.op.is_reduction]
        if not summing or any(is_nest(state, r, target, apart=True) for r in summing):
            continue
        steps, order = _turned(state, stage, target), order_of_readers(state, stage)
        if steps and (order[-1].extent > stage.op.axes[-1].extent or not longer):
            for step in steps:
                state = step.apply(state)
            yield from steps


def _turned(state: State, stage: Stage, target: Target) -> Steps:
    """The steps that put the axes of a reduction in the order of its readers, or those of a pointwise stage
    and of the reductions that it reads; () if operands do not lie along the last of them."""
    order, lanes = order_of_readers(state, stage), lanes_of(stage.op, target)
    if not order or order[-1].extent < lanes or not undecided(state, stage) or is_constant(state, stage):
        return ()
    steps: Steps = (UseAlgorithm(stage.name, NAME), Inline(stage.name))
    if stage.op.is_reduction:
        roles = assign_roles(state, replace(stage.op, axes=order), lanes, target)
        return steps if roles is not None else ()
    for step in steps:
        state = step.apply(state)
    before: Steps = ()
    across = (r for r in reads(stage.op) if r.uses(order[-1].name) and r.strides.get(order[-1].name) != 1)
    for buffer in dict.fromkeys(r.load.buffer for r in across):
        producer = state.producer(buffer)
        more = () if producer is None else _turned(state, producer, target)
        if not more:
            return ()
        before += more
        for step in more:
            state = step.apply(state)
    return (*steps, *before) if before else ()


def _has_batches_last(state: State, stage: Stage, target: Target) -> bool:
    """Whether the last axis of a product is a batch axis without good vectors, and another axis has a tile. A
    batch axis is without good vectors if it is shorter than a vector, or if no operand is contiguous along
    it."""
    op, lanes = stage.op, lanes_of(stage.op, target)
    if not op.axes or not undecided(state, stage):
        return False
    if op.axes[-1].extent >= lanes and any(r.strides.get(op.axes[-1].name) == 1 for r in reads(op)):
        return False
    order = () if order_of_readers(state, stage) or order_along_memory(op) else order_of_batches(op)
    if not order or order[-1].extent < lanes or prod(a.extent for a in op.reduce_axes) < MANY:
        return False
    return assign_roles(state, replace(op, axes=order), lanes, target) is not None


def lies_across(state: State, stage: Stage, target: Target) -> bool:
    """Whether a stage's result lies across its operands, and no tile of a product fits it."""
    op = stage.op
    if not undecided(state, stage) or read_by_choice(state, stage):
        return False
    axis = axis_along_memory(op)
    if axis is None or axis.extent < lanes_of(op, target):
        return False
    return assign_roles(state, op, column_lanes(op, target), target) is None
