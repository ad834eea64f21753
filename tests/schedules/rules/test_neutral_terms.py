"""The greatest of terms that have a fixed number if a select fails: one pass over the terms, and the same
results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.solve import Scan, Solve
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import Tensor
from schedules.algorithms.neutral_terms import NAME
from schedules.generate import default_trace, generate

TARGET = parse("llvm -threads=2")
N, M, WIDE = 40, 6, 5


def farthest(reducer: Any, other: float, dtype: str = "float32") -> list[Tensor]:
    """The greatest or the least of the terms that belong to each place; `other` for terms of another
    place."""
    p, u = te.placeholder((N,), "int32", name="p"), te.placeholder((N, WIDE), dtype, name="u")
    k = te.reduce_axis(N, name="k")
    body = lambda i, j: reducer(te.select(p[k].equal(i), u[k, j], te.const(other, dtype)), axis=k)  # noqa: E731
    return [p, u, te.compute((M, WIDE), body, name="c")]


def results(dag: ComputeDAG, *arrays: np.ndarray) -> list[np.ndarray]:
    """Results of the first sketches with their rules' own decisions."""
    traces = [s.fill(s.defaults()) for s in generate(dag, TARGET)[:2]]
    return [open_artifact(compile_trace(dag, t, TARGET), threads=2)(*arrays) for t in traces]


def uses(dag: ComputeDAG, kind: type) -> bool:
    return any(isinstance(s, kind) for s in default_trace(dag, TARGET).steps)


@pytest.mark.parametrize(("reducer", "join"), [(te.max, np.maximum), (te.min, np.minimum)])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("places", [range(M), [2], [2, 9]])
@pytest.mark.sample(4)
def test_each_place_has_its_terms(reducer: Any, join: Any, dtype: str, places: Any) -> None:
    """If all terms belong to one place, the other number is not among its terms."""
    rng = np.random.default_rng(0)
    dag = ComputeDAG.of(farthest(reducer, 50, dtype))
    assert any(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in default_trace(dag, TARGET).steps)
    assert uses(dag, Solve)
    p = rng.choice([*places], N).astype(np.int32)
    for shift in (0, 100):  # all terms below the other number, or above it
        u = (rng.integers(-40, 40, (N, WIDE)) + shift).astype(dtype)
        terms = np.where(p[None, :, None] == np.arange(M)[:, None, None], u[None], np.array(50, dtype))
        for found in results(dag, p, u):
            np.testing.assert_array_equal(found, join.reduce(terms, axis=1))


def test_nan_stays() -> None:
    dag = ComputeDAG.of(farthest(te.max, -1.0))
    p, u = np.arange(N, dtype=np.int32) % M, np.zeros((N, WIDE), np.float32)
    u[3, 1] = np.nan
    for found in results(dag, p, u):
        assert np.argwhere(np.isnan(found)).tolist() == [[3, 1]]


def test_running_maxima() -> None:
    """The last element has all terms, and not the other number."""
    x, k = te.placeholder((3, N), name="x"), te.reduce_axis(N, name="k")
    body = lambda i, j: te.max(te.select(k <= j, x[i, k], 0.0), axis=k)  # noqa: E731
    dag = ComputeDAG.of([x, te.compute((3, N), body, name="y")])
    values = -1.0 - np.random.default_rng(0).random((3, N), np.float32)
    want = np.maximum.accumulate(values, axis=1)
    want[:, :-1] = 0.0
    for found in results(dag, values):
        np.testing.assert_array_equal(found, want)


def test_sums_keep_their_other_numbers() -> None:
    dag = ComputeDAG.of(farthest(te.sum, 1.0))
    assert not uses(dag, UseAlgorithm)


def test_a_histogram_stays_one_pass_in_front_of_what_reads_it() -> None:
    p, k = te.placeholder((900,), "int32", name="p"), te.reduce_axis(900, name="k")
    counts = te.compute((30,), lambda i: te.sum(te.select(p[k].equal(i), 1.0, 0.0), axis=k), name="counts")
    dag = ComputeDAG.of([p, te.compute((30,), lambda i: counts[i] / 900.0, name="share")])
    assert uses(dag, Solve)


def test_a_running_maximum_is_one_pass_though_rows_read_it() -> None:
    """The greatest fall from the maximum so far. The running maximum is computed outside of the row's loops;
    inside, each element would need all its terms."""
    x = te.placeholder((8, 50), name="x")
    k, q = te.reduce_axis(50, name="k"), te.reduce_axis(50, name="q")
    top = te.compute((8, 50), lambda i, j: te.max(te.select(k <= j, x[i, k], -1e30), axis=k), name="top")
    dag = ComputeDAG.of([x, te.compute((8,), lambda i: te.max(top[i, q] - x[i, q], axis=q), name="fall")])
    assert uses(dag, Scan)
    values = np.random.default_rng(0).standard_normal((8, 50)).astype("f4")
    want = (np.maximum.accumulate(values, 1) - values).max(1)
    for found in results(dag, values):
        np.testing.assert_array_equal(found, want)
