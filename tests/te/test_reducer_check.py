"""Reducers of single values are tried on a few numbers before a schedule is chosen."""

from __future__ import annotations

import pytest

import autotensor as at
from autotensor import te
from autotensor.api.reducer_check import check_reducers
from autotensor.base.errors import TensorError
from autotensor.te.dag import ComputeDAG

K = te.reduce_axis(8, name="k")


def reduced(combine, identity, dtype="float32"):
    X = te.placeholder((4, 8), dtype=dtype, name="X")
    reducer = te.comm_reducer(combine, identity, name="own")
    return te.compute((4,), lambda i: reducer(X[i, K], axis=K), name="Y")


@pytest.mark.parametrize(
    ("combine", "identity", "says"),
    [
        (lambda x, y: x - y, 0.0, "stage 'Y': its reducer changes a value that it joins with the identity"),
        (lambda x, y: x * y, 0.0, "changes a value"),
        (lambda x, y: y, 0.0, "changes a value"),
        (
            lambda x, y: te.select(x > 0.0, x, y),
            0.0,
            "gives another result if it joins values in another order",
        ),
        (lambda x, y: te.select(x == 0.0, y, te.select(y == 0.0, x, (x + y) * 0.5)), 0.0, "in another order"),
    ],
)
def test_a_result_that_would_depend_on_the_schedule_is_refused(combine, identity, says):
    with pytest.raises(TensorError, match=says):
        at.build([reduced(combine, lambda t: te.const(identity, t))])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64"])
@pytest.mark.parametrize(
    ("combine", "identity"),
    [
        (lambda x, y: x + y, lambda t: te.const(0, t)),
        (lambda x, y: x * y, lambda t: te.const(1, t)),
        (te.maximum, te.min_value),
        (lambda x, y: te.select(y < x, y, x), te.max_value),
        (lambda x, y: x + y - x * y, lambda t: te.const(0, t)),
    ],
)
def test_reducers_that_may_join_in_any_order(combine, identity, dtype):
    check_reducers(ComputeDAG.of([reduced(combine, identity, dtype)]))


@pytest.mark.parametrize(
    ("combine", "identity"),
    [
        (lambda x, y: te.sqrt(x * x + y * y), 0.0),
        (lambda x, y: te.log(te.exp(x) + te.exp(y)), -1e30),
        (lambda x, y: te.maximum(x, y) + te.log(1.0 + te.exp(-te.abs(x - y))), -1e30),
        (lambda x, y: x | y, 0),
        (lambda x, y: (x * y) % 7, 1),
    ],
)
def test_unusual_reducers_are_not_refused(combine, identity):
    dtype = "int32" if isinstance(identity, int) else "float32"
    check_reducers(ComputeDAG.of([reduced(combine, lambda t: te.const(identity, t), dtype)]))
