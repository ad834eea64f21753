"""The run child keeps prepared arrays for candidates that share the code, and large constants for all
inputs."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import host
from autotensor.compiler import compile_trace
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measuring import checks, run_child
from autotensor.search.measuring.checks import fill_large, large_constants
from autotensor.search.measuring.run_child import Bench
from autotensor.search.measuring.running_mark import Mark
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

TARGET = host().with_threads(1)
SEEDS = (0, 1)


def product() -> Workload:
    a, b = te.placeholder((20, 64), name="a"), te.placeholder((64, 48), name="b", constant=True)
    k = te.reduce_axis(64, name="k")
    c = te.compute((20, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return Workload.of(ComputeDAG.of([a, b, c]), "product")


def packed(workload: Workload, width: int, rows: int = 0) -> Trace:
    """Weights in panels of `width` columns; rows in blocks."""
    s = Schedule(workload.dag)
    s.layout("a1", [(1, width)], "1.0 0 1.1")
    if rows:
        s["t0"].split(s["t0"].op.axis[0], factor=rows)
    return s.trace


@pytest.fixture
def bench() -> Bench:
    mark, path = Mark.create()
    path.unlink()
    made = Bench(mark)
    w = product()
    made.set_task(w.text, compile_trace(w.dag, Trace(), TARGET), None, 1, "graph")
    for number, trace in enumerate((packed(w, 16), packed(w, 16, rows=5), packed(w, 8))):
        made.load(number, compile_trace(w.dag, trace, TARGET), None)
    return made


def check_all(bench: Bench) -> list[str]:
    for seed in SEEDS:
        bench.answer_oracle("normal", seed, False)
    return [bench.check(n, "normal", seed, False, 10.0)["complaint"] for n in range(3) for seed in SEEDS]


def test_one_layout_is_prepared_once_per_question(bench: Bench) -> None:
    assert check_all(bench) == [""] * 6
    assert len(bench.task.prepared) == 2 * len(SEEDS)
    before = list(bench.task.prepared.values())
    assert check_all(bench) == [""] * 6
    assert {id(h) for h in bench.task.prepared.values()} == {id(h) for h in before}


def test_of_large_constants_it_is_prepared_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LARGE_BYTES", 1)
    monkeypatch.setattr(run_child, "ORACLE_FORMAT", "large")  # other inputs, so other answers in the cache
    assert check_all(bench) == [""] * 6
    assert len(bench.task.prepared) == 2
    one, other = bench.task.questions.values()
    assert one.inputs["a1"] is other.inputs["a1"]
    assert not np.array_equal(one.inputs["a0"], other.inputs["a0"])


def test_who_changes_what_is_prepared_is_told_so(bench: Bench) -> None:
    check_all(bench)
    (name, array), *_ = bench.task.prepared[next(iter(bench.task.prepared))].arrays.items()
    array[...] = 0.0
    found = [c for c in check_all(bench) if c]
    assert found[0] == f"running changed the prepared constant {name!r}"
    assert check_all(bench) == [""] * 6  # it is mended


def test_what_prepares_is_known_by_its_code() -> None:
    w = product()
    narrow, same, wide = (
        compile_trace(w.dag, t, TARGET).prepared_by() for t in (packed(w, 8), packed(w, 8, 5), packed(w, 16))
    )
    assert narrow == same != wide
    assert narrow[1] == ("a1",)


def test_large_constants_are_whole_numbers_and_no_row_is_like_another() -> None:
    w = product()
    assert large_constants(w.dag) == ()
    array = np.empty((40, 4096 * 16), np.float32)
    fill_large(array, "any")
    assert set(np.unique(array)) == {-2.0, -1.0, 0.0, 1.0, 2.0}
    assert len({row.tobytes() for row in array}) == 40
    fill_large(array, "positive")
    assert set(np.unique(array)) == {1.0, 2.0}
