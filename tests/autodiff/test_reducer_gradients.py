"""Reducers of a program's author: derivatives against finite differences and by hand; refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from finite_differences import check_gradients

from autotensor import te
from autotensor.api.model_compiling import compile_model
from autotensor.autodiff import gradients
from autotensor.base.errors import GraphError
from autotensor.graph.build import call, input
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.partition import own_outputs, partition

product = te.comm_reducer(lambda a, b: a * b, lambda t: te.const(1, t), name="times")
logsumexp = te.comm_reducer(
    lambda a, b: te.maximum(a, b) + te.log1p(te.exp(-te.abs(a - b))), te.min_value, name="logsumexp"
)
length = te.comm_reducer(lambda a, b: te.sqrt(a * a + b * b), lambda t: te.const(0, t), name="length")
# 1 - (1 - a)(1 - b): that one of several independent events happens
either = te.comm_reducer(lambda a, b: a + b - a * b, lambda t: te.const(0, t), name="either")

REDUCERS = {"product": product, "logsumexp": logsumexp, "length": length, "either": either}


def larger(x, y):
    wins = x[1] >= y[1]
    return te.select(wins, x[0], y[0]), te.select(wins, x[1], y[1])


argmax = te.comm_reducer(larger, lambda i, t: (te.const(-1, i), te.min_value(t)), name="argmax")
span = te.comm_reducer(
    lambda x, y: (te.minimum(x[0], y[0]), te.maximum(x[1], y[1])),
    lambda a, b: (te.max_value(a), te.min_value(b)),
    name="span",
)


def merged(x, y):
    """(count, mean, sum of squared differences) of two samples together. Source: Chan et al., 1979."""
    n = x[0] + y[0]
    d = y[1] - x[1]
    share = y[0] / te.select(n > 0.0, n, te.const(1, n.dtype))
    return n, x[1] + d * share, x[2] + y[2] + d * d * x[0] * share


moments = te.comm_reducer(merged, lambda *t: tuple(te.const(0, u) for u in t), name="moments")


def over_rows(reducer: Callable[..., object]) -> Callable[[te.Tensor], te.Tensor]:
    def made(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(x.shape[1], "k")
        return te.compute((x.shape[0],), lambda i: reducer(x[i, k] * x[i, k] * 0.5 + 0.25, axis=k), name="r")

    return made


def over_windows(reducer: Callable[..., object]) -> Callable[[te.Tensor], te.Tensor]:
    def made(x: te.Tensor) -> te.Tensor:
        a, b = te.reduce_axis(2, "a"), te.reduce_axis(3, "b")
        return te.compute((2, 3), lambda i, j: reducer(x[i + a, j + b], axis=[a, b]), name="r")

    return made


def best_of_rows(x: te.Tensor) -> tuple[te.Tensor, ...]:
    k = te.reduce_axis(x.shape[1], "k")
    return te.compute((x.shape[0],), lambda i: argmax((k.var, x[i, k] * 2.0), axis=k), name="r")


def span_of_columns(x: te.Tensor) -> tuple[te.Tensor, ...]:
    k = te.reduce_axis(x.shape[0], "k")
    return te.compute((x.shape[1],), lambda j: span((x[k, j], x[k, j] * x[k, 0]), axis=k), name="r")


def moments_of_rows(x: te.Tensor) -> tuple[te.Tensor, ...]:
    k = te.reduce_axis(x.shape[1], "k")
    one, zero = te.const(1, "float64"), te.const(0, "float64")
    return te.compute((x.shape[0],), lambda i: moments((one, x[i, k], zero), axis=k), name="r")


@pytest.mark.parametrize("shape", [(3, 5), (4, 1), (2, 7)])
@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
def test_rows(reducer: Callable[..., object], shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x = input(shape, "float64")
    assert check_gradients([x], [call(over_rows(reducer), x)], [rng.uniform(0.2, 1.2, shape)], rng) == 1


@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
def test_windows(reducer: Callable[..., object]) -> None:
    rng = np.random.default_rng(1)
    x = input((3, 5), "float64")
    assert check_gradients([x], [call(over_windows(reducer), x)], [rng.uniform(0.2, 0.9, (3, 5))], rng) == 1


@pytest.mark.parametrize("function", [best_of_rows, span_of_columns, moments_of_rows])
def test_tuples(function: Callable[[te.Tensor], tuple[te.Tensor, ...]]) -> None:
    rng = np.random.default_rng(2)
    x = input((4, 6), "float64")
    results = [y for y in call(function, x) if y.dtype.is_float]
    assert check_gradients([x], results, [rng.uniform(0.2, 1.2, (4, 6))], rng) == 1


def test_the_variance_of_a_sample() -> None:
    """d/dx of sum (x - mean)² is 2 (x - mean)."""
    x = input((1, 5), "float64")
    (g,) = gradients(call(moments_of_rows, x)[2], x)
    a = np.array([[1.0, 2.0, 4.0, 8.0, 16.0]])
    (found,) = evaluate(Graph((x,), (g,), "g", ("g",)), a)
    np.testing.assert_allclose(found, 2 * (a - a.mean()), rtol=1e-12)


@pytest.mark.parametrize("reducer", [product, logsumexp])
def test_second_derivatives(reducer: Callable[..., object]) -> None:
    rng = np.random.default_rng(4)
    x = input((2, 5), "float64")
    (slope,) = gradients(call(over_rows(reducer), x), x)
    assert check_gradients([x], [slope], [rng.uniform(0.2, 1.2, (2, 5))], rng) == 1


@pytest.mark.parametrize("reducer", [te.prod, product, logsumexp])
def test_the_work_grows_little_faster_than_the_terms(reducer: Callable[..., object]) -> None:
    """Four times as many terms need two more joining steps for each term, not four times as many."""

    def operations(terms: int) -> int:
        x = input((3, terms), "float32")
        (slope,) = gradients(call(over_rows(reducer), x), x)
        return sum(g.flops for g in partition(own_outputs(Graph((x,), (slope,), "g", ("g",)))))

    assert operations(1024) < 6 * operations(256)


def test_one_of_equal_terms_gets_all() -> None:
    x = input((1, 4), "float64")
    (g,) = gradients(call(best_of_rows, x)[1], x)
    (found,) = evaluate(Graph((x,), (g,), "g", ("g",)), np.array([[1.0, 3.0, 3.0, 3.0]]))
    assert found.tolist() == [[0, 2, 0, 0]]


def test_compiled_as_the_reference_says() -> None:
    x = input((3, 7), "float32")
    (g,) = gradients(call(over_rows(logsumexp), x), x)
    graph = Graph((x,), (g,), "g", ("g",))
    a = np.random.default_rng(3).standard_normal((3, 7)).astype(np.float32)
    y = 0.5 * a * a + 0.25
    want = np.exp(y) / np.exp(y).sum(1, keepdims=True) * a
    np.testing.assert_allclose(compile_model(graph)(a), want, rtol=1e-4)


@pytest.mark.parametrize(
    ("combine", "start", "why"),
    [
        (lambda a, b: a + b * b, 0, "its start is not neutral"),
        (lambda a, b: (a + b) * 0.5, 0, "its start is not neutral"),
        (lambda a, b: a + b + a * a * b * b, 0, "joining is not associative"),
    ],
)
def test_what_depends_on_the_order_is_refused(combine, start: int, why: str) -> None:
    odd = te.comm_reducer(combine, lambda t: te.const(start, t), name="odd")
    x = input((2, 3), "float64")
    with pytest.raises(GraphError, match=rf"'odd' of stage 'r' has no derivative: {why}, so .*gradient of"):
        gradients(call(over_rows(odd), x), x)
