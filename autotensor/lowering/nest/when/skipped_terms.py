"""skip: leaves out the terms of a reduction that a Select makes neutral, instead of adding them.

    C += select(c, x, 0) * w            ──▶     if c: C += x * w
    C = max(C, select(c, x, -inf))      ──▶     if c: C = max(C, x)
    C += (i32(select(c, x, 5)) - 5) * w ──▶     if c: C += (i32(x) - 5) * w         bytes and their zero point
    C[j*16 + l] += select(k <= j*16 + l, x, 0)
            ──▶     if k <= j*16 + 15: C[j*16 + l] += select(k <= j*16 + l, x, 0)    l: lanes

Zero padding that was inlined into a convolution has this form. Guards on kernel axes then cost one test for
each row of the kernel, or nothing if loops are cut or written out. The multiplications by zero are saved. The
terms `0 * w` are left out: if w is infinite or NaN, the sum differs, as in every library that skips padding.
The pragma `skip_zeros` turns this on. With 2, it works for all conditions; with 1, only for conditions that
are the same for all lanes. With 1, another condition is tested once for the whole tile: terms that no lane
adds are left out, and the Select stays for the other terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import (
    Binary,
    Cast,
    Cmp,
    Combiner,
    Const,
    Expr,
    Load,
    Op,
    Select,
    Var,
    all_of,
    compare,
    conjuncts,
    const,
)
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import contains, free_vars
from autotensor.lowering.index_limits import weakest
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import leaf_var
from autotensor.schedule.state import Stage

Exprs = tuple[Expr, ...]


def skipping(stage: Stage, values: Mapping[str, Expr], ranges: Mapping[Var, Interval]) -> tuple[Exprs, Exprs]:
    """The conditions over loop variables without which a stage adds nothing, and its bodies under them.

    values: the op's axes over loop variables. Points outside the stage's domain are never read, so they count
    as adding nothing. Without the pragma, there are no conditions, and the bodies are the op's own.
    """
    op = stage.op
    asked = max((int(value) for _, key, value in stage.pragmas if key == "skip_zeros"), default=0)
    if not asked or op.combiner is None or len(op.bodies) != 1:
        return (), op.bodies
    mapping = {a.var: values[a.name] for a in op.all_axes}
    vectors = {leaf_var(stage.name, a.name) for a in stage.leaves if a.mark is Mark.VECTORIZED}

    def usable(cond: Expr) -> bool:
        """Whether a guard can test the condition: it is the same for all lanes, or lanes may be left out."""
        return asked > 1 or not free_vars(substitute(cond, mapping)) & vectors

    found, body = neutral_terms(op.bodies[0], op.combiner, usable)
    every, _ = neutral_terms(op.bodies[0], op.combiner, lambda _: True)
    inside = [compare(Cmp.LT, a.var, const(a.extent)) for a in op.axes]
    wanted = [substitute(c, mapping) for c in (*found, *(c for c in inside if usable(c)))]
    tile = vectors | {leaf_var(stage.name, a.name) for a in stage.leaves if a.mark is Mark.UNROLLED}
    for c in every:
        if c not in found and (some := weakest(substitute(c, mapping), tile, dict(ranges))) is not None:
            wanted.append(some)
    placed = dict.fromkeys(simplify(c, dict(ranges)) for c in wanted)
    return tuple(c for c in placed if prove(c, dict(ranges)) is not True), (body,)


def neutral_terms(body: Expr, combiner: Combiner, usable: Callable[[Expr], bool]) -> tuple[Exprs, Expr]:
    """The conditions without which the body changes nothing, and the body under them.

    usable: whether a condition may become a guard; other conditions stay in their Selects.
    """
    conditions: list[Expr] = []
    identity = combiner.identity[0]

    def under(e: Expr, neutral: Callable[[Expr], bool]) -> Expr:
        """The expression under the conditions found so far. neutral: whether a value adds nothing."""
        match e:
            case Select(cond, then, otherwise) if neutral(otherwise):
                inner = under(then, neutral)
                parts = conjuncts(cond)
                taken = [c for c in parts if _plain(c) and usable(c)]
                conditions.extend(taken)
                left = [c for c in parts if c not in taken]
                return Select(all_of(*left), inner, otherwise) if left else inner
            case Binary(Op.MUL, a, b) if combiner.name == "sum":
                return Binary(Op.MUL, under(a, _is_zero), under(b, _is_zero))
            case Cast(t, a):
                return Cast(t, under(a, lambda v: isinstance(v, Const) and neutral(simplify(Cast(t, v)))))
            case Binary(Op.SUB | Op.ADD as op, a, Const() as z):
                return Binary(
                    op, under(a, lambda v: isinstance(v, Const) and neutral(simplify(Binary(op, v, z)))), z
                )
            case _:
                return e

    bare = under(body, lambda v: isinstance(v, Const) and v == identity)
    return tuple(dict.fromkeys(conditions)), bare


def _plain(cond: Expr) -> bool:
    """Whether the condition reads nothing from memory."""
    return not contains(cond, Load)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
