"""Rates: interpolated micro-kernels, teams, guesses."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.target import host
from schedules.prior.rates import MicroKernels, Rates

KERNELS = MicroKernels(16, {(2, 1): (4.0, 5.0, 6.0), (6, 1): (8.0, 9.0, 10.0), (6, 4): (24.0, 24.5, 25.0)})


def test_between_measured_rows_times_are_interpolated() -> None:
    costs = KERNELS.costs([2, 4, 6, 6], [1, 1, 1, 4])
    assert costs[0].tolist() == [4.0, 6.0, 8.0, 24.0]
    assert costs[1].tolist() == [5.0, 7.0, 9.0, 24.5]
    assert costs[2].tolist() == [6.0, 8.0, 10.0, 25.0]


@pytest.mark.parametrize(("rows", "vectors"), [(1, 1), (7, 1), (5, 4), (2, 2), (100, 1), (2, 100)])
def test_what_was_not_measured_is_not_made_up(rows: int, vectors: int) -> None:
    assert np.isnan(KERNELS.costs([rows], [vectors])).all()


def test_no_kernels_know_nothing() -> None:
    assert np.isnan(MicroKernels().costs([1, 6], [1, 4])).all()


def test_kernels_of_two_caches_have_the_second_for_the_third() -> None:
    costs = MicroKernels(8, {(4, 2): (8.0, 9.0)}).costs([4], [2])
    assert costs[:, 0].tolist() == [8.0, 9.0, 9.0]


def test_teams_are_so_many_cores_unless_measured() -> None:
    plain = Rates(1e11, (5e10, 4e10, 1.5e10), 2e10)
    assert plain.peak(2) == 2e11
    assert [plain.team_bandwidth(n, 2) for n in range(3)] == [1e11, 8e10, 2e10]
    known = Rates(1e11, (5e10, 1.5e10), 2e10, team_flops=1.8e11, team_bandwidths=(9e10, 2e10))
    assert known.peak(2) == 1.8e11
    assert known.team_bandwidth(0, 2) == 9e10


def test_a_guess_has_rates_for_every_level() -> None:
    guess = Rates.guess(host())
    assert guess.flops > 1e9
    assert len(guess.bandwidths) == 3
    assert guess.region_s > 0
