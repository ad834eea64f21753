"""Outputs that are written over inputs: when a kernel may, in which order, and stores where it may not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autotensor import te
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.errors import GraphError
from autotensor.graph.build import call, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.in_place_values import updating_groups
from autotensor.graph.ir import Graph, GraphNode, Input
from autotensor.graph.partition import own_outputs
from autotensor.runtime.module import Module

Array = np.ndarray


def names(graph: Graph, updates: dict[str, str]) -> list[str]:
    _, groups = updating_groups(own_outputs(graph), updates)
    return [g.name for g in groups]


def stores(graph: Graph, updates: dict[str, str]) -> int:
    return updating_groups(own_outputs(graph), updates)[0].count("store")


def check(graph: Graph, updates: dict[str, str], rng: np.random.Generator) -> None:
    """After a run of the linked model, the inputs hold the reference's outputs."""
    plan = plan_model(graph, updates=updates)
    module = Module(link_model(plan, default_traces(plan)), threads=2)
    arrays = [rng.standard_normal(x.shape).astype(x.dtype.numpy) for x in graph.inputs]
    wanted = dict(zip(graph.output_names, evaluate(graph, *arrays), strict=True))
    own = [np.array(a, order="C") for a in arrays]
    outs = [np.empty(a.shape, a.dtype) for a in module.args if a.role == "output"]
    module(*own, *outs)
    after = dict(zip(graph.input_names, own, strict=True))
    for new, old in updates.items():
        np.testing.assert_allclose(after[old], wanted[new], rtol=1e-5, atol=1e-6, err_msg=new)
    for name, before in zip(graph.input_names, arrays, strict=True):
        if name not in updates.values():
            np.testing.assert_array_equal(after[name], before)
    left = [n for n in graph.output_names if n not in updates]
    for name, out in zip(left, outs, strict=True):
        np.testing.assert_allclose(out, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)


def graph_of(inputs: list[Input], outputs: dict[str, GraphNode]) -> Graph:
    return Graph(tuple(inputs), tuple(outputs.values()), "step", tuple(outputs))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (17, 33), (3, 1, 5), (300, 70)])
def test_an_elementwise_update_needs_no_store(shape: tuple[int, ...]) -> None:
    w, g = input(shape, name="w"), input(shape, name="g")
    graph = graph_of([w, g], {"new": w - g * 0.1 + w * w})
    assert stores(graph, {"new": "w"}) == 0
    check(graph, {"new": "w"}, np.random.default_rng(0))


def test_an_update_joins_the_product_that_makes_the_gradient() -> None:
    x, d, w = input((64, 33), name="x"), input((64, 17), name="d"), input((17, 33), name="w")
    graph = graph_of([x, d, w], {"new": w - ops.matmul(d, x, transpose_a=True) * 0.1})
    assert len(names(graph, {"new": "w"})) == 1
    check(graph, {"new": "w"}, np.random.default_rng(1))


def test_readers_of_the_old_value_come_first() -> None:
    """The loss is the last output and still reads the old w."""
    x, w = input((5, 7), name="x"), input((3, 7), name="w")
    graph = graph_of([x, w], {"new": w * 0.5, "y": ops.dense(x, w)})
    order = names(graph, {"new": "w"})
    assert order[0].startswith("dense")
    check(graph, {"new": "w"}, np.random.default_rng(2))


@pytest.mark.parametrize(
    "update",
    [
        lambda w: w - ops.mean(w),  # read by a reduction
        lambda w: ops.transpose(w),  # read elsewhere
        lambda w: call(lambda x: te.compute(x.shape, lambda i, j: x[j, i] + x[i, j], name="sym"), w),
        lambda w: ops.softmax(w) + w,
        lambda w: ops.dense(w, w),
    ],
)
def test_a_kernel_that_reads_more_is_followed_by_a_store(update: object) -> None:
    w = input((9, 9), name="w")
    graph = graph_of([w], {"new": update(w)})  # type: ignore[operator]
    check(graph, {"new": "w"}, np.random.default_rng(3))


def test_reading_another_element_needs_a_store() -> None:
    w = input((9, 9), name="w")
    assert stores(graph_of([w], {"new": ops.transpose(w) + 1.0}), {"new": "w"}) == 1


def test_two_that_change_places() -> None:
    a, b = input((4, 5), name="a"), input((4, 5), name="b")
    graph = graph_of([a, b], {"new_a": b + 1.0, "new_b": a + 2.0})
    assert stores(graph, {"new_a": "a", "new_b": "b"}) == 1
    check(graph, {"new_a": "a", "new_b": "b"}, np.random.default_rng(4))


def test_new_values_read_each_other() -> None:
    """Momentum: w' reads v' where v was."""
    w, v, g = (input((33, 5), name=n) for n in "wvg")
    velocity = v * 0.9 + g
    graph = graph_of([w, v, g], {"new_w": w - velocity * 0.1, "new_v": velocity})
    assert stores(graph, {"new_w": "w", "new_v": "v"}) == 0
    check(graph, {"new_w": "w", "new_v": "v"}, np.random.default_rng(5))


def test_an_input_that_stays_as_it_is_and_one_that_becomes_another() -> None:
    a, b = input((4,), name="a"), input((4,), name="b")
    graph = graph_of([a, b], {"new_a": b, "y": a * 1.0})
    check(graph, {"new_a": "a"}, np.random.default_rng(6))


def marked_noalias(graph: Graph, updates: dict[str, str]) -> list[list[bool]]:
    """For every kernel of the linked model, the pointers that are declared to share no memory."""
    plan = plan_model(graph, "llvm -threads=1", updates=updates)
    linked = link_model(plan, default_traces(plan))
    texts = [linked.texts[f"llvm:{k['symbol']}"] for k in linked.meta["kernels"]]
    heads = [next(line for line in t.splitlines() if "@run.0." in line and "define" in line) for t in texts]
    return [["noalias" in p for p in re.findall(r"ptr [^,]*%p\d+", head)] for head in heads]


def test_a_kernel_is_told_which_arguments_share_bytes() -> None:
    """LLVM must not assume that a result in place of an input shares no memory with it. It may assume this
    for all other pointers."""
    w, g = input((17, 33), name="w"), input((17, 33), name="g")
    graph = graph_of([w, g], {"new": w - g})
    assert marked_noalias(graph, {"new": "w"}) == [[False, True, False]]
    assert marked_noalias(graph, {}) == [[True, True, True]]


def test_two_kernels_of_one_workload_are_told_what_one_needs() -> None:
    w, v = input((5, 7), name="w"), input((5, 7), name="v")
    graph = graph_of([w, v], {"new": ops.relu(w), "y": ops.relu(v)})
    assert marked_noalias(graph, {"new": "w"}) == [[False, False]] * 2
    check(graph, {"new": "w"}, np.random.default_rng(7))


def test_refusals() -> None:
    w, v = input((4,), name="w"), input((5,), name="v")
    graph = graph_of([w, v], {"new": w * 2.0, "other": w * 3.0})
    with pytest.raises(GraphError, match="no output 'nwe', which an update names"):
        updating_groups(graph, {"nwe": "w"})
    with pytest.raises(
        GraphError, match=r"'new' is float32\[4\] and cannot take the place of 'v', float32\[5\]"
    ):
        updating_groups(graph, {"new": "v"})
    with pytest.raises(GraphError, match="two outputs take the place of one input"):
        updating_groups(graph, {"new": "w", "other": "w"})
