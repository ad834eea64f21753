"""Shifts, quotients and remainders of integers, and sums of the halves of a vector.

If a shift is too far or a divisor is zero, LLVM leaves the result undefined; here it is the result that
`ir/semantics.py` defines.
"""

from __future__ import annotations

from autotensor.base.dtype import DType
from autotensor.codegen.llvm.function_writer import FunctionWriter, cond_type, literal, suffix, ty
from autotensor.ir.expr import Op

# bits of a vector: every processor has registers of this size, and sums over lanes pass through them
FENCED_BITS = 128


def shift(w: FunctionWriter, op: Op, t: DType, x: str, y: str, is_small: bool) -> str:
    """A shift by y. If the amount is negative or too large, only the sign is left.

    is_small: the amount is known to be neither.
    """
    word = ty(t)
    name = "shl" if op is Op.SHL else "lshr" if t.kind == "uint" else "ashr"
    if is_small:
        return w.op(f"{name} {word} {x}, {y}")
    if name == "ashr":
        most = w.call(f"llvm.umin.{suffix(t)}", t, (t, y), (t, literal(t.bits - 1, t)))
        return w.op(f"ashr {word} {x}, {most}")
    inside = w.op(f"icmp ult {word} {y}, {literal(t.bits, t)}")
    shifted = w.op(f"{name} {word} {x}, {y}")  # undefined if the amount is too large, but then not chosen
    return w.op(f"select {cond_type(t)} {inside}, {word} {shifted}, {word} {literal(0, t)}")


def divide_by_power_of_two(w: FunctionWriter, op: Op, t: DType, x: str, divisor: int) -> str:
    """The quotient, rounded down, or its remainder."""
    if op is Op.MOD:
        return w.op(f"and {ty(t)} {x}, {literal(divisor - 1, t)}")
    shift = "lshr" if t.kind == "uint" else "ashr"
    return w.op(f"{shift} {ty(t)} {x}, {literal(divisor.bit_length() - 1, t)}")


def divide(w: FunctionWriter, op: Op, t: DType, x: str, y: str, positive: bool, natural: bool) -> str:
    """The quotient, rounded down, or its remainder.

    positive: y is known to be positive. natural: x is known not to be negative, and y to be positive.
    """
    word, cond, quotient = ty(t), cond_type(t), op is Op.FLOORDIV
    unsigned = "udiv" if quotient else "urem"
    if natural:
        return w.op(f"{unsigned} {word} {x}, {y}")
    zero, one = literal(0, t), literal(1, t)
    odd = None
    if not positive:
        # divisors 0 and -1 would trap (-1 for the least number): divide by 1 and correct the result
        odd = w.op(f"icmp eq {word} {y}, {zero}")
        if t.kind == "int":
            minus = w.op(f"icmp eq {word} {y}, {literal(-1, t)}")
            odd = w.op(f"or {cond} {odd}, {minus}")
        safe = w.op(f"select {cond} {odd}, {word} {one}, {word} {y}")
    else:
        safe = y
    if t.kind == "uint":
        result = w.op(f"{unsigned} {word} {x}, {safe}")
    else:
        rest = w.op(f"srem {word} {x}, {safe}")
        # the remainder has the sign of x; if this differs from the divisor's sign, the quotient is one less
        sign = rest if positive else w.op(f"xor {word} {rest}, {safe}")
        down = w.op(f"icmp slt {word} {sign}, {zero}")
        if not positive:
            nonzero = w.op(f"icmp ne {word} {rest}, {zero}")
            down = w.op(f"and {cond} {down}, {nonzero}")
        if quotient:
            towards_zero = w.op(f"sdiv {word} {x}, {safe}")
            step = w.op(f"sext {cond} {down} to {word}")
            result = w.op(f"add {word} {towards_zero}, {step}")
        else:
            step = w.op(f"select {cond} {down}, {word} {safe}, {word} {zero}")
            result = w.op(f"add {word} {rest}, {step}")
    if odd is None:
        return result
    # x // -1 is -x, x // 0 is 0, and both remainders are 0
    instead = w.op(f"mul {word} {x}, {y}") if quotient else zero
    return w.op(f"select {cond} {odd}, {word} {instead}, {word} {result}")


def sum_of_halves(w: FunctionWriter, t: DType, x: str, y: str) -> str:
    """Adds the integers of two halves of a vector in such a way that LLVM does not recognise a sum of all
    lanes.

    LLVM 22 treats sums of products of bytes, or of their distances, as if registers were whole, and
    leaves out some lanes where the last vectors are narrow (`combineVPDPBUSDPattern`, and the pattern of
    `psadbw`). LLVM also ends the process if it recognises late that the summed numbers are small. It
    cannot look behind a fence. Behind a `freeze` it sees only that the numbers are small. Neither a fence
    nor a `freeze` costs time.
    """
    if t.bits * t.lanes != FENCED_BITS:
        x, y = (w.op(f"freeze {ty(t)} {v}") for v in (x, y))
        return w.op(f"add {ty(t)} {x}, {y}")
    kind, name = "<4 x float>", "llvm.arithmetic.fence.v4f32"
    w.declared.setdefault(name, f"declare {kind} @{name}({kind})")
    added = w.op(f"add {ty(t)} {x}, {y}")
    fenced = w.op(f"call {kind} @{name}({kind} {w.op(f'bitcast {ty(t)} {added} to {kind}')})")
    return w.op(f"bitcast {kind} {fenced} to {ty(t)}")
