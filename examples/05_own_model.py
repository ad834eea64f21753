"""A user's own model with a user's own operator: a residual block, pooled by log(cosh(·)).

    python examples/05_own_model.py [--size 28] [--channels 64] [--trials 200] [--db my.db]

The function becomes a task like any other: it is fused, tuned, and saved inside the model's file.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.graph.evaluate import evaluate

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=28)
options.add_argument("--channels", type=int, default=64)
options.add_argument("--trials", type=int, default=200)
options.add_argument("--db", default=None, help="tuning log; else your own")
asked = options.parse_args()
n, c = asked.size, asked.channels


def log_cosh_pool(x):
    """log(cosh(x)) summed over 2x2 windows; x is [batch, channels, height, width]."""
    b, ch, h, w = x.shape
    dy, dx = te.reduce_axis(2, "dy"), te.reduce_axis(2, "dx")

    def value(v):
        return te.abs(v) + te.log1p(te.exp(-2.0 * te.abs(v))) - float(np.log(2))

    return te.compute(
        (b, ch, h // 2, w // 2),
        lambda i, o, y, x_: te.sum(value(x[i, o, 2 * y + dy, 2 * x_ + dx]), axis=[dy, dx]),
        name="log_cosh_pool",
    )


rng = np.random.default_rng(0)
first, second = ((rng.standard_normal((c, c, 3, 3)) / np.sqrt(9 * c)).astype(np.float32) for _ in range(2))

x = at.input((1, c, n, n))
y = at.ops.relu(at.ops.conv2d(x, first, padding=1))
y = at.ops.conv2d(y, second, padding=1) + x
y = at.call(log_cosh_pool, y)
y = at.ops.softmax(at.ops.flatten(at.ops.global_avg_pool2d(y)))
graph = at.Graph((x,), (y,), "mine")

print("graph:")
print(graph)
print("\ntasks:")
for task in at.plan_model(graph).tasks:
    print(f"  {task}")

model = at.compile_model(graph, trials=asked.trials, db=asked.db)
name = next(k for k in model.artifact.texts if k.startswith("trace:") and "log_cosh" in k)
print("\nschedule of log_cosh_pool (in canonical names):")
print(model.source(name))

image = rng.standard_normal((1, c, n, n)).astype(np.float32)
(exact,) = evaluate(graph, image)
with tempfile.TemporaryDirectory() as folder:
    here = Path(folder)
    model.save(here / "mine.atm")
    np.save(here / "x.npy", image)
    stranger = "import autotensor as at, numpy as np; np.save('y.npy', at.load('mine.atm')(np.load('x.npy')))"
    subprocess.run([sys.executable, "-c", stranger], cwd=here, check=True)
    out = np.load(here / "y.npy")
np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-6)
print(f"\nanother process: largest difference from NumPy {np.abs(out - exact).max():.1e}")

untuned = at.compile_model(graph, db=":memory:")
tuned_s, untuned_s = median(model.time([image])), median(untuned.time([image]))
print(f"time: {tuned_s * 1e6:.0f} µs tuned, {untuned_s * 1e6:.0f} µs untuned")
