"""The smallest program: an expression, a schedule, the loops, a call.

python examples/01_vector_add.py [--size 1000000]
"""

import argparse
from statistics import median

import numpy as np

import autotensor as at
from autotensor import te

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=1_000_000)
n = options.parse_args().size

A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute((n,), lambda i: A[i] + B[i], name="C")

s = te.create_schedule(C)
io, ii = s[C].split(C.op.axis[0], factor=16)
s[C].vectorize(ii)
s[C].parallel(io)

print("schedule:")
print(s.trace)
print("\nloops:")
print(at.lower(s, [A, B, C]))

f = at.build(s, [A, B, C])
a, b = np.random.rand(n).astype("float32"), np.random.rand(n).astype("float32")
c = f(a, b)  # allocates; f(a, b, c) fills c in place
np.testing.assert_array_equal(c, a + b)

seconds = median(f.time([a, b]))
print(f"\ntime: {seconds * 1e6:.1f} µs, {3 * a.nbytes / seconds / 1e9:.1f} GB/s")
