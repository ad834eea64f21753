"""Large weights of few bits are not converted beforehand: kernels of products convert them while loading."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.api.models import as_graph
from autotensor.graph.build import constant, input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.partition import partition
from autotensor.graph.rules import optimize

N, K = 700, 640  # in float32, such weights are more than a megabyte larger than in int8


def drawn(shape, seed=0):
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


def scaled(w, scale, zero=None):
    """The weight as ONNX's DequantizeLinear makes it."""
    whole = ops.cast(constant(w), dtype="int32")
    if zero is not None:
        whole = ops.subtract(whole, ops.cast(constant(zero), dtype="int32"))
    return ops.multiply(ops.cast(whole, dtype="float32"), constant(scale))


def forms():
    """(name, graph) of products with weights in 8 bits."""
    rng = np.random.default_rng(1)
    rows, columns = (rng.random((n, 1)).astype(np.float32) / 100 for n in (N, K))
    x, deep = input((5, K)), input((2, 5, K))
    w, turned = drawn((N, K)), drawn((K, N))
    yield "dense", ops.dense(x, ops.cast(constant(w), dtype="float32"))
    yield "dense, scaled", ops.relu(ops.dense(x, scaled(w, rows, drawn((N, 1), 2))))
    yield "dense, transposed", ops.dense(x, ops.transpose(scaled(turned, rows.reshape(-1)), axes=(1, 0)))
    yield "matmul", ops.matmul(x, scaled(turned, np.float32(0.01)))
    yield "matmul, transposed", ops.matmul(x, scaled(w, rows), transpose_b=True)
    yield "batch_matmul", ops.batch_matmul(deep, scaled(turned, rows.reshape(-1), np.int8(3)))
    shaped = ops.reshape(ops.reshape(constant(rows), (N,)), (N, 1))
    whole = ops.cast(constant(w), dtype="float32")
    yield "a scale behind views", ops.dense(x, ops.multiply(whole, ops.cast(shaped, dtype="float32")))
    yield "one row", ops.dense(input((1, K)), scaled(w, columns.reshape(1, -1)))


def graph_of(y):
    return as_graph(y)


@pytest.mark.parametrize(("name", "y"), [*forms()], ids=lambda v: v if isinstance(v, str) else "")
def test_products_are_right_and_keep_the_bytes(name, y, tmp_path):
    graph = graph_of(y)
    (x,) = graph.inputs
    a = np.random.default_rng(3).integers(-4, 5, x.shape).astype(np.float32)
    f = at.compile_model(graph)
    (want,) = evaluate(graph, a)
    np.testing.assert_allclose(f(a), want, rtol=2e-5, atol=2e-5 * np.abs(want).max())
    assert len(f.artifact.meta["kernels"]) == 1, "nothing is converted by a kernel of its own"
    kept = sum(np.asarray(v).nbytes for v in f.ready.values.values())
    assert kept < 1.1 * N * K + 20_000
    path = tmp_path / "model.atm"
    f.save(path)
    np.testing.assert_array_equal(at.load(path)(a), f(a))


def test_a_weight_that_others_read_too_is_folded():
    w = ops.cast(constant(drawn((N, K))), dtype="float32")
    x = input((5, K))
    graph = optimize(Graph(x, (ops.dense(x, w), ops.relu(w))))
    assert graph.count("cast") == 0


def test_small_weights_and_those_of_convolutions_are_folded():
    x = input((1, 64, 8, 8))
    y = ops.conv2d(x, ops.cast(constant(drawn((128, 64, 9, 9))), dtype="float32"), padding=4)
    assert optimize(graph_of(y)).count("cast") == 0
    x = input((5, 16))
    assert optimize(graph_of(ops.dense(x, ops.cast(constant(drawn((8, 16))), dtype="float32")))).count() == 1


def test_a_broadcast_that_is_much_larger_is_not_stored():
    x = input((2000, 1000))
    wide = ops.broadcast_to(constant(np.ones((1, 1000), np.float32)), shape=(2000, 1000))
    assert optimize(graph_of(ops.dense(x, wide))).count("broadcast_to") == 1


def test_a_chain_of_thousands_is_no_conversion():
    x = input((2,))
    y = x
    for _ in range(3000):
        y = y + x
    assert optimize(graph_of(y)).count() == 3000


def test_the_group_reads_the_constant_itself():
    (_, y), *_ = forms()
    (group,) = partition(optimize(graph_of(y)))
    assert [str(b.dtype) for b in group.workload.dag.inputs] == ["float32", "int8"]
    assert len(group.workload.dag.stages) == 1
