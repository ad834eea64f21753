"""P19: C = tvm.compute((m, n), lambda y, x: tvm.sum(A[k, y] * B[k, x], axis=k)), in the old spelling."""

import numpy as np

import autotensor as at
from autotensor import te as tvm

m, n, h = 40, 30, 20
A = tvm.placeholder((h, m), name="A")
B = tvm.placeholder((h, n), name="B")
k = tvm.reduce_axis((0, h), name="k")
C = tvm.compute((m, n), lambda y, x: tvm.sum(A[k, y] * B[k, x], axis=k))
s = tvm.create_schedule(C.op)
print(at.lower(s, [A, B, C]))

a, b = np.random.default_rng(0).random((h, m), dtype=np.float32), np.ones((h, n), np.float32)
np.testing.assert_allclose(at.build(s, [A, B, C])(a, b), a.T @ b, rtol=1e-5)
