"""A sample: its calls, the contents of the caches before them, and when it is taken again."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from evil_kernels import TARGET, N, evil

from autotensor.runtime.arrays import aligned_copy, aligned_empty
from autotensor.runtime.linking import loader
from autotensor.search.measuring import timing
from autotensor.search.measuring.native_loop import native_loop, touch_list
from autotensor.search.measuring.timing import Sampler, _calm, _first


class Calls:
    """Replaces a kernel: the time of each call, and whether another program took the core meanwhile."""

    def __init__(self, *samples: tuple[float, bool]) -> None:
        self.samples = list(samples)
        self.switches = 0
        self.counts: list[int] = []

    def __call__(self, calls: int) -> np.ndarray:
        self.counts.append(calls)
        seconds, disturbed = self.samples[0] if len(self.samples) == 1 else self.samples.pop(0)
        self.switches += disturbed
        return np.full(calls, seconds)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[Calls]:
    calls: list[Calls] = []
    monkeypatch.setattr(timing, "_switches", lambda: calls[0].switches)
    return calls


def test_a_disturbed_sample_of_one_call_is_taken_again(watched: list[Calls]) -> None:
    watched.append(Calls((0.009, True), (0.005, False), (0.004, False)))
    assert _calm(watched[0], 1) == 0.005


def test_where_all_are_disturbed_the_least_counts(watched: list[Calls]) -> None:
    watched.append(Calls((0.009, True), (0.006, True), (0.007, True), (0.001, False)))
    assert _calm(watched[0], 2) == 0.006
    assert watched[0].counts == [2, 2, 2]


@pytest.mark.parametrize(("seconds", "calls"), [(0.0001, 20), (0.5, 1)])
def test_many_calls_and_long_ones_are_not_taken_again(
    watched: list[Calls], seconds: float, calls: int
) -> None:
    watched.append(Calls((seconds, True)))
    assert _calm(watched[0], calls) == seconds
    assert watched[0].counts == [calls]


def test_the_number_of_calls_fills_the_time() -> None:
    kernel = Calls((1e-5, False))
    seconds, calls = _first(kernel, expected=5e-6, min_seconds=2e-3)
    assert seconds == pytest.approx(1e-5)
    assert calls == 200
    assert kernel.counts == [3, 200]  # three warm up and tell


def test_a_call_that_lost_its_core_does_not_count_the_calls() -> None:
    """A kernel of ten microseconds, of which every third call takes four milliseconds."""

    class Disturbed(Calls):
        def __call__(self, calls: int) -> np.ndarray:
            times = super().__call__(calls)
            times[::3] = 4e-3
            return times

    kernel = Disturbed((1e-5, True))
    seconds, calls = _first(kernel, expected=4e-3, min_seconds=2e-3)
    assert (seconds, calls) == (pytest.approx(1e-5), 200)


def test_counting_ends_on_a_machine_that_is_busy_all_the_time() -> None:
    kernel = Calls((4e-3, True))
    seconds, calls = _first(kernel, expected=1e-5, min_seconds=2e-3)
    assert (seconds, calls) == (4e-3, 1)


def test_calls_are_timed_one_by_one_and_arguments_rotate() -> None:
    """Two frames that differ in the output: both outputs are written, three times and two."""
    kernel = loader.load(evil("right"))
    a, b = (aligned_copy(np.full(N, x, np.float32)) for x in (1.0, 2.0))
    outputs = [aligned_empty((N,), "float32") for _ in range(2)]
    table = np.array([[x.ctypes.data for x in (a, b, out)] for out in outputs], np.uint64)
    frames = table.ctypes.data + np.arange(2, dtype=np.uint64) * np.uint64(table.strides[0])
    for out in outputs:
        out[...] = 0.0
    seconds = native_loop().run(kernel.entry, frames, 0, 5, TARGET.num_cores, touch_list([a, b]))
    assert seconds.shape == (5,)
    assert (seconds > 0).all()
    assert (seconds < 1.0).all()
    assert all((out == 3.0).all() for out in outputs)


@pytest.mark.parametrize("nthreads", [1, 2, 3])
def test_writing_what_is_there_changes_nothing(nthreads: int) -> None:
    """Every whole cache line is visited by exactly one thread, for any division and number of threads.
    Nothing else is visited."""
    loop = native_loop()
    touch = loop.code.addresses["touch"]
    rng = np.random.default_rng(0)
    arrays = [aligned_copy(rng.standard_normal(n).astype(np.float32)) for n in (1, 16, 17 * 16, 1000)]
    before = [a.copy() for a in arrays]
    listed = touch_list(arrays)
    assert listed[0] == 4
    assert list(listed[2::2]) == [62, 17, 1, 0]  # the first array comes last
    loop.call(touch, listed, nthreads)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


def test_a_sample_ends_when_its_time_is_up_many_times_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a kernel that loses its core every time: only a few are made, not the thousand that were
    requested."""
    asked: list[int] = []

    class Loop:
        def run(self, entry: int, frames: np.ndarray, turn: int, calls: int, *_: object) -> np.ndarray:
            asked.append(calls)
            return np.full(calls, 0.008)

    monkeypatch.setattr(timing, "native_loop", Loop)
    candidate = SimpleNamespace(frames=np.zeros(3, np.uint64), turn=0, loaded=SimpleNamespace(entry=0))
    sampler = Sampler(lambda number, phase: nullcontext())  # type: ignore[arg-type]
    seconds = sampler._run(0, candidate, 2, None, 1.0, 0.04, 1000)  # type: ignore[arg-type]
    assert asked == [4, 8]
    assert len(seconds) == 12
    assert candidate.turn == 0
