"""Sums of products under a condition on one operand: this operand is masked, or the sum is not changed.

With the masked operand, a term is one operation instead of two. But the masked operand is written and read
again, and the other operand is searched for infinities and NaN. So masking comes first if both operands are
read often. The sum as it is written is needed only for operands that are not finite. It gets the first
schedule of a tile that copies no operand, because a copy would be made in every call, although the sum is
rarely computed. No measurement could show which schedule is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import Root, Stage, State
from autotensor.schedule.step import Step
from schedules.algorithms.masked_operand import NAME, masked
from schedules.cpu import cpu_of
from schedules.kit.stage_analysis import read_by_choice, undecided
from schedules.registry import Extension
from schedules.rules.tiles.tile_cpu import tile_cpu

LEAST = 8  # masking is offered if each element of an operand is in so many terms


def masked_operand(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or not undecided(state, stage):
        return
    if read_by_choice(state, stage):
        return
    found = masked(stage.op)
    if found is None:
        return
    points = [prod(a.extent for a in axes) for axes in (found.masked_axes, found.other_axes)]
    often = stage.op.points() / max(points)
    if often < LEAST:
        return
    apart, whole = _apart(state, stage, target), Extension(onward=True)
    yield from (apart, whole) if often >= cpu_of(target).masked_terms else (whole, apart)


def _apart(state: State, stage: Stage, target: Target) -> Extension:
    step = UseAlgorithm(stage.name, NAME)
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
