"""Conversions from float32 to integers by x86's own instructions.

    int(x)                                             cvttps2dq
    int(round(x))                                      cvtps2dq, which rounds halves to even
    int8(min(max(round(x) + zero, low), high))         cvtps2dq(min(max(x, low - zero), high - zero)) + zero

The conversions give the least number if the integer type cannot hold the value. The third line makes a byte
from a sum: limits that are whole numbers may be applied before the rounding, and a zero point is added to the
integer. NaN becomes the least number, whose lowest bits are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotensor.base.dtype import DType, int16, int32
from autotensor.codegen.llvm.arithmetic.extremes import Extremes
from autotensor.codegen.llvm.function_writer import cond_type, literal, ty
from autotensor.ir.expr import Binary, Broadcast, Call, Cast, Const, Expr, Op
from autotensor.ir.semantics import stopover

# the instructions, by number of lanes
_TRUNCATE = {
    4: "llvm.x86.sse2.cvttps2dq",
    8: "llvm.x86.avx.cvtt.ps2dq.256",
    16: "llvm.x86.avx512.mask.cvttps2dq.512",
}
_ROUND = {
    4: "llvm.x86.sse2.cvtps2dq",
    8: "llvm.x86.avx.cvt.ps2dq.256",
    16: "llvm.x86.avx512.mask.cvtps2dq.512",
}
EXACT = 1 << 22  # whole numbers below it, and their sums, are exact in float32


class Calls(Protocol):
    """The part that a conversion alone uses."""

    def call(self, name: str, result: DType, *args: tuple[DType, str]) -> str: ...


class Operands(Calls, Protocol):
    """The part of the writer of expressions (expr.py) that this module uses."""

    extremes: Extremes

    def value(self, e: Expr) -> str: ...
    def cast(self, x: str, old: DType, new: DType) -> str: ...
    def fills_register(self, t: DType) -> bool: ...
    def op(self, text: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Rounded:
    """min(max(round(x) + zero, low), high), where all but x are whole numbers."""

    x: Expr
    zero: int
    low: int
    high: int


def truncated(w: Calls, x: str, old: DType) -> str:
    return _converted(w, _TRUNCATE, x, old)


def rounded(w: Operands, e: Cast) -> str:
    """The value of a cast of a rounded float32 by one conversion; "" for other casts."""
    old, new = e.a.dtype, e.dtype
    if old.kind != "float" or old.bits != 32 or not new.is_int or not w.fills_register(old):
        return ""
    via = stopover(new)
    if via.bits != 32:
        return ""
    match e.a:
        case Call("round", (x,)):
            return w.cast(_converted(w, _ROUND, w.value(x), old), via, new)
    found = _clamped(e.a)
    return "" if found is None or new.bits > 16 else _narrowed(w, found, via, new)


def _narrowed(w: Operands, r: Rounded, via: DType, new: DType) -> str:
    t, low, high = r.x.dtype, r.low - r.zero, r.high - r.zero
    x = w.value(r.x)
    if r.zero and r.low == 0:  # a NaN must become 0, and 0 is the low end here
        x = w.extremes.beyond(Op.MAX, t, x, literal(low, t))
    else:
        x = w.extremes.beyond(Op.MAX, t, literal(low, t), x)
    x = w.extremes.beyond(Op.MIN, t, literal(high, t), x)
    whole = _converted(w, _ROUND, x, t)
    if r.zero:
        moved = w.op(f"add {ty(via)} {whole}, {literal(r.zero, via)}")
        if r.low:
            number = w.op(f"fcmp ord {ty(t)} {x}, {x}")
            moved = w.op(f"select {cond_type(t)} {number}, {ty(via)} {moved}, {ty(via)} {whole}")
        whole = moved
    return w.cast(whole, via, new)


def _clamped(e: Expr) -> Rounded | None:
    match e:
        case Binary(Op.MIN, Binary(Op.MAX, inner, low), high):
            ends = _whole(low), _whole(high)
        case _:
            return None
    match inner:
        case Call("round", (x,)):
            zero: int | None = 0
        case Binary(Op.ADD, Call("round", (x,)), z):
            zero = _whole(z)
        case _:
            return None
    if zero is None or ends[0] is None or ends[1] is None or ends[0] > ends[1]:
        return None
    return Rounded(x, zero, ends[0], ends[1])


def _whole(e: Expr) -> int | None:
    """The value of a float constant that is a whole number; None for any other expression."""
    while isinstance(e, Broadcast):
        e = e.a
    known = isinstance(e, Const) and abs(e.value) < EXACT and float(e.value).is_integer()
    return int(e.value) if known and isinstance(e, Const) else None


def _converted(w: Calls, by: dict[int, str], x: str, old: DType) -> str:
    via = int32.with_lanes(old.lanes)
    unmasked = ((via, literal(0, via)), (int16, "-1"), (int32, "4"))  # 4: the current rounding mode
    return w.call(by[old.lanes], via, (old, x), *(unmasked if old.lanes == 16 else ()))
