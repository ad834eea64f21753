"""Waiting for other processes that time: for a limited time, and never for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autotensor.runtime import timing_lock
from autotensor.runtime.timing_lock import MachineLock
from autotensor.search.measuring import timing_turns
from autotensor.search.measuring.measure_request import OutOfTime
from autotensor.search.measuring.timing_turns import WAIT_SHARE, Turns


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineLock:
    """Another process's view of the machine's lock (here: another open file)."""
    monkeypatch.setattr(timing_lock, "private_folder", lambda: tmp_path)
    return MachineLock(tmp_path / "timing.lock")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(timing_turns.log, "warn", lines.append)
    return lines


def test_a_free_machine_is_had_at_once(other: MachineLock, said: list[str]) -> None:
    t = Turns()
    with t.timing() as alone, t.compiling() as still:
        assert (alone, still) == (True, True)
    with t.compiling() as alone, other.shared(0.0):
        assert alone  # any number compile together
    assert t.waited_s < 0.5
    assert not said


@pytest.mark.parametrize("turn", [Turns.timing, Turns.compiling])
def test_who_waited_for_its_share_of_the_deadline_goes_on_beside(
    turn: Callable[[Turns], object], other: MachineLock, said: list[str]
) -> None:
    given_s = 0.4
    t = Turns(lambda: given_s)
    with other():
        for _ in range(3):
            with turn(t) as alone:  # type: ignore[attr-defined]
                assert not alone
    assert WAIT_SHARE * given_s <= t.waited_s < 3 * WAIT_SHARE * given_s + 0.5  # in all, not each time
    assert len(said) == 1
    assert said[0].endswith(f"{turn.__name__} meanwhile: times are rough.")
    with turn(t) as alone:  # type: ignore[attr-defined]
        assert alone


def test_without_a_deadline_one_wait_is_bounded(
    other: MachineLock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_turns, "MOST_WAIT_S", 0.06)
    monkeypatch.setattr(timing_turns, "QUIETLY_S", 0.02)
    with other(), Turns().timing() as alone:
        assert not alone
    assert [line.rpartition("; ")[2] for line in said] == ["waiting.", "timing meanwhile: times are rough."]
    assert "is held by process" in said[0]


def test_at_the_deadline_there_is_no_time_left(other: MachineLock) -> None:
    left = [0.05]
    t = Turns(lambda: left[0])
    left[0] = -1.0
    with other(), pytest.raises(OutOfTime, match="is held by process"), t.timing():
        pass
    with t.timing() as alone:
        assert alone
