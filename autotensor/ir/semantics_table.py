"""Describes `semantics.py` in words, with computed examples: the table of docs/numerics.md.

`ROWS` names every operation; tests/semantics visits them all, and fails for an operation without a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.ir.semantics import BACKENDS, COMPARISONS, FUNCTIONS, HALF_ULPS, OPERATORS, ULPS, converted

Number = int | float | bool


@dataclass(frozen=True, slots=True)
class Row:
    """The result of some operations in one case."""

    operations: str  # names, separated by spaces
    types: str
    case: str
    result: str
    example: tuple[Any, ...]  # operation, type, operands; for a cast: "to", type, operand, type of the result

    def text(self) -> str:
        name, t, *operands = self.example
        return f"{t}: {_spelled(name, operands)} = {_shown(value(name, dtype_of(t), *operands))}"


def value(name: str, t: DType, *operands: Any) -> Any:
    """The result of an operation, as a Python number."""
    with np.errstate(all="ignore"):
        if name == "to":
            return converted(np.array([operands[0]], t.numpy), dtype_of(operands[1]))[0].item()
        arrays = [np.array([x]).astype(t.numpy) for x in operands]
        return _FUNCTION[name](*arrays)[0].item()


_FUNCTION: dict[str, Callable[..., Any]] = {
    **{op.value: fn for op, fn in OPERATORS.items()},
    **{c.value: fn for c, fn in COMPARISONS.items()},
    **FUNCTIONS,
    "/": np.divide,
    "negative": np.negative,
    "~": np.invert,
}


def _spelled(name: str, operands: list[Any]) -> str:
    shown = [_shown(x) for x in operands]
    if name == "to":
        return f"{shown[0]} to {operands[1]}"
    if name in FUNCTIONS or name in ("min", "max", "negative"):
        return f"{name}({', '.join(shown)})"
    return f"{name}{shown[0]}" if len(shown) == 1 else f"{shown[0]} {name} {shown[1]}"


def _shown(x: Any) -> str:
    return str(x) if not isinstance(x, float) else f"{x:.9g}"


INF, NAN = float("inf"), float("nan")
FUNCTIONS_OF_FLOATS = " ".join(n for n in ULPS if n not in ("/", "pow"))

ROWS = (
    Row("+ - * negative abs", "integers", "overflow", "wraps around", ("+", "int8", 127, 1)),
    Row("negative abs", "signed", "of the least number", "itself", ("abs", "int32", -(2**31))),
    Row("// %", "integers", "rounding", "down: the remainder has the divisor's sign", ("%", "int32", -7, 3)),
    Row("// %", "integers", "by zero", "0", ("//", "int32", 7, 0)),
    Row("// %", "signed", "least number by -1", "itself, remainder 0", ("//", "int32", -(2**31), -1)),
    Row("<<", "integers", "by < 0, or >= the bits", "0", ("<<", "int32", 1, 32)),
    Row(">>", "integers", "by < 0, or >= the bits", "0; -1 of a negative number", (">>", "int32", -8, 40)),
    Row("pow", "integers", "overflow", "wraps around", ("pow", "int32", 1000003, 3)),
    Row("pow", "signed", "negative exponent", "1/x without its fraction; of 0, 0", ("pow", "int32", -1, -3)),
    Row("& | ^ ~", "integers, bool", "", "bits, logic", ("^", "int8", -1, 5)),
    Row("< <= > >= == !=", "integers", "uint64, signed", "by value", ("<", "uint64", 2**63, 2**63 + 1)),
    Row("< <= > >= == !=", "floats", "NaN", "false; != true", ("!=", "float32", NAN, NAN)),
    Row("min max", "floats", "NaN", "NaN; of -0 and 0, either", ("max", "float32", 1.0, NAN)),
    Row("min max", "integers, bool", "", "the lesser, the greater", ("min", "uint8", 255, 1)),
    Row("+ - * / negative", "floats", "all", "IEEE 754; 16 bits rounded once", ("/", "float32", -1.0, 0.0)),
    Row("%", "floats", "all", "exact, the divisor's sign (NumPy)", ("floormod", "float32", 1e10, 3.0)),
    Row(
        "%", "floats", "by infinity", "x, or the divisor for other signs", ("floormod", "float32", -5.0, INF)
    ),
    Row("%", "floats", "by 0, of infinity", "NaN", ("floormod", "float32", 5.0, 0.0)),
    Row("//", "floats", "all", "NumPy's floor_divide, bit by bit", ("floordiv", "float32", -1.0, INF)),
    Row("//", "floats", "by zero", "x / 0", ("floordiv", "float32", 5.0, 0.0)),
    Row("fmod", "floats", "all", "exact, the sign of x; by 0 NaN", ("fmod", "float32", -6.0, 3.0)),
    Row(
        "floor ceil round trunc", "floats", "-0, inf, NaN", "kept; halves to even", ("round", "float32", 2.5)
    ),
    Row("abs rounded isnan isinf", "floats", "all", "exact", ("abs", "float32", -INF)),
    Row("pow", "floats", "all", "as C99: x**0 = 1**y = 1, NaN too", ("pow", "float32", NAN, 0.0)),
    Row(FUNCTIONS_OF_FLOATS, "floats", "all", "within bounds, huge ones too", ("sin", "float32", 1e20)),
    Row(FUNCTIONS_OF_FLOATS, "floats", "outside their domain", "NaN", ("log", "float32", -1.0)),
    Row("to", "integers to integers", "does not fit", "wraps around", ("to", "int32", 300, "uint8")),
    Row("to", "numbers to bool", "", "False for 0 only", ("to", "float32", NAN, "bool")),
    Row("to", "numbers to floats", "", "rounded once, to even", ("to", "int64", 2**63 - 1, "float32")),
    Row("to", "floats to integers", "fraction", "dropped", ("to", "float32", -1.5, "int32")),
    Row("to", "to ≤ 32 bits", "not in int32, NaN", "least int32, then cut", ("to", "float32", 3e9, "int32")),
    Row("to", "to ≤ 32 bits", "in int32", "cut to its bits", ("to", "float32", 300.5, "uint8")),
    Row(
        "to",
        "to uint32, int64",
        "not in int64, NaN",
        "least int64, then cut",
        ("to", "float32", NAN, "int64"),
    ),
    Row("to", "to uint64", "negative", "cut, as int64 is", ("to", "float32", -1.0, "uint64")),
)


def table() -> str:
    """All rows, in columns."""
    heads = ("operation", "types", "where", "gives", "example")
    lines = [(_short(r.operations), r.types, r.case, r.result, r.text()) for r in ROWS]
    return _columns([heads, *lines])


def _short(names: str) -> str:
    return "functions" if names == FUNCTIONS_OF_FLOATS else names


def bounds_table() -> str:
    """How far functions of float32 and float64 may be from the exact value, in units in the last place."""
    lines = [(n, *(f"{u:g}" for u in ulps)) for n, ulps in ULPS.items()]
    return _columns([("function", *BACKENDS), *lines, ("16-bit floats", *[f"{HALF_ULPS:g}"] * len(BACKENDS))])


def _columns(lines: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in lines
    )
