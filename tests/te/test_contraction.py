"""Sums of products are computed as matrix products, with the same results as point by point, in far less
time."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.te import contraction
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs


def product(m=70, n=60, k=40):
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis(k, name="k")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def convolution(stride=1, dilation=1, groups=1, channels=16, outputs=24, size=15):
    inside = channels // groups
    x = te.placeholder((2, size, size, channels), name="X")
    w = te.placeholder((outputs, inside, 3, 3), name="W")
    at = (size + 2 - 2 * dilation - 1) // stride + 1
    c, p, q = (te.reduce_axis(n, name=s) for n, s in ((inside, "c"), (3, "p"), (3, "q")))

    def body(b, i, j, o):
        h, v = i * stride + p * dilation - 1, j * stride + q * dilation - 1
        within = te.all(h >= 0, h < size, v >= 0, v < size)
        read = x[b, h, v, o // (outputs // groups) * inside + c]
        return te.sum(te.if_then_else(within, read, 0.0) * w[o, c, p, q], axis=[c, p, q])

    return [x, w, te.compute((2, at, at, outputs), body, name="Y")]


def left_out():
    """The condition is around the product, as in a transposed convolution."""
    a, b, r = (
        te.placeholder((90, 30), name="A"),
        te.placeholder((60, 90), name="B"),
        te.reduce_axis(90, name="k"),
    )
    return [
        a,
        b,
        te.compute(
            (60, 30), lambda i, j: te.sum(te.if_then_else(r > i, a[r, j] * b[i, r], 0.0), axis=r), name="C"
        ),
    ]


def three_factors():
    a, b, s = (
        te.placeholder((64, 48), name="A"),
        te.placeholder((48, 50), name="B"),
        te.placeholder((48,), name="S"),
    )
    r = te.reduce_axis(48, name="k")
    return [
        a,
        b,
        s,
        te.compute((64, 50), lambda i, j: te.sum(a[i, r] * s[r] * b[r, j] * 0.5, axis=r), name="C"),
    ]


def unread_axis():
    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
    r, q = te.reduce_axis(32, name="k"), te.reduce_axis(3, name="q")
    return [a, b, te.compute((64, 48), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r, q]), name="C")]


def batches():
    a, b, r = (
        te.placeholder((6, 40, 24), name="A"),
        te.placeholder((6, 50, 24), name="B"),
        te.reduce_axis(24, name="k"),
    )
    return [a, b, te.compute((6, 40, 50), lambda n, i, j: te.sum(a[n, i, r] * b[n, j, r], axis=r), name="C")]


def half():
    a, b = te.placeholder((70, 40), "float16", name="A"), te.placeholder((40, 60), "float16", name="B")
    r = te.reduce_axis(40, name="k")
    body = lambda i, j: te.sum(a[i, r].astype("float32") * b[r, j].astype("float32"), axis=r)  # noqa: E731
    return [a, b, te.compute((70, 60), body, name="C")]


CASES = {
    "product": product,
    "convolution": convolution,
    "strided": lambda: convolution(stride=2),
    "dilated": lambda: convolution(dilation=2),
    "grouped": lambda: convolution(groups=4),
    "depthwise": lambda: convolution(groups=16, outputs=16),
    "left out": left_out,
    "three factors": three_factors,
    "unread axis": unread_axis,
    "batches": batches,
    "half": half,
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_point_by_point(name, monkeypatch):
    dag = ComputeDAG.of(CASES[name]())
    arrays = random_inputs(dag, seed=3)
    found = evaluate(dag, arrays, np.float64)
    monkeypatch.setattr(contraction, "FACTOR_POINTS", 1000)  # in many boxes
    boxed = evaluate(dag, arrays, np.float64)
    monkeypatch.setattr(contraction, "FEW_POINTS", 1 << 60)  # in none
    for buffer, wanted in evaluate(dag, arrays, np.float64).items():
        np.testing.assert_allclose(found[buffer], wanted, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(boxed[buffer], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"depthwise"}))
def test_they_are_matrix_products(name, monkeypatch):
    dag = ComputeDAG.of(CASES[name]())
    calls = []
    one = contraction._product
    monkeypatch.setattr(contraction, "_product", lambda *a: calls.append(1) or one(*a))
    evaluate(dag, random_inputs(dag, seed=3), np.float64)
    assert calls


def test_a_product_that_is_left_out_may_not_be_finite():
    dag = ComputeDAG.of(left_out())
    arrays = random_inputs(dag, seed=3)
    arrays["A"][0, :] = np.inf  # r = 0 is never above i
    arrays["B"][59, 10] = np.nan  # 10 is not above 59
    assert np.isfinite(evaluate(dag, arrays, np.float64)["C"]).all()


def test_what_is_no_sum_of_products_is_computed_point_by_point():
    a, r = te.placeholder((300, 300), name="A"), te.reduce_axis(300, name="k")
    for body in (te.max(a[r, r] * a[r, r], axis=r), te.sum(a[r, r], axis=r)):
        dag = ComputeDAG.of([a, te.compute((300,), lambda i, body=body: body, name="C")])
        evaluate(dag, random_inputs(dag, seed=0), np.float64)
