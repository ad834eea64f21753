"""NumPy gives the answers of the compiled model, also at the ends of types, and keeps no value for too
long."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.graph.evaluate import bound, evaluate, evaluated
from autotensor.graph.ir import Graph, apply
from autotensor.operators import OPERATORS, Kind

FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 2.5, -2.5, 7.0, 1e-40, 300.7, -300.7, 3e9, -3e9, 1e20, -1e20)
ENDS = {
    "float32": np.array([*FLOATS, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32),
    "int32": np.array([0, 1, -1, 2, -2, 7, -7, 31, 32, 33, 1000, -(2**31), 2**31 - 1], np.int32),
}


def elementwise(dtype: str) -> Graph:
    """Every elementwise operator of one and of two arrays of that type."""
    n = len(ENDS[dtype])
    column, row = at.input((n, 1), dtype, name="column"), at.input((1, n), dtype, name="row")
    made = []
    for name in OPERATORS.names():
        operator = OPERATORS.get(name)
        arrays = {1: (column,), 2: (column, row)}.get(len(operator.cases[0].shapes), ())
        if operator.kind is Kind.ELEMENTWISE and arrays:
            try:
                made.append(apply(name, arrays, operator.cases[0].attrs))
            except at.AutotensorError:  # not for this type
                continue
    made += [apply("cast", (column,), {"dtype": t}) for t in CASTS]
    return Graph((column, row), made, dtype)


CASTS = ("int8", "uint8", "int16", "int32", "int64", "uint32", "uint64", "float16", "bfloat16", "bool")


@pytest.mark.parametrize("dtype", ENDS)
def test_elementwise_operators_at_the_ends_of_types(dtype: str) -> None:
    graph = elementwise(dtype)
    assert len(graph.outputs) > 40
    given = ENDS[dtype].reshape(-1, 1), ENDS[dtype].reshape(1, -1)
    compiled = at.compile_model(graph, target="llvm -threads=1")(*given)
    for node, y, z in zip(graph.outputs, evaluate(graph, *given), compiled, strict=True):
        np.testing.assert_allclose(y.astype(float), z.astype(float), rtol=1e-5, atol=1e-6, err_msg=repr(node))


def test_values_go_after_their_last_reader() -> None:
    x = at.input((4,), name="x")
    y = x
    for _ in range(5):
        y = at.ops.exp(y)
    values = bound(Graph((x,), (y,)), (np.zeros(4, np.float32),), {})
    for _ in evaluated(Graph((x,), (y,)), values):
        assert len(values) <= 2
    assert list(values) == [y]
