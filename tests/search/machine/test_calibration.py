"""Calibration: the measurements, their times, and the rates that follow from the log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from autotensor.base.machine import host_machine
from autotensor.base.target import Target, host, usable_cores
from autotensor.search.machine import calibration
from autotensor.search.machine.calibration import (
    Values,
    calibrated,
    kernels_of,
    measure,
    rates_of,
    team_sizes,
)
from schedules.prior.rates import REGION_S, MicroKernels
from tuning_db import connect
from tuning_db.records import Calibration
from tuning_db.values import now

TWO = host().with_threads(2)
ONE: Values = {
    "clock": (3e9, "Hz"),
    "flops.core": (1e11, "FLOP/s"),
    "bandwidth.L1": (2e11, "B/s"),
    "bandwidth.L2": (1e11, "B/s"),
    "bandwidth.L3": (8e10, "B/s"),
    "bandwidth.memory.core": (2e10, "B/s"),
    "disturbed": (0.0, ""),
}
TEAM: Values = {
    "flops.t2": (1.9e11, "FLOP/s"),
    "bandwidth.L2.t2": (2e11, "B/s"),
    "bandwidth.L3.t2": (1.5e11, "B/s"),
    "bandwidth.memory.t2": (3e10, "B/s"),
    "region.t2": (1e-6, "s"),
}


class Measuring:
    """Replaces `measure` and `measure_kernels`, and counts the calls."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.teams: list[tuple[int, ...]] = []
        self.kernels = 0

    def measure(
        self, target: Target, teams: Sequence[int] | None = None, brief: bool = False, *rest: object
    ) -> Values:
        self.teams.append(tuple(teams or ()))
        return dict(self.values)

    def measure_kernels(self, target: Target, listener: object = None) -> Values:
        self.kernels += 1
        return {f"kernel.v{target.vector_bytes}.6x4.{level}": (24.0, "FMA") for level in ("L1", "L2", "L3")}


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    made = Measuring(ONE | TEAM)
    monkeypatch.setattr(calibration, "measure", made.measure)
    monkeypatch.setattr(calibration, "measure_kernels", made.measure_kernels)
    monkeypatch.setattr(calibration, "busy_cores", lambda: 0.0)
    return made


def test_team_sizes() -> None:
    assert [team_sizes(n) for n in (1, 2, 3, 4, 6, 16)] == [
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 4),
        (1, 2, 4, 6),
        (1, 2, 4, 8, 16),
    ]


def test_it_is_measured_once_and_kept(measuring: Measuring) -> None:
    store = connect(":memory:")
    first = calibrated(store, TWO)
    assert calibrated(store, TWO) == first
    assert len(measuring.teams) == 1
    assert measuring.kernels == 0
    assert store.calibration(host_machine().fingerprint)["flops.t2"].value == 1.9e11
    calibrated(store, TWO, again=True)
    assert len(measuring.teams) == 2


def test_another_number_of_threads_is_measured_too(measuring: Measuring) -> None:
    store = connect(":memory:")
    calibrated(store, TWO)
    calibrated(store, host().with_threads(1))
    assert len(measuring.teams) == 1  # one core is always there
    calibrated(store, host().with_threads(4))
    assert measuring.teams[-1] == (4,)


def test_a_log_of_an_older_version_is_completed(measuring: Measuring) -> None:
    store = connect(":memory:")
    calibration._remember(store, {n: v for n, v in ONE.items() if n != "clock"})
    assert calibrated(store, TWO).team_flops == 1.9e11
    assert len(measuring.teams) == 1


def test_what_a_busy_machine_did_not_allow_is_tried_again_later(measuring: Measuring) -> None:
    measuring.values = ONE | {"disturbed": (0.8, "")}  # no team got its cores
    store = connect(":memory:")
    rates = calibrated(store, TWO)
    assert rates.peak(2) == 2e11
    assert rates.region_s == REGION_S
    calibrated(store, TWO)
    assert len(measuring.teams) == 1  # not at once
    late = connect(":memory:")
    calibration._remember(late, {})
    old = now() - timedelta(hours=1)
    records = [Calibration(n, v, u, measured=old) for n, (v, u) in measuring.values.items()]
    late.put_calibration(host_machine().fingerprint, records)
    measuring.values = ONE | TEAM
    assert calibrated(late, TWO).team_flops == 1.9e11
    assert len(measuring.teams) == 2


