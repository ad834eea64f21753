"""Finds reductions that one pass over their terms can compute.

    C[i, j] = Σ_k select(p[k] == i, u[k, j], 0)     for k: C[p[k], j] += u[k, j]        `solutions`: i is p[k]
    C[i]    = Σ_k select(k <= i, x[k], 0)           for i: C[i] = C[i-1] + x[i]         `running`: k is i

    R[i]    = Σ_k select(x[k] < x[i] or (x[k] == x[i] and k < i), 1, 0)    sort         `ranking`

As written, all three let each element look at all terms. But a term's condition says to which element the
term goes, or that an element has all terms of the element before it, or that the terms have an order. The
tensor expression does not change, so a program means the same whether a schedule uses one pass or not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import isnan, prod

from autotensor.base.dtype import DType, int64
from autotensor.ir.expr import (
    TRUE,
    Binary,
    Call,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Select,
    Unary,
    Var,
    all_of,
    conjuncts,
)
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.visit import free_vars, walk
from autotensor.te.choices import in_choices
from autotensor.te.stage import IterDef, StageOp, operations


@dataclass(frozen=True, slots=True)
class Running:
    """A reduction whose element at i has the terms up to i.

    If `reverse`, it has the terms from i on; if `exclusive`, it lacks the term at i itself.
    """

    axis: str  # i
    term: str  # the reduce axis k
    reverse: bool
    exclusive: bool


def solutions(op: StageOp) -> dict[str, Expr]:
    """The axes along which each term goes to one element, with the expression of this element's index.

    >>> from autotensor import te
    >>> from autotensor.te.dag import ComputeDAG
    >>> p, k = te.placeholder((9,), "int64", name="p"), te.reduce_axis(9, "k")
    >>> counts = te.compute((4,), lambda i: te.sum(te.select(p[k].equal(i), 1, 0), axis=k), name="counts")
    >>> {axis: str(e) for axis, e in solutions(ComputeDAG.of([counts]).stages[0]).items()}
    {'i': 'p[k]'}
    """
    return {name: e for name, (_, e) in _equations(in_choices(op)).items()}


def _equations(op: StageOp) -> dict[str, tuple[Expr, Expr]]:
    """The condition that says the place along an axis, and the place."""
    axes: dict[Expr, str] = {a.var: a.name for a in op.axes}
    found: dict[str, tuple[Expr, Expr]] = {}
    for c in _under_condition(op):
        for mine, other in _sides(c):
            if mine in axes and axes[mine] not in found and not free_vars(other) & {mine}:
                found[axes[mine]] = c, other
                break
    # the equation of one axis may not depend on another solved axis
    asked = {v for v, name in axes.items() if name in found}
    return {name: (c, e) for name, (c, e) in found.items() if not free_vars(e) & asked}


def without(op: StageOp, solved: tuple[str, ...]) -> tuple[Expr, ...]:
    """The bodies of a stage, without the equations that give the index along each axis of `solved`."""
    if not solved:
        return op.bodies
    op = in_choices(op)
    (body,) = op.bodies
    used = {c for axis, (c, _) in _equations(op).items() if axis in solved}
    assert isinstance(body, Select)
    left = [c for c in conjuncts(body.cond) if c not in used]
    return (Select(all_of(*left), body.then, body.otherwise) if left else body.then,)


def running(op: StageOp) -> Running | None:
    """How the reduction runs along an axis; None if it is not a running reduction."""
    op = in_choices(op)
    conditions = _conditions(op)
    if len(conditions) != 1 or len(op.reduce_axes) != 1 or op.has_open_sum:
        return None
    (k,), (c,) = op.reduce_axes, conditions
    axes: dict[Expr, IterDef] = {a.var: a for a in op.axes}
    if not isinstance(c, Compare):
        return None
    turned = {Cmp.LT: Cmp.GT, Cmp.GT: Cmp.LT, Cmp.LE: Cmp.GE, Cmp.GE: Cmp.LE}
    if c.a is k.var and c.b in axes and c.op in turned:
        order, axis = c.op, axes[c.b]
    elif c.b is k.var and c.a in axes and c.op in turned:
        order, axis = turned[c.op], axes[c.a]
    else:
        return None
    # a term must be the same for all elements along the axis
    if axis.extent != k.extent or any(axis.var in free_vars(b) for b in carried(op).bodies):
        return None
    return Running(axis.name, k.name, order in (Cmp.GT, Cmp.GE), order in (Cmp.LT, Cmp.GT))


@dataclass(frozen=True, slots=True)
class Ranking:
    """A reduction that counts, for each element along an axis, the elements that come before it.

    The condition defines an order of all elements.
    """

    axis: str  # i
    term: str  # the reduce axis k
    key: Expr  # the key by which the elements are ordered, at i
    condition: Expr  # whether A comes before B, over the values and positions of both

    def before(self, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
        """Whether `a` comes before `b`; each is a pair of a key and a position."""
        old = (*_pair("a", self.key.dtype), *_pair("b", self.key.dtype))
        return substitute(self.condition, dict(zip(old, (*a, *b), strict=True)))


def ranking(op: StageOp) -> Ranking | None:
    """How the reduction ranks its elements; None if it is not a ranking."""
    op = in_choices(op)
    parts = _under_condition(op)
    if not parts or len(op.reduce_axes) != 1 or op.combiner is None or op.combiner.name != "sum":
        return None
    (k,), (body,) = op.reduce_axes, op.bodies
    assert isinstance(body, Select)
    if not (isinstance(body.then, Const) and body.then.value == 1 and body.dtype.is_int):
        return None
    if k.extent >= 1 << (body.dtype.bits - 1):
        return None  # the type cannot hold all ranks
    for axis in op.axes:
        keys = _compared(body.cond, axis.var, k.var)
        if axis.extent != k.extent or keys is None:
            continue
        mine, other = keys
        a, b = _pair("a", mine.dtype), _pair("b", mine.dtype)
        swap: dict[Expr, Expr] = {other: a[0], mine: b[0], k.var: a[1], axis.var: b[1]}
        condition = _swapped(body.cond, swap)
        if free_vars(condition) <= {*a, *b} and _orders(condition, mine.dtype):
            return Ranking(axis.name, k.name, mine, condition)
    return None


def _swapped(e: Expr, swap: Mapping[Expr, Expr]) -> Expr:
    """The expression with the keys of `swap` replaced by its values, outer nodes first."""
    if e in swap:
        return swap[e]
    return map_children(e, lambda c: _swapped(c, swap) if isinstance(c, Expr) else c)


def _pair(name: str, dtype: DType) -> tuple[Var, Var]:
    return Var(f"{name}:key", dtype), Var(f"{name}:position", int64)


def _compared(cond: Expr, i: Var, k: Var) -> tuple[Expr, Expr] | None:
    """The expression at i and at k whose values the condition compares; None for any other condition."""
    sides: list[Expr] = []
    stack = [cond]
    while stack:
        match stack.pop():
            case Binary(Op.AND | Op.OR, a, b):
                stack += [a, b]
            case Unary(Neg.NOT, a):
                stack.append(a)
            case Compare(_, a, b) if a in (i, k) and b in (i, k):
                pass
            case Compare(_, a, b) if a not in (i, k) and b not in (i, k):
                sides += [a, b]
            case Call("isnan", (a,)):
                sides.append(a)
            case _:
                return None
    mine = next((x for x in sides if i in free_vars(x)), None)
    if mine is None or k in free_vars(mine):
        return None
    other = substitute(mine, {i: k})
    return (mine, other) if all(x in (mine, other) for x in sides) else None


def _orders(condition: Expr, dtype: DType) -> bool:
    """Whether the condition puts all pairs of a value and a position in one order.

    The condition consists of comparisons of two values and of two positions. These depend only on which is
    greater, or on whether one is NaN. So a property that holds for all triples of three numbers and NaN holds
    for all values.
    """
    values = [-1.0, 0.0, 1.0, float("nan")] if dtype.is_float else [0, 1] if dtype.is_bool else [0, 1, 2]
    items = list(product(values, (0, 1, 2)))
    n = range(len(items))
    a, b = _pair("a", dtype), _pair("b", dtype)

    def holds(x: int, y: int) -> bool:
        known = dict(zip((*a, *b), (*items[x], *items[y]), strict=True))
        return bool(_value(condition, known))

    first = [[holds(x, y) for y in n] for x in n]
    if any(first[x][y] == first[y][x] for x in n for y in n if items[x][1] != items[y][1]):
        return False  # of two elements at different positions, neither or both come first
    apart = [(x, y) for x in n for y in n if first[x][y] and items[x][1] != items[y][1]]
    return not any(
        first[z][x] for x, y in apart for z in n if first[y][z] and len({items[v][1] for v in (x, y, z)}) == 3
    )


def _value(e: Expr, known: Mapping[Var, float]) -> float | bool:
    """The value of a condition that `_compared` accepts."""
    match e:
        case Var():
            return known[e]
        case Const(value):
            return value
        case Binary(op, a, b):
            x, y = bool(_value(a, known)), bool(_value(b, known))
            return x and y if op is Op.AND else x or y
        case Unary(_, a):
            return not _value(a, known)
        case Call(_, (a,)):
            return isnan(_value(a, known))
        case Compare(op, a, b):
            return bool(_COMPARE[op](_value(a, known), _value(b, known)))
    raise AssertionError(f"{type(e).__name__} cannot be part of a condition.")


_COMPARE: Mapping[Cmp, Callable[[float, float], bool]] = {
    Cmp.EQ: operator.eq,
    Cmp.NE: operator.ne,
    Cmp.LT: operator.lt,
    Cmp.LE: operator.le,
    Cmp.GT: operator.gt,
    Cmp.GE: operator.ge,
}


def places_told(op: StageOp, buffer: Buffer) -> int | None:
    """The least number from which on the stage cannot tell the values of `buffer` apart.

    The stage must only compare the values with one of its axes; otherwise None.
    """
    most = 0
    asked: set[Node] = set()
    for body in op.bodies:
        for node in walk(body):
            for var, value in _sides(node) if isinstance(node, Compare) else ():
                extent = next((a.extent for a in op.axes if a.var is var), None)
                if isinstance(value, Load) and value.buffer is buffer and extent is not None:
                    most = max(most, extent)
                    asked.add(node)
    rest = [transform(b, lambda n: TRUE if n in asked else None) for b in op.bodies]
    return None if any(isinstance(n, Load) and n.buffer is buffer for b in rest for n in walk(b)) else most


def fewest_points(op: StageOp) -> int:
    """How often the body is evaluated if a schedule uses these forms: n log2 n times for a sort."""
    points = op.points()
    if found := solutions(op):
        return points // prod(a.extent for a in op.axes if a.name in found)
    if running(op) is not None:
        return points // op.reduce_axes[0].extent
    if ranking(op) is not None:
        extent = op.reduce_axes[0].extent
        return points // extent * extent.bit_length()
    return points


@lru_cache(maxsize=4096)
def flops(op: StageOp) -> int:
    """Floating-point operations of a stage: arithmetic, comparisons, math calls, and one for each join.

    A scatter, a running sum or a sort is counted as schedules compute it: see `fewest_points`.
    """
    per_point = sum(operations(body) for body in op.bodies) + op.joins()
    return per_point * (fewest_points(op) if op.is_reduction else op.points())


def carried(op: StageOp) -> StageOp:
    """The stage with its terms, taken without their conditions."""
    return replace(op, bodies=tuple(b.then for b in in_choices(op).bodies if isinstance(b, Select)))


def _under_condition(op: StageOp) -> list[Expr]:
    """The conditions without which the only value of a term changes nothing; none for another form."""
    found = _conditions(op) if len(op.bodies) == 1 else set[Expr]()
    return [part for cond in found for part in conjuncts(cond)]


def _conditions(op: StageOp) -> set[Expr]:
    """The conditions without which each value of a term is neutral; none if some value has no condition."""
    found: set[Expr] = set()
    for body, identity in zip(op.bodies, op.combiner.identity if op.combiner else (), strict=False):
        neutral = isinstance(body, Select) and isinstance(identity, Const) and body.otherwise == identity
        if not neutral or not isinstance(body, Select) or body.cond.dtype.lanes != 1:
            return set()
        found.add(body.cond)
    return found


def _sides(cond: Expr) -> list[tuple[Expr, Expr]]:
    """Both directions of an equation: (an axis, the expression that it equals)."""
    match cond:
        case Compare(Cmp.EQ, a, b):
            return [(x, y) for x, y in ((a, b), (b, a)) if isinstance(x, Var) and x.dtype.is_int]
        case _:
            return []


__all__ = [
    "Ranking",
    "Running",
    "carried",
    "fewest_points",
    "flops",
    "places_told",
    "ranking",
    "running",
    "solutions",
    "without",
]
