"""Questions that several rules ask of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from autotensor.base.target import Target
from autotensor.ir.affine import affine, excess, without_limits
from autotensor.ir.bounds import is_data
from autotensor.ir.expr import Binary, Call, Compare, Const, Expr, Load, Op, Select, Var, conjuncts
from autotensor.ir.node import children
from autotensor.ir.visit import any_node, contains, free_vars
from autotensor.schedule.extents import Access, access
from autotensor.schedule.state import Inlined, Root, Stage, State
from autotensor.te.dag import IterDef, StageOp


@dataclass(frozen=True, slots=True)
class Read:
    """One load of a stage: how the index of each dimension depends on the axes, and each axis's stride in
    elements."""

    load: Load
    dims: tuple[Access | None, ...]
    strides: dict[str, int]  # axis → elements per step; axes in unknown indices are left out

    def uses(self, axis: str) -> bool:
        return axis in self.strides or any(self._walks(n, axis) for n in range(len(self.dims)))

    def _walks(self, dimension: int, axis: str) -> bool:
        """Whether the index of a dimension changes with the axis. For an unknown index, whether the axis
        occurs in it."""
        d = self.dims[dimension]
        if d is not None:
            return axis in d.steps
        return any(v.name == axis for v in free_vars(self.load.indices[dimension]))

    @property
    def looked_up(self) -> bool:
        """Whether data select the part that is read, like one matrix of several: W[e[b], k, j]."""
        return any(d is None for d in self.dims)

    @property
    def from_data(self) -> bool:
        """Whether an index is loaded from memory."""
        return any(contains(i, Load) for i in self.load.indices)

    def begins_by_data(self, axis: str) -> bool:
        """Whether data give the first index, and the load is contiguous along the axis from there: V[p[i] +
        k]."""
        *outer, last = self.load.indices
        found = affine(without_limits(last)) if contains(last, Load) else None
        if found is None or any(v.name == axis for i in outer for v in free_vars(i)):
            return False
        along = {t: k for t, k in found.terms.items() if any(v.name == axis for v in free_vars(t))}
        return [*along.values()] == [1] and all(isinstance(t, Var) for t in along)

    @property
    def walkers(self) -> dict[int, str]:
        """For each dimension, the axis in its index, or the first of several axes. Dimensions without an axis
        are left out."""
        return {n: next(iter(d.steps)) for n, d in enumerate(self.dims) if d is not None and d.steps}


def reads(op: StageOp) -> tuple[Read, ...]:
    out = []
    for load in op.loads():
        dims = tuple(access(i) for i in load.indices)
        strides: dict[str, int] = {}
        for d, step in zip(dims, load.buffer.row_major(), strict=True):
            if d is not None and d.is_sum:
                for name, k in d.steps.items():
                    strides[name] = strides.get(name, 0) + k * step
        out.append(Read(load, dims, strides))
    return tuple(out)


def packable(r: Read, axis: str) -> bool:
    """Whether panels can be cut along `axis`: the axis is in one dimension, and no dimension has more than
    one plain axis.

    Dimensions with indices from data are not changed.
    """
    if any(r._walks(n, axis) for n, d in enumerate(r.dims) if d is None):
        return False
    known = [d for d in r.dims if d is not None]
    plain = all(d.axis or (d.is_sum and not d.steps) for d in known)
    return plain and [d.axis for d in known].count(axis) == 1


def second_cache(target: Target) -> int:
    """Bytes of a core's second cache, or of its first cache if there is no second."""
    return target.cache_bytes[min(1, len(target.cache_bytes) - 1)]


def lanes_of(op: StageOp, target: Target) -> int:
    """Lanes of one vector register for the widest type that the stage writes."""
    return target.lanes(max(b.dtype.element.bits for b in op.buffers))


def contiguous_reduction(op: StageOp) -> bool:
    """Whether every operand that uses the last reduction axis is contiguous along it.

    An operand whose indices are data is not contiguous. It is allowed next to other operands, unless one of
    these is contiguous along the last axis of the result. If data give only the first index, the operand
    counts as contiguous from there.
    """
    if not op.reduce_axes:
        return False
    last = op.reduce_axes[-1].name
    using = [r for r in reads(op) if r.uses(last)]
    begun = [r for r in using if last not in r.strides and r.begins_by_data(last)]
    plain = [r for r in using if last in r.strides or not r.from_data or r in begun]
    if len(plain) < len(using) and any(r.strides.get(a.name) == 1 for r in using for a in op.axes[-1:]):
        return False
    return bool(plain) and all(r in begun or r.strides.get(last) == 1 for r in plain)


def ends_by_data(op: StageOp) -> bool:
    """Whether data give the number of terms of a reduction: Σ_k select(k < n[i], x[i, k], 0)."""
    if op.combiner is None or len(op.bodies) != 1 or not op.reduce_axes:
        return False
    last = op.reduce_axes[-1].name
    match op.bodies[0]:
        case Select(cond, _, otherwise) if otherwise is op.combiner.identity[0]:
            return any(_is_end(c, last) for c in conjuncts(cond) if isinstance(c, Compare))
    return False


