"""Casts between number types, correctly rounded.

    float64 → float16      through float32, rounded to odd so that two roundings give the result of one
    int64 → bfloat16       through float64 and float32, in the same way
    float → integer        through a signed integer that holds more; its least number if that cannot hold x

If no integer holds a float, LLVM leaves the result undefined; here it is the result that `ir/semantics.py`
defines. bfloat16 values are integers of 16 bits here.
"""

from __future__ import annotations

from autotensor.base.dtype import DType, float32, float64, int32, uint16, uint32, wrap_int
from autotensor.codegen.llvm.arithmetic import intrinsics, rounded_integers
from autotensor.codegen.llvm.function_writer import FunctionWriter, cond_type, literal, suffix, ty
from autotensor.ir.semantics import stopover


def cast(w: FunctionWriter, x: str, old: DType, new: DType) -> str:
    """`x` of type `old` as type `new`, correctly rounded."""
    if old == new:
        return x
    a, b = ty(old), ty(new)
    if old.kind == "bfloat" or new.kind == "bfloat":
        return _bfloat(w, x, old, new)
    if new.is_bool:
        return w.op(f"{'fcmp une' if old.is_float else 'icmp ne'} {a} {x}, {literal(0, old)}")
    if old.is_float and new.is_float:
        if old.bits == 64 and new.bits == 16:
            wide = float32.with_lanes(old.lanes)
            return w.op(f"fptrunc {ty(wide)} {_round_to_odd(w, x, old)} to {b}")
        return w.op(f"{'fpext' if new.bits > old.bits else 'fptrunc'} {a} {x} to {b}")
    if old.is_float:
        return _to_integer(w, x, old, new)
    if new.is_float:
        return w.op(f"{'sitofp' if old.kind == 'int' else 'uitofp'} {a} {x} to {b}")
    if old.bits == new.bits:
        return x
    extend = "sext" if old.kind == "int" else "zext"
    return w.op(f"{extend if new.bits > old.bits else 'trunc'} {a} {x} to {b}")


def _to_integer(w: FunctionWriter, x: str, old: DType, new: DType) -> str:
    """Drops the fraction. If the intermediate integer type cannot hold the float, the result is its least
    number."""
    if old.bits == 16:
        wide = float32.with_lanes(old.lanes)
        return _to_integer(w, cast(w, x, old, wide), wide, new)
    via, word, cond = stopover(new), ty(old), cond_type(old)
    if via.bits == old.bits == 32 and w.fills_register(old):
        return cast(w, rounded_integers.truncated(w, x, old), via, new)
    end = 2.0 ** (via.bits - 1)
    size = w.call(f"llvm.fabs.{suffix(old)}", old, (old, x))
    inside = w.op(f"fcmp olt {word} {size}, {literal(end, old)}")
    whole = w.op(f"fptosi {word} {x} to {ty(via)}")  # undefined if x is not inside, but then not chosen
    least = literal(-(1 << (via.bits - 1)), via)
    result = w.op(f"select {cond} {inside}, {ty(via)} {whole}, {ty(via)} {least}")
    if new.kind == "int" or new.bits < 64:
        return cast(w, result, via, new)
    high = w.op(f"fcmp oge {word} {x}, {literal(end, old)}")
    below_end = w.op(f"fcmp olt {word} {x}, {literal(2 * end, old)}")
    above = w.op(f"and {cond} {high}, {below_end}")
    unsigned = w.op(f"fptoui {word} {x} to {ty(new)}")
    return w.op(f"select {cond} {above}, {ty(new)} {unsigned}, {ty(new)} {result}")


def _bfloat(w: FunctionWriter, x: str, old: DType, new: DType) -> str:
    n = old.lanes
    single, word, half = float32.with_lanes(n), ty(uint32.with_lanes(n)), ty(uint16.with_lanes(n))
    if old.kind == "bfloat":
        bits = w.op(f"zext {half} {x} to {word}")
        shifted = w.op(f"shl {word} {bits}, {literal(16, uint32.with_lanes(n))}")
        return cast(w, w.op(f"bitcast {word} {shifted} to {ty(single)}"), single, new)
    if old.is_float and old.bits == 64:
        x = _round_to_odd(w, x, old)
    elif old.is_int and old.bits >= 32:
        x = _integer_to_odd(w, x, old)
    elif old != single:  # every integer below 2**24 is exact
        x = cast(w, x, old, single)
    whole = uint32.with_lanes(n)
    bits = w.op(f"bitcast {ty(single)} {x} to {word}")
    top = w.op(f"lshr {word} {bits}, {literal(16, whole)}")
    odd = w.op(f"and {word} {top}, {literal(1, whole)}")
    bias = w.op(f"add {word} {odd}, {literal(0x7FFF, whole)}")
    rounded = w.op(f"lshr {word} {w.op(f'add {word} {bits}, {bias}')}, {literal(16, whole)}")
    nan = w.op(f"fcmp uno {ty(single)} {x}, {literal(0.0, single)}")
    quiet = w.op(f"or {word} {top}, {literal(0x40, whole)}")
    chosen = w.op(f"select {cond_type(old)} {nan}, {word} {quiet}, {word} {rounded}")
    return w.op(f"trunc {word} {chosen} to {half}")


def _round_to_odd(w: FunctionWriter, x: str, old: DType) -> str:
    """float64 as float32, such that a second rounding to 16 bits gives the same result as one direct
    rounding.

    Truncated towards zero, with the last bit set when anything was cut off (Boldo and Melquiond, 2008).
    """
    n = old.lanes
    double, single = ty(old), ty(float32.with_lanes(n))
    whole, cond = int32.with_lanes(n), cond_type(old)
    near = w.op(f"fptrunc {double} {x} to {single}")
    back = w.op(f"fpext {single} {near} to {double}")
    fabs = f"llvm.fabs.{suffix(old)}"
    over = w.op(f"fcmp ogt {double} {w.call(fabs, old, (old, back))}, {w.call(fabs, old, (old, x))}")
    cut = w.op(f"fcmp one {double} {back}, {x}")
    bits = w.op(f"bitcast {single} {near} to {ty(whole)}")
    lower = w.op(f"add {ty(whole)} {bits}, {w.op(f'sext {cond} {over} to {ty(whole)}')}")
    sticky = w.op(f"or {ty(whole)} {lower}, {w.op(f'zext {cond} {cut} to {ty(whole)}')}")
    return w.op(f"bitcast {ty(whole)} {sticky} to {single}")


def _integer_to_odd(w: FunctionWriter, x: str, old: DType) -> str:
    """An integer of 32 or 64 bits as float32, such that a rounding to 16 bits gives the same result as
    one direct rounding."""
    double, word = float64.with_lanes(old.lanes), ty(old)
    if old.bits == 64:  # of more than 53 bits, only whether the last 11 are all zero matters
        rest = w.op(f"and {word} {x}, {literal(0x7FF, old)}")
        any_ = w.op(f"icmp ne {word} {rest}, {literal(0, old)}")
        sticky = w.op(f"zext {cond_type(old)} {any_} to {word}")
        high = w.op(f"and {word} {x}, {literal(wrap_int(~0x7FF, old), old)}")
        cut = w.op(f"or {word} {high}, {w.op(f'shl {word} {sticky}, {literal(11, old)}')}")
        magnitude = x if old.kind == "uint" else intrinsics.emit(w, "abs", old, [x])
        large = w.op(f"icmp ugt {word} {magnitude}, {literal((1 << 53) - 1, old)}")
        x = w.op(f"select {cond_type(old)} {large}, {word} {cut}, {word} {x}")
    return _round_to_odd(w, cast(w, x, old, double), double)
