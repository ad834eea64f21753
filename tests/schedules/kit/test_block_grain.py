"""The division of work among cores, computed by hand."""

from __future__ import annotations

import pytest

from schedules.kit.block_grain import parts_of, slowest


def test_what_is_left_is_the_last_part() -> None:
    assert parts_of(7, 3) == [3, 3, 1]
    assert parts_of(6, 3) == [3, 3]
    assert parts_of(2, 3) == [2]


def test_the_busiest_core_works_longer_than_the_mean() -> None:
    """The first core runs one of three blocks, and the second core two."""
    assert slowest([3, 3, 1], cores=1) == 1
    assert slowest([3, 3, 1], cores=2) == pytest.approx(4 / 3.5)
    assert slowest([1, 3, 3], cores=2) == pytest.approx(6 / 3.5)