def _is_end(cond: Compare, axis: str) -> bool:
    """Whether a comparison with data is false from some value of the axis on."""
    total = excess(cond) if contains(cond, Load) else None
    if total is None:
        return False
    along = {t: k for t, k in total.terms.items() if any(v.name == axis for v in free_vars(t))}
    return all(isinstance(t, Var) and k > 0 for t, k in along.items()) and len(along) == 1


def is_expensive(op: StageOp) -> bool:
    """Whether evaluating the body twice would cost much time, because it has math calls."""
    return any(
        any_node(b, lambda n: isinstance(n, Call) and n.name not in ("abs", "floor", "ceil"))
        for b in op.bodies
    )


def is_padding(op: StageOp) -> bool:
    """Whether a stage only moves elements: its body is one load in a Select (a pad)."""
    return (
        not op.is_reduction
        and len(op.bodies) == 1
        and isinstance(op.bodies[0], Select)
        and len(op.loads()) == 1
        and isinstance(op.bodies[0].then, Load)
    )


def matches_elementwise(consumer: StageOp, producer: StageOp) -> bool:
    """Whether the consumer reads the producer at its own point: same axes in the same order."""
    if len(consumer.axes) != len(producer.axes):
        return False
    mine = [load for load in consumer.loads() if load.buffer in producer.buffers]
    same = all(a.extent == b.extent for a, b in zip(consumer.axes, producer.axes, strict=True))
    return bool(mine) and same and all(at_point(load.indices, consumer.axes) for load in mine)


def reads_once(reader: StageOp, op: StageOp) -> bool:
    """Whether each point of the reader reads another element: with axes exchanged, shifted or with a step.

    y[i, j] = f(P[j, 2*i + 1])      each of the reader's axes is alone in one of the indices
    """
    found = [r for r in reads(reader) if r.load.buffer in op.buffers]
    if not found or any(r.load.indices != found[0].load.indices for r in found):
        return False
    alone = {
        name for d in found[0].dims if d is not None and d.is_sum and len(d.steps) == 1 for name in d.steps
    }
    return alone >= {a.name for a in reader.axes if a.extent > 1}


def names_of_terms(reader: StageOp, op: StageOp) -> dict[str, str] | None:
    """The axes of the op, by the axes of a reader that reads one element of the op for each of its own terms.
    The result is None if the reader reads other elements, or not all elements.

        Y[m, n] = Σ_g s[n, g] * P[m, n, g]     ──▶     of P in Y {m: m, n: n, g: g}
    """
    names = _loaded(reader, op)
    extents = {a.name: a.extent for a in reader.all_axes}
    if len(names) != len(op.axes) or len(set(names)) < len(names):
        return None
    whole = all(extents[n] == a.extent for n, a in zip(names, op.axes, strict=True))
    return dict(zip(names, (a.name for a in op.axes), strict=True)) if whole else None


def is_read_by_terms(reader: StageOp, op: StageOp) -> bool:
    """Whether the reader's indices of the op are all axes of the reader, and nothing else."""
    return set(_loaded(reader, op)) == {a.name for a in reader.all_axes}


def _loaded(reader: StageOp, op: StageOp) -> tuple[str, ...]:
    """The axes that are the indices of the op; () if the op has other indices, or is read at several
    positions."""
    loads = {load.indices for load in reader.loads() if load.buffer in op.buffers}
    (indices,) = loads if len(loads) == 1 else ((),)
    names = tuple(i.name for i in indices if isinstance(i, Var))
    return names if len(names) == len(indices) else ()


@dataclass(frozen=True, slots=True)
class Digit:
    """A producer's axis in terms of its consumer: the axis `axis`, or its quotient or remainder by `by`."""

    axis: str
    by: int = 0  # 0: the axis itself
    low: bool = False  # the remainder


def digits(consumer: StageOp, producer: StageOp) -> dict[str, Digit] | None:
    """The producer's axes as digits of the consumer's axes; None if the consumer reads the producer in
    another way.

        y[h, c] = f(P[h // 2, h % 2, c])      ──▶     {i: h // 2, p: h % 2, c: c}

    Every axis of the consumer occurs once, as a whole or as its two digits. Axes of one element are left out.
    """
    mine = [load for load in consumer.loads() if load.buffer in producer.buffers]
    if not mine or any(load.indices != mine[0].indices for load in mine):
        return None
    extents = {a.var: a.extent for a in consumer.axes}
    out: dict[str, Digit] = {}
    seen: dict[str, list[tuple[int, bool]]] = {}
    for axis, index in zip(producer.axes, mine[0].indices, strict=True):
        match index:
            case Var(name) if extents.get(index) == axis.extent:
                out[axis.name] = Digit(name)
            case Binary(Op.FLOORDIV, Var(name) as v, Const(by)) if v in extents and axis.extent == -(
                -extents[v] // int(by)
            ):
                out[axis.name] = Digit(name, int(by))
            case Binary(Op.MOD, Var(name) as v, Const(by)) if v in extents and axis.extent == by:
                out[axis.name] = Digit(name, int(by), low=True)
            case Const(0) if axis.extent == 1:
                continue
            case _:
                return None
        d = out[axis.name]
        seen.setdefault(d.axis, []).append((d.by, d.low))
    for uses in seen.values():
        if uses != [(0, False)] and sorted(uses) != [(uses[0][0], False), (uses[0][0], True)]:
            return None
    return out if all(a.extent == 1 or a.name in seen for a in consumer.axes) else None


