"""Search instead of a schedule by hand: the product of a transposed matrix and another matrix.

    python examples/03_tune_gemm.py [--size 1024] [--trials 64] [--db my.db]

Every trial is kept in the tuning log. If the command is repeated, it measures nothing.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.search.events import RoundDone

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=1024)
options.add_argument("--trials", type=int, default=64)
options.add_argument("--db", default=None, help="tuning log; else your own")
asked = options.parse_args()
n = asked.size

A = te.placeholder((n, n), name="A")
B = te.placeholder((n, n), name="B")
k = te.reduce_axis(n, name="k")
C = te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")


def tell(event) -> None:
    if isinstance(event, RoundDone):
        print(f"  {event.trials:4d} trials, best {2 * n**3 / event.best_s / 1e9:7.1f} GFLOP/s")


print("search:")
report = at.tune([A, B, C], trials=asked.trials, db=asked.db, listener=tell, progress=False)
print(f"  {report.trials} trials, {report.reused} of them read from the log; {report.reason}")

f = at.build([A, B, C], db=asked.db)  # the best verified schedule that the log knows for this machine
print("\nschedule:")
print(f.source("trace"))
print("\nloops:")
print(f.source("nest"))

rng = np.random.default_rng(0)
a, b = rng.random((n, n), np.float32), rng.random((n, n), np.float32)
np.testing.assert_allclose(f(a, b), a.T @ b, rtol=1e-4)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "gemm.atm"
    f.save(path)
    assert np.array_equal(at.load(path)(a, b), f(a, b))

seconds = median(f.time([a, b]))
print(f"\ntime: {seconds * 1e3:.2f} ms, {2 * n**3 / seconds / 1e9:.1f} GFLOP/s")
