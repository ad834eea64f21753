"""What the interpreter's generated Python calls: operators as the loop IR defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.base.dtype import DType
from autotensor.codegen import interp_memory as memory
from autotensor.codegen.interp_ranges import limits
from autotensor.ir.mathlib import FUNCTIONS


def wrapper(t: DType) -> Callable[[int], int]:
    """The function that brings a Python int back into an integer type."""
    low, high = limits(t)
    mask = (1 << t.bits) - 1
    return (lambda x: ((x - low) & mask) + low) if low else (lambda x: x & high)


def _floordiv(a: Any, b: Any) -> Any:
    """Floor division; x // 0 is 0."""
    return (a // b if b else 0) if not isinstance(b, np.ndarray) else np.floor_divide(a, b)


def _mod(a: Any, b: Any) -> Any:
    """Modulo with the sign of the divisor; x % 0 is 0."""
    return (a % b if b else 0) if not isinstance(b, np.ndarray) else np.remainder(a, b)


def _shl(a: Any, b: Any) -> Any:
    return (a << b if 0 <= b < 64 else 0) if not isinstance(b, np.ndarray) else np.left_shift(a, b)


def _shr(a: Any, b: Any) -> Any:
    return (a >> b if b >= 0 else 0) if not isinstance(b, np.ndarray) else np.right_shift(a, b)


def _minimum(a: Any, b: Any) -> Any:
    """NaN if either is."""
    return a if a <= b or a != a else b


def _maximum(a: Any, b: Any) -> Any:
    return a if a >= b or a != a else b


# the names under which generated code finds them
GLOBALS: dict[str, Any] = {
    "_floordiv": _floordiv,
    "_mod": _mod,
    "_shl": _shl,
    "_shr": _shr,
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
    "_oob": memory.out_of_bounds,
    "_full": np.full,
    "_zeros": np.zeros,
    **{f"_math_{name}": fn for name, fn in FUNCTIONS.items()},
}
