"""Groups that are joined: the meaning of the graph stays, and a value with other readers is not joined."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.joined_groups import joined
from autotensor.graph.partition import check_groups, own_outputs, partition
from autotensor.graph.rules import optimize


def always(workload):
    return True


def cut(graph, is_worth_it=always):
    """The graph as it is cut, and its groups after joining."""
    form = own_outputs(optimize(graph))
    groups = joined(form, partition(form), is_worth_it)
    check_groups(form, groups)
    return form, groups


def fronts(groups):
    return [g.name for g in groups if " > " in g.name]


class Net:
    """Draws networks of operators that may be joined: on NCHW maps, or on tokens."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.batch = int(self.rng.integers(1, 4))

    def array(self, *shape: int):
        return self.rng.standard_normal(shape).astype(np.float32)

    def pixels(self) -> Graph:
        c = int(self.rng.integers(2, 6))
        x = y = input((self.batch, c, int(self.rng.integers(3, 7)), int(self.rng.integers(3, 7))), name="x")
        for _ in range(int(self.rng.integers(1, 4))):
            y = self.front(y, c)
            if self.rng.random() < 0.7:
                c, before = int(self.rng.integers(2, 9)), c
                y = ops.conv2d(y, self.array(c, before, 1, 1), self.array(c))
            if self.rng.random() < 0.5:
                y = ops.relu(y)
        return Graph((x,), (y,), "pixels")

    def front(self, y, c: int):
        match int(self.rng.integers(5)):
            case 0:
                return ops.relu(ops.conv2d(y, self.array(c, 1, 3, 3), self.array(c), padding=1, groups=c))
            case 1:
                return ops.max_pool2d(y, 3, stride=1, padding=1)
            case 2:
                return y * ops.sigmoid(ops.mean(y, axis=(2, 3), keepdims=True))
            case 3:
                return ops.conv2d(y, self.array(c, 1, 2, 2), stride=1, padding=1, groups=c)
            case _:
                scale, shift, mean = (self.array(c) for _ in range(3))
                return ops.relu(ops.batch_norm(y, scale, shift, mean, np.abs(self.array(c)) + 1))

    def tokens(self) -> Graph:
        t, c = int(self.rng.integers(2, 7)), int(self.rng.integers(2, 9))
        x = y = input((self.batch, t, c), name="x")
        for _ in range(int(self.rng.integers(1, 3))):
            h = ops.layer_norm(y, self.array(c), self.array(c))
            out = int(self.rng.integers(2, 9))
            flat = ops.dense(ops.reshape(h, (self.batch * t, c)), self.array(out, c), self.array(out))
            y, c = ops.reshape(ops.gelu(flat) if self.rng.random() < 0.5 else flat, (self.batch, t, out)), out
        return Graph((x,), (y,), "tokens")


@pytest.mark.parametrize("seed", range(30))
def test_joined_groups_mean_what_the_graph_means(run_groups, seed):
    net = Net(seed)
    graph = net.tokens() if seed % 3 == 0 else net.pixels()
    x = net.array(*graph.inputs[0].shape)
    form, groups = cut(graph)
    nodes = [n for g in groups for n in g.nodes]
    assert len(nodes) == len(set(nodes)) == sum(n.kind.value != "view" for n in form.applies)
    for got, expected in zip(run_groups(form, groups, x), evaluate(graph, x), strict=True):
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-5 * scale)


def test_much_of_what_is_drawn_is_joined():
    assert sum(len(fronts(cut(Net(seed).pixels())[1])) for seed in range(20)) > 10
    assert sum(len(fronts(cut(Net(seed).tokens())[1])) for seed in range(20)) > 10


def mobile(array, again: bool = False):
    x = input((1, 32, 28, 28), name="x")
    y = ops.relu(ops.conv2d(x, array(32, 1, 3, 3), padding=1, groups=32))
    z = ops.conv2d(y, array(16, 32, 1, 1), array(16))
    return Graph((x,), (z, ops.mean(y, axis=(2, 3))) if again else (z,), "mobile")


def test_who_asks_decides(array):
    assert fronts(cut(mobile(array))[1])
    assert not fronts(cut(mobile(array), lambda w: False)[1])


def test_what_others_read_is_not_joined(array):
    assert not fronts(cut(mobile(array, again=True))[1])


def test_a_number_in_front_is_one_number(array):
    """The zero point that a quantised product takes off: its cast has one element, not a block's."""
    x, z = input((1, 9, 9, 16), name="x"), input((), "uint8", name="z")
    y = ops.conv2d(ops.relu(x) - ops.cast(z, dtype="float32"), array(24, 16, 1, 1), layout="NHWC")
    graph = Graph((x, z), (y,), "m")
    assert fronts(cut(graph)[1])
    arrays = array(*x.shape), np.array(7, np.uint8)
    np.testing.assert_allclose(
        at.compile_model(graph)(*arrays), evaluate(graph, *arrays)[0], rtol=1e-4, atol=1e-3
    )


def test_an_output_is_not_joined(array):
    graph = mobile(array)
    inner = next(n for n in graph.applies if n.op_name == "relu")
    assert not fronts(cut(Graph(graph.inputs, (*graph.outputs, inner), "two"))[1])


def test_weights_are_not_joined(array):
    """A product's second operand is read whole by every block."""
    x = input((8, 12), name="x")
    assert not fronts(cut(Graph((x,), (ops.dense(array(20, 12), ops.tanh(x)),), "weights"))[1])


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.sample(2)
def test_a_compiled_model_of_joined_groups_is_right(array, threads, batch):
    x = input((batch, 24, 14, 14), name="x")
    y = x
    for _ in range(2):
        y = ops.relu(ops.conv2d(y, array(24, 1, 3, 3), padding=1, groups=24))
        y = ops.conv2d(y, array(24, 24, 1, 1), array(24))
    graph = Graph((x,), (y,), "mobile")
    plan = at.plan_model(graph, f"llvm -mcpu=x86-64-v3 -threads={threads}")
    assert batch > 1 or fronts(plan.groups)
    given = array(batch, 24, 14, 14)
    f = at.compile_model(graph, target=f"llvm -threads={threads}")
    np.testing.assert_allclose(f(given), evaluate(graph, given)[0], rtol=1e-4, atol=2e-3)
