"""Random integer expressions over few variables with small ranges, and their values.

`cases()` draws (expression, ranges, assumptions); `assignments` lists all values of the variables; `value_of`
is the slow, obvious meaning, with wrap-around: an int or bool for a scalar, a list of them for a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from hypothesis import strategies as st

from autotensor.base.dtype import DType, int8, int32, int64, uint8, wrap_int
from autotensor.ir.bounds import Interval
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Cmp,
    Compare,
    Const,
    Expr,
    Neg,
    Op,
    Ramp,
    Select,
    Unary,
    Var,
    const,
)
from autotensor.ir.semantics import integer

NAMES = ("a", "b", "c")
COMPARE = {
    Cmp.EQ: lambda x, y: x == y,
    Cmp.NE: lambda x, y: x != y,
    Cmp.LT: lambda x, y: x < y,
    Cmp.LE: lambda x, y: x <= y,
    Cmp.GT: lambda x, y: x > y,
    Cmp.GE: lambda x, y: x >= y,
}


class Undefined(Exception):
    """An index out of the range of int64: such an expression has no value to keep."""


# -- meaning -------------------------------------------------------------------------------------------------
def value_of(e: Expr, env: Mapping[Var, int]) -> Any:
    if e.dtype.lanes > 1:
        return [_lane(e, env, n) for n in range(e.dtype.lanes)]
    return _lane(e, env, 0)


def _lane(e: Expr, env: Mapping[Var, int], n: int) -> int | bool:
    """Lane n of the value."""
    match e:
        case Var():
            return env[e]
        case Const(value):
            return value
        case Broadcast(a, _):
            return _lane(a, env, 0)
        case Ramp(base, step, _):
            return wrap_int(_lane(base, env, 0) + n * step, e.dtype.element)
        case Binary(op, a, b):
            x, y = _lane(a, env, n), _lane(b, env, n)
            if e.dtype.is_bool:
                return (x and y) if op is Op.AND else (x or y)
            if e.dtype.element is int64 and op is Op.SHL and y > 15:
                raise Undefined  # index arithmetic is assumed never to overflow
            return integer(op, int(x), int(y), e.dtype.element)
        case Unary(Neg.NEG, a):
            return wrap_int(-_lane(a, env, n), e.dtype.element)
        case Unary(Neg.NOT, a):
            x = _lane(a, env, n)
            return (not x) if e.dtype.is_bool else wrap_int(~x, e.dtype.element)
        case Compare(op, a, b):
            return COMPARE[op](_lane(a, env, n), _lane(b, env, n))
        case Select(cond, then, otherwise):
            return _lane(then if _lane(cond, env, n if cond.dtype.lanes > 1 else 0) else otherwise, env, n)
        case Cast(_, a):
            x = _lane(a, env, n)
            return bool(x) if e.dtype.is_bool else wrap_int(int(x), e.dtype.element)
    raise AssertionError(e)


def values(
    e: Expr, ranges: Mapping[Var, Interval], assumed: Sequence[Expr]
) -> Iterator[tuple[dict[Var, int], Any]]:
    """(assignment, value) wherever the value is defined and the assumptions hold."""
    for env in assignments(ranges):
        try:
            if all(value_of(c, env) for c in assumed):
                yield env, value_of(e, env)
        except Undefined:
            continue


def assignments(ranges: Mapping[Var, Interval]) -> Iterator[dict[Var, int]]:
    """All values of all variables."""
    spans = [range(r.lo, r.hi + 1) for r in ranges.values()]
    for values in product(*spans):
        yield dict(zip(ranges, values, strict=True))


# -- drawing -------------------------------------------------------------------------------------------------
# All is drawn through `pick(options)`: hypothesis', so that failures shrink, or random.choice for long runs.
Pick = Callable[[Sequence[Any]], Any]

FACTORS = (1, 2, 3, 4, 6, 8, 12, 16, -1, -2, -4)
DIVISORS = (4, 8, 16, 1, 2, 3, 6, 12, -3)
SMALL = (0, 1, 2, 3, 4, 7, 8, 9, 15, 17, 20, -1, -2, -3, -8, -13)
ORDINARY = (Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX)
ODD = (Op.FLOORDIV, Op.MOD, Op.AND, Op.OR, Op.XOR, Op.SHR, Op.SHL)
TYPES = (int64, int64, int64, int32, int8, uint8)


def number(pick: Pick, t: DType, options: Sequence[int] = SMALL) -> Expr:
    return const(wrap_int(pick(options), t), t)


def int_expr(pick: Pick, t: DType = int64, depth: int = 3) -> Expr:
    kind = "leaf" if depth == 0 else pick(KINDS)
    if kind == "leaf":
        return number(pick, t) if pick((0, 0, 1)) else Var(pick(NAMES), t)
    a = int_expr(pick, t, depth - 1)
    match kind:
        case "ordinary":
            return Binary(pick(ORDINARY), a, int_expr(pick, t, depth - 1))
        case "times plus":
            return Binary(Op.ADD, Binary(Op.MUL, a, number(pick, t, FACTORS)), int_expr(pick, t, depth - 1))
        case "times":
            return Binary(Op.MUL, a, number(pick, t, FACTORS))
        case "divided":
            return Binary(pick((Op.FLOORDIV, Op.MOD)), a, number(pick, t, DIVISORS))
        case "joined":  # c*(x//c) + x%c
            c = number(pick, t, DIVISORS)
            whole = Binary(Op.MUL, Binary(Op.FLOORDIV, a, c), c)
            return Binary(Op.ADD, whole, Binary(Op.MOD, a, c))
        case "odd":
            return Binary(pick(ODD), a, int_expr(pick, t, depth - 1))
        case "negated":
            return Unary(pick((Neg.NEG, Neg.NOT)), a)
        case "select":
            return Select(condition(pick, t, depth - 1), a, int_expr(pick, t, depth - 1))
        case _:
            return Cast(t, Cast(pick(TYPES), a))


KINDS = (
    *("leaf", "ordinary", "ordinary", "ordinary", "times plus", "times plus", "times"),
    *("divided", "divided", "joined", "odd", "negated", "select", "cast"),
)


def condition(pick: Pick, t: DType = int64, depth: int = 2) -> Expr:
    kind = pick(("simple", "simple", "both", "either", "not"))
    first = Compare(pick(tuple(Cmp)), int_expr(pick, t, depth), int_expr(pick, t, depth))
    match kind:
        case "both":
            return Binary(Op.AND, first, condition(pick, t, depth - 1 if depth else 0))
        case "either":
            return Binary(Op.OR, first, condition(pick, t, depth - 1 if depth else 0))
        case "not":
            return Unary(Neg.NOT, first)
        case _:
            return first


def vector(pick: Pick, t: DType = int64, lanes: int = 4) -> Expr:
    """A ramp, a broadcast, or a few operations on them; sometimes a comparison."""
    a, b = _lanes(pick, t, lanes), _lanes(pick, t, lanes)
    c = Broadcast(number(pick, t, DIVISORS), lanes)
    match pick(("plain", "divided", "twice", "cast", "compare")):
        case "plain":
            return Binary(pick(ORDINARY), a, b)
        case "divided":
            return Binary(pick((Op.FLOORDIV, Op.MOD, Op.MUL)), a, c)
        case "twice":
            return Binary(pick((Op.FLOORDIV, Op.MOD, Op.MUL)), Binary(pick(ORDINARY), a, b), c)
        case "cast":
            return Cast(int64, Cast(pick((int32, int8)), a))
        case _:
            return Compare(pick(tuple(Cmp)), a, b)


def _lanes(pick: Pick, t: DType, lanes: int) -> Expr:
    base = int_expr(pick, t, 1)
    match pick(("ramp", "broadcast", "aligned")):
        case "ramp":
            return Ramp(base, pick((1, 0, 2, 4, -1)), lanes)
        case "broadcast":
            return Broadcast(base, lanes)
        case _:
            return Ramp(Binary(Op.MUL, base, number(pick, t, (1, 4, 8))), 1, lanes)


def small_ranges(pick: Pick, t: DType = int64) -> dict[Var, Interval]:
    """A small interval for every variable; some do not begin at 0."""
    out = {}
    for name in NAMES:
        lo = pick((0, 0, 0, 0, 1, 3) if t.kind == "uint" else (0, 0, 0, 0, 1, 3, -2, -5))
        out[Var(name, t)] = Interval(lo, lo + pick((0, 1, 2, 3, 5, 7)))
    return out


Case = tuple[Expr, dict[Var, Interval], tuple[Expr, ...]]


def int_case(pick: Pick) -> Case:
    t = pick(TYPES)
    return int_expr(pick, t), small_ranges(pick, t), ()


def condition_case(pick: Pick) -> Case:
    t = pick(TYPES)
    return condition(pick, t), small_ranges(pick, t), ()


def vector_case(pick: Pick) -> Case:
    t = pick((int64, int64, int32, int8))
    return vector(pick, t), small_ranges(pick, t), ()


def assumed_case(pick: Pick) -> Case:
    """An expression or condition under one or two assumptions."""
    e = int_expr(pick) if pick((True, False)) else condition(pick)
    assumed = (condition(pick, depth=1), condition(pick, depth=1))
    return e, small_ranges(pick), assumed[: pick((1, 2))]


CASES = (int_case, condition_case, vector_case, assumed_case)


def drawn(make: Callable[[Pick], Any]) -> st.SearchStrategy[Any]:
    """A hypothesis strategy from a function of `pick`."""

    @st.composite
    def strategy(draw: Any) -> Any:
        return make(lambda options: draw(st.sampled_from(options)))

    return strategy()


def cases() -> st.SearchStrategy[Case]:
    return st.sampled_from(CASES).flatmap(drawn)
