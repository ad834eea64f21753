"""Sums of products of several factors: the factors are joined in the cheapest orders, or as they are written.

The cost of an order counts operations and moved elements, but not loops. So an order comes first only if it
costs much less than the sum as it is written. The search may try the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp, distinct_operations
from schedules.algorithms.factored import NAMES, factorings, written_cost
from schedules.kit.body_work import body_work, fused_joins
from schedules.kit.stage_analysis import undecided
from schedules.registry import Extension

SURE = 1.15  # an order comes first if the written sum costs this many times as much (chosen, 2026-11)
HOPELESS = 2.0  # an order that costs this many times as much as the cheapest one is not offered


def factored(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    op = stage.op
    if not undecided(state, stage):
        return
    if op.buffers[0].dtype.is_float and target.is_strict:
        return
    found = factorings(op)
    if not found:
        return
    as_written = written_cost(op, _operations(op, target))
    ways = [
        (f.cost, Extension((UseAlgorithm(stage.name, name),), again=(stage.name,)))
        for name, f in zip(NAMES, found, strict=False)
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
