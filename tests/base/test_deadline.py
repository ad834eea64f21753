"""Deadlines: one moment, which all parts of a run share."""

from __future__ import annotations

import pytest

from autotensor.base.deadline import NEVER, Deadline


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr("autotensor.base.deadline.time.monotonic", lambda: time[0])
    return time


def test_what_is_left(now: list[float]) -> None:
    deadline = Deadline.after(30.0)
    assert (deadline.left_s(), deadline.given_s, deadline.passed) == (30.0, 30.0, False)
    now[0] += 20.0
    assert deadline.left_s() == 10.0
    assert deadline.less(12.0).passed
    assert deadline.less(12.0).given_s == 30.0
    now[0] += 10.0
    assert deadline.passed


def test_never(now: list[float]) -> None:
    assert Deadline.after(None) is NEVER
    assert not NEVER.is_set
    assert NEVER.less(1e9).left_s() == float("inf")
