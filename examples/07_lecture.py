"""The two listings of the classic lecture: a naive matrix product, and the same product in 8x8x8 tiles.

    python examples/07_lecture.py [--size 512]

The listings show the lecture's product of 1024³; `--size` is the size of the product that is timed.
"""

import argparse

import numpy as np

import autotensor as tvm
from autotensor import te

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=512)


def product(n):
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    return A, B, C


def tiled(C):
    s = te.create_schedule(C.op)
    yo, yi = s[C].split(C.op.axis[0], factor=8)
    xo, xi = s[C].split(C.op.axis[1], factor=8)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=8)
    s[C].reorder(yo, xo, ko, yi, xi, ki)
    return s


A, B, C = product(1024)
print("naive:")
print(tvm.lower(te.create_schedule(C.op), [A, B, C]))
print("\nschedule:")
print(tiled(C).trace)
print("\ntiled:")
print(tvm.lower(tiled(C), [A, B, C]))

n = options.parse_args().size
A, B, C = product(n)
a, b = np.random.rand(n, n).astype("float32"), np.random.rand(n, n).astype("float32")
print()
for label, s in (("naive", te.create_schedule(C.op)), ("tiled", tiled(C))):
    f = tvm.build(s, [A, B, C])
    np.testing.assert_allclose(f(a, b), a.T @ b, rtol=1e-4)
    seconds = min(f.time([a, b], repeat=3))
    print(f"time: {label} {seconds * 1e3:.2f} ms, {2 * n**3 / seconds / 1e9:.2f} GFLOP/s at {n}³")
