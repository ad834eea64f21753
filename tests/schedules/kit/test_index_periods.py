"""Default schedules have tiles that are multiples of the period of the indices, and give right results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace
from schedules.kit.index_periods import vectors_of_period

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=1")
LANES = 16

INDICES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "t // 2": (lambda t: t // 2, 1),
    "t // 3": (lambda t: t // 3, 3),
    "t * 2 // 3 + t % 2": (lambda t: t * 2 // 3 + t % 2, 3),
    "(t + 5) % 10": (lambda t: (t + 5) % 10, 5),
    "t * 6 // 3": (lambda t: t * 6 // 3, 1),
    "t // 11": (lambda t: t // 11, 1),  # 11 vectors are too many
}


@pytest.mark.parametrize("name", INDICES)
def test_vectors_hold_whole_periods(name: str) -> None:
    index, vectors = INDICES[name]
    x = te.placeholder((2000,), name="x")
    (op,) = ComputeDAG.of([x, te.compute((960,), lambda t: x[index(t)], name="y")]).stages
    assert vectors_of_period(op.bodies, op.axes, LANES) == vectors


def test_a_short_loop_has_no_such_tile() -> None:
    x = te.placeholder((40,), name="x")
    (op,) = ComputeDAG.of([x, te.compute((32,), lambda t: x[t // 3], name="y")]).stages
    assert vectors_of_period(op.bodies, op.axes, LANES) == 1


def test_channels_inside_the_axis_are_part_of_its_period() -> None:
    x = te.placeholder((100, 2), name="x")
    (op,) = ComputeDAG.of([x, te.compute((150, 2), lambda t, c: x[t * 2 // 3, c], name="y")]).stages
    assert vectors_of_period(op.bodies, op.axes, 4) == 3  # 6 elements


def larger() -> tuple[Any, ...]:
    x = te.placeholder((10, 40), name="x")
    return x, te.compute((30, 120), lambda i, j: x[i // 3, j // 3] * 2.0, name="y")


def larger_and_filtered() -> tuple[Any, ...]:
    x = te.placeholder((12, 40), name="x")

    def between(i: Any, j: Any) -> Any:
        share = (j % 3).astype("float32") * (1 / 3)
        return (1.0 - share) * x[i // 3, j // 3] + share * x[i // 3, j // 3 + 1]

    u = te.compute((32, 114), between, name="u")
    return x, te.compute((30, 112), lambda i, j: u[i, j + 1] + u[i + 2, j + 1] - u[i + 1, j], name="y")


def resampled() -> tuple[Any, ...]:
    x, h, k = te.placeholder((90, 2), name="x"), te.placeholder((3, 8), name="h"), te.reduce_axis(8, name="k")
    taps = lambda t, c: te.sum(x[t * 2 // 3 + k, c] * h[t * 2 % 3, k], axis=k)  # noqa: E731
    return x, h, te.compute((120, 2), taps, name="y")


@pytest.mark.parametrize("program", [larger, larger_and_filtered, resampled])
def test_default_tiles_are_whole_periods(program: Callable[[], tuple[Any, ...]]) -> None:
    dag = ComputeDAG.of(list(program()))
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    assert any(n % 3 == 0 for n in _vectors(trace)), trace.to_python()


def _vectors(trace: Trace) -> list[int]:
    """The numbers of vectors of 16 lanes in the tiles of a trace."""
    factors = [getattr(s, "factors", ()) for s in trace.steps]
    return [f[-2] for f in factors if len(f) > 1 and f[-1] == LANES]
