"""P20: Y = X*W + B, Z = Y·R + P becomes one convolution with W2 = W·R and B2 = B·R + P.

(On the slide, "+ P" is outside of the product; right is B2 = B·R + P.)
"""

import numpy as np

import autotensor as at
from autotensor.graph.evaluate import evaluate

rng = np.random.default_rng(0)
W = rng.standard_normal((16, 8, 3, 3)).astype("float32") / 10
B, R, P = (rng.standard_normal((16, 1, 1)).astype("float32") for _ in range(3))
x = at.input((1, 8, 14, 14), name="X")
graph = at.Graph((x,), ((at.ops.conv2d(x, W, padding=1) + B) * R + P,), "conv_bn")

explained = graph.explain()
print(explained)
before, after = graph, explained.step("fold batch norm")
print(f"operators {before.count()} ──▶ {after.count()}, operations {before.flops():,} ──▶ {after.flops():,}")
assert (before.count("multiply"), after.count("multiply")) == (1, 0)
assert (before.count("add"), after.count("add")) == (2, 1)
assert before.flops() - after.flops() == 2 * 16 * 14 * 14  # a product and a sum for each element

array = rng.standard_normal(x.shape).astype("float32")
error = np.abs(at.compile_model(graph)(array) - evaluate(graph, array)[0]).max()
print(f"largest difference from the graph as written: {error:.1e}")
assert error < 1e-5
