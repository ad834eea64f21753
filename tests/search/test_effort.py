"""The length of a search: efforts, the expected end-to-end gain, and deadlines, which decide the sizes of
batches and races."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeMeasurer, task
from runs import CONVOLUTION, PRODUCT, SMALL_PRODUCT, run
from zoo import rows

from autotensor.base.errors import InputError
from autotensor.schedule.trace import Trace
from autotensor.search.effort import BATCHES_SPENT, COVERED, EFFORT_SPENT, EFFORTS
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.options import TuneOptions
from autotensor.search.task import merge
from autotensor.search.underway.pace import CAUTION, Pace
from autotensor.te.workload import Workload
from tuning_db import connect

SOFTMAX = rows("softmax", 7, 100)


def timed(*seconds: float) -> list[Any]:
    """Tasks that take these seconds inside their model."""
    workloads = (PRODUCT, CONVOLUTION, SMALL_PRODUCT, SOFTMAX)
    return [replace(task(w), seconds=s) for w, s in zip(workloads, seconds, strict=False)]


def test_quick_takes_two_batches_of_the_heavy_tasks_and_leaves_the_light_ones() -> None:
    report = run(timed(0.5, 0.44, 0.05, 0.01), 500, effort="quick", until_gain_below=0.0)
    reasons = {t.task.workload.key: t.reason for t in report.tasks}
    assert reasons[SMALL_PRODUCT.key] == reasons[SOFTMAX.key] == COVERED
    assert reasons[PRODUCT.key] == BATCHES_SPENT
    assert {t.task.workload.key: t.trials for t in report.tasks if t.trials} == {
        PRODUCT.key: 16,
        CONVOLUTION.key: 16,
    }
    assert report.reason == EFFORT_SPENT


def test_the_heaviest_is_never_left() -> None:
    (t,) = run([SOFTMAX], 500, effort="quick").tasks
    assert 0 < t.trials <= 16


def test_a_greater_effort_continues_a_smaller_one() -> None:
    store, tasks = connect(":memory:"), timed(0.5, 0.5)
    quick = run(tasks, 500, store, effort="quick")
    again = FakeMeasurer()
    assert run(tasks, 500, store, again, effort="quick").trials == quick.trials
    assert again.measured == []
    normal = run(tasks, 500, store)
    assert normal.reused == quick.trials < normal.trials
    full = run(tasks, 500, store, effort="full")
    assert full.reused == normal.trials <= full.trials


class Uneven(FakeMeasurer):
    """A product takes a second, everything else next to nothing."""

    def measure(self, workload: Workload, *args: Any, **how: Any) -> list[MeasureResult]:
        self.cost = lambda trace: 1.0 if workload.key == PRODUCT.key else 1e-4
        return super().measure(workload, *args, **how)


def test_it_ends_when_the_whole_gains_too_little() -> None:
    greedy, modest = (run([PRODUCT, CONVOLUTION], 900, until_gain_below=g) for g in (0.001, 0.1))
    assert modest.trials < greedy.trials < 900
    assert modest.reason == "no task promises to save 10 % of the whole time per batch any more"
    assert greedy.reason == "no task promises to save 0.1 % of the whole time per batch any more"
    # half a percent of the whole is more than any batch of so light a task can bring
    report = run([PRODUCT, SOFTMAX], 900, measurer=Uneven(), until_gain_below=0.005)
    (light,) = (t for t in report.tasks if t.task.workload.key == SOFTMAX.key)
    assert light.trials <= 24


def test_heaviest_first_by_the_models_own_times() -> None:
    tasks = timed(1e-3, 5e-3, 2e-3)
    assert [t.workload.key for t in merge(tasks)] == [CONVOLUTION.key, SMALL_PRODUCT.key, PRODUCT.key]
    both = merge([*tasks, replace(tasks[0], seconds=9e-3)])
    assert both[0].workload.key == PRODUCT.key
    assert (both[0].weight, both[0].seconds) == (2.0, pytest.approx(10e-3))


def test_batches_are_sized_to_what_is_left() -> None:
    pace = Pace()
    pace.count(first=True, trials=8, seconds=8 * pace.trial_s + pace.first_s)  # as expected
    pace.count(first=False, trials=8, seconds=4.0)
    assert pace.trial_s == 0.5
    assert pace.fitting(first=False, left_s=2.0 * CAUTION, wanted=8) == 4
    assert pace.fitting(first=False, left_s=100.0, wanted=8) == 8
    assert pace.fitting(first=True, left_s=1.0, wanted=8) == 0
    assert pace.fitting(first=True, left_s=float("inf"), wanted=8) == 8
    pace = Pace()
    pace.count(
        first=True, trials=8, seconds=20.0
    )  # a driver compiles for seconds, so the time counts at once
    assert pace.fitting(first=True, left_s=15.0, wanted=8) == 0


def test_a_run_ends_before_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial takes one second and each race two. Neither the last batch nor the races end after the
    deadline."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    class Slow(FakeMeasurer):
        def measure(
            self, workload: Workload, traces: Sequence[Trace], repeat: int | None = None, **how: Any
        ) -> list[MeasureResult]:
            now[0] += 2.0 if repeat else 1.0 * len(traces)
            return super().measure(workload, traces, repeat, **how)

    for deadline_s in (15.0, 31.0, 60.0, 200.0):
        now[0] = 0.0
        measurer = Slow()
        report = run([PRODUCT, CONVOLUTION], 900, measurer=measurer, deadline_s=deadline_s, patience=False)
        assert report.reason == "the deadline is reached"
        assert 0.6 * deadline_s < now[0] <= 1.1 * deadline_s
        assert len(measurer.races) == 2 or deadline_s < 31.0


def test_quick_has_a_limit_where_no_deadline_is_given() -> None:
    assert TuneOptions(effort="quick").limit_s == EFFORTS["quick"].limit_s == 60.0
    assert TuneOptions(effort="quick", deadline_s=300.0).limit_s == 300.0
    assert TuneOptions().limit_s is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effort": "heroic"}, "effort 'heroic' is unknown. Known: quick, normal, full."),
        ({"until_gain_below": 1.0}, "until_gain_below is 1.0; it is a share of the whole time. 0.01 stops"),
        ({"until_gain_below": -0.1}, "until_gain_below is -0.1"),
        ({"deadline_s": float("nan")}, "deadline_s is nan"),
    ],
)
def test_bad_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        TuneOptions(**options)
    assert f"{caught.value.what} {caught.value.fix}".startswith(said)
