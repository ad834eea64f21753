"""Rates of a machine that is not quiet: the runs that count. Clocks are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from autotensor.search.machine import probes
from autotensor.search.machine.probes import (
    ENOUGH,
    LEAST_CALM,
    Clocks,
    cpu_times,
    measure_rates,
    others_cores,
)

REAL_RATE = 1000.0  # of everything here, a second


@dataclass
class Machine:
    """A wall clock, and CPU clocks that stop while other programs run."""

    now: float = 0.0
    mine: float = 0.0
    waits: Callable[[int], float] = lambda run: 0.0  # seconds that others take of a run, by its number
    runs: int = 0
    clocks: Clocks = field(init=False)

    def __post_init__(self) -> None:
        self.clocks = Clocks(lambda: self.now, lambda: self.mine, lambda: self.mine)


@dataclass
class Work:
    """Something that does `amount` a run."""

    machine: Machine
    amount: float = 1.0
    threads: int = 1

    def run(self, count: int) -> None:
        m = self.machine
        waits = m.waits(m.runs)
        m.runs += 1
        m.now += count * self.amount / REAL_RATE + waits
        m.mine += self.threads * count * self.amount / REAL_RATE


def test_a_quiet_machine() -> None:
    m = Machine()
    a, b = measure_rates([Work(m), Work(m, amount=5.0)], rounds=7, clocks=m.clocks)
    assert [a.value, b.value] == pytest.approx([REAL_RATE, REAL_RATE])
    assert len(a.samples) == len(b.samples) == 7
    assert a.disturbed == b.disturbed == 0
    assert a.trusted


def test_disturbed_runs_do_not_count() -> None:
    m = Machine(waits=lambda run: 0.5 if run % 3 else 0.0)
    (a,) = measure_rates([Work(m)], rounds=12, clocks=m.clocks)
    assert a.value == pytest.approx(REAL_RATE)
    assert a.disturbed > 0
    assert min(a.samples) < 0.1 * REAL_RATE  # they are kept all the same


def test_of_undisturbed_rates_the_upper_quartile_counts() -> None:
    calm = [(float(n), True) for n in (4, 2, 1, 3, 5)]
    assert probes._judged([*calm, (9.0, False), (0.1, False)]).value == 4.0
    luck = probes._judged([(float(n), False) for n in range(100)])  # every probe was disturbed
    assert luck.value == 97.0
    assert not luck.trusted


def test_a_busy_machine_gets_more_rounds_up_to_a_budget() -> None:
    m = Machine(waits=lambda run: 0.01)
    (a,) = measure_rates([Work(m)], rounds=4, budget_s=1.0, clocks=m.clocks)
    assert len(a.samples) > 4
    assert a.disturbed == len(a.samples)
    assert not a.trusted
    assert m.now < 2.0


def test_only_probes_that_lack_calm_samples_go_on() -> None:
    m = Machine()

    class Unlucky(Work):
        def run(self, count: int) -> None:
            super().run(count)
            if m.runs % 2:
                m.now += 0.05

    calm, unlucky = measure_rates([Work(m), Unlucky(m)], rounds=ENOUGH, budget_s=100.0, clocks=m.clocks)
    assert len(calm.samples) == ENOUGH
    assert len(unlucky.samples) - unlucky.disturbed >= LEAST_CALM


def test_a_team_needs_all_of_its_cores() -> None:
    m = Machine()

    class Half(Work):
        def run(self, count: int) -> None:
            before = m.mine
            super().run(count)
            m.mine = before + (m.mine - before) / 2  # the team ran on half of its cores

    (a,) = measure_rates([Half(m, threads=2)], rounds=4, budget_s=0.1, clocks=m.clocks)
    assert a.disturbed == len(a.samples)


def test_cores_of_others() -> None:
    assert others_cores((10.0, 100.0, 50.0), (12.0, 103.0, 51.0)) == pytest.approx(1.0)
    assert others_cores((10.0, 100.0, 50.0), (12.0, 101.0, 52.0)) == 0.0  # clocks of different grain
    now = cpu_times()
    assert now[1] > now[2] > 0.0
