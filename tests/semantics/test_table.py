"""The table of docs/numerics.md names every operation of the walk, and its examples are NumPy's results."""

from __future__ import annotations

import doctest

import numpy as np
from operations import operations

from autotensor.ir import semantics
from autotensor.ir.expr import MATH
from autotensor.ir.semantics_table import ROWS, bounds_table, table


def test_every_operation_has_a_row() -> None:
    named = {name for row in ROWS for name in row.operations.split()}
    assert {o.name.split()[0] for o in operations()} == named
    assert set(MATH) - {"floordiv", "floormod"} <= named


def test_the_examples_are_numpys() -> None:
    text = table()
    with np.errstate(all="ignore"):
        assert f"floormod(1e+10, 3) = {np.float32(1e10) % np.float32(3):g}" in text
        assert f"sin(1e+20) = {np.sin(np.float64(np.float32(1e20))):.5f}"[:18] in text
        assert f"pow(1000003, 3) = {np.power(np.int32(1000003), np.int32(3))}" in text
    assert "int32: 1 << 32 = 0" in text
    assert "float32: 3e+09 to int32 = -2147483648" in text


def test_bounds_are_printed_for_every_function() -> None:
    lines = bounds_table().splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == list(semantics.ULPS)


def test_the_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(semantics).failed == 0
