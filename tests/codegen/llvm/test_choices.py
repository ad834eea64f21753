"""Choices between vectors by data that is the same for all lanes."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import check

import autotensor as at
from autotensor import te
from autotensor.api.kernels import open_artifact, refuse_unfit
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
@pytest.mark.sample(20)
def test_of_vectors_of_any_width(lanes: int, dtype: str, target) -> None:  # type: ignore[no-untyped-def]
    dag = masked(2 * lanes, dtype)
    trace = Trace((SplitStep("c", "j", (lanes,)), Reorder("c", ("j.0", "k", "j.1")), Vectorize("c", "j.1")))
    check(dag, trace)
    compile_trace(dag, trace, target)


@pytest.mark.parametrize("target", [parse("llvm"), TARGETS[0]], ids=str)
def test_terms_that_are_left_out_may_be_anything(target) -> None:  # type: ignore[no-untyped-def]
    """Infinite and undefined operands where the mask fails; sums of negative zeros stay what they are."""
    a, b, m = (
        te.placeholder((8,), name="a"),
        te.placeholder((8, 32), name="b"),
        te.placeholder((8,), name="m"),
    )
    k = te.reduce_axis(8, name="k")
    c = te.compute((32,), lambda j: te.sum(te.select(m[k] > 0, a[k] * b[k, j], 0), axis=k), name="c")
    trace = Trace((SplitStep("c", "j", (8,)), Reorder("c", ("j.0", "k", "j.1")), Vectorize("c", "j.1")))
    taken = np.float32([1, 0, 1, 0, -1, 1, np.nan, 1])
    x, y = np.random.default_rng(1).standard_normal((2, 8, 32)).astype(np.float32)
    x, y[taken != 1] = x[:, 0].copy(), np.resize(np.float32([np.inf, np.nan, -np.inf]), 32)
    x[1], x[4] = np.inf, np.nan
    want = (x[taken == 1].astype(np.float64)[:, None] * y[taken == 1]).sum(0)
    kernel = open_artifact(refuse_unfit(compile_trace(ComputeDAG.of([a, b, m, c]), trace, target)), threads=1)
    np.testing.assert_allclose(kernel(x, y, taken), want, rtol=1e-5, atol=1e-6)


def test_lanes_may_lie_further_apart_than_32_bits() -> None:
    """The compared number is the user's own, however large its steps are."""
    a = te.placeholder((8, 64), name="A")
    c = te.compute((8, 64), lambda i, j: te.select(j * 300_000_007 < i * 700_000_001 + 5, a[i, j], 0.0))
    given = np.random.default_rng(0).random((8, 64), np.float32)
    i, j = np.indices((8, 64))
    want = np.where(j * 300_000_007 < i * 700_000_001 + 5, given, 0)
    np.testing.assert_array_equal(at.build([a, c])(given), want)
