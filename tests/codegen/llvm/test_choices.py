"""Choices between vectors by data that is the same for all lanes."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import check

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

TARGETS = [parse(f"llvm -mcpu={cpu}") for cpu in ("x86-64", "haswell", "x86-64-v4")]


def masked(n: int, dtype: str = "float32") -> ComputeDAG:
    a, m = te.placeholder((8, n), dtype, name="a"), te.placeholder((8,), dtype, name="m")
    k = te.reduce_axis(8, name="k")
    return ComputeDAG.of(
        [
            a,
            m,
            te.compute((n,), lambda j: te.sum(te.select(m[k] > 0, a[k, j] * a[0, j], 0), axis=k), name="c"),
        ]
    )


@pytest.mark.parametrize("lanes", [2, 3, 4, 8, 12, 16, 32])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_of_vectors_of_any_width(lanes: int, dtype: str, target) -> None:  # type: ignore[no-untyped-def]
    dag = masked(2 * lanes, dtype)
    trace = Trace((SplitStep("c", "j", (lanes,)), Reorder("c", ("j.0", "k", "j.1")), Vectorize("c", "j.1")))
    check(dag, trace)
    compile_trace(dag, trace, target)


def test_lanes_may_lie_further_apart_than_32_bits() -> None:
    """What a choice compares is a number of the user's, however large its steps are."""
    a = te.placeholder((8, 64), name="A")
    c = te.compute((8, 64), lambda i, j: te.select(j * 300_000_007 < i * 700_000_001 + 5, a[i, j], 0.0))
    given = np.random.default_rng(0).random((8, 64), np.float32)
    i, j = np.indices((8, 64))
    want = np.where(j * 300_000_007 < i * 700_000_001 + 5, given, 0)
    np.testing.assert_array_equal(at.build([a, c])(given), want)
