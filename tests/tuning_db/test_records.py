"""Records check themselves: a record that contradicts itself cannot be made, so it cannot be stored."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest

import tuning_db.records
from tuning_db import Calibration, Sample, Session, Status, Verification, connect, error_signature


@pytest.fixture
def make(author: Any) -> Any:
    return author(connect(":memory:")).trial


def test_status_names_are_the_agreed_ones() -> None:
    assert [s.value for s in Status] == [
        "OK",
        "INVALID_SCHEDULE",
        "BUILD_ERROR",
        "BUILD_TIMEOUT",
        "RUN_ERROR",
        "RUN_TIMEOUT",
        "WRONG_RESULT",
        "CRASHED",
        "ABORTED",
        "OUT_OF_MEMORY",
        "OUTPUT_LIMIT",
        "REJECTED",
    ]


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_failure_has_no_time(make: Any, status: Status) -> None:
    assert make("a", None, status=status).median_s is None
    with pytest.raises(ValueError, match=f"status {status} has no time"):
        make("a", 1e-3, status=status)


def test_ok_has_a_finite_time(make: Any) -> None:
    with pytest.raises(ValueError, match="status OK needs a median_s"):
        make("a", None, status=Status.OK)
    for seconds in (math.inf, math.nan, -1.0):
        with pytest.raises(ValueError, match="finite number of at least 0"):
            make("a", 1e-3, median_s=seconds)


def test_right_verdict_needs_an_error_within_tolerance() -> None:
    for error in (2e-4, math.nan, math.inf, None):
        with pytest.raises(ValueError, match="above tolerance"):
            Verification(error, 1e-4, (1,), True)
    assert Verification(math.nan, 1e-4, (1,), False).max_error is None


def test_only_json_is_stored(make: Any) -> None:
    assert make("a", decisions={"x": [1, [2]]}).decisions == {"x": (1, (2,))}
    for value in ({1, 2}, math.nan, b"x", object()):
        with pytest.raises(ValueError, match="cannot be stored"):
            make("a", decisions={"x": value})
    with pytest.raises(ValueError, match="keys are strings"):
        make("a", decisions={1: 2})
    with pytest.raises(ValueError, match="must be a mapping"):
        make("a", decisions=[1])


def test_times_need_a_zone_and_numbers_are_finite() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        Calibration("peak", 1.0, measured=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="finite"):
        Calibration("peak", math.inf)
    with pytest.raises(ValueError, match="finite"):
        Sample(math.nan)
    with pytest.raises(ValueError, match="id must be a non-empty string"):
        Session("", "r", 1, {}, "m", "e", tuning_db.records.now())


def test_error_signature_forgets_numbers() -> None:
    assert error_signature(None) == ""
    assert error_signature("\n\n at 0xdeadBEEF: 3.5 ms, 1e-3\nmore") == "at #: # ms, #"


def test_doctests() -> None:
    import doctest

    from tuning_db import errors, migrations

    for module in (errors, migrations, tuning_db.records):
        assert doctest.testmod(module).failed == 0
