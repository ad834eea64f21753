"""NaN, infinities and equal elements in reductions and sorted order: NumPy decides, under every schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from special_numbers import FLOATS, INTEGERS, Array

import autotensor as at
from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS
from autotensor.runtime.open_artifact import open_artifact
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

ROWS, COLUMNS = 48, 37


def lines(name: str) -> Array:
    """[ROWS, COLUMNS]: lines without, with one, some and only NaN, infinities and equal elements."""
    t, rng = dtype_of(name), np.random.default_rng(3)
    if t.is_int:
        info = np.iinfo(t.numpy)
        ends = np.array([info.min, info.max, 0, 1, 2], t.numpy)
        return np.asarray(rng.choice(ends, (ROWS, COLUMNS)))
    x = rng.integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    for row, values in enumerate(
        ([np.nan], [np.inf, np.nan], [-np.inf], [np.inf, -np.inf, 0.0, -0.0, np.nan])
    ):
        for r in range(row, ROWS, 5):  # one in five has numbers only
            at_ = rng.integers(0, COLUMNS, 1 + r % 4)
            x[r, at_] = rng.choice(values, at_.size)
    x[-1], x[-2], x[-3] = np.nan, -np.inf, np.inf
    return x.astype(t.numpy)


def _reduced(reducer: Any) -> Any:
    def make(X: Any) -> Any:
        k = te.reduce_axis(COLUMNS, "k")
        return te.compute((ROWS,), lambda i: reducer(X[i, k], axis=k), name="y")

    return make


def _sorted(x: Array, largest: bool) -> Array:
    line = np.flip(x, 1) if largest else x
    order = np.argsort(line, axis=1, kind="stable")
    return COLUMNS - 1 - np.flip(order, 1) if largest else order


def _ordered(X: Any, largest: bool) -> Any:
    return OPERATORS.get("top_positions").compute(X, count=COLUMNS, largest=largest)


REDUCTIONS: dict[str, tuple[Any, Any]] = {
    "max": (_reduced(te.max), lambda x: np.max(x, 1)),
    "min": (_reduced(te.min), lambda x: np.min(x, 1)),
    "argmax": (lambda X: OPERATORS.get("argmax").compute(X, axis=1), lambda x: np.argmax(x, 1)),
    "argmin": (lambda X: OPERATORS.get("argmin").compute(X, axis=1), lambda x: np.argmin(x, 1)),
    "descending": (lambda X: _ordered(X, True), lambda x: _sorted(x, True)),
    "ascending": (
        lambda X: _ordered(X, False),
        lambda x: _sorted(x, False),
    ),
}


def check(name: str, t: str, target: str, plain: bool = False) -> None:
    make, expected = REDUCTIONS[name]
    x = lines(t)
    X = te.placeholder(x.shape, t, name="X")
    y = make(X)
    dag = ComputeDAG.of([X, y])
    trace = te.create_schedule(y).trace if plain else default_trace(dag, parse(target))
    got = open_artifact(compile_trace(dag, trace, parse(target), name))(x)
    want = expected(
        x if t in INTEGERS else x.astype(np.float64)
    )  # exact; NumPy's sort knows no NaN of bfloat16
    same = (got == want) | ((got != got) & (want != want))
    assert same.all(), f"row {np.argwhere(~same)[0]}: {x[np.argwhere(~same)[0][0]]}"


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("t", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("plain", [False, True], ids=["default schedule", "plain loops"])
def test_lines_with_special_elements(name: str, t: str, plain: bool) -> None:
    check(name, t, "llvm", plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("t", sorted({*FLOATS, *INTEGERS} - {"float32", "bfloat16", "int8"}))
def test_lines_of_every_type(name: str, t: str) -> None:
    check(name, t, "llvm")
    check(name, t, "llvm", plain=True)


@pytest.mark.opencl
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("t", ["float32", "float16", "uint8"])
def test_lines_in_opencl(name: str, t: str) -> None:
    check(name, t, "opencl")


def test_maxima_of_partial_results_keep_nan() -> None:
    """A reduction in lanes joins partial maxima at the end."""
    x = lines("float32")
    X = te.placeholder(x.shape, "float32", name="X")
    y = _reduced(te.max)(X)
    s = te.create_schedule(y)
    _, inner = s[y].split(y.op.reduce_axis[0], factor=8)
    s.rfactor(y, inner)
    np.testing.assert_array_equal(at.build(s, [X, y])(x), np.max(x, 1))
