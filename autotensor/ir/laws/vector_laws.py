"""Laws of Ramp and Broadcast, as rules for `simplify`: an operation that is equal in all lanes is done once.

Sums of ramps are ramps: their bases and their strides are added. For quotients and similar operators, the
vector is written with a lane variable L in 0..lanes-1, simplified as a scalar, and read back. A result
without L is a Broadcast, and one with a constant times L is a Ramp.

    Ramp(16*i, 1, 16) // 32  =  (16*i + L) // 32  =  i // 2   ──▶  Broadcast(i // 2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotensor.ir.affine import Affine
from autotensor.ir.bounds import Interval, base_and_stride
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Op,
    Ramp,
    Select,
    Unary,
    Var,
    const,
)
from autotensor.ir.lane_offsets import in_lane
from autotensor.ir.laws.logic_laws import constant_bool
from autotensor.ir.laws.types import integer_vector, vector
from autotensor.ir.rewrite import rule
from autotensor.ir.visit import free_vars

if TYPE_CHECKING:
    # the simplifier applies the laws, and gives them what is known
    from autotensor.ir.simplify import Simplifier

LANE = "<lane>"  # no program can have this name
_BY_LANE = (Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX, Op.AND, Op.SHR)


@rule(Binary, Compare, when=vector)
def operator_of_broadcasts(e: Binary | Compare, s: Simplifier) -> Expr | None:
    """Broadcast(x) + Broadcast(y) = Broadcast(x + y), for every operator."""
    if isinstance(e.a, Broadcast) and isinstance(e.b, Broadcast):
        return Broadcast(type(e)(e.op, e.a.a, e.b.a), e.dtype.lanes)  # type: ignore[arg-type]
    return None


@rule(Unary, Cast, Call, Select, when=vector)
def function_of_broadcasts(e: Expr, s: Simplifier) -> Expr | None:
    """f(Broadcast(x)) = Broadcast(f(x))."""
    lanes = e.dtype.lanes
    match e:
        case Unary(op, Broadcast(a, _)):
            return Broadcast(Unary(op, a), lanes)
        case Cast(target, Broadcast(a, _)):
            return Broadcast(Cast(target.element, a), lanes)
        case Call(name, args, dtype) if args and all(isinstance(a, Broadcast) for a in args):
            scalars = tuple(a.a for a in args if isinstance(a, Broadcast))
            return Broadcast(Call(name, scalars, dtype.element), lanes)
        case Select(Broadcast(c, _), Broadcast(x, _), Broadcast(y, _)):
            return Broadcast(Select(c, x, y), lanes)
    return None


@rule(Load, when=vector)
def load_of_broadcasts(e: Load, s: Simplifier) -> Expr | None:
    """Load[Broadcast(x)] = Broadcast(Load[x]), without a mask or with one mask for all lanes."""
    mask = e.mask
    if mask is not None and not isinstance(mask, Broadcast):
        return None
    for i in e.indices:
        if i.dtype.lanes > 1 and not isinstance(i, Broadcast):
            return None
    scalars = tuple(i.a if isinstance(i, Broadcast) else i for i in e.indices)
    return Broadcast(Load(e.buffer, scalars, None if mask is None else mask.a), e.dtype.lanes)


@rule(Binary, when=integer_vector)
def sum_of_ramps(e: Binary, s: Simplifier) -> Expr | None:
    """Ramps are added base by base, subtracted likewise, and multiplied by constants (modulo 2**bits)."""
    lanes = e.dtype.lanes
    if lanes == 1 or not e.dtype.is_int:
        return None
    (x, n), (y, m) = base_and_stride(e.a), base_and_stride(e.b)
    if x is None or y is None:
        return None
    match e.op:
        case Op.ADD | Op.SUB:
            return Ramp(Binary(e.op, x, y), n + m if e.op is Op.ADD else n - m, lanes)
        case Op.MUL if m == 0 and isinstance(y, Const):
            return Ramp(Binary(Op.MUL, x, y), n * int(y.value), lanes)
        case Op.MUL if n == 0 and isinstance(x, Const):
            return Ramp(Binary(Op.MUL, x, y), m * int(x.value), lanes)
    return None


@rule(Ramp)
def flat_ramp(e: Ramp, s: Simplifier) -> Expr | None:
    """Ramp(x, 0, n) = Broadcast(x); a ramp of one lane is its base."""
    if e.lanes == 1:
        return e.base
    return Broadcast(e.base, e.lanes) if e.stride == 0 else None


@rule(Broadcast)
def single_lane(e: Broadcast, s: Simplifier) -> Expr | None:
    return e.a if e.lanes == 1 else None


@rule(Unary, when=vector)
def negated_ramp(e: Unary, s: Simplifier) -> Expr | None:
    """-Ramp(b, s, n) = Ramp(-b, -s, n)."""
    if isinstance(e.a, Ramp) and e.op.value == "-":
        return Ramp(Unary(e.op, e.a.base), -e.a.stride, e.a.lanes)
    return None


@rule(Cast, when=vector)
def cast_ramp(e: Cast, s: Simplifier) -> Expr | None:
    """The cast of a ramp is a ramp of the cast base, if the cast narrows or the ramp does not wrap."""
    match e.a:
        case Ramp(base, step, lanes) if e.dtype.kind == "int" and base.dtype.kind == "int":
            if e.dtype.bits <= base.dtype.bits or s.bounds.exact(e.a):
                return Ramp(Cast(e.dtype.element, base), step, lanes)
    return None


@rule(Binary, when=integer_vector)
def by_lane(e: Binary, s: Simplifier) -> Expr | None:
    """Quotients, remainders and minima of ramps, if the results of the lanes are equal or form a ramp."""
    if e.dtype.lanes == 1 or not e.dtype.is_int or e.op not in _BY_LANE:
        return None
    if not (s.bounds.exact(e.a) and s.bounds.exact(e.b)):
        return None
    lane = Var(LANE, e.dtype.element)
    if base_and_stride(e.a)[0] is None or base_and_stride(e.b)[0] is None:
        return None
    x, y = in_lane(e.a, lane), in_lane(e.b, lane)
    assert x is not None
    assert y is not None
    inner = s.inside(lane, Interval(0, e.dtype.lanes - 1))
    return from_lanes(inner.affine(inner.expr(Binary(e.op, x, y))), lane, e.dtype.lanes, inner)


def from_lanes(a: Affine, lane: Var, lanes: int, s: Simplifier) -> Expr | None:
    """The vector whose lane `lane` is `a`; None if it is not a ramp."""
    if any(lane in free_vars(t) for t in a.opaque_terms()):
        return None
    step = a.coefficient(lane)
    base = s.sum_expr(a.without(lane))
    return Ramp(base, step, lanes) if step else Broadcast(base, lanes)


@rule(Load)
def masked_load(e: Load, s: Simplifier) -> Expr | None:
    """A mask that always holds is dropped; a load whose mask never holds is 0."""
    value = None if e.mask is None else constant_bool(e.mask)
    if value is None:
        return None
    return Load(e.buffer, e.indices) if value else const(0, e.dtype)


VECTOR_LAWS = (
    operator_of_broadcasts,
    function_of_broadcasts,
    load_of_broadcasts,
    sum_of_ramps,
    flat_ramp,
    single_lane,
    negated_ramp,
    cast_ramp,
    by_lane,
    masked_load,
)
