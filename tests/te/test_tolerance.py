"""The allowed difference of correct programs: the formula, the worst order, terms that cancel, real
faults."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import error_bound, scale, term_sizes, tolerance, with_squares

EPS = 2.0**-23


class TestBound:
    def test_the_formula(self) -> None:
        x = te.placeholder((4, 64), name="x")
        h = te.placeholder((4, 64), dtype="float16", name="h")
        k, m = te.reduce_axis(64), te.reduce_axis(64)
        total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
        y = te.compute((4,), lambda i: total[i] * 2, name="y")
        assert error_bound(ComputeDAG.of([y, total])) == {"total": 4 * 8 * EPS, "y": 4 * 8 * EPS + 8 * EPS}
        half = te.compute((4,), lambda i: te.sum(h[i, m].astype("float32"), axis=m), name="half")
        assert error_bound(ComputeDAG.of(half)) == {"half": 4 * sqrt(64) * EPS}
        narrow = te.compute((4,), lambda i: x[i, 0].astype("float16"), name="narrow")
        assert error_bound(ComputeDAG.of(narrow)) == {"narrow": 8 * 2.0**-10}

    def test_exact_programs_have_no_tolerance(self) -> None:
        x = te.placeholder((4, 4), name="x")
        k = te.reduce_axis(4)
        pool = te.compute((4,), lambda i: te.max(te.maximum(x[i, k], 0.0), axis=k), name="pool")
        assert error_bound(ComputeDAG.of(pool)) == {"pool": 0.0}
        n = te.placeholder((4,), dtype="int32", name="n")
        assert error_bound(ComputeDAG.of(te.compute((4,), lambda i: n[i] * 3, name="y"))) == {"y": 0.0}
        dag, inputs = ComputeDAG.of(pool), random_inputs(ComputeDAG.of(pool), 0)
        assert (tolerance(dag, inputs, evaluate(dag, inputs))["pool"] == 0.0).all()

    def test_integers_made_of_rounded_floats_may_be_anything(self) -> None:
        x = te.placeholder((4,), name="x")
        y = te.compute((4,), lambda i: te.round(x[i] * 10).astype("int8"), name="y")
        assert error_bound(ComputeDAG.of(y))["y"] == inf
        y = te.compute((4,), lambda i: te.round(x[i]).astype("int8"), name="y")
        assert error_bound(ComputeDAG.of(y))["y"] == 0

    @pytest.mark.parametrize("t", ["float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("positive", [False, True])
    def test_it_holds_for_the_worst_order(self, t: str, positive: bool) -> None:
        """A sum term by term, with every step rounded: no program has a larger error."""
        n = 2048 if t == "float32" else 128
        dag = dot(40, n, t)
        inputs = random_inputs(dag, 7)
        if positive:
            inputs = {name: np.abs(a) for name, a in inputs.items()}
        exact = evaluate(dag, inputs, np.float64)
        total = np.zeros(40, inputs["x"].dtype)
        for m in range(n):
            total = total + inputs["x"][:, m] * inputs["w"][m]
        error = np.abs(total.astype(np.float64) - exact["y"])
        allowed = tolerance(dag, inputs, exact)["y"]
        assert (error <= allowed).all()
        assert error.max() > allowed.max() / 1000


def dot(rows: int, n: int, t: str = "float32") -> ComputeDAG:
    """y[i] = Σ_k x[i, k] w[k]"""
    x, w = te.placeholder((rows, n), t, name="x"), te.placeholder((n,), t, name="w")
    k = te.reduce_axis(n)
    return ComputeDAG.of(te.compute((rows,), lambda i: te.sum(x[i, k] * w[k], axis=k), name="y"))


def cancelling(seed: int, n: int = 4096) -> tuple[dict[str, Any], Any]:
    """Inputs of `dot(1, n)` whose products add up to almost nothing, and the sum one by one."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n).astype(np.float32)
    w = np.ones(n, np.float32)
    x[-1] = -x[:-1].sum(dtype=np.float64)
    total = np.float32(0)
    for v in x:
        total += v
    return {"x": x[None], "w": w}, np.array([total])


