"""Linked models: one native call computes what the graph means."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from autotensor import te
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.errors import GraphError
from autotensor.base.target import parse
from autotensor.codegen.llvm.backend import emit_plan
from autotensor.compiler import compile_trace
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.linking import link_groups
from autotensor.graph.linking.link_groups import link
from autotensor.graph.partition import own_outputs, partition
from autotensor.graph.rules import optimize
from autotensor.models import MODELS
from autotensor.runtime.files.artifact import ArgSpec
from autotensor.runtime.files.artifact_file import load, save
from autotensor.runtime.module import Module
from autotensor.schedule.trace import Trace

TARGET = parse("llvm")


def linked(graph):
    """The model under empty traces: slow, and needs no schedule. Teams run it all the same."""
    graph = own_outputs(graph)
    groups = partition(graph)
    compiled = {}
    for g in groups:
        if g.workload.key not in compiled:
            artifact = compile_trace(g.workload.dag, Trace(), TARGET)
            compiled[g.workload.key] = replace(artifact, meta={**artifact.meta, "alone": False})
    return link(graph, groups, compiled, TARGET)


def results(module, *arrays):
    got = module(*arrays)
    return got if isinstance(got, tuple) else (got,)


def close(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5 * max(1.0, float(np.abs(y).max(initial=0))))


@pytest.mark.parametrize("seed", range(6))
def test_a_linked_graph_means_what_the_graph_means(random_graph, seed):
    graph = random_graph(seed + 2000)
    x = np.random.default_rng(seed).standard_normal(graph.inputs[0].shape).astype(np.float32)
    module = Module(linked(optimize(graph)), threads=2)
    for _ in range(3):
        close(results(module, x), evaluate(graph, x))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_small_cnn(threads):
    model = MODELS.get("small_cnn")
    graph = model.build(batch=2)
    arrays = model.inputs(np.random.default_rng(3), batch=2)
    artifact = linked(optimize(graph))
    module = Module(artifact, threads=threads)
    close(results(module, arrays["x"]), evaluate(graph, arrays["x"]))
    assert [a.name for a in module.args] == ["x", "logits"]


def test_outputs_that_are_inputs_constants_or_twice_the_same(array):
    x, c = input((2, 3), name="x"), array(4)
    y = ops.relu(x)
    module = Module(linked(Graph(x, (x, constant(c), y, y, ops.reshape(y, (6,))))), threads=2)
    a = array(2, 3)
    close(results(module, a), (a, c, a.clip(0), a.clip(0), a.clip(0).reshape(6)))


def test_equal_weights_are_stored_once(array):
    x, w = input((4, 4), name="x"), array(4, 4)
    y = ops.dense(ops.tanh(ops.dense(x, w)), w)
    artifact = linked(Graph(x, y))
    assert [v.shape for v in artifact.values.values()] == [(4, 4)]


def test_independent_kernels_do_not_wait_for_one_another():
    x, y = input((64,), name="x"), input((64,), name="y")
    graph = Graph((x, y), (ops.relu(x), ops.tanh(y), ops.exp(ops.sigmoid(x))))
    artifact = linked(graph)
    assert artifact.meta["meetings"] == 0  # exp is fused with sigmoid
    apart = Graph((x,), (ops.softmax(ops.relu(x)),))
    assert linked(apart).meta["meetings"] == 1


def test_a_model_of_serial_kernels_is_not_run_by_a_team(array):
    def alone(width):
        x = input((1, 64), name="x")
        graph = Graph(x, ops.softmax(ops.dense(x, array(width, 64))))
        plan = plan_model(graph, parse("llvm -threads=2"))
        return link_model(plan, default_traces(plan)).meta["alone"]

    assert alone(64)
    assert not alone(8192)


def test_what_one_preparing_hands_on_is_kept_for_no_call(array, monkeypatch):
    plans = {}

    def told(name, calls, *rest):
        plans[name] = calls
        return emit_plan(name, calls, *rest)

    def scaled(x, w):
        """Two stages of a constant, of which a call reads the second."""
        twice = te.compute(w.shape, lambda i, j: w[i, j] * 2.0, name="twice")
        more = te.compute(w.shape, lambda i, j: twice[i, j] + twice[j, i], name="more")
        return te.compute(x.shape, lambda i, j: x[i, j] * more[i, j], name="scaled")

    x, a = input((64, 64), name="x"), array(64, 64)
    weights = [array(64, 64) for _ in range(3)]
    y = x
    for w in weights:
        y = call(scaled, y, w)
    monkeypatch.setattr(link_groups, "emit_plan", told)
    artifact = linked(Graph(x, y))
    assert [c.barrier for c in plans[artifact.prepare]] == [True] * 3  # threads meet before it is overwritten
    assert [spec.name for spec in artifact.role("prepared")] == [
        "prepared.t0",
        "prepared.t1",
        "prepared.t1_1",
        "prepared.t1_2",
    ]
    module = Module(artifact, threads=2)
    want = a
    for w in weights:
        want = want * (2 * w + 2 * w.T)
    assert (module(a) == want).all()


def test_the_artifact_says_what_it_is(array, tmp_path):
    x = input((1, 3, 6, 6), name="image")
    y = ops.conv2d(x, constant(array(4, 3, 3, 3), "stem.weight"), padding=1)
    y = ops.max_pool2d(ops.relu(ops.conv2d(ops.relu(y), array(4, 4, 3, 3))), 2)
    graph = Graph(x, y, "net", ("map",))
    artifact = linked(optimize(graph))
    assert artifact.meta["kind"] == "model"
    assert [k["name"] for k in artifact.meta["kernels"]][:2] == [
        "transpose 3x6x6",
        "conv2d 3x3 6x6x3->4 +relu",
    ]
    assert "const.stem.weight" in artifact.values
    assert artifact.meta["memory"]["lower_bound_bytes"] <= artifact.meta["memory"]["arena_bytes"]
    assert artifact.texts["graph"].startswith("graph net(image: float32[1, 3, 6, 6]):")
    assert "conv2d 3x3 6x6x3->4 +relu" in artifact.texts["plan"]
    json.dumps(artifact.meta)
    save(tmp_path / "net.atm", artifact)
    again = Module(load(tmp_path / "net.atm"), threads=2)
    a = array(1, 3, 6, 6)
    close(results(again, a), evaluate(graph, a))


def test_concurrent_calls_do_not_disturb_each_other(array):
    from concurrent.futures import ThreadPoolExecutor

    model = MODELS.get("mlp")
    graph = model.build(batch=1)
    module = Module(linked(optimize(graph)), threads=1)
    xs = [model.inputs(np.random.default_rng(n))["x"] for n in range(8)]
    serial = [module(x) for x in xs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for got, expected in zip(pool.map(module, xs), serial, strict=True):
                np.testing.assert_array_equal(got, expected)


def test_messages(array):
    x = input((2, 3))
    graph = own_outputs(Graph(x, ops.relu(x)))
    groups = partition(graph)
    with pytest.raises(GraphError, match=r"group 'relu 2x3' \(workload [0-9a-f]+\) has not been compiled"):
        link(graph, groups, {}, TARGET)
    other = partition(own_outputs(Graph(x, x * array(3))))[0]
    wrong = compile_trace(other.workload.dag, Trace(), TARGET)
    with pytest.raises(GraphError, match=r"its program takes a0, a1, t0, the workload a0, t0"):
        link(graph, groups, {groups[0].workload.key: wrong}, TARGET)


def test_user_functions_and_several_results(array):
    from autotensor import te

    def two(x):
        return te.compute(x.shape, lambda i: (x[i] * 2.0, x[i] + 1.0), name="two")

    x = input((33,), name="x")
    double, more = call(two, x)
    graph = Graph(x, (ops.relu(double) - more, more))
    a = array(33)
    close(results(Module(linked(graph), threads=2), a), ((a * 2).clip(0) - (a + 1), a + 1))


def test_kernels_of_two_strides_have_per_thread_space_of_their_own(array):
    """Threads need not be at the same kernel: with one region, tid * 64 and tid * 128 would overlap."""
    x = input((4, 6), name="x")
    graph = own_outputs(Graph(x, (ops.softmax(x), ops.relu(x))))
    groups = partition(graph)
    compiled = {}
    for g, size in zip(groups, (40, 100), strict=True):
        artifact = compile_trace(g.workload.dag, Trace(), TARGET)
        private = ArgSpec("private", "workspace", (size,), "uint8", per_thread=True)
        compiled[g.workload.key] = replace(artifact, args=(*artifact.args, private))
    model = link(graph, groups, compiled, TARGET)
    spaces = {a.name: a.stride for a in model.args if a.per_thread}
    assert spaces == {"workspace.per_thread.64": 64, "workspace.per_thread.128": 128}
    a = array(4, 6)
    close(results(Module(model, threads=2), a), evaluate(graph, a))


def test_branches_that_do_not_wait_meet_where_they_join(array):
    x = input((257,), name="x")
    left, right = ops.softmax(ops.tanh(x), axis=0), ops.softmax(ops.sin(x), axis=0)
    graph = Graph(x, ops.softmax(left + right, axis=0))
    artifact = linked(graph)
    assert 0 < artifact.meta["meetings"] < len(artifact.meta["kernels"]) - 1
    module = Module(artifact, threads=4)
    a = array(257)
    expected = evaluate(graph, a)
    for _ in range(50):
        close(results(module, a), expected)


@pytest.mark.slow
def test_resnet18():
    graph = MODELS.get("resnet18").build(image=64)
    arrays = MODELS.get("resnet18").inputs(np.random.default_rng(0), image=64)
    expected = evaluate(graph, arrays["x"])[0]
    (got,) = results(Module(linked(optimize(graph)), threads=2), arrays["x"])
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()
