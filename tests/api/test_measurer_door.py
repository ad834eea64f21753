"""`at.tune(measurer=…)`: any object may time candidates, and the log names it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import InputError
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import AtOnce, MeasureResult, Who
from autotensor.search.measuring.provenance import CodeHere, HostHere
from autotensor.te.workload import Workload
from tuning_db import SessionKind, Status, connect

FAR = Who(HostHere("f" * 32, "far"), CodeHere("0.2", "abc", False, "123"))


class InAThread:
    """Answers later, from another thread, as another host."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="measurer")

    def submit(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> Future[list[MeasureResult]]:
        return self._pool.submit(self._measure, traces, repeat or 3)

    def _measure(self, traces: Sequence[Trace], repeat: int) -> list[MeasureResult]:
        self.threads.add(threading.current_thread().name)
        return [
            MeasureResult(
                Status.OK, (1e-6 * (1 + len(t.steps)),) * repeat, max_error=0.0, tolerance=1e-5, who=FAR
            )
            for t in traces
        ]

    def close(self) -> None:
        self._pool.shutdown()


def product() -> list[te.Tensor]:
    a, b = te.placeholder((64, 96), name="A"), te.placeholder((96, 48), name="B")
    k = te.reduce_axis(96, name="k")
    return [a, b, te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def test_a_measurer_of_ones_own_is_asked_and_named_in_the_log() -> None:
    store, measurer = connect(":memory:"), InAThread()
    report = at.tune(product(), trials=24, measurer=measurer, db=store, progress=False)
    measurer.close()
    assert report.trials == 24
    assert measurer.threads == {"measurer_0"}
    rows = store.trials()
    assert {(t.host, t.code) for t in rows} == {(FAR.host.uuid, FAR.code.key)}
    assert [h.name for h in store.hosts() if h.uuid == FAR.host.uuid] == ["far"]
    assert len(store.sessions(SessionKind.RACE)) == 1
    again = at.tune(product(), trials=24, measurer=None, db=store, progress=False)
    assert again.reused == 24


@pytest.mark.parametrize("wrong", [7, InAThread, object()])
def test_what_cannot_measure_is_one_sentence(wrong: object) -> None:
    with pytest.raises(InputError, match=r"cannot be used: it lacks submit or close\. docs/extend\.md"):
        at.tune(product(), trials=8, measurer=wrong, db=":memory:", progress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, 1.5, "two", None])
def test_a_wrong_number_in_flight_is_one_sentence(count: object) -> None:
    measurer = InAThread()
    measurer.in_flight = count  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"has in_flight=.*; it must be a whole number, at least 1\."):
        at.tune(product(), trials=8, measurer=measurer, db=":memory:", progress=False)


def timed(seconds: object) -> MeasureResult:
    return MeasureResult(Status.OK, seconds, max_error=0.0, tolerance=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gives", "sentence"),
    [
        (lambda traces: None, "gives None for"),
        (lambda traces: [1.0 for _ in traces], "gives 1.0 for"),
        (lambda traces: [], r"gives 0 results for \d+ traces?\. It must give a list with one MeasureResult"),
        (lambda traces: [timed((float("nan"),) * 3) for _ in traces], "status OK and the seconds"),
        (lambda traces: [timed((-1.0,) * 3) for _ in traces], "status OK and the seconds"),
        (lambda traces: [timed(()) for _ in traces], "status OK and the seconds"),
        (lambda traces: [timed(1e-6) for _ in traces], "seconds 1e-06. Such a result needs a tuple"),
        (lambda traces: 1 // 0, r"fails in measure \(ZeroDivisionError: .*test_measurer_door\.py:\d+\)"),
    ],
)
def test_wrong_results_are_one_sentence(gives: Any, sentence: str, tmp_path: Path) -> None:
    class Odd(AtOnce):
        def measure(self, workload: Any, traces: Any, repeat: Any = None, gated: Any = ()) -> Any:
            return gives(traces)

    with pytest.raises(InputError, match=f"measurer '.*Odd' .*{sentence}"):
        at.tune(product(), 8, measurer=Odd(), db=str(tmp_path / "odd.db"), progress=False)


def test_a_listener_that_cannot_be_called_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"listener 7 cannot be called\. Give a function of one event"):
        at.tune(product(), 8, listener=7, progress=False)  # type: ignore[arg-type]