def test_a_short_look_is_not_kept(measuring: Measuring) -> None:
    store = connect(":memory:")
    assert calibrated(store, TWO, brief=True).team_flops == 1.9e11
    assert store.calibration(host_machine().fingerprint) == {}
    calibrated(store, TWO)
    assert len(measuring.teams) == 2
    calibrated(store, TWO, brief=True)  # it is known now
    assert len(measuring.teams) == 2


def test_a_short_look_at_a_busy_machine_is_at_one_core(
    measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one core, threads of a team would wait for each other for seconds, and the rates would not be
    reliable."""
    monkeypatch.setattr(calibration, "busy_cores", lambda: 0.9 * usable_cores())
    calibrated(connect(":memory:"), TWO, brief=True)
    calibrated(connect(":memory:"), TWO)  # with enough time, it measures nevertheless
    assert measuring.teams == [(1,), (2,)]


def test_kernels_are_measured_when_wanted_and_then_always_used(measuring: Measuring) -> None:
    store = connect(":memory:")
    assert not calibrated(store, TWO).kernels.steps
    assert calibrated(store, TWO, kernels=True).kernels.steps == {(6, 4): (24.0, 24.0, 24.0)}
    assert calibrated(store, TWO).kernels.steps
    calibrated(store, TWO, kernels=True)
    assert measuring.kernels == 1


def test_kernels_of_another_vector_width_are_not_used() -> None:
    values = {"kernel.v64.6x4.L1": 24.0, "kernel.v64.6x4.L2": 25.0, "kernel.v32.4x3.L1": 12.0}
    wide, narrow = (Target("llvm", vector_bytes=b) for b in (64, 32))
    assert kernels_of(values, wide) == MicroKernels(16, {(6, 4): (24.0, 25.0)})
    assert kernels_of(values, narrow) == MicroKernels(8, {(4, 3): (12.0,)})
    assert not kernels_of(values, Target("llvm", vector_bytes=16)).steps


def test_rates_are_never_the_wrong_way_round() -> None:
    values = {n: v for n, (v, _) in (ONE | TEAM).items()}
    rates = rates_of(values | {"bandwidth.L2": 1e10}, TWO)  # measured while another program ran
    assert rates.bandwidths == (8e10, 8e10, 2e10)
    assert rates.team_bandwidths == (2e11, 1.5e11, 3e10)
    assert rates.memory_bandwidth == 3e10
    alone = rates_of(values, host().with_threads(1))
    assert alone.peak(1) == 1e11
    assert alone.region_s == 0.0
    assert alone.memory_bandwidth == 2e10


def test_a_team_is_never_slower_than_one() -> None:
    found = calibration._consistent(
        ONE | TEAM | {"flops.t2": (5e10, "FLOP/s"), "bandwidth.L3.t2": (1.0, "B/s")}
    )
    assert found["flops.t2"] == (1e11, "FLOP/s")
    assert found["bandwidth.L3.t2"] == (8e10, "B/s")
    assert found["region.t2"] == (1e-6, "s")


def test_a_region_without_its_workers_is_not_a_region() -> None:
    """If other programs keep the cores, the calling thread does all parts by itself, in no time."""
    for nothing in (0.0, 2e-8):
        assert "region.t2" not in calibration._consistent(ONE | TEAM | {"region.t2": (nothing, "s")})


def test_this_machine() -> None:
    """The rates are plausible, even if other programs run."""
    found = {n: v for n, (v, _) in measure(TWO, (2,)).items()}
    assert 5e8 < found["clock"] < 8e9
    assert 1e9 < found["flops.core"] < 1e12
    assert found["bandwidth.L1"] > found["bandwidth.memory.core"] > 5e8
    assert 0.0 <= found["disturbed"] <= 1.0
    assert found.get("region.t2", 1e-6) < 1.0