class TestTermsThatCancel:
    @pytest.mark.parametrize("seed", range(10))
    def test_a_sum_of_one_result(self, seed: int) -> None:
        dag, (inputs, got) = dot(1, 4096), cancelling(seed)
        exact = evaluate(dag, inputs, np.float64)
        error, bound = abs(float(got[0]) - exact["y"][0]), error_bound(dag)["y"]
        assert error > 2 * bound * abs(exact["y"][0])  # relative to the result alone it looks wrong
        assert error <= tolerance(dag, inputs, exact)["y"][0]

    @pytest.mark.parametrize("seed", range(10))
    def test_a_missing_term_is_still_found(self, seed: int) -> None:
        dag, (inputs, _) = dot(1, 4096), cancelling(seed)
        exact = evaluate(dag, inputs, np.float64)
        allowed = tolerance(dag, inputs, exact)["y"][0]
        size = np.abs(inputs["x"][0])
        found = size > allowed
        assert found.mean() > 0.95  # leaving out any of these terms is an error
        assert allowed < 0.1 * np.sqrt((size**2).mean())

    def test_a_difference_of_equal_sums(self) -> None:
        """The error of both sums stays, although the sums cancel."""
        x, y = te.placeholder((64, 300), name="x"), te.placeholder((300,), name="y")
        k, m = te.reduce_axis(300), te.reduce_axis(300)
        one = te.compute((64,), lambda i: te.sum(x[i, k] * y[k], axis=k), name="one")
        two = te.compute((64,), lambda i: te.sum(x[i, 299 - m] * y[299 - m], axis=m), name="two")
        dag = ComputeDAG.of(te.compute((64,), lambda i: one[i] - two[i], name="zero"))
        inputs = random_inputs(dag, 0)
        exact = evaluate(dag, inputs, np.float64)
        got = evaluate(dag, inputs)["zero"]
        assert np.abs(got).max() > 0
        assert (np.abs(got - exact["zero"]) <= tolerance(dag, inputs, exact)["zero"]).all()
        assert tolerance(dag, inputs, exact)["zero"].max() < 1e-3

    def test_sizes_by_hand(self) -> None:
        x = te.placeholder((3,), name="x")
        k = te.reduce_axis(3)
        s = te.compute((), lambda: te.sum(x[k] * 2.0, axis=k), name="s")
        y = te.compute((), lambda: te.maximum(-(s() - 1.0), float("-inf")), name="y")
        values = {"x": np.array([1, -2, 2], np.float32)}
        assert term_sizes(ComputeDAG.of([s]), values) == {"s": sqrt(4 + 16 + 16)}
        assert term_sizes(ComputeDAG.of([y]), values) == {"y": sqrt(36 + 1)}

    def test_a_maximum_has_the_size_of_what_it_took(self) -> None:
        x = te.placeholder((3,), name="x")
        k = te.reduce_axis(3)
        d = te.compute((3,), lambda i: x[i] - 100.0, name="d")
        m = te.compute((), lambda: te.max(d[k], axis=k), name="m")
        values = {"x": np.array([1, 100, 50], np.float32)}
        assert term_sizes(ComputeDAG.of([m]), values) == {"m": pytest.approx(sqrt(2) * 100)}

    def test_integers_have_none(self) -> None:
        n = te.placeholder((3,), "int32", name="n")
        dag = ComputeDAG.of(te.compute((3,), lambda i: n[i] * 2, name="y"))
        assert with_squares(dag).stages == dag.stages
        assert term_sizes(dag, random_inputs(dag, 0)) == {}


def matmul() -> ComputeDAG:
    a, b, k = te.placeholder((24, 200), name="a"), te.placeholder((200, 20), name="b"), te.reduce_axis(200)
    return ComputeDAG.of(te.compute((24, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="y"))


def dense_relu() -> ComputeDAG:
    a, b, c = (te.placeholder(n, name=x) for n, x in (((24, 200), "a"), ((200, 20), "b"), ((20,), "c")))
    k = te.reduce_axis(200)
    d = te.compute((24, 20), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="d")
    return ComputeDAG.of(te.compute((24, 20), lambda i, j: te.maximum(d[i, j] + c[j], 0.0), name="y"))


def row_softmax() -> ComputeDAG:
    x, k, m = te.placeholder((16, 50), name="x"), te.reduce_axis(50), te.reduce_axis(50)
    top = te.compute((16,), lambda i: te.max(x[i, k], axis=k), name="top")
    e = te.compute((16, 50), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    s = te.compute((16,), lambda i: te.sum(e[i, m], axis=m), name="s")
    return ComputeDAG.of(te.compute((16, 50), lambda i, j: e[i, j] / s[i], name="y"))


def layer_norm() -> ComputeDAG:
    x, k, m = te.placeholder((16, 64), name="x"), te.reduce_axis(64), te.reduce_axis(64)
    s = te.compute((16,), lambda i: te.sum(x[i, k], axis=k), name="s")
    d = te.compute((16, 64), lambda i, j: x[i, j] - s[i] / 64.0, name="d")
    v = te.compute((16,), lambda i: te.sum(d[i, m] * d[i, m], axis=m), name="v")
    return ComputeDAG.of(te.compute((16, 64), lambda i, j: d[i, j] * te.rsqrt(v[i] / 64.0 + 1e-5), name="y"))


@pytest.mark.parametrize("make", [matmul, dense_relu, row_softmax, layer_norm])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_more_is_allowed_in_ordinary_cases(make: Callable[[], ComputeDAG], seed: int) -> None:
    """Terms are no larger than the largest element: the scale is that of the result."""
    dag = make()
    inputs = random_inputs(dag, seed)
    exact = evaluate(dag, inputs, np.float64)["y"]
    assert scale(exact, term_sizes(dag, inputs)["y"]) <= 1.05 * scale(exact)


@pytest.mark.parametrize("make", [matmul, dense_relu, row_softmax, layer_norm])
def test_a_wrong_element_is_found(make: Callable[[], ComputeDAG]) -> None:
    """One entry of an input is read from its neighbour: some answer is out of bounds."""
    dag = make()
    inputs = random_inputs(dag, 0)
    exact = evaluate(dag, inputs, np.float64)
    name = dag.inputs[0].name
    other = inputs[name].copy()
    other[0, 3] = inputs[name][0, 4]
    wrong = evaluate(dag, {**inputs, name: other}, np.float64)
    assert (np.abs(wrong["y"] - exact["y"]) > tolerance(dag, inputs, exact)["y"]).any()
