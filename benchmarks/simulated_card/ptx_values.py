"""The arithmetic instructions of PTX, lane by lane: one function of arrays for each instruction.

    operation("mad.lo.s32")     Operation(function, types of the operands, type of the result)

Registers are bits (unsigned integers); the instruction gives the types. Approximations (`ex2.approx`, …) are
computed exactly and rounded; a card's results are within 2 ulp of this. A fused operation is computed in
float64 and rounded once more. This is exact for products of float32; rare sums are wrong in the last bit.

Source: PTX ISA 8.8, "Instruction set". Other instructions are refused, with their name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BITS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
TYPES: dict[str, np.dtype[Any]] = {
    **{f"{letter}{bits}": np.dtype(t) for letter in "ub" for bits, t in BITS.items()},
    **{
        "s8": np.dtype(np.int8),
        "s16": np.dtype(np.int16),
        "s32": np.dtype(np.int32),
        "s64": np.dtype(np.int64),
    },
    **{"f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)},
    "pred": np.dtype(np.bool_),
}
WIDER = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


class NotSimulated(Exception):
    """The simulated card does not support an instruction."""


@dataclass(frozen=True, slots=True)
class Operation:
    """result = function(operands). Each operand is viewed as its type."""

    function: Callable[..., Array]
    operands: tuple[str, ...]
    result: str


@cache
def operation(op: str) -> Operation:
    """The operation of an instruction, by its full name. Raises NotSimulated."""
    name, *words = op.split(".")
    t = words[-1] if words else ""
    try:
        made = _made(name, words, t)
    except (KeyError, IndexError):
        made = None
    if made is None:
        raise NotSimulated(f"instruction {op} is not simulated")
    return made


def _made(name: str, words: list[str], t: str) -> Operation | None:
    match name:
        case "mov" | "cvta":
            return Operation(lambda a: a, (t,), t)
        case "cvt":
            return _conversion(words)
        case "setp":
            return Operation(
                _COMPARE[words[0]]
                if t[0] == "f"
                else _COMPARE[words[0].rstrip("u") if words[0] in ("ltu", "leu", "gtu", "geu") else words[0]],
                (t, t),
                "pred",
            )
        case "selp":
            return Operation(lambda a, b, p: np.where(p, a, b), (t, t, "pred"), t)
        case "mul" | "mad" if words[0] in ("lo", "hi", "wide"):
            return _integer_product(name, words[0], t)
        case "fma" | "add" | "sub" | "mul" if t[0] == "f":
            f = {"fma": lambda a, b, c: a * b + c, "add": np.add, "sub": np.subtract, "mul": np.multiply}[
                name
            ]
            f = _rounding(f, words, t, wide=name == "fma")
            return Operation(_flushed(f) if "ftz" in words else f, (t,) * (3 if name == "fma" else 2), t)
        case "div" | "rem" if t[0] in "su":
            return Operation(_quotient if name == "div" else _remainder, (t, t), t)
        case "shl" | "shr":
            f = partial(_shift, np.left_shift if name == "shl" else np.right_shift)
            return Operation(f, (t.replace("b", "u"), "u32"), t.replace("b", "u"))
        case "min" | "max" if t[0] == "f":
            plain, nan = (np.fmin, np.minimum) if name == "min" else (np.fmax, np.maximum)
            return Operation(nan if "NaN" in words else plain, (t, t), t)
        case "not" if t == "pred":
            return Operation(np.logical_not, (t,), t)
    f, count = _PLAIN[name]
    return Operation(_flushed(f) if "ftz" in words else f, (t,) * count, t)


# -- floats --------------------------------------------------------------------------------------------------


def _rounding(f: Callable[..., Array], words: list[str], t: str, wide: bool) -> Callable[..., Array]:
    way = next((w for w in words if w in ("rn", "rz", "rm", "rp")), "rn")
    if t != "f32" or (way == "rn" and not wide):
        return f
    return lambda *args: _rounded(f(*(a.astype(np.float64) for a in args)), way)


def _rounded(exact: Array, way: str) -> Array:
    """Rounds float64 to float32 in a direction."""
    near = exact.astype(np.float32)
    back = near.astype(np.float64)
    low, high = np.float32(-np.inf), np.float32(np.inf)
    match way:
        case "rm":
            return np.where(back > exact, np.nextafter(near, low), near)
        case "rp":
            return np.where(back < exact, np.nextafter(near, high), near)
        case "rz":
            beyond = np.abs(back) > np.abs(exact)
            return np.where(beyond, np.nextafter(near, np.float32(0)), near)
    return near


def _flushed(f: Callable[..., Array]) -> Callable[..., Array]:
    """.ftz: subnormal operands and results become zeros with the same sign."""

    def flush(a: Array) -> Array:
        return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)

    return lambda *args: flush(f(*map(flush, args)))


_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _conversion(words: list[str]) -> Operation:
    to, of = words[-2:]
    whole = next((_ROUND[w] for w in words if w in _ROUND), None)
    if to == "tf32":
        return Operation(_to_tf32, ("u32",), "u32")
    if to == "bf16":
        return Operation(_to_bf16, ("u32",), "u16")
    if of == "bf16":
        return Operation(lambda a: a.astype(np.uint32) << np.uint32(16), ("u16",), "u32")
    if of[0] == "f" and to[0] in "su":
        return Operation(partial(_to_integer, whole or np.trunc, TYPES[to]), (of,), to)
    if of[0] == "f":
        if "sat" in words:
            return Operation(
                lambda a: np.where(np.isnan(a), 0, np.clip(a, 0, 1)).astype(TYPES[to]), (of,), to
            )
        return Operation(lambda a: (whole(a) if whole else a).astype(TYPES[to]), (of,), to)
    return Operation(lambda a: a.astype(TYPES[to]), (of,), to)


def _to_tf32(bits: Array) -> Array:
    """.rna: rounds to 10 bits of mantissa, to nearest, with ties away from zero. NaN becomes 0x7fffffff."""
    near = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    nan = (bits & np.uint32(0x7FFFFFFF)) > 0x7F800000
    return np.where(nan, np.uint32(0x7FFFFFFF), near)


def _to_bf16(bits: Array) -> Array:
    near = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > 0x7F800000
    return np.where(nan, np.uint32(0x7FFF), near).astype(np.uint16)


def _to_integer(whole: Callable[[Array], Array], to: np.dtype[Any], a: Array) -> Array:
    """Converts to an integer type. A value that does not fit becomes the nearest one that does; NaN becomes
    0."""
    info = np.iinfo(to)
    exact = whole(np.where(np.isnan(a), 0, a).astype(np.float64))
    inside = np.clip(
        exact, float(info.min), np.nextafter(float(info.max), 0) if info.bits == 64 else info.max
    )
    out = inside.astype(to)
    return np.where(exact >= float(info.max), to.type(info.max), out)


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    **{"eq": np.equal, "ne": lambda a, b: (a != b) & ~_unordered(a, b), "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal, "ls": np.less_equal, "lo": np.less, "hi": np.greater},
    **{"hs": np.greater_equal, "equ": lambda a, b: (a == b) | _unordered(a, b), "neu": np.not_equal},
    **{"ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b)},
    **{
        "geu": lambda a, b: ~(a < b),
        "nan": lambda a, b: _unordered(a, b),
        "num": lambda a, b: ~_unordered(a, b),
    },
}


def _unordered(a: Array, b: Array) -> Array:
    return (a != a) | (b != b)


# -- integers ------------------------------------------------------------------------------------------------


def _integer_product(name: str, part: str, t: str) -> Operation:
    wide = TYPES.get(WIDER.get(t, ""))
    bits = TYPES[t].itemsize * 8

    def product(a: Array, b: Array) -> Array:
        if part == "lo":
            return a * b
        if wide is not None:
            whole = a.astype(wide) * b.astype(wide)
            return whole if part == "wide" else (whole >> wide.type(bits)).astype(TYPES[t])
        return np.array([int(x) * int(y) >> bits for x, y in np.broadcast(a, b)], TYPES[t])

    result = WIDER[t] if part == "wide" else t
    if name == "mul":
        return Operation(product, (t, t), result)
    return Operation(lambda a, b, c: product(a, b) + c, (t, t, result), result)


def _quotient(a: Array, b: Array) -> Array:
    """The quotient, rounded towards zero. For a divisor of 0 all bits are set."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    q = a // safe
    inexact = (q * safe != a) & ((a < 0) != (safe < 0))
    return np.where(b == 0, ~np.zeros_like(a), q + inexact.astype(a.dtype))


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _quotient(a, b) * b)


