"""P16: the naive product of 1024³, C[y, x] = Σk A[k, y] B[k, x], and its loops."""

import numpy as np

import autotensor as at
from autotensor import te


def product(n):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return A, B, te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")


A, B, C = product(1024)
loops = str(at.lower(te.create_schedule(C.op), [A, B, C]))
print(loops)
assert (
    loops
    == """\
for y in range(1024):
  for x in range(1024):
    C[y][x] = 0
    for k in range(1024):
      C[y][x] += A[k][y] * B[k][x]"""
)
print(f"\n{2 * 1024**3 / 1e9:.3f} GFLOP")
assert f"{2 * 1024**3 / 1e9:.3f}" == "2.147"

A, B, C = product(64)
a, b = np.random.default_rng(0).random((2, 64, 64), dtype=np.float32)
np.testing.assert_allclose(at.build(te.create_schedule(C.op), [A, B, C])(a, b), a.T @ b, rtol=1e-5)
