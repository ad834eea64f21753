"""Why `explain TASK` shows a faster trial than the one in use, and which measurements it marks."""

from __future__ import annotations

from dataclasses import replace

from autotensor.cli.explaining.task_trials import _spread_text, _why_not
from tuning_db.records import Sample, Status, TrialRecord

ROW = TrialRecord(
    session="s", workload="w", target="t", machine="m", environment="e", trace="{}", trace_hash="a",
    status=Status.OK, median_s=1.0, id=118,
)  # fmt: skip


def timed(name: str, trial: int, *seconds: float) -> TrialRecord:
    return replace(
        ROW, trace_hash=name, id=trial, median_s=seconds[0], samples=tuple(Sample(s, "hot") for s in seconds)
    )


USED = timed("used", 118, *[1.0] * 9)


def test_the_fastest_is_the_one_in_use() -> None:
    assert _why_not(USED, USED, ()) == ""


def test_the_fastest_lost_its_race() -> None:
    fast = timed("fast", 108, 0.7)
    said = _why_not(fast, USED, (USED, timed("fast", 130, *[1.1] * 9)))
    assert (
        said
        == "In the task's last race, side by side, trial 108 took 1.10 times as long (1.10 to 1.10): it lost."
    )


def test_the_race_was_undecided() -> None:
    said = _why_not(
        timed("fast", 108, 0.7), USED, (USED, timed("fast", 130, 0.9, 1.1, 0.95, 1.1, 0.9, 1.2, 0.8))
    )
    assert said.endswith(": undecided.")


def test_without_a_race_of_both() -> None:
    fast = timed("fast", 108, 0.99)
    assert _why_not(fast, USED, (USED,)) == "Trial 108 was not in the task's last race, which trial 118 won."
    assert _why_not(fast, USED, ()) == (
        "Trial 108 has not raced against it; without a race it must be 3.0 % faster."
    )


def test_a_disturbed_trial_is_marked() -> None:
    assert _spread_text([1.0, 1.02]) == "2.0 %"
    assert _spread_text([1.0, 1.0, 1347.0]) == "> 100 % ?"
