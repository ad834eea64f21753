"""Quantised numbers: the value of a small integer q is (q - zero) * scale.

quantize      q = clamp(rint(x / scale) + zero)
dequantize    x = (q - zero) * scale
requantize    q = clamp(rint(total * scale [+ shift]) + zero)        total: sums of integers; docs/numerics.md
byte_table    p = table[q]                                           any function of one byte

Halves are rounded to even. Scales and zero points are numbers, or broadcast to x. Products of quantised
tensors are `conv2d`, `dense` and the other products with `zeros`; `graph/rules/integers.py` puts them
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import DType, dtype_of, float32
from autotensor.ir.expr import Expr
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import broadcast, require, stage
from autotensor.te import Tensor
from autotensor.te.math import rescaled, saturated

Array = np.ndarray[Any, Any]


def _held(y: Array, dtype: str) -> Array:
    limits = np.iinfo(dtype_of(dtype).numpy)
    return np.asarray(np.clip(np.nan_to_num(y, nan=0.0), limits.min, limits.max).astype(limits.dtype))


def _require_small(op: str, dtype: str) -> None:
    t = dtype_of(dtype)
    require(t.is_int and t.bits <= 16, f"{op}: {t} is not an integer type of at most 16 bits.")


def _wide(x: Tensor) -> DType:
    """The type in which the operator computes with the tensor's numbers."""
    return x.dtype if x.dtype.is_float and x.dtype.bits >= 32 else float32


# -- scales ------------------------------------------------------------------------------------------------


POSITIVE = "positive and finite"  # for `quantize`, which divides by the scale
# onnxruntime's 4-bit scales are negative if the number with the greatest size is positive
NOT_ZERO = "finite and not 0"
FINITE = "finite"  # for groups: a group of zeros may have any scale, also 0


def wrong_scale(scales: Array, law: str = NOT_ZERO) -> str:
    """A sentence about the first number that cannot be a scale by this law; "" if all can."""
    fits = np.isfinite(scales) & {POSITIVE: scales > 0, NOT_ZERO: scales != 0, FINITE: True}[law]
    return "" if fits.all() else f"a scale is {scales[~fits].reshape(-1)[0]}; scales are {law}."


def _require_scale(op: str, law: str = NOT_ZERO) -> Callable[..., None]:
    """The check for an operator whose second operand is a scale."""

    def check(x: Array | None, scale: Array | None, *more: Array | None) -> None:
        said = "" if scale is None else wrong_scale(scale, law)
        require(not said, f"{op}: {said}")

    return check


# -- to integers ---------------------------------------------------------------------------------------------


def _quantize_reference(x: Array, scale: Array, zero: Array | None = None, dtype: str = "uint8") -> Array:
    wide = x if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else x.astype(np.float32)
    y = np.rint(wide / scale.astype(wide.dtype))
    return _held(y if zero is None else y + zero.astype(wide.dtype), dtype)


@operator(
    "quantize",
    kind=Kind.ELEMENTWISE,
    reference=_quantize_reference,
    constants=(1, 2),
    require_known=_require_scale("quantize", POSITIVE),
    cases=(
        Case(((7, 17), (1,)), low=0.01),
        Case(((7, 17), (17,), (17,)), {"dtype": "int8"}, ("float32", "float32", "int8"), low=0.02, high=9),
        Case(((33,), (), ()), {"dtype": "uint16"}, ("int32", "float32", "uint16"), low=1, high=99),
    ),
)
def quantize(x: Tensor, scale: Tensor, zero: Tensor | None = None, dtype: str = "uint8") -> Tensor:
    """clamp(rint(x / scale) + zero), halves to even, in an integer type of at most 16 bits; NaN gives 0."""
    _require_small("quantize", dtype)
    wide = _wide(x)

    def value(v: Expr, s: Expr, z: Expr | None = None) -> Expr:
        y = te.call("round", te.cast(wide, v) / te.cast(wide, s))
        return saturated(y if z is None else y + te.cast(wide, z), dtype_of(dtype))

    return broadcast("quantize", value, x, scale, *(() if zero is None else (zero,)))


def _requantize_reference(
    total: Array,
    scale: Array,
    shift: Array | None = None,
    zero: int = 0,
    dtype: str = "uint8",
    shift_scale: float = 1.0,
    shift_zero: int = 0,
    centred: bool = False,
    in_32_bits: bool = False,
) -> Array:
    y = total.astype(np.float32) * scale
    if shift is not None and shift.dtype.kind in "iu":
        whole = (shift.astype(np.int32) - np.int32(shift_zero)).astype(np.float32)
        shift = whole * np.float32(shift_scale)
    byte = _held(np.rint(y if shift is None else y + shift) + np.float32(zero), dtype)
    return byte.astype(np.float32) - np.float32(zero) if centred else byte


