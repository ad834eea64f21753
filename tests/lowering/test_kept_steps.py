"""Workspaces of scans keep only the steps that are still read. The answers are the same as with all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.ir.func import Role
from autotensor.lowering.pipeline import lower
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

T, N = 24, 37
TARGET = parse("llvm -mcpu=x86-64-v3 -threads=2")


def scan(update: Callable[[Any, Any, Any, Any], Any], given: int = 1) -> tuple[Any, Any]:
    """x, and all states that begin with `given` rows of it."""
    x, s = te.placeholder((T, N), name="x"), te.placeholder((T, N), name="s")
    first = te.compute((given, N), lambda t, j: x[t, j], name="first")
    step = te.compute((T, N), lambda t, j: update(x, s, t, j), name="step")
    return x, te.scan(first, step, s, name="y")


def filtered(x: Any, s: Any, t: Any, j: Any) -> Any:
    return s[t - 1, j] - x[t, j]


def second_order(x: Any, s: Any, t: Any, j: Any) -> Any:
    return s[t - 1, j] - s[t - 2, j] + x[t, j]


def neighbours(x: Any, s: Any, t: Any, j: Any) -> Any:
    return te.maximum(s[t - 1, te.maximum(j - 1, 0)], s[t - 1, te.minimum(j + 1, N - 1)] - x[t, j])


def last(update: Any, given: int = 1, steps: int = 1) -> ComputeDAG:
    """The sum of this number of last states."""
    x, y = scan(update, given)
    body = lambda j: sum(y[T - n, j] for n in range(2, steps + 1)) + y[T - 1, j]  # noqa: E731
    return ComputeDAG.of([x, te.compute((N,), body, name="last")])


def mean() -> ComputeDAG:
    x, y = scan(filtered)
    t = te.reduce_axis(T, name="t")
    return ComputeDAG.of([x, te.compute((N,), lambda j: te.sum(y[t, j], axis=t), name="sum")])


def all_of_them() -> ComputeDAG:
    x, y = scan(neighbours)
    return ComputeDAG.of([x, y, te.compute((N,), lambda j: y[T - 1, j] * 2.0, name="last")])


KEPT: dict[str, tuple[ComputeDAG, int]] = {
    "a filter": (last(filtered), 2),
    "of second order": (last(second_order, 2), 3),
    "neighbours": (last(neighbours), 2),
    "four at the end": (last(filtered, steps=4), 4),
}
WHOLE = {"six at the end and more": last(filtered, steps=7), "a mean": mean(), "an output": all_of_them()}


def steps_kept(dag: ComputeDAG, trace: Trace) -> list[int]:
    program = lower(trace.replay(dag), TARGET)
    return [b.shape[0] for b in program.buffers(Role.WORKSPACE, Role.OUTPUT) if len(b.shape) == 2]


@pytest.mark.parametrize("name", KEPT)
def test_the_last_steps_are_kept(name: str) -> None:
    dag, wanted = KEPT[name]
    trace = default_trace(dag, TARGET)
    assert steps_kept(dag, trace) == [wanted]
    check(dag, trace)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_read_stays(name: str) -> None:
    trace = default_trace(WHOLE[name], TARGET)
    assert steps_kept(WHOLE[name], trace) == [T]
    check(WHOLE[name], trace)
