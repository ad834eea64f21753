"""Models over symbols: what their kernels mean at any extents, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import GraphError, InputError, TargetError
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import GraphNode
from tests.kit.graph_families import drawn_choices, meant, random_family, strided_family

n = te.var("n", range=(1, 16))
TARGET = "llvm -mcpu=x86-64-v3 -threads=1"


def check_seed(seed: int, draws: int, drawn: Any = random_family) -> None:
    family, make = drawn(seed)
    plan = at.plan_model(family, TARGET)
    rng = np.random.default_rng(seed)
    for choice in drawn_choices(family, rng, draws):
        graph = make(*choice.values())
        x = rng.standard_normal(graph.inputs[0].shape).astype(np.float32)
        for found, wanted in zip(meant(plan, choice, x), evaluate(graph, x), strict=True):
            np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_random_models_mean_the_same_at_any_extents(seed: int) -> None:
    check_seed(seed, draws=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 200))
def test_more_random_models_mean_the_same_at_any_extents(seed: int) -> None:
    check_seed(seed, draws=4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(2)
def test_random_models_with_strides_mean_the_same_at_any_extents(seed: int) -> None:
    check_seed(seed, 2, strided_family)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 100))
def test_more_random_models_with_strides_mean_the_same_at_any_extents(seed: int) -> None:
    check_seed(seed, 4, strided_family)


def rows(n: int) -> GraphNode:
    return at.input((n, 12), name="x")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda n: at.ops.slice(rows(n), (0,), (n * n // 3 % n + 1,), axes=(0,)),
            "extent that is not a sum of products",
        ),
        (
            lambda n: at.ops.relu(rows(n)) if n > 14 else at.ops.tanh(rows(n)),
            r"n = 14 than at n = 16 \(relu and tanh\)",
        ),
        (lambda n: rows(n) * np.full((12,), n * 0.3, np.float32), "reads a constant .* another one at other"),
        (
            lambda n: at.ops.dense(rows(n), (np.arange(n * 12, dtype=np.float32) ** 2 % n).reshape(n, 12)),
            "reads a constant .* another one",
        ),
        (lambda n: at.ops.clip(rows(n), 0.0, n**0.5), "neither an extent nor a quotient of two extents"),
        (lambda n: at.ops.reshape(rows(n), (3, n)), "at n = 16: .*reshape"),
    ],
)
def test_what_does_not_follow_the_symbols_is_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        at.plan_model(at.open_graph(make, n), TARGET)


def test_a_refusal_offers_by_shape() -> None:
    with pytest.raises(GraphError, match=r"put these into one: at\.by_shape"):
        at.plan_model(at.open_graph(lambda n: at.ops.relu(rows(n) if n < 15 else rows(14)), n), TARGET)


def test_a_model_that_is_none_at_its_least_extent_is_refused() -> None:
    def make(n: int) -> GraphNode:
        return at.ops.slice(rows(n), (2,), (n,), axes=(0,))

    with pytest.raises(at.AutotensorError, match=r"may be -1|at n = 1, result"):
        at.plan_model(at.open_graph(make, n), TARGET)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: at.ops.sum(at.ops.slice(rows(n), (0,), (min(n, 8),), axes=(0,)), axis=0),
        lambda n: at.ops.slice(rows(n), (min(n, 8) - 1,), (min(n, 8),), axes=(0,)),
        lambda n: at.ops.mean(rows(n), axis=0) * np.full((12,), min(n, 8), np.float32),
        lambda n: at.ops.sum(rows(n) + np.arange(16.0, dtype=np.float32)[:n, None] * min(n, 8), axis=0),
    ],
)
def test_what_is_else_at_lesser_extents_is_refused(make: Any) -> None:
    """Near the greatest extent, min(n, 8) is 8."""
    with pytest.raises(GraphError, match=r"has a number that the graphs at|has an extent that is not a sum"):
        at.plan_model(at.open_graph(make, n), TARGET)


@pytest.mark.parametrize("follows", [lambda n: max(n, 3), lambda n: min(n, 5), lambda n: n + (n > 9)])
def test_a_number_that_is_another_one_at_small_extents_is_refused(follows: Any) -> None:
    for write in (
        lambda n: rows(n) * np.float32(follows(n)),
        lambda n: rows(n) * np.float32(1 / follows(n)),
        lambda n: rows(n) * np.full((1, 1), follows(n), np.float32),
        lambda n: at.ops.clip(rows(n), max=float(follows(n))),
    ):
        with pytest.raises(GraphError, match=r"at n = \d+, .* has a number that the graphs at greater"):
            at.plan_model(at.open_graph(write, n), TARGET)


def test_numbers_that_follow_the_symbols_are_those_of_every_extent() -> None:
    def make(n: int) -> GraphNode:
        return at.ops.clip(rows(n) * np.float32(n * n) + np.float32(1 / (n + 1)), max=float(2 * n + 1))

    f = at.compile_model(at.open_graph(make, n), target=TARGET)
    for k in (1, 2, 5, 16):
        x = np.linspace(-1, 1, k * 12, dtype=np.float32).reshape(k, 12)
        np.testing.assert_allclose(f(x), np.minimum(x * k * k + 1 / (k + 1), 2 * k + 1), rtol=1e-5, atol=1e-6)


def test_steps_make_halves_whole() -> None:
    even = te.var("n", range=(2, 32), multiple_of=2)
    plan = at.plan_model(
        at.open_graph(lambda n: at.ops.max_pool2d(at.input((1, 1, n, 4)), 2, stride=2), even), TARGET
    )
    assert plan.opened is not None
    assert [str(e) for e in plan.opened.shapes["output"]] == ["1", "1", "n_2", "2"]


def test_a_table_is_read_as_a_whole() -> None:
    table = np.arange(16 * 12, dtype=np.float32).reshape(16, 12)
    plan = at.plan_model(at.open_graph(lambda n: rows(n) + table[:n], n), TARGET)
    (group,) = plan.groups
    assert [b.shape for b in group.workload.dag.inputs if b.name in group.workload.dag.constants] == [(192,)]


@pytest.mark.parametrize("most", [2, 4, 16])
def test_a_constant_is_spread_over_a_batch(most: int) -> None:
    """A constant like a class token. Numbers beyond a narrow range are sampled too, and need the longer
    constant."""
    token = np.random.default_rng(0).standard_normal((1, 1, 8)).astype(np.float32)
    batch, length = te.var("batch", range=(1, most)), te.var("length", range=(1, 3))

    def make(b: int, m: int) -> GraphNode:
        spread = at.ops.broadcast_to(token, shape=(b, 2 * m, 8))
        return at.ops.concat(spread, at.input((b, 5, 8), name="x"), axis=1)

    f = at.compile_model(at.open_graph(lambda b: make(b, 1), batch), target=TARGET)
    for b in (1, most):
        x = np.full((b, 5, 8), b, np.float32)
        np.testing.assert_array_equal(f(x), np.concatenate([np.repeat(token, b, 0).repeat(2, 1), x], 1))
    plan = at.plan_model(at.open_graph(lambda b, m: make(b, m) * at.input((b, 2 * m + 5, 8)), batch, length))
    assert plan.groups


def test_a_mean_divides_by_the_symbol() -> None:
    plan = at.plan_model(at.open_graph(lambda n: at.ops.mean(rows(n), axis=0), n), TARGET)
    assert any("n0" in str(s.bodies) for s in plan.groups[0].workload.dag.stages)


def test_an_extent_is_a_var() -> None:
    with pytest.raises(InputError, match=r"is not a list of te\.var"):
        at.open_graph(rows, 8)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"nothing is not a list of te\.var"):
        at.open_graph(rows)


def test_a_gpu_takes_numbers() -> None:
    with pytest.raises(TargetError, match="are known at run time"):
        at.plan_model(at.open_graph(rows, n), "opencl")


def test_numbers_that_follow_the_symbols_are_numbers_in_the_kernels() -> None:
    weights = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)

    def make(n: int) -> GraphNode:
        extent = np.array(n, np.float32)
        return at.ops.dense(rows(n), weights) / extent + extent

    f = at.compile_model(at.open_graph(make, n), target=TARGET, db=":memory:")
    for extent in (1, 7, 16):
        x = np.random.default_rng(extent).standard_normal((extent, 12)).astype(np.float32)
        np.testing.assert_allclose(f(x), x @ weights.T / extent + extent, 1e-5, 1e-5)
