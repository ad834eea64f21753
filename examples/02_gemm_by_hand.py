"""A matrix product by hand, near the machine's peak: a tile of C stays in registers, B is packed beforehand.

    python examples/02_gemm_by_hand.py [--size 1024] [--threads 1]

The tile of 6 rows × 4 vectors takes 24 of AVX-512's 32 registers (6x64 floats); on a processor with 16
registers, the tile has 6 × 2 vectors. Each step of k loads 4 vectors of B and 6 scalars of A for 24
multiply-adds, so the multiply-adds do not wait for loads.
"""

import argparse

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.codegen.peak import measure_peak

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=1024)
options.add_argument("--threads", type=int, default=1)
asked = options.parse_args()
n, target = asked.size, parse(f"llvm -threads={asked.threads}")
lanes = target.lanes(32)
rows, vectors = 6, 4 if target.vector_registers >= 32 else 2

A = te.placeholder((n, n), name="A")
B = te.placeholder((n, n), name="B", constant=True)  # weights, which are packed once when they are bound
k = te.reduce_axis(n, name="k")
C = te.compute((n, n), lambda y, x: te.sum(A[y, k] * B[k, x], axis=k), name="C")

s = te.create_schedule(C)
s.layout(B, [(1, vectors * lanes)], "1.0 0 1.1")  # panels as wide as the tile, k by k
CL = s.cache_write(C, "local")  # the tile

y, x = C.op.axis
yo, ym, yi = s[C].split(y, factors=[4, rows])
xo, xv, xi = s[C].split(x, factors=[vectors, lanes])
s[C].reorder(yo, xo, ym, yi, xv, xi)
s[C].unroll(yi)
s[C].unroll(xv)
s[C].vectorize(xi)
s[C].parallel(s[C].fuse(yo, xo))
s[CL].compute_at(s[C], ym)

cy, cx = CL.op.axis
cv, ci = s[CL].split(cx, factor=lanes)
s[CL].reorder(*CL.op.reduce_axis, cy, cv, ci)
s[CL].unroll(cy)
s[CL].unroll(cv)
s[CL].vectorize(ci)

print("schedule:")
print(s.trace)
print("\nloops:")
print(at.lower(s, [A, B, C]))

rng = np.random.default_rng(0)
a, b = rng.random((n, n), np.float32), rng.random((n, n), np.float32)
f = at.build(s, [A, B, C], target).bind(B=b)
np.testing.assert_allclose(f(a), a @ b, rtol=1e-4)

peak, seconds = 0.0, float("inf")  # timed alternately, so that both see the machine in the same state
for _ in range(5):
    peak = max(peak, measure_peak(asked.threads, seconds=0.1))
    seconds = min(seconds, *f.time([a], repeat=3))
flops = 2 * n**3 / seconds
print(f"\ntime: {seconds * 1e3:.2f} ms, {flops / 1e9:.1f} GFLOP/s on {asked.threads} thread(s)")
print(f"      {flops / peak:.0%} of the measured peak, {peak / 1e9:.1f} GFLOP/s")
