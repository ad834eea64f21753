"""Gradients of scans against finite differences, and compiled against NumPy's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from finite_differences import check_gradients, directional
from recurrences import CASES, drawn_step, lines_of, zeros

import autotensor as at
from autotensor import te
from autotensor.autodiff import gradients, scan_gradients
from autotensor.base.errors import GraphError
from autotensor.base.target import parse
from autotensor.graph.build import call, input
from autotensor.graph.evaluate import evaluate
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Graph
from autotensor.schedule.primitives.look_ahead import LookAhead
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace

T, N = 9, 5


def scan(update: Any, ways: Any = None, first: Any = None) -> Sequence[Any]:
    """y[t] = update(x, s or what `ways` makes of it, t, i)."""
    x, s = te.placeholder((T, N), name="x"), te.placeholder((T, N), name="s")
    way = ways(x, s) if ways else s
    u = te.compute((T, N), lambda t, i: update(x, way, t, i), name="u")
    a = te.compute((2, N), lambda t, i: x[t, i], name="a") if first is None else first
    return x, te.scan(a, u, s, name="y")


def reduced(reducer: Any) -> Any:
    k = te.reduce_axis(N, name="k")
    return lambda x, s: te.compute(
        (T, N), lambda t, i: reducer(s[t - 1, k] * x[t, (i + k) % N], axis=k), name="way"
    )


def unread_state() -> Sequence[Any]:
    """One of two states is not a result, and is read two steps later."""
    x, p, q = (te.placeholder((T, N), name=n) for n in "xpq")
    u = te.compute((T, N), lambda t, i: 0.5 * q[t - 2, i] * p[t - 1, i] + x[t, i], name="u")
    v = te.compute((T, N), lambda t, i: te.tanh(p[t - 1, N - 1 - i]) + q[t - 1, i] * 0.3, name="v")
    firsts = [te.compute((2, N), lambda t, i: x[0, i], name="f"), zeros(2, N, name="g")]
    y, _ = te.scan(firsts, [u, v], [p, q], name="y")
    return x, y


def given_first() -> Sequence[Any]:
    """Only the first step is an input."""
    h0, s = te.placeholder((1, N), name="h0"), te.placeholder((T, N), name="s")
    return h0, te.scan(h0, te.compute((T, N), lambda t, i: te.exp(-s[t - 1, i]), name="u"), s, name="y")


def twice() -> Sequence[Any]:
    """A scan of a scan's result."""
    x, s, r = (te.placeholder((T, N), name=n) for n in "xsr")
    a = te.compute((1, N), lambda t, i: x[t, i], name="a")
    y = te.scan(a, te.compute((T, N), lambda t, i: te.tanh(s[t - 1, i]) * x[t, i], name="u"), s, name="y")
    b = te.compute((1, N), lambda t, i: y[T - 1, i], name="b")
    return x, te.scan(
        b, te.compute((T, N), lambda t, i: r[t - 1, i] + y[t, N - 1 - i], name="v"), r, name="z"
    )


def names() -> Sequence[Any]:
    """Tensors and axes with names that a derivative might give to its own."""
    grad, x, s = (te.placeholder((T, N), "float64", n) for n in ("grad_y", "x", "s"))
    w = te.placeholder((1,), "float64", "adjoint")
    k = te.reduce_axis(N, name="r0")
    ties = te.compute((T, N), lambda step, i0: s[step - 1, i0] * x[step, i0] * w[0], name="ties_way")
    way = te.compute((T, N), lambda step, i0: te.max(s[step - 1, k] * x[step, k], axis=k), name="way")
    u = te.compute((T, N), lambda step, i0: way[step, i0] * grad[step, i0] + ties[step, i0], name="y_update")
    y = te.scan(te.compute((1, N), lambda t, i: grad[t, i], name="y_first"), u, s, name="y")
    return grad, x, w, y


def counted() -> Sequence[Any]:
    """A state of integers and a state of floats."""
    x, s = te.placeholder((T, N), name="x"), te.placeholder((T, N), name="s")
    n = te.placeholder((T, N), "int64", name="n")
    u = te.compute((T, N), lambda t, i: s[t - 1, i] * te.select(n[t - 1, i] % 2 == 0, x[t, i], 0.5), name="u")
    m = te.compute((T, N), lambda t, i: n[t - 1, i] + i, name="m")
    firsts = [
        te.compute((1, N), lambda t, i: x[t, i], name="a"),
        te.compute((1, N), lambda t, i: te.const(0, "int64"), name="b"),
    ]
    return x, te.scan(firsts, [u, m], [s, n], name="y")[0]


MORE = {
    "counted": counted,
    "maximum on its way": lambda: scan(lambda x, w, t, i: w[t, i] * 0.5 + x[t, i], reduced(te.max)),
    "product on its way": lambda: scan(lambda x, w, t, i: w[t, i] + x[t, i], reduced(te.prod)),
    "two sums on its way": lambda: scan(lambda x, w, t, i: te.tanh(w[t, i] + x[t, i]), reduced(te.sum)),
    "reads two steps before only": lambda: scan(lambda x, s, t, i: s[t - 2, i] * x[t, i]),
    "infinite where a step is no step": lambda: scan(
        lambda x, s, t, i: te.sqrt(s[t - 1, i] * s[t - 1, i]) + x[t, i] / (1.0 * t),
        None,
        zeros(1, N, name="a"),
    ),
    "a state is no result": unread_state,
    "first step": given_first,
    "of a scan": twice,
}


