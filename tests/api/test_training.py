"""Training steps: the effect of a call, state, saving, budgets, and real training on digits."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor.api.training import TrainingStep
from autotensor.autodiff.optimizers import SGD, Adagrad, Adam, Momentum, Optimizer
from autotensor.autodiff.rematerialise import recomputing
from autotensor.base.errors import ArgumentError, GraphError, InputError
from autotensor.graph.build import ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, GraphNode, Parameter

Array = np.ndarray[Any, Any]


def perceptron(
    batch: int = 8, seed: int = 0, layers: int = 1
) -> tuple[GraphNode, GraphNode, list[Parameter], GraphNode]:
    """x, y, parameters and the mean squared error of a small network."""
    rng = np.random.default_rng(seed)
    x, y = at.input((batch, 6), name="x"), at.input((batch, 3), name="y")
    widths, h, parameters = [6, *(16,) * layers, 3], x, []
    for n, (k, m) in enumerate(pairwise(widths)):
        w = at.parameter((rng.standard_normal((m, k)) / np.sqrt(k)).astype(np.float32), f"w{n}")
        b = at.parameter(np.zeros(m, np.float32), f"b{n}")
        h = ops.dense(h, w, b) if n == layers else ops.tanh(ops.dense(h, w, b))
        parameters += [w, b]
    return x, y, parameters, ops.mean((h - y) * (h - y))


def batch(seed: int = 1, rows: int = 8) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((rows, n)).astype(np.float32) for n in (6, 3))  # type: ignore[return-value]


pytestmark = pytest.mark.usefixtures("own_log")


def alone(step: TrainingStep) -> TrainingStep:
    step.module.threads = 1  # other tests have the other cores
    return step


@pytest.mark.parametrize(
    "optimizer", [SGD(0.1), Momentum(0.1), Adagrad(0.1), Adam(0.05)], ids=lambda o: type(o).__name__
)
def test_a_step_is_the_formula(optimizer: Optimizer) -> None:
    """Three native steps give the same parameters as three steps of the reference."""
    _, _, parameters, loss = perceptron()
    step = alone(at.training_step(loss, optimizer=optimizer))
    program = step.program
    values = {n: np.array(a) for n, a in program.start.items()}
    for n in range(3):
        x, y = batch(n)
        want = dict(zip(program.graph.output_names, evaluate(program.graph, x=x, y=y, **values), strict=True))
        assert step(x, y) == pytest.approx(float(want["loss"]), rel=1e-4)
        values = {old: want[new] for new, old in program.updates.items()}
        for name, value in values.items():
            np.testing.assert_allclose(step.values[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
    assert {p.name for p in parameters} == set(step.parameters)


def test_weights_stay_where_they_are_and_nothing_is_copied() -> None:
    _, _, _, loss = perceptron()
    step = alone(at.training_step(loss, optimizer=Adam(0.01)))
    before = {n: (a.ctypes.data, a.copy()) for n, a in step.values.items()}
    step(*batch())
    for name, array in step.values.items():
        assert array.ctypes.data == before[name][0]
        assert (array != before[name][1]).any()
    assert step.plan.graph.count("store") == 0
    assert [a.role for a in step.module.args].count("output") == 1
    memory = step.module.artifact.meta["memory"]
    assert memory["arena_bytes"] <= 1.05 * memory["lower_bound_bytes"]


def test_arguments_of_a_steps_kernels_share_nothing_but_a_value_and_its_next() -> None:
    _, _, _, loss = perceptron()
    texts = at.training_step(loss, optimizer=Momentum(0.1)).module.artifact.texts
    heads = [
        line
        for kind, text in texts.items()
        if kind.startswith("llvm:")
        for line in text.splitlines()
        if line.startswith("define internal void") and line.endswith("#0 {")  # kernels, not their callers
    ]
    assert len(heads) >= 8
    sharing = [head.count("ptr ") - head.count("ptr noalias ") for head in heads]
    assert set(sharing) == {0, 2}, heads


def test_further_outputs_are_those_before_the_update() -> None:
    x, _, parameters, loss = perceptron()
    w = parameters[0]
    step = alone(at.training_step(loss, outputs=[ops.sum(w), x * 2.0]))
    before, (xs, ys) = float(step.parameters["w0"].sum()), batch()
    _, total, twice = step(xs, ys)
    assert float(total) == pytest.approx(before, rel=1e-4, abs=1e-5)
    np.testing.assert_array_equal(twice, xs * 2)


def test_a_rate_that_is_an_input() -> None:
    _, _, _, loss = perceptron()
    rate = at.input((), name="rate")
    step = alone(at.training_step(loss, rate=rate))
    before = step.parameters["w0"].copy()
    step(*batch(), rate=np.float32(0))
    np.testing.assert_array_equal(step.parameters["w0"], before)
    step(*batch(), rate=np.float32(0.1))
    assert (step.parameters["w0"] != before).any()


def test_only_the_parameters_that_were_named_change() -> None:
    _, _, parameters, loss = perceptron()
    step = alone(at.training_step(loss, parameters[2:]))
    assert set(step.parameters) == {"w1", "b1"}
    assert step.inputs == ("x", "y", "w0", "b0")


def test_save_restore_and_continue_gives_the_same_numbers(tmp_path: Path) -> None:
    _, _, _, loss = perceptron()
    one, two = (alone(at.training_step(loss, optimizer=Adam(0.05))) for _ in range(2))
    for n in range(3):
        one(*batch(n))
    one.save(tmp_path / "run.safetensors")
    two.restore(tmp_path / "run.safetensors")
    for n in range(3, 6):
        assert one(*batch(n)) == two(*batch(n))
    for name in one.values:
        np.testing.assert_array_equal(one.values[name], two.values[name])


def test_trained_values_as_constants() -> None:
    x, y, _, loss = perceptron()
    h = ops.tanh(x)  # no parameter below it
    step = alone(at.training_step(loss))
    step(*batch())
    (now,) = step.trained(loss)
    graph = Graph((x, y), (now,), "now")  # type: ignore[arg-type]
    assert not any(isinstance(n, Parameter) for n in graph.nodes)
    assert step.trained([h]) == (h,)
    assert step(*batch()) == pytest.approx(float(evaluate(graph, *batch())[0]), rel=1e-4)


@pytest.mark.slow
def test_a_tuned_step_is_the_same_step(tmp_path: Path) -> None:
    """Every candidate is checked alone; the winner is linked with its updates in place."""
    _, _, _, loss = perceptron()
    plain = alone(at.training_step(loss, optimizer=Momentum(0.1)))
    log = f"sqlite:///{tmp_path / 'log.db'}"
    tuned = alone(at.training_step(loss, optimizer=Momentum(0.1), trials=12, db=log, progress=False))
    for n in range(3):
        assert tuned(*batch(n)) == pytest.approx(plain(*batch(n)), rel=1e-4)
    for name in plain.values:
        np.testing.assert_allclose(tuned.values[name], plain.values[name], rtol=1e-3, atol=1e-5)


def test_refusals() -> None:
    x, y, parameters, loss = perceptron()
    with pytest.raises(
        GraphError, match=r"the loss is float32\[8, 6\]; it must be one float\. Take its mean"
    ):
        at.training_step(x)
    with pytest.raises(GraphError, match=r"depends on no parameter\. Make weights with at\.parameter"):
        at.training_step(ops.mean(x))
    with pytest.raises(GraphError, match="does not depend on parameter 'other'"):
        at.training_step(loss, [at.parameter(np.zeros(3, np.float32), "other")])
    with pytest.raises(GraphError, match="is not a parameter"):
        at.training_step(loss, [x])  # type: ignore[list-item]
    step = alone(at.training_step(loss))
    with pytest.raises(InputError, match=r"takes x, y; it was given 1 arrays"):
        step(batch()[0])
    with pytest.raises(ArgumentError, match="argument 'x' is float64"):
        step(*(a.astype(np.float64) for a in batch()))
    with pytest.raises(InputError, match=r"has no value 'w9'\. .*Known: "):
        step.assign({"w9": np.zeros(3)})
    with pytest.raises(InputError, match=r"'b0' is float32\[16\], given was float64\[3\]"):
        step.assign({"w0": step.parameters["w0"], "b0": np.zeros(3)})
    assert y in step.program.graph.inputs
    assert parameters


# -- memory --------------------------------------------------------------------------------------------------


def deep(layers: int, batch: int = 64, width: int = 32) -> GraphNode:
    rng = np.random.default_rng(0)
    x, y = at.input((batch, width), name="x"), at.input((batch, width), name="y")
    h: GraphNode = x
    for n in range(layers):
        w = at.parameter(
            (rng.standard_normal((width, width)) * np.sqrt(2 / width)).astype(np.float32), f"w{n}"
        )
        h = ops.relu(ops.dense(h, w))
    return ops.mean((h - y) * (h - y))


def test_half_the_memory_of_fifty_layers_for_the_same_bits() -> None:
    loss = deep(50)
    plain = alone(at.training_step(loss, optimizer=SGD(0.01)))
    arena = plain.module.artifact.meta["memory"]["arena_bytes"]
    half = alone(at.training_step(loss, optimizer=SGD(0.01), memory_budget=arena // 2))
    assert half.module.artifact.meta["memory"]["arena_bytes"] <= 0.55 * arena
    trade = half.trade_off
    assert trade is not None
    assert 0 < trade.cost < 0.4  # less than a second forward pass
    assert trade.saved >= 0.45
    assert "less memory for" in str(trade)
    rng = np.random.default_rng(1)
    for _ in range(2):
        data = [rng.standard_normal((64, 32)).astype(np.float32) for _ in range(2)]
        assert plain(*data) == half(*data)
    for name in plain.values:
        np.testing.assert_array_equal(plain.values[name], half.values[name])


def test_a_budget_that_is_large_enough_changes_nothing() -> None:
    step = at.training_step(deep(4), memory_budget=1 << 30)
    assert step.trade_off is not None
    assert step.trade_off.chosen.segments == 1
    assert step.trade_off.cost == 0
    assert step.plan.graph.count("recomputed") == 0


def test_a_budget_that_cannot_be_kept_says_what_could() -> None:
    with pytest.raises(GraphError, match=r"do not fit in 100 bytes; \d+ is the least, with \d+ segments"):
        at.training_step(deep(12), memory_budget=100)


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_computing_again_is_the_same_gradient_across_skips(segments: int) -> None:
    """Residual connections cross the cuts."""
    rng = np.random.default_rng(0)
    x = at.input((4, 5), name="x")
    ws = [at.parameter(rng.standard_normal((5, 5)).astype(np.float32), f"w{n}") for n in range(6)]
    h: GraphNode = x
    for w in ws:
        h = h + ops.tanh(ops.dense(h, w))
    loss = ops.mean(h * h)
    slopes = at.gradients(loss, ws)
    again = recomputing((loss,), slopes, segments)
    graph = Graph((x, *ws), (*slopes, *again), "both", tuple(f"d{n}" for n in range(12)))
    assert (graph.count("recomputed") > 0) == (segments > 1)
    found = evaluate(graph, *(rng.standard_normal(i.shape).astype(np.float32) for i in graph.inputs))
    for a, b in zip(found[:6], found[6:], strict=True):
        np.testing.assert_array_equal(a, b)
