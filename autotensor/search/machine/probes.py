"""Probes: rates of a machine that may not be quiet.

    rounds ─▶  A B C D │ B C D A │ C D A B │ …        every probe once a round, some milliseconds each
                 ✗                                     this one lost its core for a while: not counted

A run during which its threads got less CPU time than the clock showed was disturbed. The rate is the upper
quartile of the others: the fastest may be luck, and the median of a busy machine is too slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ROUNDS = 10  # at least
ENOUGH = 6  # undisturbed samples of a probe; when all have them, it is done
LEAST_CALM = 3  # with fewer, all samples count
BUDGET_S = 4.0  # for more rounds on a machine that is busy
QUARTILE = 0.75
LUCKY = 0.98  # the quantile that counts when all were disturbed
GOT_ITS_CORES = 0.97  # of the time: less, and another program ran there
LOOK_S = 0.15  # for the load of others: the kernel counts in hundredths of a second
LEAST_S = 0.001  # of one run; time slices of the scheduler are longer, so some runs go undisturbed


class Measurable(Protocol):
    """A kernel that a probe runs; a `codegen.yardstick.Yardstick` is one."""

    @property
    def amount(self) -> float:
        """The work of one run."""
        ...

    @property
    def threads(self) -> int: ...

    @property
    def run(self) -> Callable[[int], None]:
        """Runs it so many times."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """One rate: amount per second."""

    value: float
    samples: tuple[float, ...]  # of all rounds, in order
    disturbed: int  # rounds in which somebody else used the cores

    @property
    def trusted(self) -> bool:
        """Whether enough rounds had their cores for themselves."""
        return len(self.samples) - self.disturbed >= LEAST_CALM


@dataclass(slots=True)
class Clocks:
    """Where time is read; tests have their own."""

    wall: Callable[[], float] = time.perf_counter
    thread: Callable[[], float] = time.thread_time  # CPU seconds of this thread
    process: Callable[[], float] = time.process_time  # of all threads


def measure_rates(
    probes: Sequence[Measurable],
    *,
    rounds: int = ROUNDS,
    budget_s: float = BUDGET_S,
    least_s: float = LEAST_S,
    clocks: Clocks = Clocks(),  # noqa: B008  # never changed
) -> list[Measured]:
    """The rate of every probe, in order. The caller holds the timing lock.

    `rounds` rounds, and more, up to `budget_s`, while probes have too few undisturbed samples.
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
    """Runs that take about `least_s`; the first one warms up and is forgotten."""
    probe.run(1)
    count = 1
    while True:
        seconds = float("inf")
        for _ in range(3):  # the quickest: others may have run in between
            began = clocks.wall()
            probe.run(count)
            seconds = min(seconds, clocks.wall() - began)
        if seconds >= 0.5 * least_s:
            return max(1, round(count * least_s / seconds))
        count = max(2 * count, min(100 * count, int(count * least_s / max(seconds, 1e-7))))


def _sample(probe: Measurable, count: int, clocks: Clocks) -> tuple[float, bool]:
    """Amount per second of one sample, and whether it had its cores for itself."""
    # A team's threads may spin for a while after their work: what one thread does is its own time only.
    cpu = clocks.thread if probe.threads == 1 else clocks.process
    probe.run(1)  # threads that sleep are woken
    began, used = clocks.wall(), cpu()
    probe.run(count)
    used, seconds = cpu() - used, clocks.wall() - began
    return count * probe.amount / seconds, used >= GOT_ITS_CORES * seconds * probe.threads


def _judged(samples: Sequence[tuple[float, bool]]) -> Measured:
    """Where every run was disturbed the least disturbed ones are the best guess."""
    calm = [rate for rate, quiet in samples if quiet]
    enough = len(calm) >= LEAST_CALM
    chosen = sorted(calm if enough else [rate for rate, _ in samples])
    value = chosen[round((QUARTILE if enough else LUCKY) * (len(chosen) - 1))]
    return Measured(value, tuple(rate for rate, _ in samples), len(samples) - len(calm))


def busy_cores(seconds: float = LOOK_S) -> float:
    """Cores that other programs use just now; this one rests meanwhile."""
    began = cpu_times()
    time.sleep(seconds)
    return others_cores(began, cpu_times())


def others_cores(began: tuple[float, float, float], ended: tuple[float, float, float]) -> float:
    """Cores that other programs used between two `cpu_times()`, on average."""
    seconds = max(ended[0] - began[0], 1e-9)
    return max(0.0, (ended[1] - began[1]) - (ended[2] - began[2])) / seconds


def cpu_times() -> tuple[float, float, float]:
    """Now; busy seconds of all cores since the start; of these, of this process and its children."""
    import psutil

    t = psutil.cpu_times()
    busy = (
        sum(t) - t.idle - getattr(t, "iowait", 0.0) - getattr(t, "guest", 0.0) - getattr(t, "guest_nice", 0.0)
    )
    mine = os.times()
    return time.monotonic(), busy, mine.user + mine.system + mine.children_user + mine.children_system
