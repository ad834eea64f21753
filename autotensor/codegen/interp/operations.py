"""The functions that the interpreter's generated Python calls: operators with the loop IR's meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.codegen.interp import memory as memory
from autotensor.codegen.interp.integer_ranges import limits
from autotensor.ir.ops import Op
from autotensor.ir.semantics import FUNCTIONS, OPERATORS, converted, integer, integer_power, whole


def wrapper(t: DType) -> Callable[[int], int]:
    """The function that brings a Python int back into an integer type."""
    low, high = limits(t)
    mask = (1 << t.bits) - 1
    return (lambda x: ((x - low) & mask) + low) if low else (lambda x: x & high)


def _by_type(op: Op) -> Callable[[DType], Callable[[Any, Any], Any]]:
    """The operator on values of a type: Python ints, or arrays of lanes."""

    def of(t: DType) -> Callable[[Any, Any], Any]:
        if t.lanes > 1:
            return OPERATORS[op]
        return lambda a, b: integer(op, a, b, t)

    return of


# operators to which Python gives another meaning: the loop IR's, for an integer type
OF_INTEGERS = {op: _by_type(op) for op in (Op.FLOORDIV, Op.MOD, Op.SHL, Op.SHR)}


def power(t: DType) -> Callable[[Any, Any], Any]:
    """The loop IR's `pow` for an integer type."""
    return FUNCTIONS["pow"] if t.lanes > 1 else lambda a, b: integer_power(a, b, t)


def convert(t: DType) -> Callable[[Any], Any]:
    """The function that converts floats, or lanes of any type, to another type."""
    if t.lanes == 1 and t.is_int:
        return lambda x: whole(float(x), t)
    return lambda x: converted(x, t.element)[()]


def _minimum(a: Any, b: Any) -> Any:
    """The lesser of two values; NaN if either is NaN."""
    return a if a <= b or a != a else b


def _maximum(a: Any, b: Any) -> Any:
    return a if a >= b or a != a else b


def dot(sums: Any, a: Any, b: Any, rows: int, group: int) -> Any:
    """The meaning of a Dot: products and additions in the type of the sums, one k after another."""
    t, columns = sums.dtype, len(sums) // rows
    total = sums.reshape(rows, columns)
    left = a.astype(t).reshape(rows, -1)  # [rows, depth]
    right = (
        b.astype(t).reshape(-1, columns, group).transpose(0, 2, 1).reshape(-1, columns)
    )  # [depth, columns]
    for k in range(left.shape[1]):
        total = total + left[:, k, None] * right[k]
    return total.reshape(-1)


# the names by which generated code calls these functions
GLOBALS: dict[str, Any] = {
    "_minimum": _minimum,
    "_maximum": _maximum,
    "_vminimum": np.minimum,
    "_vmaximum": np.maximum,
    "_vload": memory.vload,
    "_vstore": memory.vstore,
    "_vselect": memory.vselect,
    "_nd": memory.nd_view,
    "_flat": memory.flat_view,
    "_Tracked": memory.Tracked,
    "_Exchange": memory.Exchange,
    "_dot": dot,
    "_oob": memory.out_of_bounds,
    "_full": np.full,
    "_zeros": np.zeros,
    **{f"_math_{name}": fn for name, fn in FUNCTIONS.items()},
}
