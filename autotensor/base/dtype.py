"""Data types of elements, and their names in NumPy and in text.

DType("float", 32)            one float32
DType("float", 32, lanes=16)  a vector of sixteen
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from autotensor.base.errors import TensorError

_MADE: dict[tuple[str, int, int], DType] = {}  # every type there is


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """Kind and width of an element; `lanes` > 1 makes a vector. Equal types are one object."""

    kind: str  # "float" | "bfloat" | "int" | "uint" | "bool"
    bits: int
    lanes: int = 1
    is_float: bool = field(init=False, repr=False)
    is_int: bool = field(init=False, repr=False)  # signed or unsigned; False for bool
    is_bool: bool = field(init=False, repr=False)

    def __new__(cls, kind: str, bits: int, lanes: int = 1) -> DType:
        found = _MADE.get((kind, bits, lanes))
        return found if found is not None else _MADE.setdefault((kind, bits, lanes), object.__new__(cls))

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind in ("float", "bfloat"))
        object.__setattr__(self, "is_int", self.kind in ("int", "uint"))
        object.__setattr__(self, "is_bool", self.kind == "bool")

    def __eq__(self, other: object) -> bool:
        """A type is equal to its name and to its NumPy type, as in NumPy.

        >>> float32 == "float32", float32 == np.float32, float32 == "float64"
        (True, True, False)
        """
        if self is other:
            return True
        if isinstance(other, str):
            return str(self) == other
        return isinstance(other, type | np.dtype) and self.lanes == 1 and self.numpy == other

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return DType, (self.kind, self.bits, self.lanes)

    def __str__(self) -> str:
        base = (
            "bool"
            if self.kind == "bool"
            else f"{'bfloat' if self.kind == 'bfloat' else self.kind}{self.bits}"
        )
        return base if self.lanes == 1 else f"{base}x{self.lanes}"

    @property
    def bytes(self) -> int:
        """Bytes of all lanes in memory; a bool takes one byte."""
        return max(1, self.bits // 8) * self.lanes

    @property
    def is_half(self) -> bool:
        """Whether it is a float of 16 bits; sums of such floats are computed in 32 bits."""
        return self.is_float and self.bits == 16

    @property
    def is_byte(self) -> bool:
        """Whether it is an integer of 8 bits."""
        return self.is_int and self.bits == 8

    @property
    def element(self) -> DType:
        """The same type with one lane."""
        return self.with_lanes(1)

    def holds(self, other: DType) -> bool:
        """Whether this type can hold every value of the other type; False between a float and an integer.

        >>> int32.holds(uint8), uint32.holds(int8), float32.holds(bfloat16)
        (True, False, True)
        """
        new, old = self.element, other.element
        if new is old or old.is_bool:
            return True
        if new.is_float or old.is_float:
            return new.is_float and old.is_float and new.bits > old.bits
        return new.bits > old.bits and (new.kind == "int" or old.kind == "uint")

    def with_lanes(self, lanes: int) -> DType:
        return self if lanes == self.lanes else _with_lanes(self, lanes)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of one element."""
        return _numpy(self.kind, self.bits)


@lru_cache(maxsize=1024)
def _with_lanes(t: DType, lanes: int) -> DType:
    return DType(t.kind, t.bits, lanes)


@lru_cache(maxsize=64)
def _numpy(kind: str, bits: int) -> np.dtype[Any]:
    if kind == "bfloat":
        import ml_dtypes  # only bfloat16 needs it; loading a float32 model must not

        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return made
    return np.dtype("bool" if kind == "bool" else f"{kind}{bits}")


float16, float32, float64 = DType("float", 16), DType("float", 32), DType("float", 64)
bfloat16 = DType("bfloat", 16)
int8, int16, int32, int64 = (DType("int", n) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DType("uint", n) for n in (8, 16, 32, 64))
bool_ = DType("bool", 1)

_NAMES = {
    str(t): t
    for t in (
        *(float16, float32, float64, bfloat16),
        *(int8, int16, int32, int64, uint8, uint16, uint32, uint64),
        bool_,
    )
}


def dtype_of(x: DType | str | np.dtype[Any] | type) -> DType:
    """The DType named by a string, a NumPy dtype or a NumPy scalar type.

    >>> str(dtype_of("float32")), str(dtype_of(np.int8))
    ('float32', 'int8')

    Raises TensorError for a type that is not supported, and for an object that is not a type.
    """
    if isinstance(x, DType):
        return x
    known = f"Known: {', '.join(_NAMES)}."
    try:
        name = x if isinstance(x, str) else np.dtype(x).name
    except (TypeError, ValueError):
        raise TensorError(f"{x!r} is not a dtype.", fix=known) from None
    if name not in _NAMES:
        raise TensorError(f"dtype {name!r} is not supported.", fix=known)
    return _NAMES[name]


def promote(a: DType, b: DType) -> DType:
    """The type of `a + b`: floats win over integers, wider over narrower, signed over unsigned (as in NumPy).

    bfloat16 with float16 gives float32, because neither holds the other.
    """
    if a == b:
        return a
    lanes = max(a.lanes, b.lanes)
    x, y = a.element, b.element
    if x == y:
        return x.with_lanes(lanes)
    if x.is_bool or y.is_bool:
        return (y if x.is_bool else x).with_lanes(lanes)
    if x.is_float != y.is_float:
        return (x if x.is_float else y).with_lanes(lanes)
    if x.is_float:
        return (float32 if x.bits == y.bits else max(x, y, key=lambda t: t.bits)).with_lanes(lanes)
    if x.kind == y.kind:
        return max(x, y, key=lambda t: t.bits).with_lanes(lanes)
    signed, unsigned = (x, y) if x.kind == "int" else (y, x)
    bits = signed.bits if signed.bits > unsigned.bits else min(64, unsigned.bits * 2)
    return DType("int", bits, lanes)


def wrap_int(value: int, dtype: DType) -> int:
    """`value` modulo 2**bits, as an integer of the type (two's complement).

    >>> wrap_int(200, dtype_of("int8")), wrap_int(-1, dtype_of("uint8"))
    (-56, 255)
    """
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value
