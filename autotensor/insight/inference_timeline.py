"""A few inferences of a linked model as a timeline: its kernels, and below them each thread that worked.

    kernels    [conv2d 7x7/2 ][max_pool][conv2d 3x3  ] …
    thread 0   [conv2d 7x7/2 ][max_pool][conv2d 3x3 ]
    thread 1   [conv2d 7x7/2][max_pool ][conv2d 3x3  ]      a gap at the end of a row is waiting time

Kernels are launched one by one in the model's order, as `kernel_times` does. Each kernel has a parallel
region of its own, so gaps between kernels are a little longer than in a call of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotensor.insight.timeline import Span, Timeline
from autotensor.runtime.device.kernel_times import DeviceKernelClock
from autotensor.runtime.kernel_times import KernelClock, Spans

INFERENCES = 3  # drawn one after another, after one inference for warming up


def inference_timeline(
    clock: KernelClock | DeviceKernelClock, title: str, peak: float | None = None
) -> Timeline:
    """peak: the measured FLOP/s of all threads; None if not known."""
    clock.spans()
    spans: list[Span] = []
    for number in range(1, INFERENCES + 1):
        kernels = clock.spans()
        origin = min((began for threads in kernels for _, began, _ in threads), default=0.0)
        before_s = max((s.end_s for s in spans), default=0.0)
        for kernel, threads in zip(clock.kernels, kernels, strict=True):
            moved = [(n, began - origin + before_s, ended - origin + before_s) for n, began, ended in threads]
            spans += _of_kernel(kernel, moved, number, peak)
    names = ["kernels", *(f"thread {n}" for n in range(max((s.worker for s in spans), default=0)))]
    if isinstance(clock, DeviceKernelClock):  # the host cannot see a device's threads
        spans, names = [s for s in spans if s.worker == 0], ["device"]
    return Timeline(tuple(spans), title, tuple(names))


def _of_kernel(
    kernel: Mapping[str, Any], threads: Spans, inference: int, peak: float | None
) -> Iterator[Span]:
    """One span in the row of the kernels, and one in the row of each thread."""
    first, last = min(began for _, began, _ in threads), max(ended for _, _, ended in threads)
    about: dict[str, Any] = {"inference": inference, "workload": kernel["workload"]}
    rate = float(kernel["flops"]) / max(last - first, 1e-9)
    if rate:
        about["GFLOP/s"] = round(rate / 1e9, 2)
    if rate and peak:
        about["% of peak"] = round(100.0 * rate / peak, 1)
    about["% of the threads' time at work"] = round(100.0 * _busy(threads, last - first), 1)
    yield Span(kernel["name"], 0, first, last, about)
    for n, began, ended in threads:
        yield Span(kernel["name"], 1 + n, began, ended)


def _busy(threads: Sequence[tuple[int, float, float]], seconds: float) -> float:
    return sum(ended - began for _, began, ended in threads) / max(len(threads) * seconds, 1e-12)


__all__ = ["inference_timeline"]