def function_of(tensors: Sequence[Any]) -> TeFunction:
    dag = ComputeDAG.of(list(tensors))
    return TeFunction("steps", dag, tuple(b.name for b in dag.outputs), Workload.of(dag).key)


def of_doubles(f: TeFunction) -> TeFunction:
    """The same computation in float64."""
    dag = Workload.from_text(Workload.of(f.dag).text.replace("float32", "float64")).dag
    return TeFunction("steps", dag, tuple(b.name for b in dag.outputs), Workload.of(dag).key)


def applied(f: TeFunction) -> tuple[list[Any], list[Any]]:
    inputs = [input(b.shape, b.dtype, b.name) for b in f.dag.inputs]
    made = call(f, *inputs)
    return inputs, list(made) if isinstance(made, tuple) else [made]


def compared(name: str) -> None:
    compare(of_doubles(function_of({**CASES, **MORE}[name]())))


def compare(f: TeFunction) -> None:
    inputs, outputs = applied(f)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.3, 1.0, x.shape) for x in inputs]
    assert check_gradients(inputs, outputs, arrays, rng) == len(inputs)


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_equals_finite_differences(name: str) -> None:
    compared(name)


def test_names_are_free() -> None:
    compare(function_of(names()))


@pytest.mark.parametrize("name", ["one pole", "recurrent", "lstm", "maximum on its way", "of a scan"])
def test_compiled(name: str) -> None:
    inputs, outputs = applied(function_of({**CASES, **MORE}[name]()))
    graph = Graph(tuple(inputs), gradients(outputs, inputs), "backward")
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.3, 1.0, x.shape).astype(np.float32) for x in inputs]
    found = at.compile_model(graph)(*arrays)
    for mine, exact in zip(
        found if isinstance(found, tuple) else (found,), evaluate(graph, *arrays), strict=True
    ):
        np.testing.assert_allclose(mine, exact, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))]
)
def test_of_joined_steps(seed: int) -> None:
    """Compiled gradients of drawn recurrences. For recurrences that read one step back, adjoints are also
    joined."""
    rng, numbers, target = random.Random(seed), np.random.default_rng(seed), "llvm -mcpu=haswell"
    lines = rng.choice(((), (2,), (3,)))
    order, step = drawn_step(rng)
    inputs, outputs = applied(function_of(lines_of(order, step, 70, "float64", lines)))
    seed_of = input(outputs[0].shape, "float64", "seed")
    backward = Graph((*inputs, seed_of), gradients(outputs, inputs, [seed_of]), "backward")
    plans = [default_trace(t.workload.dag, parse(target)) for t in at.plan_model(backward, target).tasks]
    assert order > 1 or any(isinstance(s, LookAhead) for plan in plans for s in plan.steps)
    forward = at.compile_model(Graph(tuple(inputs), tuple(outputs), "forward"), target=target)
    *arrays, weights = (numbers.uniform(-1, 1, x.shape) for x in backward.inputs)
    slopes = at.compile_model(backward, target=target)(*arrays, weights)
    for n, slope in enumerate(slopes):
        direction = numbers.standard_normal(slope.shape)
        change = directional(lambda given: float((forward(*given) * weights).sum()), arrays, n, direction)
        np.testing.assert_allclose((slope * direction).sum(), change, rtol=1e-5, atol=1e-5)


def test_of_a_gradient() -> None:
    inputs, outputs = applied(of_doubles(function_of(MORE["reads two steps before only"]())))
    rng = np.random.default_rng(0)
    slopes = gradients(outputs, inputs, [rng.standard_normal(o.shape) for o in outputs])
    check_gradients(inputs, list(slopes), [rng.uniform(0.3, 1.0, x.shape) for x in inputs], rng)


@pytest.mark.parametrize("name", ["three poles", "lstm", "soft-DTW", "a state is no result"])
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last term of the total is left out."""
    total = scan_gradients._total
    monkeypatch.setattr(scan_gradients, "_total", lambda terms, b: total(list(terms)[:-1], b))
    with pytest.raises(AssertionError, match="finite differences"):
        compared(name)


def test_steps_that_read_any_step_before_are_refused() -> None:
    x, s = te.placeholder((T, N), name="x"), te.placeholder((T, N), name="s")
    k = te.reduce_axis(T, name="k")
    u = te.compute((T, N), lambda t, i: te.sum(te.select(k < t, s[k, i] * x[t, i], 0.0), axis=k), name="u")
    y = te.scan(te.compute((1, N), lambda t, i: x[t, i], name="first"), u, s, name="y")
    inputs, outputs = applied(function_of([x, y]))
    with pytest.raises(GraphError, match=r"its steps read the state at .*; gradients need a constant number"):
        gradients(outputs, inputs, [np.ones((T, N), np.float32)])
