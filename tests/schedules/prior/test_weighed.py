"""The prior weighs the places of stages: the rules' choice stays unless another one is certainly faster."""

from __future__ import annotations

from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import Target, parse
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.sketch import Sketch
from autotensor.te.dag import ComputeDAG
from schedules import generate as generation
from schedules.generate import SURE, default_trace, generate, preferred

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=1")
XEON = Target(
    "llvm",
    "sapphirerapids",
    num_cores=1,
    vector_bytes=64,
    vector_registers=32,
    cache_bytes=(48 << 10, 2 << 20, 64 << 20),
)


def two_readers(rows: int, columns: int) -> ComputeDAG:
    """A difference that a cross and a row of every second element read."""
    a, b = (te.placeholder((rows, columns), name=n) for n in "ab")
    d = te.compute((rows, columns), lambda i, j: a[i, j] - b[i, j], name="d")
    up = te.compute(
        (rows, 2 * columns - 2),
        lambda i, j: te.select(j % 2 == 0, d[i, j // 2], 0.5 * d[i, j // 2] + 0.5 * d[i, j // 2 + 1]),
        name="up",
    )
    cross = te.compute(
        (rows - 2, columns - 2),
        lambda i, j: d[i, j + 1] + d[i + 1, j] - d[i + 1, j + 1] + d[i + 1, j + 2] + d[i + 2, j + 1],
        name="cross",
    )
    return ComputeDAG.of([a, b, up, cross])


def inlined(sketch: Sketch) -> bool:
    return any(isinstance(s, Inline) and s.stage == "d" for s in sketch.steps)


@pytest.fixture
def weigh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function gives the seconds of a sketch."""

    def by(seconds: Any) -> None:
        generation._preferred.cache_clear()
        generation._generated.cache_clear()
        monkeypatch.setattr(generation, "_seconds", lambda dag, target, sketch: seconds(sketch))

    yield by
    generation._preferred.cache_clear()
    generation._generated.cache_clear()


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize(("gain", "taken"), [(SURE + 0.01, True), (SURE - 0.01, False)])
def test_the_rules_choice_stays_unless_another_is_faster_for_sure(
    weigh: Any, wanted: bool, gain: float, taken: bool
) -> None:
    dag = two_readers(96, 128)
    weigh(lambda s: 1.0)
    first = inlined(preferred(dag, TARGET))
    weigh(lambda s: 1.0 / gain if inlined(s) is wanted else 1.0)
    found = preferred(dag, TARGET)
    assert inlined(found) is (wanted if taken else first)
    assert generate(dag, TARGET)[0] == found


def test_what_has_no_such_loops_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    dag = two_readers(64, 96)

    def refuses(*_: Any) -> Any:
        raise ScheduleError("no such loops.")

    monkeypatch.setattr(generation, "predict", refuses)
    generation._preferred.cache_clear()
    generation._seconds.cache_clear()
    check(dag, default_trace(dag, TARGET))
    generation._preferred.cache_clear()
    generation._seconds.cache_clear()


def test_what_a_window_and_a_difference_read_is_not_stored() -> None:
    """Saves passes over an array of 1.5 MB; the operations hide among others (1.8 x as fast on that Xeon)."""
    rows, columns = 240, 1536
    x = te.placeholder((rows, columns), name="x")
    r = te.compute((rows, columns), lambda i, j: te.maximum(x[i, j], 0.0), name="r")
    d = te.compute(
        (rows, columns), lambda i, j: te.select(r[i, j] > x[i, j], r[i, j], 0.3 * x[i, j]), name="d"
    )
    k = te.reduce_axis(9, name="k")
    w = te.compute((232, columns), lambda i, j: te.max(d[i + k, j], axis=k), name="w")
    half = te.compute(
        (115, columns),
        lambda i, j: 0.25 * w[2 * i, j] + 0.5 * w[2 * i + 1, j] + 0.25 * w[2 * i + 2, j],
        name="half",
    )
    rest = te.compute((rows, columns), lambda i, j: d[i, j] - x[i, j], name="rest")
    assert inlined(preferred(ComputeDAG.of([x, half, rest]), XEON))


@pytest.mark.parametrize("shape", [(17, 33), (40, 48)])
def test_the_choice_is_right(shape: tuple[int, int]) -> None:
    dag = two_readers(*shape)
    check(dag, default_trace(dag, TARGET))
