"""A value has the same bits alone, together with others, and computed operator by operator."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.api.style_programs import Programs, cut
from autotensor.base.errors import GraphError
from autotensor.graph.build import input, ops
from autotensor.graph.ir import Apply, GraphNode, topological


def chain(x, y):
    return ops.exp((x * y + x) * y - x / y) * x + y


def perceptron(x, w, b, v):
    hidden = ops.relu(ops.matmul(x, w) + b)
    shares = ops.softmax(ops.matmul(hidden, v) * 1.7 + 0.3)
    return 0.0 - ops.mean(ops.sum(shares * ops.log(shares + 0.1), axis=1))


def convolutions(x, w, v):
    y = ops.max_pool2d(ops.relu(ops.conv2d(x, w, padding=1) * 1.3 + 0.1), 2)
    z = ops.conv2d(y, v, stride=2) * 0.5 + 1.0
    return ops.mean(z * z)


def attention(x, g, b, w):
    y = ops.layer_norm(x, g, b) * 1.5 + x
    z = ops.gelu(ops.batch_matmul(y, w)) * 2.0 + 1.0
    return ops.sum(ops.softmax(z) * 3.0 + z, axis=(0, 1))


@pytest.mark.parametrize(
    ("build", "shapes"),
    [
        (chain, [(37, 21), (37, 21)]),
        (chain, [(1,), (5, 1)]),
        (chain, [(), ()]),
        (perceptron, [(100, 64), (64, 32), (32,), (32, 10)]),
        (perceptron, [(1, 33), (33, 17), (17,), (17, 5)]),
        (convolutions, [(2, 3, 16, 16), (8, 3, 3, 3), (4, 8, 3, 3)]),
        (attention, [(2, 5, 64), (64,), (64,), (64, 32)]),
    ],
)
@pytest.mark.sample(3)
def test_bits_do_not_depend_on_what_is_computed_together(build, shapes) -> None:
    rng = np.random.default_rng(0)
    inputs = [input(s) for s in shapes]
    values: dict[GraphNode, np.ndarray] = {x: rng.uniform(0.5, 1, x.shape).astype(np.float32) for x in inputs}
    out = build(*inputs)
    programs = Programs("llvm -threads=1")
    (whole,) = programs.run([out], values)
    nodes = [n for n in topological([out]) if isinstance(n, Apply)]
    together = dict(zip(nodes, programs.run(nodes, values), strict=True))
    apart = dict(values)
    for node in nodes:
        (apart[node],) = programs.run([node], apart)
        assert np.array_equal(apart[node], together[node]), node.op_name
    assert np.array_equal(whole, apart[out])


def test_equal_structure_is_one_program() -> None:
    programs = Programs()
    for _ in range(3):
        x, y = input((3,)), input((3,))
        made = programs.run([ops.exp(x) + y], {x: np.ones(3, np.float32), y: np.ones(3, np.float32)})
        np.testing.assert_allclose(made[0], np.e + 1, rtol=1e-6)
    assert len(programs) == 1
    x = input((4,))
    programs.run([ops.exp(x) + x], {x: np.ones(4, np.float32)})
    assert len(programs) == 2


def test_what_is_known_is_not_computed() -> None:
    x = input((2,))
    y = ops.exp(x)
    programs = Programs()
    assert programs.run([y], {y: np.zeros(2, np.float32)})[0].tolist() == [0, 0]
    assert len(programs) == 0
    assert [n.op_name for n in cut([y * 2.0], {y}).graph().applies] == ["multiply"]


def test_inputs_that_stand_for_other_nodes() -> None:
    x = input((2,))
    stand_in = input((2,))
    array = np.float32([1, 2])
    made = Programs().run([stand_in + x], {x: array}, {stand_in: x * 10.0})
    assert made[0].tolist() == [11, 22]


def test_an_input_without_a_value() -> None:
    x = input((2,), name="x")
    with pytest.raises(GraphError, match=r"Input\(x: float32\[2\]\) has no value. Feed it."):
        Programs().run([x + 1.0], {})