def _shift(f: Callable[..., Array], a: Array, by: Array) -> Array:
    """A shift. Amounts above the width count as the width."""
    bits = a.dtype.itemsize * 8
    near = np.minimum(by, bits - 1).astype(a.dtype)
    out = f(a, near)
    gone = np.right_shift(out, a.dtype.type(bits - 1)) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(by >= bits, gone, out)


def _prmt(a: Array, b: Array, how: Array) -> Array:
    """Chooses each of four bytes from the eight bytes of {b, a}. With bit 3 set, the result is the chosen
    byte's sign, repeated eight times."""
    whole = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    out = np.zeros_like(a)
    for n in range(4):
        choice = (how >> np.uint32(4 * n)) & np.uint32(15)
        byte = (whole >> ((choice & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        out |= np.where(choice & np.uint32(8), sign, byte).astype(np.uint32) << np.uint32(8 * n)
    return out


def _bfi(a: Array, b: Array, at: Array, length: Array) -> Array:
    """b, with the low `length` bits of a inserted from bit `at` on."""
    bits = a.dtype.type
    ones = _shift(np.left_shift, np.ones_like(a), length.astype(np.uint32)) - bits(1)
    ones = np.where(length >= a.dtype.itemsize * 8, ~bits(0), ones)
    mask = _shift(np.left_shift, ones, at.astype(np.uint32))
    return (b & ~mask) | (_shift(np.left_shift, a, at.astype(np.uint32)) & mask)


def _dot(name: str, words: list[str]) -> Operation:
    """dp4a: c plus four products of bytes. dp2a: c plus two products, of the halves of a with the low or high
    bytes of b."""
    *part, a_type, b_type = words
    if name == "dp4a":
        a_size, at = 1, slice(0, 4)
    else:
        a_size, at = 2, {"lo": slice(0, 2), "hi": slice(2, 4)}[part[0]]

    def dot(a: Array, b: Array, c: Array) -> Array:
        left = np.ascontiguousarray(a).view(f"{_kind(a_type)}{a_size}").reshape(len(a), -1)
        right = np.ascontiguousarray(b).view(f"{_kind(b_type)}1").reshape(len(b), -1)[:, at]
        return (c + (left.astype(np.int64) * right).sum(axis=1)).astype(np.uint32)  # modulo 2 ** 32

    return Operation(dot, ("u32", "u32", "u32"), "u32")


def _kind(t: str) -> str:
    return "i" if t == "s32" else {"u32": "u"}[t]


def _count_bits(a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


_PLAIN: dict[str, tuple[Callable[..., Array], int]] = {
    **{"add": (np.add, 2), "sub": (np.subtract, 2), "min": (np.minimum, 2), "max": (np.maximum, 2)},
    **{
        "and": (np.bitwise_and, 2),
        "or": (np.bitwise_or, 2),
        "xor": (np.bitwise_xor, 2),
        "not": (np.invert, 1),
    },
    **{"neg": (np.negative, 1), "abs": (np.abs, 1), "copysign": (lambda a, b: np.copysign(b, a), 2)},
    **{"div": (np.divide, 2), "rcp": (np.reciprocal, 1), "sqrt": (np.sqrt, 1), "ex2": (np.exp2, 1)},
    **{"rsqrt": (lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype), 1), "lg2": (np.log2, 1)},
    **{"sin": (np.sin, 1), "cos": (np.cos, 1), "tanh": (np.tanh, 1)},
    "prmt": (_prmt, 3),
}


def special(name: str) -> Operation | None:
    """The operation of an instruction whose operands have different types; None for other instructions."""
    head, *words = name.split(".")
    if head == "bfi":
        t = words[-1]
        return Operation(_bfi, (t, t, "u32", "u32"), t)
    if head == "popc":
        return Operation(_count_bits, (words[-1],), "u32")
    if head in ("dp4a", "dp2a"):
        return _dot(head, words)
    return None
