"""Samples with a clock that only the measured function moves. So they are exact, and independent of the
machine."""

from __future__ import annotations

import pytest

from autotensor.base.errors import InputError
from autotensor.runtime import timer
from autotensor.runtime.timer import sample


class FakeKernel:
    """Takes `seconds` a run and `overhead` a call on a clock of its own."""

    def __init__(self, seconds: float, overhead: float = 0.0) -> None:
        self.seconds, self.overhead, self.now = seconds, overhead, 0.0
        self.calls: list[int] = []

    def __call__(self, count: int) -> None:
        self.calls.append(count)
        self.now += self.overhead + count * self.seconds

    def clock(self) -> float:
        return self.now


def test_runs_in_a_sample_grow_until_it_is_long_enough() -> None:
    kernel = FakeKernel(1e-6, overhead=5e-6)
    samples = sample(kernel, repeat=4, min_seconds=0.01, clock=kernel.clock)
    assert len(samples) == 4
    assert samples == pytest.approx([1e-6] * 4, rel=1e-2)  # overhead has vanished
    assert kernel.calls[0] == 1  # warm-up
    assert kernel.calls[-3:] == [kernel.calls[-1]] * 3
    assert 10_000 <= kernel.calls[-1] <= 20_000
    assert len(kernel.calls) <= 8


def test_slow_things_run_once_a_sample() -> None:
    kernel = FakeKernel(0.5)
    assert sample(kernel, repeat=3, min_seconds=0.01, clock=kernel.clock) == (0.5, 0.5, 0.5)
    assert kernel.calls == [1, 1, 1, 1]


def test_stops_when_the_time_is_up() -> None:
    kernel = FakeKernel(1.0)
    assert len(sample(kernel, repeat=100, max_seconds=5.0, clock=kernel.clock)) == 4


def test_a_clock_that_stands_still_ends() -> None:
    kernel = FakeKernel(0.0)
    assert sample(kernel, repeat=2, min_seconds=0.01, clock=kernel.clock) == (0.0, 0.0)


def test_cold_sweeps_before_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel(1e-3)
    sweeps: list[int] = []
    monkeypatch.setattr(timer, "sweep_caches", lambda: sweeps.append(1))
    samples = sample(kernel, repeat=2, min_seconds=0.003, residency="cold", clock=kernel.clock)
    assert samples == pytest.approx([1e-3, 1e-3])
    assert set(kernel.calls) == {1}
    assert len(sweeps) == len(kernel.calls) - 1  # all but the warm-up


def test_sweep_is_larger_than_the_caches() -> None:
    timer.sweep_caches()
    assert timer._sweep_buffer().nbytes >= 32 << 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeat": 0}, "repeat=0"),
        ({"min_seconds": -1.0}, "min_seconds=-1.0"),
        ({"residency": "warm"}, "residency 'warm' is unknown"),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sample(lambda n: None, **options)  # type: ignore[arg-type]
