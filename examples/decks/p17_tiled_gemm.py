"""P17: P16's product in tiles of 8×8×8, by three splits and a reorder. Every line of the loops is as on the
slide."""

import numpy as np

import autotensor as at
from autotensor import te


def product(n):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return A, B, te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")


def tiled(C):
    s = te.create_schedule(C.op)
    yo, yi = s[C].split(C.op.axis[0], factor=8)
    xo, xi = s[C].split(C.op.axis[1], factor=8)
    ko, ki = s[C].split(C.op.reduce_axis[0], factor=8)
    s[C].reorder(yo, xo, ko, yi, xi, ki)
    return s


A, B, C = product(1024)
loops = str(at.lower(tiled(C), [A, B, C]))
print(loops)
assert (
    loops
    == """\
for yo in range(128):
  for xo in range(128):
    C[yo*8:yo*8+8][xo*8:xo*8+8] = 0
    for ko in range(128):
      for yi in range(8):
        for xi in range(8):
          for ki in range(8):
            C[yo*8+yi][xo*8+xi] += A[ko*8+ki][yo*8+yi] * B[ko*8+ki][xo*8+xi]"""
)

A, B, C = product(64)
a, b = np.random.default_rng(0).random((2, 64, 64), dtype=np.float32)
naive = at.build(te.create_schedule(C.op), [A, B, C])(a, b)
np.testing.assert_allclose(at.build(tiled(C), [A, B, C])(a, b), naive, rtol=1e-5)
print("\nequal to the naive product")
