"""Every operation of the table in docs/numerics.md: its form in te, the elements on which it is tested, and
NumPy's or mpmath's results."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import exact_numbers as exact
import numpy as np
from special_numbers import FLOATS, INTEGERS, TYPES, Array, pairs, special

from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.ir.semantics import BACKENDS, allowed_ulps

Check = Callable[
    [Array, "tuple[Array, ...]", float], Array
]  # (result, operands, allowed ulps) → what is wrong


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on operands of given types; `wrong` marks the elements of a result that are not right."""

    name: str
    types: tuple[str, ...]
    make: Callable[..., Any]  # of te expressions
    wrong: Check
    function: str = ""  # of `semantics.ULPS`, where results may be off by some units

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.types)})"

    def operands(self) -> tuple[Array, ...]:
        values = [special(t) for t in self.types]
        return tuple(values) if len(values) == 1 else pairs(*values)


def equal(expected: Callable[..., Any], zeros: bool = True) -> Check:
    """Equal bit for bit, except for the payload of NaN. zeros: whether the sign of a zero counts."""

    def wrong(got: Array, operands: tuple[Array, ...], _: float) -> Array:
        with np.errstate(all="ignore"):
            want = np.asarray(expected(*operands))
        assert want.dtype == got.dtype, f"{want.dtype} is not {got.dtype}"
        same = got == want
        if got.dtype.kind not in "iub":
            same = same & (np.signbit(got) == np.signbit(want)) if zeros else same
            same = same | ((got != got) & (want != want))
        return np.asarray(~same)

    return wrong


def within(name: str) -> Check:
    """Within the distance from the exact value that `semantics.ULPS` allows."""
    return lambda got, operands, ulps: exact.function_errors(name, got, *operands) > ulps


def in_float32(fn: Callable[..., Any]) -> Callable[..., Any]:
    """16-bit floats are computed in float32 and rounded once."""

    def wide(*arrays: Array) -> Any:
        t = arrays[0].dtype
        if t.kind in "iub" or t.itemsize > 2:
            return fn(*arrays)
        y = fn(*(a.astype(np.float32) for a in arrays))
        return y if y.dtype == np.bool_ else y.astype(t)

    return wide


ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (operator.add, np.add),
    "-": (operator.sub, np.subtract),
    "*": (operator.mul, np.multiply),
    "//": (operator.floordiv, np.floor_divide),
    "%": (operator.mod, np.remainder),
}
BITS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "&": (operator.and_, np.bitwise_and),
    "|": (operator.or_, np.bitwise_or),
    "^": (operator.xor, np.bitwise_xor),
}
SHIFTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "<<": (operator.lshift, np.left_shift),
    ">>": (operator.rshift, np.right_shift),
}
COMPARED: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], bool]]] = {
    "<": (operator.lt, operator.lt),
    "<=": (operator.le, operator.le),
    ">": (operator.gt, operator.gt),
    ">=": (operator.ge, operator.ge),
    "==": (lambda a, b: a.equal(b), operator.eq),
    "!=": (lambda a, b: ~a.equal(b), operator.ne),
}
POWERS = (-4.0, -3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)  # of floats: most are products
EXACT: dict[str, Callable[..., Any]] = {
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "abs": np.abs,
    "isnan": np.isnan, "isinf": np.isinf, "rounded": np.positive, "sqrt": np.sqrt,
}  # fmt: skip
FUNCTIONS = tuple(n for n in exact.MP if n not in ("pow", "atan2", "sqrt"))
MIXED = (("uint64", "int64"), ("int8", "uint64"), ("uint64", "int32"), ("int32", "uint32"), ("int8", "uint8"))


def operations(types: tuple[str, ...] = TYPES) -> Iterator[Operation]:
    """All operations of the table, on operands of these types."""
    for t in types:
        yield from _of_type(t)
        for to in TYPES:
            if to != t:
                yield Operation(f"to {to}", (t,), lambda x, to=to: te.cast(to, x), _casts(to))
    for a, b in MIXED:
        if a in types or b in types:
            for name, (make, fn) in COMPARED.items():
                yield Operation(name, (a, b), make, equal(exact.compare(fn)))


def _casts(to: str) -> Check:
    return equal(lambda x: exact.cast(x, to))


def _of_type(t: str) -> Iterator[Operation]:
    for name, (make, fn) in COMPARED.items():
        yield Operation(name, (t, t), make, equal(exact.compare(fn)))
    for name, make, fn in (("min", te.minimum, np.minimum), ("max", te.maximum, np.maximum)):
        yield Operation(name, (t, t), make, equal(fn, zeros=False))
    if t not in FLOATS:
        for name, (make, fn) in BITS.items():
            yield Operation(name, (t, t), make, equal(fn))
        yield Operation("~", (t,), operator.invert, equal(np.invert))
    if t == "bool":
        return
    yield Operation("negative", (t,), operator.neg, equal(np.negative))
    for name, (make, fn) in ARITHMETIC.items():
        yield Operation(name, (t, t), make, equal(in_float32(fn)))
    if t in INTEGERS:
        for name, (make, fn) in SHIFTS.items():
            yield Operation(name, (t, t), make, equal(fn))
            for n in (-1, 3, dtype_of(t).bits - 1, dtype_of(t).bits, 100):
                if n >= 0 or t.startswith("int"):
                    yield Operation(f"{name} {n}", (t,), *_shifted(make, fn, n))
        yield Operation("pow", (t, t), te.pow, equal(exact.integer_power))
        for n in (0, 1, 2, 3, 4, 10):
            power = equal(lambda x, n=n: exact.integer_power(x, np.full_like(x, n)))
            yield Operation(f"pow {n}", (t,), lambda x, n=n: x**n, power)
        for n in (1, 3, 8, *((-1, -3) if t.startswith("int") else ())):
            for name in ("//", "%"):
                yield Operation(f"{name} {n}", (t,), *_shifted(*ARITHMETIC[name], n))
        yield Operation("abs", (t,), te.abs, equal(np.abs))
        return
    yield Operation("/", (t, t), operator.truediv, equal(in_float32(np.divide)), "/")
    yield Operation("fmod", (t, t), te.fmod, equal(in_float32(np.fmod)))
    for name, fn in EXACT.items():
        yield Operation(name, (t,), _called(name), equal(in_float32(fn)), name)
    for name in FUNCTIONS:
        yield Operation(name, (t,), _called(name), within(name), name)
    for name in ("pow", "atan2"):
        yield Operation(name, (t, t), _called(name), within(name), name)
    for n in POWERS:
        yield Operation(f"pow {n}", (t,), lambda x, n=n: x**n, _near_power(n), "pow")


def _near_power(n: float) -> Check:
    return lambda got, operands, ulps: within("pow")(got, (*operands, np.full_like(operands[0], n)), ulps)


def _called(name: str) -> Callable[..., Any]:
    return lambda *x: te.call(name, *x)


def _shifted(make: Callable[..., Any], fn: Callable[..., Any], n: int) -> tuple[Callable[..., Any], Check]:
    """The operation with a constant second operand, as in most programs."""
    return lambda x: make(x, te.const(n, x.dtype)), equal(lambda x: fn(x, np.full_like(x, n)))


def allowed(o: Operation, machine: str) -> float:
    """Units in the last place that `o` may be off by; 0 where it is exact."""
    if not o.function:
        return 0.0
    backend = machine if machine in BACKENDS else "llvm"
    return allowed_ulps(o.function, dtype_of(o.types[0]), backend)
