"""Candidates that loop, crash, abort, flood, starve, lie or write elsewhere get their status; the others get
their times."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from evil_kernels import TARGET, addition, evil, good, hungry

from autotensor.search.measuring import racing
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from tuning_db.records import Status

HERE = Path(__file__).parents[1]
OPTIONS = MeasureOptions(
    run_timeout_s=0.5, workers=1, residency="hot", min_seconds=0.0005, memory_bytes=8 << 30
)

WRONG = {
    "wrong": "256 such elements",
    "nan": "element 77 is nan",
    "unwritten": "element 4080 is nan",
    "before": "it wrote up to 12 bytes before the start of 't0'",
    "beyond": "it wrote up to 12 bytes beyond the end of 't0'",
    "beyond input": "it wrote up to 4 bytes beyond the end of 'a1'",
    "changes input": "it changed its input 'a0'",
    "reads beyond": "element 0 is nan",
    "right three times": "after it had been timed",
}
DEADLY = {
    "segfault": (Status.CRASHED, "SIGSEGV"),
    "aligned": (Status.CRASHED, "SIGSEGV"),  # code that needs more alignment than arrays have
    "abort": (Status.ABORTED, "SIGABRT"),
    "exit": (Status.RUN_ERROR, "it exited with status 3"),
    "kill": (Status.OUT_OF_MEMORY, "SIGKILL"),
    "flood": (Status.OUTPUT_LIMIT, "it printed more than"),
    "loop": (Status.RUN_TIMEOUT, "it ran: one run took more than 0.5 s."),
}


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(TARGET, OPTIONS) as made:
        yield made


def test_wrong_answers_and_stray_writes_are_found(measurer: LocalMeasurer) -> None:
    results = measurer.measure_artifacts(addition(), [good(), *(evil(k) for k in WRONG), evil("right")])
    for (kind, words), result in zip(WRONG.items(), results[1:-1], strict=True):
        assert result.status is Status.WRONG_RESULT, kind
        assert result.seconds == ()
        assert words in str(result.error), kind
    assert [r.status for r in (results[0], results[-1])] == [Status.OK, Status.OK]
    assert len(measurer.pids()) == 2  # no process died


def test_the_deadly_are_blamed_and_the_good_get_their_times(measurer: LocalMeasurer) -> None:
    others = set(children_of(os.getpid())) - set(measurer.pids())  # of tests before this one
    batch = [good(), *(evil(k) for k in DEADLY), hungry(), evil("right")]
    results = measurer.measure_artifacts(addition(), batch)
    for (kind, (status, words)), result in zip(DEADLY.items(), results[1:-2], strict=True):
        assert (kind, result.status) == (kind, status)
        assert words in str(result.error)
        assert result.seconds == ()
    assert results[-2].status is Status.OUT_OF_MEMORY
    for result in (results[0], results[-1]):
        assert result.status is Status.OK, result.error
        assert 3 <= len(result.seconds) <= OPTIONS.repeat
        assert all(0 < s < 0.01 for s in result.seconds)
    left = measurer.pids()
    assert len(left) == 2
    assert set(left) == set(children_of(os.getpid())) - others


def test_what_takes_a_hundred_times_the_best_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit follows from the best time, not from the minute that a first run may take."""
    monkeypatch.setattr(racing, "_LEAST_LIMIT_S", 0.2)
    with LocalMeasurer(TARGET, replace(OPTIONS, run_timeout_s=60.0)) as measurer:
        right, endless = measurer.measure_artifacts(addition(), [evil("right"), evil("loop")])
        (late,) = measurer.measure_artifacts(addition(), [evil("loops late")])
    assert right.ok, right.error
    assert endless.status is late.status is Status.RUN_TIMEOUT
    assert "while it ran: one run took more than 0.2 s." in str(endless.error)
    assert "while it was timed: one run took more than 0.2 s." in str(late.error)


def test_nobody_outlives_the_measurer() -> None:
    measurer = LocalMeasurer(TARGET, OPTIONS)
    measurer.measure_artifacts(addition(), [evil("loop"), good()])
    pids = measurer.pids()
    assert len(pids) == 2
    measurer.close()
    assert not any(alive(p) for p in pids)


def test_nobody_outlives_a_killed_parent() -> None:
    """Also while a candidate loops for ever in a child."""
    script = (
        f"import sys; sys.path[:0] = [{str(HERE)!r}]\n"
        "from evil_kernels import TARGET, addition, evil, good\n"
        "from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions\n"
        "m = LocalMeasurer(TARGET, MeasureOptions(run_timeout_s=100, workers=2, residency='hot'))\n"
        "m.measure_artifacts(addition(), [good()])\n"
        "print(*m.pids(), flush=True)\n"
        "m.measure_artifacts(addition(), [evil('loop')])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) >= 2
        time.sleep(0.5)
        assert all(alive(p) for p in pids)
        parent.kill()
    deadline = time.monotonic() + 5
    while any(alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(p) for p in pids)


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]
