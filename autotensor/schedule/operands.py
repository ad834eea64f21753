"""The operands of a stage: the arrays that it reads and writes, how vectors move through them, and how many
elements the loops touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Expr
from autotensor.ir.func import Buffer
from autotensor.ir.visit import free_vars
from autotensor.schedule.extents import Access, Number, Span, access, least
from autotensor.schedule.index_regions import both, either, where
from autotensor.schedule.state import Stage, State

PAGE = 4096  # bytes; processors fetch ahead only inside a page


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A dimension of a load whose index is neither a sum of axes nor a quotient or remainder of one."""

    axes: frozenset[str]  # the axes that the index depends on
    what: Expr


@dataclass(frozen=True, slots=True)
class Operand:
    """Loads of a stage that differ only by constants (the taps of a stencil), or, with `write`, its store."""

    buffer: Buffer
    dims: tuple[Access | Anywhere, ...]  # the dimensions of the first of these loads
    write: bool
    constant: bool
    # How the vectorized loop moves through the buffer. "unit": from one element to the next; "broadcast": not
    # at all; "apart": every other element, or each element twice; "strided": in other steps
    vector: str
    shifts: tuple[tuple[int, ...], ...] = ()  # for each dimension: the constants of all loads, in order
    count: int = 1  # number of loads


def operands_of(
    state: State, stage: Stage, moving: frozenset[str], flat: tuple[str, ...]
) -> tuple[Operand, ...]:
    constants = set(state.dag.constants) | {
        b.name for s in state.live() if s.name in state.constant_stages() for b in s.op.buffers
    }
    alike: dict[tuple[Buffer, tuple[object, ...]], list[tuple[Access | Anywhere, ...]]] = {}
    for load in stage.op.loads():
        dims = tuple(access(i) or Anywhere(_axes_of(i), i) for i in load.indices)
        alike.setdefault((load.buffer, tuple(map(_walk, dims))), []).append(dims)
    out = []
    for (buffer, _), loads in alike.items():
        fixed = buffer.name in constants
        strides = _strides(state, buffer)
        along = moving - {*flat[:-1]} if _goes_on(loads[0], strides, stage, flat) else moving
        vector = _vector_kind(loads[0], strides, along, fixed)
        shifts = tuple(tuple(sorted({*map(_constant, dims)})) for dims in zip(*loads, strict=True))
        out.append(Operand(buffer, loads[0], False, fixed, vector, shifts, len(loads)))
    for b in stage.op.buffers:
        here = tuple(Access({a.name: 1}, 0) for a in stage.op.axes)
        out.append(Operand(b, here, True, False, "unit", ((0,),) * len(here)))
    return tuple(out)


def _goes_on(
    dims: tuple[Access | Anywhere, ...], strides: tuple[int, ...], stage: Stage, flat: tuple[str, ...]
) -> bool:
    """Whether rows follow one another in memory: one step of an axis is as far as all steps of the next."""
    far = dict.fromkeys(flat, 0)
    for dim, step in zip(dims, strides, strict=True):
        if not isinstance(dim, Access) or not dim.is_sum:
            return False
        far.update({a: far[a] + k * step for a, k in dim.steps.items() if a in far})
    extents = {a.name: a.extent for a in stage.op.axes}
    return bool(flat) and all(far[a] == far[b] * extents[b] for a, b in pairwise(flat))


def _axes_of(index: Expr) -> frozenset[str]:
    return frozenset(v.name for v in free_vars(index))


def _walk(dim: Access | Anywhere) -> object:
    """The part that is the same in all loads that differ by constants."""
    return dim if isinstance(dim, Anywhere) else (frozenset(dim.steps.items()), dim.div, dim.mod)


def _constant(dim: Access | Anywhere) -> int:
    return 0 if isinstance(dim, Anywhere) else dim.constant


