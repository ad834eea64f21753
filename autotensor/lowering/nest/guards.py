"""Guards of an attached stage: they decide which points of its box are computed.

A stage that is computed inside a consumer's loop runs over a box. The box may extend beyond the stage's own
domain (in the last tile of a consumer), or beyond the points that have a reader, because a box is only an
upper bound. The points beyond are never used. If it does no harm to compute them (packed and padded
operands), they are computed. Otherwise they are guarded:

    reads of global buffers    stay inside their shapes, or the point must lie in the stage's domain
    reads of private buffers   stay inside the producer's box; the load is masked if a Select decides
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from autotensor.ir.bounds import Interval, interval, prove
from autotensor.ir.expr import Binary, Cmp, Const, Expr, Load, Neg, Op, Select, Unary, Var, compare, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children
from autotensor.ir.visit import any_node, free_vars
from autotensor.te.dag import StageOp
from autotensor.te.indices import reads_memory

Ranges = dict[Var, Interval]


@dataclass(frozen=True, slots=True)
class Read:
    """A load, and the conditions under which it happens."""

    load: Load
    conditions: tuple[Expr, ...]


def reads(op: StageOp) -> tuple[Read, ...]:
    """All loads of the bodies.

    A load that happens both with and without a condition counts as one without a condition.
    """
    found: dict[tuple[Load, tuple[Expr, ...]], Read] = {}
    for body in op.bodies:
        for read in _reads(body, ()):
            found[read.load, read.conditions] = read
    bare = {load for load, conditions in found if not conditions}
    return tuple(r for r in found.values() if not r.conditions or r.load not in bare)


def _reads(e: Node, conditions: tuple[Expr, ...]) -> Iterator[Read]:
    match e:
        case Select(cond, then, otherwise):
            yield from _reads(cond, conditions)
            yield from _reads(then, (*conditions, cond))
            yield from _reads(otherwise, (*conditions, Unary(Neg.NOT, cond)))
            return
        case Load():
            yield Read(e, conditions)
    for child in children(e):
        yield from _reads(child, conditions)


def domain_guards(
    op: StageOp, values: Mapping[str, Expr], ranges: Ranges, private: Collection[Buffer]
) -> list[Expr]:
    """The conditions that keep a stage inside its own domain.

    The result has only the conditions that are needed for reads of buffers that are not private.

    values: the op's axes over loop variables.
    """
    always = any(any_node(b, may_trap) for b in op.bodies)
    shared = [r for r in reads(op) if r.load.buffer not in private or _is_gather(r.load)]
    inside = {a.var: Interval(0, a.extent - 1) for a in op.all_axes}
    out: list[Expr] = []
    for a in op.axes:
        wide = {**inside, a.var: interval(values[a.name], ranges)}
        if not always and all(_in_bounds(r, wide) for r in shared if _uses(r.load, a.var)):
            inside = wide  # the next axes must be in bounds together with this one
            continue
        sides = compare(Cmp.GE, values[a.name], const(0)), compare(Cmp.LT, values[a.name], const(a.extent))
        out.extend(c for c in sides if prove(c, ranges) is not True)
    return out


def _is_gather(load: Load) -> bool:
    """Whether an index of the load comes from memory."""
    return any(reads_memory(i) for i in load.indices)


def _uses(load: Load, axis: Var) -> bool:
    return any(axis in free_vars(i) for i in load.indices)


def _in_bounds(read: Read, ranges: Ranges) -> bool:
    return all(
        interval(index, ranges, read.conditions).within(Interval(0, None if end is None else end - 1))
        for index, end in zip(read.load.indices, _ends(read.load.buffer), strict=True)
    )


def _ends(buffer: Buffer) -> list[int | None]:
    """The ends of dimensions; None if only a call knows the end, which passes/inside_extents.py handles."""
    return [int(d.value) if isinstance(d, Const) else None for d in buffer.dims]


def may_trap(node: Node) -> bool:
    """Whether the node divides an integer by a non-constant: outside the domain, it could be zero."""
    return isinstance(node, Binary) and node.op in (Op.FLOORDIV, Op.MOD) and not isinstance(node.b, Const)


def box_conditions(indices: tuple[Expr, ...], shape: tuple[int, ...], ranges: Ranges) -> list[Expr]:
    """The conditions under which indices (relative to the box) lie in a private buffer.

    Conditions that always hold are left out.

    An index that comes from memory has the whole dimension as its box.
    """
    out: list[Expr] = []
    for index, dim in zip(indices, shape, strict=True):
        if reads_memory(index):
            continue
        sides = compare(Cmp.GE, index, const(0)), compare(Cmp.LT, index, const(dim))
        out.extend(c for c in sides if prove(c, ranges) is not True)
    return out
