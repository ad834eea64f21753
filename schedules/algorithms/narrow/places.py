"""Indices that a reduction keeps next to values (arg-max) are kept in 32 bits, and widened at the end.

    C, V = argmax_k (k, A[k, j])           of int64 and float32

        ──▶   C.narrow, V.narrow = argmax_k (i32(k), A[k, j])
              C[j], V[j]         = i64(C.narrow[j]), V.narrow[j]

Then a vector of indices has as many lanes as a vector of values. The result is exact, because the reducer
only passes indices on and compares them, and the indices of all terms fit into 32 bits. The initial index may
be the smallest or largest int64. It is then replaced by the smallest or largest int32, which no term has.
"""

from __future__ import annotations

from autotensor.base.dtype import int32, int64
from autotensor.ir.bounds import Interval, bounds
from autotensor.ir.expr import (
    Binary,
    Cmp,
    Combiner,
    Compare,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    cast,
    compare,
)
from autotensor.ir.func import Buffer
from autotensor.ir.node import children, map_children
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import contains, free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp

NAME = "narrow_places"
LEAST, MOST = -(1 << 31), (1 << 31) - 1


def narrow_places(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The reduction with narrow indices, and the stage that widens them; None for a reduction without
    indices, or with indices that may not fit."""
    op = stage.op
    if op.combiner is None or len(op.bodies) < 2 or op.is_open:
        return None
    at = frozenset(n for n, body in enumerate(op.bodies) if _is_place(op, body, op.combiner.identity[n]))
    combiner = _narrowed(op.combiner, at)
    if combiner is None:
        return None
    name = fresh(f"{op.name}.narrow", set(state.names))
    made = tuple(
        Buffer(f"{name}{b.name.removeprefix(op.name)}", b.shape, int32 if n in at else b.dtype)
        for n, b in enumerate(op.buffers)
    )
    bodies = tuple(simplify(cast(int32, e)) if n in at else e for n, e in enumerate(op.bodies))
    point = tuple(a.var for a in op.axes)
    ends = (_wide(Load(b, point), e) for b, e in zip(made, op.combiner.identity, strict=True))
    return (
        StageOp(name, op.axes, op.reduce_axes, bodies, combiner, made),
        StageOp(op.name, op.axes, (), tuple(ends), None, op.buffers, op.tag),
    )


def _is_place(op: StageOp, term: Expr, first: Expr) -> bool:
    """Whether a result is int64, and its terms follow from the axes and fit into 32 bits."""
    if term.dtype != int64 or not isinstance(first, Const) or contains(term, Load) or not free_vars(term):
        return False
    known = bounds({a.var: Interval(0, a.extent - 1) for a in op.all_axes})
    return known.of(term).within(Interval(LEAST + 1, MOST - 1))


def _narrow(first: Expr) -> Const:
    """The initial index in 32 bits, or the number that replaces it."""
    assert isinstance(first, Const)
    return Const(max(LEAST, min(int(first.value), MOST)), int32)


def _wide(narrow: Expr, first: Expr) -> Expr:
    """The widened result. If it is the number that replaces `first`, it becomes `first`."""
    if narrow.dtype == first.dtype:
        return narrow
    wide = cast(first.dtype, narrow)
    stands = _narrow(first)
    assert isinstance(first, Const)
    return wide if stands.value == first.value else Select(compare(Cmp.EQ, narrow, stands), first, wide)


def _narrowed(c: Combiner, at: frozenset[int]) -> Combiner | None:
    """The reducer with 32-bit results at these positions; None if it does more than select and compare
    indices."""
    small = {v: Var(v.name, int32) for side in (c.lhs, c.rhs) for n, v in enumerate(side) if n in at}
    results = tuple(_small(e, small) for e in c.result)
    wanted = (int32 if n in at else e.dtype for n, e in enumerate(c.result))
    done = tuple(e for e, t in zip(results, wanted, strict=True) if e is not None and e.dtype == t)
    if not at or len(done) < len(results):
        return None
    lhs, rhs = (tuple(small.get(v, v) for v in side) for side in (c.lhs, c.rhs))
    begin = tuple(_narrow(e) if n in at else e for n, e in enumerate(c.identity))
    return Combiner(c.name, lhs, rhs, done, begin)


def _small(e: Expr, small: dict[Var, Var]) -> Expr | None:
    """The expression over narrow indices; None if it computes another index, or a value, from them."""
    if not free_vars(e) & small.keys():
        return e
    keeps = isinstance(e, Select | Compare) or e.dtype.is_bool
    if not keeps and not (isinstance(e, Binary) and e.op in (Op.MIN, Op.MAX)):
        return small[e] if isinstance(e, Var) else None
    found = {c: _small(c, small) for c in children(e) if isinstance(c, Expr)}
    changed = any(
        new is None or (new.dtype != old.dtype) != (old.dtype == int64) for old, new in found.items()
    )
    return None if changed else map_children(e, found.__getitem__)


ALGORITHMS.add(NAME, Algorithm(NAME, narrow_places))
