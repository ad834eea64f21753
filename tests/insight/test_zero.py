"""ZeRO's table."""

from __future__ import annotations

import pytest

from autotensor.base.errors import InputError
from autotensor.insight.zero import zero_table


def test_the_decks_numbers() -> None:
    assert [round(n / 1e9, 1) for n in zero_table(7.5e9, 64).bytes] == [120.0, 31.4, 16.6, 1.9]
    assert "and gradients divided:   16.6 GB" in str(zero_table(7.5e9, 64))


def test_one_device_divides_nothing() -> None:
    assert len(set(zero_table(1e6, 1).bytes)) == 1


def test_refusal() -> None:
    with pytest.raises(InputError, match="both must be at least 1"):
        zero_table(0, 64)
