"""Distances of all pairs of points: one formula, checked against NumPy, and timed with NumPy.

python examples/00_first_taste.py [--points 1024]
"""

import argparse
from timeit import repeat

import numpy as np

import autotensor as at
from autotensor import te

options = argparse.ArgumentParser()
options.add_argument("--points", type=int, default=1024)
n, features = options.parse_args().points, 64

A = te.placeholder((n, features), name="A")
B = te.placeholder((n, features), name="B")
k = te.reduce_axis(features, name="k")
D = te.compute((n, n), lambda i, j: te.sum(te.abs(A[i, k] - B[j, k]), axis=k), name="D")

f = at.build([A, B, D])  # the default schedule; at.tune([A, B, D], trials=64) searches for a better one
print("schedule:")
print(f.source("trace"))
print("\nloops:")
print(f.source("nest"))

rng = np.random.default_rng(0)
a, b = rng.random((n, features), dtype=np.float32), rng.random((n, features), dtype=np.float32)
np.testing.assert_allclose(f(a, b), np.abs(a[:, None] - b).sum(-1), rtol=1e-4)

numpy_s = min(repeat(lambda: np.abs(a[:, None] - b).sum(-1), number=1, repeat=3))
our_s = min(repeat(lambda: f(a, b), number=1))
print(f"\ntime: {our_s * 1e3:.2f} ms, NumPy {numpy_s * 1e3:.2f} ms ({numpy_s / our_s:.1f} times as long)")
