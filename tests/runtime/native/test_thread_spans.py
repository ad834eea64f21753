"""When each thread of a region begins and ends."""

from __future__ import annotations

import ctypes
import time

import numpy as np

import autotensor as at
from autotensor.runtime.kernel_times import KernelClock
from autotensor.runtime.native.thread_spans import launch_spanned


def test_spans_lie_within_the_call_and_the_kernel_ran() -> None:
    ran: list[tuple[int, int]] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)

    @kind
    def kernel(ctx: int, args: int, tid: int, n: int) -> None:
        ran.append((args, tid))
        time.sleep(0.002)

    address = ctypes.cast(kernel, ctypes.c_void_p).value
    assert address is not None
    before = time.perf_counter()
    spans = launch_spanned(address, 4096, 2)
    after = time.perf_counter()
    assert sorted(ran) == [(4096, n) for n, _, _ in spans]  # a team may be smaller than the requested number
    assert 1 <= len(spans) <= 2
    for _, began, ended in spans:
        assert before - 1e-6 <= began
        assert began + 0.002 <= ended <= after + 1e-6


def test_a_models_kernels_come_in_order(own_log) -> None:
    x = at.input((1, 64))
    y = at.ops.relu(at.ops.dense(x, np.ones((32, 64), np.float32)))
    y = at.ops.softmax(at.ops.dense(y, np.ones((16, 32), np.float32)))
    model = at.compile_model(y)
    clock = KernelClock(model.ready, [np.ones((1, 64), np.float32)], model.threads)
    spans = clock.spans()
    assert len(spans) == len(clock.kernels) > 1
    ends = [max(ended for _, _, ended in threads) for threads in spans]
    begins = [min(began for _, began, _ in threads) for threads in spans]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
