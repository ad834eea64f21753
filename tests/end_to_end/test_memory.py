"""The memory that stays in a process after its kernels are no longer referenced."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Memory that stays for each of the last 150 of 300 distinct kernels. Bounded caches of expressions fill up
# meanwhile, at some 5 kB each.
SCRIPT = """
import gc, numpy as np, autotensor as at
from autotensor import te
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
def once(n):
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * float(n) + 1.0, name="B")
    at.build(te.create_schedule(B), [A, B])(np.ones(64, "float32"))
for n in range(150):
    once(n)
gc.collect()
before = resident()
for n in range(150, 300):
    once(n)
gc.collect()
print((resident() - before) // 150)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the memory")
def test_kernels_that_are_dropped_leave_little_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) < 16_000  # bytes; 81,000 where passes of LLVM stay