def _strides(state: State, buffer: Buffer) -> tuple[int, ...]:
    """Elements between neighbours of each dimension, in the buffer's storage order."""
    producer = state.producer(buffer)
    if producer is None or producer.storage is None:
        return buffer.row_major()
    steps, step = {}, 1
    extents = {a.name: a.extent for a in producer.op.axes}
    for axis in reversed(producer.storage[0]):
        steps[axis] = step
        step *= extents[axis]
    return tuple(steps[a.name] for a in producer.op.axes)


def _vector_kind(
    dims: tuple[Access | Anywhere, ...], strides: tuple[int, ...], moving: frozenset[str], constant: bool
) -> str:
    stride, apart = 0, False
    for n, (dim, step) in enumerate(zip(dims, strides, strict=True)):
        if isinstance(dim, Access) and dim.is_sum:
            stride += sum(abs(k) * step for a, k in dim.steps.items() if a in moving)
        elif not moving.isdisjoint(dim.axes if isinstance(dim, Anywhere) else dim.steps):
            if n < len(dims) - 1 or (isinstance(dim, Anywhere) and is_data(dim.what)):
                return "strided"
            apart = True
    if stride == 0 and not apart:
        return "broadcast"
    if constant and not apart:
        return "unit"  # constants along the vector are packed
    return "strided" if stride > 2 or (apart and stride) else "unit" if stride == 1 else "apart"


def footprint(operand: Operand, axes: Mapping[str, Span]) -> Number:
    """Bytes of the operand that are touched while its axes run over the given spans."""
    together: Any = operand.buffer.dtype.bytes
    apart: Any = together * operand.count
    for a, dim, shifts in zip(operand.dims, operand.buffer.shape, operand.shifts, strict=True):
        together = together * _touched(a, dim, axes, shifts)
        apart = apart * _touched(a, dim, axes)
    return least(together, apart)


def run(operand: Operand, axes: Mapping[str, Span]) -> Number:
    """Bytes of one row, among those that are touched while the operand's axes run over the spans. A row's
    elements are side by side, or so near that they are in the same page."""
    run: Any = operand.buffer.dtype.bytes
    pitch, goes_on = run, True  # pitch: bytes from one step of a dimension to the next
    for a, dim, shifts in reversed([*zip(operand.dims, operand.buffer.shape, operand.shifts, strict=True)]):
        touched = _touched(a, dim, axes, shifts)
        run = run * where(goes_on, touched, 1)
        pitch = pitch * dim
        goes_on = both(goes_on, either(pitch < PAGE, touched >= dim))
        if goes_on is False:
            break
    return run


def fetched(operand: Operand, axes: Mapping[str, Span], moving: frozenset[str]) -> Number:
    """The number of elements in all loaded vectors. Each shift along the vector counts as a vector of its
    own. If the loads do not move with the vector, this is the number of loaded elements."""
    together: Any = 1
    apart: Any = operand.count
    for a, dim, shifts in zip(operand.dims, operand.buffer.shape, operand.shifts, strict=True):
        alone = _touched(a, dim, axes)
        apart = apart * alone
        if moving.isdisjoint(a.axes if isinstance(a, Anywhere) else a.steps):
            together = together * _touched(a, dim, axes, shifts)
        else:
            together = together * alone * len(shifts)
    return least(together, apart)


def _touched(
    a: Access | Anywhere, dim: int, axes: Mapping[str, Span], shifts: tuple[int, ...] = (0,)
) -> Number:
    """The number of indices of a dimension that loads with these shifts touch."""
    names = a.axes if isinstance(a, Anywhere) else a.steps.keys()
    if not names <= axes.keys():
        return dim
    points: Number = len(shifts)
    for n in names:
        points = points * axes[n].extent
    if isinstance(a, Anywhere):
        return least(points, dim)
    extent: Number = 1 + shifts[-1] - shifts[0]
    for n, k in a.steps.items():
        extent = extent + abs(k) * (axes[n].extent - 1)
    if a.div:
        extent = (extent + a.div - 2) // a.div + 1
    if a.mod:
        extent = least(extent, a.mod)
    return least(least(extent, points), dim)


def most(operand: Operand, points: Number) -> Number:
    """The most elements that this many points can touch. Rows that a vector crosses have longer spans."""
    return points * operand.count
