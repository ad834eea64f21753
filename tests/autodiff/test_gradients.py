"""Reverse mode on graphs: only the requested gradients are computed; sums, gradients of one's own,
refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from finite_differences import check_gradients

import autotensor as at
from autotensor import te
from autotensor.autodiff import gradient, gradients
from autotensor.autodiff.gradient_table import RULES
from autotensor.base.errors import GraphError
from autotensor.graph.build import call, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, GraphNode, topological
from autotensor.operators import OPERATORS, Case, Kind, operator


def values(nodes: tuple[GraphNode, ...], inputs: dict[GraphNode, object]) -> list[np.ndarray]:
    graph = Graph(tuple(inputs), nodes, "g", tuple(f"g{n}" for n in range(len(nodes))))  # type: ignore[arg-type]
    return list(evaluate(graph, *(np.asarray(a) for a in inputs.values())))


def names(nodes: tuple[GraphNode, ...]) -> list[str]:
    return [getattr(n, "op_name", "") for n in topological(nodes)]


def test_on_paper() -> None:
    """The first listing of the decks: y = x1 + exp(1.5 x1 + 2 x2) at (3, 0.5)."""
    x1, x2 = input((), "float64", "x1"), input((), "float64", "x2")
    y = x1 + ops.exp(x1 * 1.5 + x2 * 2.0)
    found = values((y, *gradients(y, [x1, x2])), {x1: 3.0, x2: 0.5})
    np.testing.assert_allclose(found, [247.691932, 368.037898, 489.383865], atol=1e-6)


def test_a_value_used_twice_gets_both_parts() -> None:
    x = input((3,), "float64")
    (g,) = gradients(x * x + x, x)
    np.testing.assert_allclose(values((g,), {x: [1.0, 2.0, 3.0]})[0], [3.0, 5.0, 7.0])


def test_only_what_is_asked_for_is_there() -> None:
    x, w, v = input((4, 5), name="x"), input((6, 5), name="w"), input((3, 6), name="v")
    hidden = ops.relu(ops.dense(x, w))
    loss = ops.sum(ops.dense(hidden, v))
    (dv,) = gradients(loss, [v])
    assert names((dv,)).count("matmul") == 1  # nothing for w, x or hidden
    (dh,) = gradients(loss, [hidden])  # any node will do
    assert dh.shape == (4, 6)
    assert "d_relu" not in names((dh,))


def test_an_input_that_nothing_depends_on_gets_zeros() -> None:
    x, w = input((2,)), input((3,))
    np.testing.assert_array_equal(
        values(gradients(ops.sum(x), [w]), {w: np.ones(3, np.float32)}), [[0, 0, 0]]
    )


def test_seeds_weigh_the_outputs() -> None:
    x = input((2,), "float64")
    outs = [x * 2.0, ops.exp(x)]
    (g,) = gradients(outs, x, [np.array([1.0, 10.0]), np.array([0.0, 1.0])])
    np.testing.assert_allclose(values((g,), {x: [0.0, 0.0]})[0], [2.0, 21.0])


def shifted(x: te.Tensor) -> te.Tensor:
    return te.compute((2, 3), lambda i, j: te.log(te.cosh(x[i, j])) * x[i, j + 1], name="shifted")


def largest(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis(4, "k")
    return te.compute((2,), lambda i: te.max(x[i, k] * x[i, k], axis=k), name="largest")


@pytest.mark.parametrize("function", [shifted, largest])
@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_of_derivatives_of_te_functions(
    function: Callable[[te.Tensor], te.Tensor], order: int
) -> None:
    """The adjoint of a derivative differs from the adjoint that the derivative reads."""
    rng = np.random.default_rng(order)
    x = input((2, 4), "float64")
    inputs, y = [x], call(function, x)
    for _ in range(order - 1):
        seed = input(y.shape, "float64")
        inputs.append(seed)
        (y,) = gradients(y, x, seeds=[seed])
    arrays = [rng.uniform(0.2, 1.2, n.shape) for n in inputs]
    assert check_gradients(inputs, [y], arrays, rng) == order


def test_second_derivatives() -> None:
    x = input((3,), "float64")
    (first,) = gradients(ops.sum(x * x * x), x)
    (second,) = gradients(ops.sum(first), x)
    np.testing.assert_allclose(values((second,), {x: [1.0, 2.0, -1.0]})[0], [6.0, 12.0, -6.0])


def test_integers_and_stop_gradient_pass_nothing_on() -> None:
    x = input((3,), "float64")
    steps = ops.cast(ops.cast(x, dtype="int32"), dtype="float64")
    (g,) = gradients(ops.sum(steps * x + ops.stop_gradient(x) * x), x)
    np.testing.assert_allclose(values((g,), {x: [1.5, 2.5, 3.0]})[0], [2.5, 4.5, 6.0])


def test_broadcasting_sums() -> None:
    a, b, c = input((2, 3, 4), "float64", "a"), input((3, 1), "float64", "b"), input((), "float64", "c")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(x.shape) for x in (a, b, c)]
    assert check_gradients([a, b, c], [a * b / (c + 3.0) - b], arrays, rng) == 3


def test_a_te_function_has_a_gradient_without_being_told() -> None:
    def log_cosh_pool(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(2, "k")
        return te.compute((4, 3), lambda i, j: te.sum(te.log(te.cosh(x[i * 2 + k, j])), axis=k), name="pool")

    rng = np.random.default_rng(0)
    x = input((9, 3), "float64")
    check_gradients([x], [call(log_cosh_pool, x)], [rng.standard_normal((9, 3))], rng)


def test_several_results_and_several_stages() -> None:
    def both(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
        k = te.reduce_axis(4, "k")
        total = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="total")
        return total, te.compute((3, 4), lambda i, j: x[i, j] / total[i], name="share")

    rng = np.random.default_rng(0)
    x = input((3, 4), "float64")
    total, share = call(both, x)
    check_gradients([x], [total, share], [rng.uniform(1, 2, (3, 4))], rng)


def test_two_results_of_one_stage() -> None:
    x = input((5,), "float64")
    up, down = call(lambda x: te.compute((5,), lambda i: (x[i] * 2, x[i] * x[4 - i]), name="two"), x)
    rng = np.random.default_rng(0)
    check_gradients([x], [up, down], [rng.standard_normal(5)], rng)


@pytest.mark.parametrize("values_", [[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]])
def test_products_are_right_where_terms_are_zero(values_: list[float]) -> None:
    x = input((3,), "float64")
    check_gradients([x], [ops.prod(x)], [np.array(values_)], np.random.default_rng(0))


def test_the_greatest_share_equally() -> None:
    x = input((4,), "float64")
    (g,) = gradients(ops.max(x), x)
    np.testing.assert_array_equal(values((g,), {x: [1.0, 3.0, 3.0, 0.0]})[0], [0, 0.5, 0.5, 0])


def test_a_greatest_of_computed_terms() -> None:
    def peak(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(6, "k")
        return te.compute((4,), lambda i: te.max(x[i, k] * w[k] + 0.3, axis=k), name="peak")

    rng = np.random.default_rng(5)
    x, w = input((4, 6), "float64"), input((6,), "float64")
    check_gradients([x, w], [call(peak, x, w)], [rng.standard_normal((4, 6)), rng.standard_normal(6)], rng)


def test_compiled_gradients_are_those_of_the_reference() -> None:
    """The backward pass through partition, schedules and LLVM."""
    rng = np.random.default_rng(0)
    x, w, b, t = input((5, 7)), input((3, 7), name="w"), input((3,), name="b"), input((5, 3), name="t")
    loss = ops.mean(ops.sum(ops.log_softmax(ops.dense(ops.tanh(x), w, b)) * t, axis=1))
    graph = Graph((x, w, b, t), (loss, *gradients(loss, [x, w, b])))
    arrays = [rng.standard_normal(i.shape).astype(np.float32) for i in graph.inputs]
    for got, want in zip(at.compile_model(graph)(*arrays), evaluate(graph, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


# -- rules ---------------------------------------------------------------------------------------------------


@pytest.fixture
def made_up() -> Iterator[None]:
    """An operator whose gradient is not its derivative, so that the result shows which of them was used."""

    @operator(
        "made_up",
        kind=Kind.ELEMENTWISE,
        reference=lambda x: x * 2,
        cases=(Case(((3,),)),),
        gradient=lambda node, g, k: g * 7.0,
    )
    def made_up(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: x[i] * 2, name="made_up")

    yield
    del OPERATORS._things["made_up"]
    RULES.pop("made_up", None)


def test_an_operator_brings_its_own_gradient(made_up: None) -> None:
    x = input((3,), "float64")
    (g,) = gradients(ops.made_up(x), x)
    np.testing.assert_array_equal(values((g,), {x: [1.0, 2.0, 3.0]})[0], [7.0] * 3)


def test_a_gradient_must_have_the_type_of_its_input() -> None:
    with pytest.raises(GraphError, match="has a gradient already"):
        gradient("relu")(lambda node, g, k: g)
    with pytest.raises(GraphError, match=r"no operator 'rleu'\. Did you mean 'relu'"):
        gradient("rleu")(lambda node, g, k: g)


def test_a_wrong_gradient_is_named(made_up: None) -> None:
    object.__setattr__(OPERATORS.get("made_up"), "gradient", lambda node, g, k: ops.sum(g))
    x = input((3,))
    with pytest.raises(GraphError, match=r"gradient of made_up for its input 0 is float32\[\], the input is"):
        gradients(ops.made_up(x), x)


def test_refusals() -> None:
    x, n = input((3,)), input((3,), "int64", "n")
    with pytest.raises(GraphError, match=r"output 0 is int64; only floats have derivatives\. Cast it"):
        gradients(n, x)
    with pytest.raises(GraphError, match="input 1 is int64; only floats"):
        gradients(x, [x, n])
    with pytest.raises(GraphError, match="input 0 is a int, expected a graph node"):
        gradients(input((2,)), 3)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="output 0 is a int, expected a graph node"):
        gradients([3], x)  # type: ignore[list-item]
    with pytest.raises(GraphError, match="2 seeds for 1 outputs"):
        gradients(x, x, [1, 2])
    with pytest.raises(GraphError, match=r"seed 0 is float32\[2\], its output is float32\[3\]"):
        gradients(x, x, [np.ones(2, np.float32)])


def test_a_reducer_of_ones_own_says_what_to_do() -> None:
    def last(x: te.Tensor) -> te.Tensor:
        pick = te.comm_reducer(lambda a, b: b, lambda t: te.const(0, t), name="last")
        k = te.reduce_axis(3, "k")
        return te.compute((), lambda: pick(x[k], axis=k), name="last")

    x = input((3,))
    with pytest.raises(GraphError, match="'last' of stage 'last' has no derivative: its start is not"):
        gradients(call(last, x), x)


def test_an_index_outside_gives_its_part_to_the_element_that_was_read() -> None:
    x, k = input((4, 2), "float64", "x"), input((5,), "int64", "k")
    rows = call(lambda t, i: te.compute((5, 2), lambda a, b: t[i[a] * 3, b], name="rows"), x, k)
    taken = ops.take(x, k * 3)
    ks = np.array([-1, 0, 1, 2, 3])
    for y, places in ((rows, [0, 0, 3, 3, 3]), (taken, [1, 0, 3, 3, 3])):
        (found,) = values(gradients(y, [x]), {k: ks})
        assert found[:, 0].tolist() == np.bincount(places, minlength=4).tolist()
