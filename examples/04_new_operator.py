"""An operator for which no template exists: a convolution, then log(cosh(·)) summed over 2x2 windows.

    python examples/04_new_operator.py [--size 28] [--channels 64] [--trials 64] [--db my.db]

The operator is written as its definition, tuned, and saved. Another process, which does not have this file,
loads it. The result is compared with NumPy.
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

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=28)
options.add_argument("--channels", type=int, default=64)
options.add_argument("--trials", type=int, default=64)
options.add_argument("--db", default=None, help="tuning log; else your own")
asked = options.parse_args()
n, c = asked.size, asked.channels


def log_cosh(v):
    """|v| + log(1 + exp(-2|v|)) - log 2, which does not overflow where cosh does."""
    return te.abs(v) + te.log1p(te.exp(-2.0 * te.abs(v))) - float(np.log(2))


X = te.placeholder((n + 2, n + 2, c), name="X")  # padded already
W = te.placeholder((3, 3, c, c), name="W", constant=True)
dy, dx, ci = te.reduce_axis(3, "dy"), te.reduce_axis(3, "dx"), te.reduce_axis(c, "ci")
conv = te.compute(
    (n, n, c),
    lambda y, x, o: te.sum(X[y + dy, x + dx, ci] * W[dy, dx, ci, o], axis=[dy, dx, ci]),
    name="conv",
)
py, px = te.reduce_axis(2, "py"), te.reduce_axis(2, "px")
pool = te.compute(
    (n // 2, n // 2, c),
    lambda y, x, o: te.sum(log_cosh(conv[2 * y + py, 2 * x + px, o]), axis=[py, px]),
    name="pool",
)

report = at.tune([X, W, pool], trials=asked.trials, db=asked.db)
f = at.build([X, W, pool], db=asked.db)
print("schedule:")
print(f.source("trace"))
print("\nloops:")
print(f.source("nest"))

rng = np.random.default_rng(0)
x = rng.standard_normal((n + 2, n + 2, c)).astype(np.float32)
w = (rng.standard_normal((3, 3, c, c)) / np.sqrt(9 * c)).astype(np.float32)
wide = x.astype(np.float64)
windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(0, 1))  # [y, x, ci, dy, dx]
exact = np.log(np.cosh(np.einsum("yxcij,ijco->yxo", windows, w, optimize=True)))
exact = exact.reshape(n // 2, 2, n // 2, 2, c).sum(axis=(1, 3))

with tempfile.TemporaryDirectory() as folder:
    here = Path(folder)
    f.bind(W=w).save(here / "pool.atm")
    np.save(here / "x.npy", x)
    stranger = "import autotensor as at, numpy as np; np.save('y.npy', at.load('pool.atm')(np.load('x.npy')))"
    subprocess.run([sys.executable, "-c", stranger], cwd=here, check=True)
    y = np.load(here / "y.npy")
np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)
print(f"\nanother process: largest difference from NumPy in float64 {np.abs(y - exact).max():.1e}")

g = f.bind(W=w)
seconds = median(g.time([x]))
tried = report.tasks[0]
print(f"time: {seconds * 1e6:.0f} µs, {2 * 9 * c * c * n * n / seconds / 1e9:.1f} GFLOP/s in the convolution")
if tried.default_s and tried.best_s:
    first, best = tried.default_s * 1e6, tried.best_s * 1e6
    print(f"      {tried.trials} trials: {first:.0f} µs at first, {best:.0f} µs at best")
