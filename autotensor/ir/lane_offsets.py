"""Splits vector indices into a scalar sum and a constant offset from this sum for each lane.

Ramp(j*32 + 16, 1, 16)           ──▶  j*32 + 16, offsets 0, 1, … 15
(Ramp(j*8, 1, 8) + x8(i*4)) % 4  ──▶  0, offsets 0, 1, 2, 3, 0, 1, 2, 3
"""

from __future__ import annotations

from typing import NamedTuple

from autotensor.ir.affine import Affine, affine, split_by
from autotensor.ir.expr import Binary, Broadcast, Cast, Compare, Expr, Load, Op, Ramp, Unary, const


class Lanes(NamedTuple):
    base: Affine
    offsets: tuple[int, ...]  # one for each lane


def in_lane(e: Expr, lane: Expr) -> Expr | None:
    """Lane `lane` of a vector made of ramps and broadcasts, or of a scalar; None for any other vector."""
    match e:
        case Ramp(base, step, _):
            number = lane if lane.dtype == base.dtype else Cast(base.dtype, lane)
            return Binary(Op.ADD, base, Binary(Op.MUL, number, const(step, base.dtype)))
        case Broadcast(a, _):
            return a
        case Binary(op, a, b) | Compare(op, a, b):
            x, y = in_lane(a, lane), in_lane(b, lane)
            return None if x is None or y is None else type(e)(op, x, y)  # type: ignore[arg-type]
        case Unary(op, a):
            x = in_lane(a, lane)
            return None if x is None else Unary(op, x)
        case Cast(dtype, a):
            x = in_lane(a, lane)
            return None if x is None else Cast(dtype.element, x)
    return e if e.dtype.lanes == 1 else None


def in_loaded_lane(e: Expr, lane: Expr) -> Expr | None:
    """Like `in_lane`, but parts of the vector may also be loads, at indices of this form."""
    match e:
        case Load(buffer, (index,), None) if index.dtype.lanes == e.dtype.lanes:
            at = in_loaded_lane(index, lane)
            return None if at is None else Load(buffer, (at,))
        case Binary(op, a, b):
            x, y = in_loaded_lane(a, lane), in_loaded_lane(b, lane)
            return None if x is None or y is None else Binary(op, x, y)
        case Cast(dtype, a):
            x = in_loaded_lane(a, lane)
            return None if x is None else Cast(dtype.element, x)
    return in_lane(e, lane)


def lanes_of(e: Expr) -> Lanes | None:
    """The parts of an integer index; None if the distances between its lanes are not constants."""
    match e:
        case Ramp(base, stride, count):
            return _spread(base, tuple(range(0, count * stride, stride)) if stride else (0,) * count)
        case Broadcast(a, count):
            return _spread(a, (0,) * count)
        case _ if e.dtype.lanes == 1:
            return _spread(e, (0,))
        case Binary(op, a, b):
            x, y = lanes_of(a), lanes_of(b)
            return None if x is None or y is None else _combined(op, x, y)
    return None


def _spread(e: Expr, offsets: tuple[int, ...]) -> Lanes | None:
    base = affine(e)
    return None if base is None else Lanes(base, offsets)


def _combined(op: Op, x: Lanes, y: Lanes) -> Lanes | None:
    if op in (Op.ADD, Op.SUB):
        k = 1 if op is Op.ADD else -1
        offsets = tuple(p + k * q for p, q in zip(x.offsets, y.offsets, strict=True))
        return Lanes(x.base.plus(y.base, k), offsets)
    if op is Op.MUL and _constant(y) is None:
        x, y = y, x
    c = _constant(y)
    if op is Op.MUL and c is not None:
        return Lanes(x.base.scale(c), tuple(c * o for o in x.offsets))
    if op not in (Op.FLOORDIV, Op.MOD) or c is None or c <= 0 or any(k % c for k in x.base.terms.values()):
        return None
    places = [x.base.constant + o for o in x.offsets]
    if op is Op.MOD:
        return Lanes(x.base.scale(0), tuple(p % c for p in places))
    return Lanes(split_by(x.base.shift(-x.base.constant), c)[0], tuple(p // c for p in places))


def _constant(x: Lanes) -> int | None:
    """The number that all lanes hold; None if they differ or are not constant."""
    return x.base.constant + x.offsets[0] if x.base.is_constant and len(set(x.offsets)) == 1 else None