def at_point(indices: tuple[Expr, ...], axes: tuple[IterDef, ...]) -> bool:
    """Whether the indices are the axes in order. In a broadcast, an axis of one element may be 0."""
    return len(indices) == len(axes) and all(
        i is a.var or (a.extent == 1 and isinstance(i, Const) and i.value == 0)
        for i, a in zip(indices, axes, strict=True)
    )


def at_place(load: Load, op: StageOp) -> bool:
    """Whether a load reads at the flat position at which the op writes, if both tensors are taken as one row:
    x[h, c], or x[h // 2, h % 2, c]."""
    indices = [i for i, n in zip(load.indices, load.buffer.shape, strict=True) if n > 1]
    for axis in (a for a in op.axes if a.extent > 1):
        match indices:
            case [first, *rest] if first is axis.var:
                indices = rest
            case [Binary(Op.FLOORDIV, v, Const(by)), Binary(Op.MOD, u, Const(of)), *rest] if (
                v is u is axis.var and by == of
            ):
                indices = rest
            case _:
                return False
    return not indices and prod(load.buffer.shape) == op.points()


def walks_one_row(op: StageOp) -> bool:
    """Whether every operand is read at the flat position of the output, so that all axes can be fused."""
    return all(at_place(load, op) for load in op.loads() if load.buffer.shape)


def is_constant(state: State, stage: Stage) -> bool:
    return stage.name in state.constant_stages()


def constants(state: State) -> frozenset[str]:
    """Tensors that depend on constants only."""
    stages = state.constant_stages()
    made = (b.name for s in state.stages if s.name in stages for b in s.op.buffers)
    return frozenset(state.dag.constants) | frozenset(made)


def untouched(stage: Stage) -> bool:
    return isinstance(stage.place, Root) and not stage.touched


def undecided(state: State, stage: Stage) -> bool:
    """Whether a stage has no decisions yet, and no other stage is computed inside it."""
    return untouched(stage) and not state.attached(stage.name)


def epilogue(state: State, stage: Stage) -> Stage | None:
    """The only root stage that reads the stage's result point by point; None if there is no such stage.

    The result is also None for an output, because an output is needed as a whole.
    """
    consumers = state.consumers(stage)
    if len(consumers) != 1 or isinstance(consumers[0].place, Inlined) or state.is_output(stage):
        return None
    consumer = consumers[0]
    if consumer.op.is_reduction or not matches_elementwise(consumer.op, stage.op) or not untouched(consumer):
        return None
    return consumer


def terms_left_out(op: StageOp) -> bool:
    """Whether a reduction's terms are neutral if a comparison of its axes fails.

        C[i, j] = Σ_k select(k > i, A[k, i] * B[k, j], 0)

    Loops over such terms can begin at the first term that is not neutral.
    """
    if op.combiner is None or len(op.bodies) != 1:
        return False
    match op.bodies[0]:
        case Select(cond, then, otherwise) if otherwise is op.combiner.identity[0] and not any_node(
            then, lambda n: isinstance(n, Select)
        ):
            names = {v.name for v in free_vars(cond)}
            summed = any(a.name in names for a in op.reduce_axes)
            return summed and not contains(cond, Load)
    return False


def read_by_choice(state: State, stage: Stage) -> bool:
    """Whether all readers use each value of the stage only on one side of a condition that is known before:
    one without data, or one that is the same for all points."""
    mine = set(stage.op.buffers)

    @cache  # a value that is used twice at each of n levels is met 2^n times
    def always(e: Expr) -> frozenset[Load]:
        """The loads of the stage's values that are read whatever the condition is."""
        match e:
            case Load(buffer) if buffer in mine:
                return frozenset({e})
            case Select(cond, then, otherwise) if not (is_data(cond) and free_vars(cond)):
                return always(then) & always(otherwise)
        return frozenset().union(*(always(c) for c in children(e) if isinstance(c, Expr)))

    readers = state.consumers(stage)
    return bool(readers) and not any(always(b) for r in readers for b in r.op.bodies)


def divisors(n: int, limit: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, min(n, limit) + 1) if n % d == 0)
