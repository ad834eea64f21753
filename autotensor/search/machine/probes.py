"""Probes: rates of a machine that may be busy.

    rounds ─▶  A B C D │ B C D A │ C D A B │ …        every probe once a round, some milliseconds each
                 ✗                                     this sample lost its core for a while: not counted

A run was disturbed if its threads got less CPU time than the clock showed. The rate is the upper quartile of
the other runs: the fastest one may be luck, and the median on a busy machine is too slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ROUNDS = 10  # least number of rounds
ENOUGH = 6  # a probe is done when it has this many undisturbed samples
LEAST_CALM = 3  # with fewer undisturbed samples, all samples count
BUDGET_S = 4.0  # seconds for more rounds on a busy machine
QUARTILE = 0.75
LUCKY = 0.98  # this quantile counts if all samples were disturbed
GOT_ITS_CORES = 0.97  # share of the clock's time: with less CPU time, another program ran on the core
LOOK_S = 0.15  # seconds for measuring others' load: the kernel counts in hundredths of a second
# least seconds of one run; time slices of the scheduler are longer, so some runs are not disturbed
LEAST_S = 0.001


class Measurable(Protocol):
    """A kernel that a probe runs, such as `codegen.yardstick.Yardstick`."""

    @property
    def amount(self) -> float:
        """The work of one run."""
        ...

    @property
    def threads(self) -> int: ...

    @property
    def run(self) -> Callable[[int], None]:
        """Runs the kernel this many times."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """One rate: amount per second."""

    value: float
    samples: tuple[float, ...]  # the samples of all rounds, in order
    disturbed: int  # number of rounds in which another program used the cores

    @property
    def trusted(self) -> bool:
        """Whether enough rounds were undisturbed."""
        return len(self.samples) - self.disturbed >= LEAST_CALM


@dataclass(slots=True)
class Clocks:
    """The clocks that are read; tests replace them."""

    wall: Callable[[], float] = time.perf_counter
    thread: Callable[[], float] = time.thread_time  # CPU seconds of this thread
    process: Callable[[], float] = time.process_time  # CPU seconds of all threads


def measure_rates(
    probes: Sequence[Measurable],
    *,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
    least_s: float = LEAST_S,
    clocks: Clocks = Clocks(),  # noqa: B008  # never changed
) -> list[Measured]:
    """The rate of every probe, in order. The caller holds the timing lock.

    There are `rounds` rounds. There are more, for up to `budget_s` seconds, while probes have too few
    undisturbed samples.
    """
    counts = [_count(p, least_s, clocks) for p in probes]
    samples: list[list[tuple[float, bool]]] = [[] for _ in probes]
    began, turn = clocks.wall(), 0
    while True:
        short = [n for n, s in enumerate(samples) if turn < rounds or sum(calm for _, calm in s) < ENOUGH]
        if not short or (turn >= rounds and clocks.wall() - began > budget_s):
            return [_judged(s) for s in samples]
        for k in range(len(short)):
            n = short[(k + turn) % len(short)]
            samples[n].append(_sample(probes[n], counts[n], clocks))
        turn += 1


def _count(probe: Measurable, least_s: float, clocks: Clocks) -> int:
    """The number of runs that take about `least_s`. The first run is only a warm-up."""
    probe.run(1)
    count = 1
    while True:
        seconds = float("inf")
        for _ in range(3):  # the fastest counts, because other programs may have run meanwhile
            began = clocks.wall()
            probe.run(count)
            seconds = min(seconds, clocks.wall() - began)
        if seconds >= 0.5 * least_s:
            return max(1, round(count * least_s / seconds))
        count = max(2 * count, min(100 * count, int(count * least_s / max(seconds, 1e-7))))


def _sample(probe: Measurable, count: int, clocks: Clocks) -> tuple[float, bool]:
    """Amount per second of one sample, and whether it was undisturbed."""
    # A team's threads may spin for a while after their work. For one thread, only the thread's own time
    # counts.
    cpu = clocks.thread if probe.threads == 1 else clocks.process
    probe.run(1)  # wakes threads that sleep
    began, used = clocks.wall(), cpu()
    probe.run(count)
    used, seconds = cpu() - used, clocks.wall() - began
    return count * probe.amount / seconds, used >= GOT_ITS_CORES * seconds * probe.threads


def _judged(samples: Sequence[tuple[float, bool]]) -> Measured:
    """The rate from all samples. If too many were disturbed, the least disturbed ones count."""
    calm = [rate for rate, quiet in samples if quiet]
    enough = len(calm) >= LEAST_CALM
    chosen = sorted(calm if enough else [rate for rate, _ in samples])
    value = chosen[round((QUARTILE if enough else LUCKY) * (len(chosen) - 1))]
    return Measured(value, tuple(rate for rate, _ in samples), len(samples) - len(calm))


def busy_cores(seconds: float = LOOK_S) -> float:
    """The number of cores that other programs use now. This program sleeps meanwhile."""
    began = cpu_times()
    time.sleep(seconds)
    return others_cores(began, cpu_times())


def others_cores(began: tuple[float, float, float], ended: tuple[float, float, float]) -> float:
    """The average number of cores that other programs used between two `cpu_times()`."""
    seconds = max(ended[0] - began[0], 1e-9)
    return max(0.0, (ended[1] - began[1]) - (ended[2] - began[2])) / seconds


def cpu_times() -> tuple[float, float, float]:
    """The present time; busy seconds of all cores; busy seconds of this process and its children."""
    import psutil

    t = psutil.cpu_times()
    busy = (
        sum(t) - t.idle - getattr(t, "iowait", 0.0) - getattr(t, "guest", 0.0) - getattr(t, "guest_nice", 0.0)
    )
    mine = os.times()
    return time.monotonic(), busy, mine.user + mine.system + mine.children_user + mine.children_system
