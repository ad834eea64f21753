"""Timing: samples of the seconds of one run. All samples are returned; the caller chooses or averages.

    sample(run, repeat=5, min_seconds=0.02) ──▶ (s0, s1, s2, s3, s4)      run(n) runs the thing n times

The number of runs inside one sample grows until the sample lasts `min_seconds`, so that neither the clock nor
the call dominates. "hot" leaves the caches as the run left them. "cold" sweeps the caches before every single
run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from autotensor.base.errors import InputError
from autotensor.base.target import host_caches

Residency = Literal["hot", "cold"]
Clock = Callable[[], float]

_GROWTH = 1.3  # aims a little beyond min_seconds, because the estimate comes from shorter, slower samples
# the number of runs grows at most by this factor: a first sample near the clock's resolution is not exact
_MOST_GROWTH = 100
_MOST_RUNS = 1 << 30
_LEAST_SWEEP_BYTES = 32 << 20
_MOST_SWEEP_BYTES = 256 << 20


def sample(
    run: Callable[[int], None],
    *,
    repeat: int = 5,
    min_seconds: float = 0.02,
    warmup: int = 1,
    residency: Residency = "hot",
    max_seconds: float | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[float, ...]:
    """`repeat` samples of the seconds that one run takes, in order.

    warmup: number of runs before the first sample. max_seconds: stop after this time, but not before the
    first sample. In cold mode, each sample is one run, or the mean of as many runs as fit into `min_seconds`,
    each after a sweep.
    """
    if repeat < 1 or min_seconds < 0:
        raise InputError(
            f"timing with repeat={repeat}, min_seconds={min_seconds}: one sample and no negative time."
        )
    if residency not in ("hot", "cold"):
        raise InputError(f"residency {residency!r} is unknown.", fix="Known: hot, cold.")
    began = clock()
    if warmup:
        run(warmup)
    one = _hot if residency == "hot" else _cold

    def measure(count: int) -> float:
        return one(run, count, clock)

    count, first = _runs_per_sample(measure, min_seconds)
    samples = [first]
    while len(samples) < repeat and (max_seconds is None or clock() - began < max_seconds):
        samples.append(measure(count) / count)
    return tuple(samples)


def _runs_per_sample(measure: Callable[[int], float], min_seconds: float) -> tuple[int, float]:
    """The number of runs that fill `min_seconds`, and the first sample with this many runs."""
    count = 1
    while True:
        seconds = measure(count)
        if seconds >= min_seconds or count >= _MOST_RUNS:
            return count, seconds / count
        wanted = count * _GROWTH * min_seconds / seconds if seconds > 0 else count * _MOST_GROWTH
        count = min(int(max(count + 1, min(wanted, count * _MOST_GROWTH))), _MOST_RUNS)


def _hot(run: Callable[[int], None], count: int, clock: Clock) -> float:
    start = clock()
    run(count)
    return clock() - start


def _cold(run: Callable[[int], None], count: int, clock: Clock) -> float:
    total = 0.0
    for _ in range(count):
        sweep_caches()
        total += _hot(run, 1, clock)
    return total


def sweep_caches() -> None:
    """Removes all other data from the data caches, by writing a buffer larger than the last cache."""
    buffer = _sweep_buffer()
    buffer += 1


@lru_cache(maxsize=1)
def _sweep_buffer() -> np.ndarray[Any, np.dtype[np.int64]]:
    size = min(max(2 * host_caches()[-1], _LEAST_SWEEP_BYTES), _MOST_SWEEP_BYTES)
    return np.zeros(size // 8, np.int64)