@operator(
    "requantize",
    kind=Kind.ELEMENTWISE,
    reference=_requantize_reference,
    constants=(1,),
    require_known=_require_scale("requantize"),
    cases=(
        Case(((7, 17), (17,)), {"zero": 3}, ("int32", "float32"), low=0, high=40),
        Case(((5, 9), (), (5, 9)), {"dtype": "int8", "zero": -5}, ("int32", "float32", "float32"), -9, 9),
        Case(
            ((5, 9), (), (5, 9)),
            {"shift_scale": 0.3, "shift_zero": 7},
            ("int32", "float32", "uint8"),
            low=0,
            high=40,
        ),
        Case(((5, 9), (9,)), {"dtype": "int8", "zero": 3, "centred": True}, ("int32", "float32"), 1, 90),
        Case(((5, 9), (9,)), {"zero": 3, "in_32_bits": True}, ("int32", "float32"), -9, 90),
        Case(
            ((5, 33), (), (5, 33)),
            {"dtype": "int8", "zero": -3, "centred": True, "in_32_bits": True},
            ("int32", "float32", "float32"),
            low=-30,
            high=30,
        ),
    ),
)
def requantize(
    total: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    zero: int = 0,
    dtype: str = "uint8",
    shift_scale: float = 1.0,
    shift_zero: int = 0,
    centred: bool = False,
    in_32_bits: bool = False,
) -> Tensor:
    """clamp(rint(total * scale [+ shift]) + zero): see `te.requantize`.

    scale: float32. shift: float32, or integers with the value (shift - shift_zero) * shift_scale in float32.
    centred: the result is an integer in float32, without its zero point added; sums and shifts must not be
    NaN. in_32_bits: says that every rounded sum is known to fit 32 bits. The sum is then clamped as an
    integer, which gives the same number in fewer instructions.
    """
    _require_small("requantize", dtype)
    low, high = (te.cast("int32", limit(dtype_of(dtype))) for limit in (te.min_value, te.max_value))

    def value(t: Expr, s: Expr, more: Expr | None = None) -> Expr:
        if more is not None and more.dtype.is_int:
            whole = te.cast("int32", more) - shift_zero
            more = te.cast("float32", whole) * te.const(shift_scale, "float32")
        if not centred and not in_32_bits:
            return te.requantize(t, s, zero, dtype, more)
        whole = rescaled(t, s, more)
        if in_32_bits:
            whole = te.cast("int32", whole)
        first, last = (te.cast(whole.dtype, end - zero) for end in (low, high))
        if centred:
            return te.cast("float32", te.minimum(te.maximum(whole, first), last))
        return te.cast(dtype, te.minimum(te.maximum(whole, first), last) + zero)

    return broadcast("requantize", value, total, scale, *(() if shift is None else (shift,)))


# -- and back ------------------------------------------------------------------------------------------------


def _dequantize_reference(q: Array, scale: Array, zero: Array | None = None) -> Array:
    whole = q.astype(np.int32)
    whole = whole if zero is None else whole - zero.astype(np.int32)
    wide = np.result_type(scale.dtype, np.float32)
    return np.asarray(whole.astype(wide) * scale.astype(wide)).astype(scale.dtype)


@operator(
    "dequantize",
    kind=Kind.ELEMENTWISE,
    reference=_dequantize_reference,
    constants=(1, 2),
    require_known=_require_scale("dequantize"),
    cases=(
        Case(((7, 17), (1,), (1,)), {}, ("uint8", "float32", "uint8"), low=0, high=200),
        Case(((3, 5, 2), (5, 1)), {}, ("int32", "float32"), low=-90, high=90),
    ),
)
def dequantize(q: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """(q - zero) * scale, in the type of the scale; a 16-bit scale is multiplied in float32."""
    wide = _wide(scale)

    def value(v: Expr, s: Expr, z: Expr | None = None) -> Expr:
        whole = te.cast("int32", v)
        whole = whole if z is None else whole - te.cast("int32", z)
        return te.cast(scale.dtype, te.cast(wide, whole) * te.cast(wide, s))

    return broadcast("dequantize", value, q, scale, *(() if zero is None else (zero,)))


# -- functions of a byte -------------------------------------------------------------------------------------

BYTES = 256


@operator(
    "byte_table",
    kind=Kind.ELEMENTWISE,
    reference=lambda q, table: table[q.view(np.uint8)],
    constants=(1,),
    tables=(1,),
    cases=(
        Case(((7, 17), (BYTES,)), dtypes=("uint8", "uint8"), low=0, high=256),
        Case(((3, 5, 70), (BYTES,)), dtypes=("int8", "int8"), low=-128, high=128),
        Case(((130,), (BYTES,)), dtypes=("uint8", "float32"), low=0, high=256),
    ),
)
def byte_table(q: Tensor, table: Tensor) -> Tensor:
    """The element of the table at index q, a byte; -1 has the bits of 255, so it takes the last element."""
    require(q.dtype.is_byte, f"byte_table: q is {q.dtype}, expected int8 or uint8.")
    require(table.shape == (BYTES,), f"byte_table: the table has shape {table.shape}, expected ({BYTES},).")
    return stage(q.shape, lambda *i: table[te.cast("int32", te.cast("uint8", q[i]))], "byte_table")
