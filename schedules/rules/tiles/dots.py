"""Products of narrow types with dot instructions: the steps of register tiles are groups of the reduction.

    parallel over blocks, column tiles, row tiles          as in `tile_cpu`
      acc[rows, nv*columns] in registers
      for groups of the reduction: acc = dot(acc, a word of each row, nv vectors of a panel)

In panels, the elements of a group are contiguous. An instruction that is faster than the operations that it
replaces, by the processor's record, is the default. Other instructions, and loops without dot instructions,
are sketches that the search may try.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import available
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import Root, Stage, State
from autotensor.schedule.step import Step
from schedules.algorithms.channels_last import NAME as CHANNELS_LAST
from schedules.algorithms.joined_window import NAME as JOINED_WINDOW
from schedules.algorithms.narrow_products import NAMES
from schedules.algorithms.widened_floats import NAME as WIDENED
from schedules.cpu import cpu_of
from schedules.kit.dot_uses import DotUse, dot_uses
from schedules.kit.stage_analysis import constants, epilogue, is_padding, untouched
from schedules.registry import Extension
from schedules.rules.tiles.tile_cpu import tiled

# The largest share of FMAs' operations per second, in float32, that separate integer instructions reach: they
# widen operands, multiply and add one after the other. Without vpmaddwd, which does as many operations as
# FMAs, ResNet-18 in bytes takes 1.9 x as long (2026-12)
IN_INTEGERS = 0.5
Way = tuple[float, Iterator[Extension]]  # operations per second, divided by those of FMAs; and sketches


def dots(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    if target.kind != "llvm" or len(stage.op.buffers) != 1 or not untouched(stage) or not available(target):
        return
    ways = [
        *_with_joined_window(state, stage, target),  # first, because all its groups are whole
        *_ways(state, stage, target),
        *_with_channels_last(state, stage, target),
    ]
    if not ways:
        return
    ways.sort(key=lambda way: -way[0])
    as_fmas = stage.op.buffers[0].dtype.is_float or ways[0][0] > 1.0
    otherwise = 1.0 if as_fmas else IN_INTEGERS
    for _, extensions in (way for way in ways if way[0] > otherwise):
        yield from extensions
    if not any(faster > otherwise for faster, _ in ways):
        yield from _widened(state, stage)
    yield Extension(onward=True)
    for _, extensions in (way for way in ways if way[0] <= otherwise):
        yield from extensions


def _widened(state: State, stage: Stage) -> Iterator[Extension]:
    """The sketch in which 16-bit floats become float32 beforehand. It is for the case that no instruction for
    16-bit floats is faster."""
    if (found := _by(WIDENED, state, stage)) is not None:
        step, _, made = found
        yield Extension((step,), stays=made, again=(stage.name,))


def _by(algorithm: str, state: State, stage: Stage) -> tuple[UseAlgorithm, State, tuple[str, ...]] | None:
    """The step that computes a stage by an algorithm, the state after it, and the stages that it makes; None
    if the algorithm does not apply."""
    if not isinstance(stage.place, Root) or state.attached(stage.name):
        return None
    if ALGORITHMS.get(algorithm).stages(state, stage) is None:
        return None
    step = UseAlgorithm(stage.name, algorithm)
    after = step.apply(state)
    return step, after, tuple(s.name for s in after.stages if s.name not in state.names)


def _ways(state: State, stage: Stage, target: Target) -> Iterator[Way]:
    yield from _as_written(state, stage, target)
    yield from _as_plain_products(state, stage, target)


def _with_channels_last(state: State, stage: Stage, target: Target) -> Iterator[Way]:
    """The ways for channels that come first: data and result are transposed, the result in its reader if
    possible."""
    if (made := _by(CHANNELS_LAST, state, stage)) is None:
        return
    step, after, (copy, convolution) = made
    for faster, extensions in _ways(after, after.stage(convolution), target):
        found = _behind((step,), convolution, (copy,), extensions)
        yield faster, (replace(e, again=(*e.again, stage.name)) for e in found)


def _with_joined_window(state: State, stage: Stage, target: Target) -> Iterator[Way]:
    """The ways for channels that do not fill groups: channels of neighbouring columns are joined.
    Strict numerics do not multiply a float of another window by zero."""
    if target.is_strict and stage.op.buffers[0].dtype.is_float:
        return
    if (found := _by(JOINED_WINDOW, state, stage)) is not None:
        step, after, made = found
        for faster, extensions in _ways(after, after.stage(stage.name), target):
            yield faster, _behind((step,), stage.name, made, extensions)


def _as_written(state: State, stage: Stage, target: Target) -> Iterator[Way]:
    for use in dot_uses(state, stage.op, target):
        yield _gain(state, use, target), _tiled(state, stage, use, target)


def _as_plain_products(state: State, stage: Stage, target: Target) -> Iterator[Way]:
    """The ways for operands that need other types, or terms with zero points, which are added after the
    sums."""
    for name in NAMES:
        if (found := _by(name, state, stage)) is None:
            continue
        step, after, (*made, plain) = found
        steps: tuple[Step, ...] = (step,)
        if epilogue(after, after.stage(stage.name)) is not None:
            steps = (*steps, Inline(stage.name))
            after = steps[1].apply(after)
        for use in dot_uses(after, after.stage(plain).op, target):
            tiles = _tiled(after, after.stage(plain), use, target)
            yield _gain(after, use, target), _behind(steps, stage.name, tuple(made), tiles)


def _tiled(state: State, stage: Stage, use: DotUse, target: Target) -> Iterator[Extension]:
    """The sketches of tiles. An instruction loads its operands from memory, so their stages may not be
    inlined."""
    made = (p for b in stage.op.reads() if (p := state.producer(b)) is not None and not is_padding(p.op))
    loaded = tuple(dict.fromkeys(p.name for p in made))
    for e in tiled(state, stage, use.roles, target, use):
        yield replace(e, stays=tuple(dict.fromkeys((*e.stays, *loaded))))


def _behind(
    steps: tuple[Step, ...], stage: str, made: tuple[str, ...], tiles: Iterator[Extension]
) -> Iterator[Extension]:
    """The extensions of `tiles`, after steps that have made the stages `made`, which keep their own loops."""
    for e in tiles:
        yield replace(e, steps=(*steps, *e.steps), done=(*e.done, stage), stays=(*e.stays, *made))


def _gain(state: State, use: DotUse, target: Target) -> float:
    """The gain of the instruction, if panels are packed beforehand or enough rows use them; otherwise 0."""
    rows = use.roles.outer * use.roles.inner
    constant = use.roles.packed[0].load.buffer.name in constants(state)
    return use.gain if constant or rows >= cpu_of(target).copy_rows else 0.0
