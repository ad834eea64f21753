"""P2: the dataflow graphs of a×b + 3 and of L = MSE(w2·ReLU(w1 x), y), as text and for Graphviz."""

import numpy as np

import autotensor as at
from autotensor.graph.explain import dot

a, b = at.input((2, 2), name="a"), at.input((2, 2), name="b")
first = at.Graph((a, b), (a * b + 3.0,), "a_times_b_plus_3")
print(first)
print(dot(first))

x, y = at.input((4, 1), name="x"), at.input((2, 1), name="y")
w1, w2 = at.input((3, 4), name="w1"), at.input((2, 3), name="w2")
difference = at.ops.matmul(w2, at.ops.relu(at.ops.matmul(w1, x))) - y
second = at.Graph((x, y, w1, w2), (at.ops.mean(difference * difference),), "loss")
print()
print(second)
print(dot(second))

assert [n.op_name for n in first.applies] == ["multiply", "add"]
assert [n.op_name for n in second.applies] == ["matmul", "relu", "matmul", "subtract", "multiply", "mean"]
rng = np.random.default_rng(0)
arrays = [rng.standard_normal(n.shape).astype("float32") for n in second.inputs]
expected = np.mean((arrays[3] @ np.maximum(arrays[2] @ arrays[0], 0) - arrays[1]) ** 2)
np.testing.assert_allclose(at.compile_model(second)(*arrays), expected, rtol=1e-5)
