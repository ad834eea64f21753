"""P21: X*W1 + X*W2 = X*(W1 + W2): the sum of two convolutions of one input becomes one convolution, with half
of the operations."""

import numpy as np

import autotensor as at
from autotensor.graph.evaluate import evaluate

rng = np.random.default_rng(0)
W1, W2 = (rng.standard_normal((16, 8, 3, 3)).astype("float32") / 10 for _ in range(2))
x = at.input((1, 8, 14, 14), name="X")
graph = at.Graph((x,), (at.ops.conv2d(x, W1, padding=1) + at.ops.conv2d(x, W2, padding=1),), "sum")

explained = graph.explain()
print(explained)
merged = explained.step("merge sums")
print(f"convolutions {graph.count('conv2d')} ──▶ {merged.count('conv2d')}, "
      f"operations {graph.flops():,} ──▶ {merged.flops():,}")  # fmt: skip
assert (graph.count("conv2d"), merged.count("conv2d"), merged.count("add")) == (2, 1, 0)
assert graph.flops() == 2 * merged.flops() + 16 * 14 * 14  # and the sum

array = rng.standard_normal(x.shape).astype("float32")
np.testing.assert_allclose(at.compile_model(graph)(array), evaluate(graph, array)[0], rtol=1e-4, atol=1e-5)
