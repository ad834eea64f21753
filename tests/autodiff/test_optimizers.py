"""Optimisers against their formulas in NumPy, and against torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from autotensor.autodiff.optimizers import SGD, Adagrad, Adam, Momentum, Optimizer
from autotensor.base.errors import GraphError
from autotensor.graph.build import input
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.operators import TensorType

Array = np.ndarray[Any, Any]
TYPE = TensorType.of((4, 3), "float64")
STEPS = 5


def gradient_of(w: Array, step: int) -> Array:
    return np.cos(w * (step + 1)) + w


def run(optimizer: Optimizer, rate: float | None = None) -> Array:
    """The parameter after some steps of the graph's formulas."""
    w, g = input(TYPE.shape, TYPE.dtype, "w"), input(TYPE.shape, TYPE.dtype, "g")
    state = optimizer.state(TYPE)
    nodes = tuple(input(a.shape, str(a.dtype), f"s{n}") for n, a in enumerate(state))
    new, changed = optimizer.update(w, g, nodes, rate)
    graph = Graph(
        (w, g, *nodes), (new, *changed), "update", tuple(f"new{n}" for n in range(1 + len(changed)))
    )
    value = np.random.default_rng(0).standard_normal(TYPE.shape)
    for step in range(STEPS):
        value, *state = evaluate(graph, value, gradient_of(value, step), *state)  # type: ignore[assignment]
    return value


def in_numpy(formula: Callable[[Array, Array, list[Array], int], Array]) -> Array:
    value = np.random.default_rng(0).standard_normal(TYPE.shape)
    memory: list[Array] = [np.zeros(TYPE.shape), np.zeros(TYPE.shape)]
    for step in range(STEPS):
        value = formula(value, gradient_of(value, step), memory, step + 1)
    return value


def momentum(w: Array, g: Array, memory: list[Array], n: int) -> Array:
    memory[0] = 0.8 * memory[0] + g
    return w - 0.1 * memory[0]


def adagrad(w: Array, g: Array, memory: list[Array], n: int) -> Array:
    memory[0] = memory[0] + g * g
    return w - 0.1 * g / (np.sqrt(memory[0]) + 1e-10)


def adam(w: Array, g: Array, memory: list[Array], n: int) -> Array:
    memory[0] = 0.9 * memory[0] + 0.1 * g
    memory[1] = 0.99 * memory[1] + 0.01 * g * g
    return w - 0.1 * (memory[0] / (1 - 0.9**n)) / (np.sqrt(memory[1] / (1 - 0.99**n)) + 1e-8)


@pytest.mark.parametrize(
    ("optimizer", "formula"),
    [
        (SGD(0.1), lambda w, g, memory, n: w - 0.1 * g),
        (SGD(0.1, weight_decay=0.5), lambda w, g, memory, n: w - 0.1 * (g + 0.5 * w)),
        (Momentum(0.1, 0.8), momentum),
        (Adagrad(0.1), adagrad),
        (Adam(0.1, beta2=0.99), adam),
    ],
    ids=["sgd", "decay", "momentum", "adagrad", "adam"],
)
def test_the_formula(optimizer: Optimizer, formula: Any) -> None:
    np.testing.assert_allclose(run(optimizer), in_numpy(formula), rtol=1e-10)


def test_a_rate_of_the_step_replaces_the_optimisers() -> None:
    np.testing.assert_allclose(run(SGD(9.0), rate=0.1), run(SGD(0.1)), rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_torch_does_the_same(decay: float) -> None:
    torch = pytest.importorskip("torch")
    pairs: Sequence[tuple[Optimizer, Any]] = (
        (SGD(0.1, decay), lambda p: torch.optim.SGD(p, 0.1, weight_decay=decay)),
        (Momentum(0.1, 0.8, decay), lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, weight_decay=decay)),
        (Adagrad(0.1, weight_decay=decay), lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=decay)),
        (Adam(0.1, weight_decay=decay), lambda p: torch.optim.Adam(p, 0.1, weight_decay=decay)),
    )
    for ours, theirs in pairs:
        p = torch.tensor(np.random.default_rng(0).standard_normal(TYPE.shape), requires_grad=True)
        optimizer = theirs([p])
        for step in range(STEPS):
            p.grad = torch.tensor(gradient_of(p.detach().numpy(), step))
            optimizer.step()
        np.testing.assert_allclose(run(ours), p.detach().numpy(), rtol=1e-9)


def test_refusals() -> None:
    with pytest.raises(GraphError, match=r"Adam: learning_rate is -1; it must not be negative"):
        Adam(-1)
    with pytest.raises(GraphError, match=r"Momentum: momentum is 1; it must be in \[0, 1\)"):
        Momentum(0.1, 1)
    with pytest.raises(GraphError, match=r"SGD: weight_decay is -0.1"):
        SGD(0.1, -0.1)
