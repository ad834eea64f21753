"""Scans under schedules are right for all decisions, and their steps stay in order."""

from __future__ import annotations

import random

import pytest
from comparison import check
from recurrences import CASES, iir, wave

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.schedule.primitives.compute_at import ComputeAt, ComputeRoot, Inline
from autotensor.schedule.primitives.mark import Parallel, Unroll
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

TARGETS = tuple(
    parse(t)
    for t in ("llvm -mcpu=x86-64-v4 -threads=2", "llvm -mcpu=haswell -threads=3", "llvm -mcpu=x86-64")
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(3)
def test_any_decision_gives_the_same(name: str) -> None:
    dag, rng = ComputeDAG.of([*CASES[name]()]), random.Random(name)
    for n, target in enumerate(TARGETS):
        for sketch in generate(dag, target)[:2]:
            check(dag, sketch.fill(sketch.random(rng) if n else sketch.defaults()), seed=n)


def test_axes_that_steps_keep_apart_are_divided() -> None:
    dag = ComputeDAG.of([*iir(2000, 4096)])
    assert any(isinstance(s, Parallel) for s in default_trace(dag, TARGETS[0]).steps)


def schedule(make):  # type: ignore[no-untyped-def]
    tensors = make()
    s = te.create_schedule(tensors[-1])
    return s, tensors[-1]


def test_what_steps_compute_on_their_way_stays_inside() -> None:
    dag = ComputeDAG.of([*wave()])
    lower(Trace().replay(dag))
    with pytest.raises(ScheduleError, match=r"'step' reads the state of 'y'; it is computed inside 't'"):
        lower(Trace((ComputeRoot("step"),)).replay(dag))


def rotations(shares: bool) -> ComputeDAG:
    """Steps of a system of three numbers for each of many starts."""
    x, s = te.placeholder((3, 40), name="x"), te.placeholder((9, 3, 40), name="s")

    def step(t, c, i):
        a, b, d = (s[t - 1, q, i] for q in range(3))
        r = te.sqrt(a * a + b * b + d * d + 1.0)
        turned = [a - 0.1 * b / r, b + 0.1 * a / r, 0.5 * (d + a * b) / r]
        return te.select(c < 1, turned[0], te.select(c < 2, turned[1], turned[2]))

    update = step if shares else lambda t, c, i: s[t - 1, c, i] * 0.5 + s[t - 1, 2 - c, i]
    first = te.compute((1, 3, 40), lambda t, c, i: x[c, i], name="first")
    return ComputeDAG.of([x, te.scan(first, te.compute((9, 3, 40), update, name="step"), s, name="y")])


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_elements_that_share_work_are_computed_together(target) -> None:
    dag = rotations(shares=True)
    trace = default_trace(dag, target)
    assert Unroll("y", "i0") in trace.steps
    check(dag, trace)
    assert Unroll("y", "i0") not in default_trace(rotations(shares=False), target).steps


def test_what_carries_state_is_computed_by_itself() -> None:
    """A stencil over a scan: the scan is not inlined, and is not a part of a tile."""
    x, s = te.placeholder((40, 90), name="x"), te.placeholder((40, 90), name="s")
    first = te.compute((1, 90), lambda i, j: x[i, j], name="first")
    y = te.scan(
        first, te.compute((40, 90), lambda i, j: 0.5 * s[i - 1, j] + x[i, j], name="step"), s, name="y"
    )
    z = te.compute((38, 88), lambda i, j: y[i, j] + y[i + 2, j + 1] - y[i + 1, j + 2], name="z")
    dag = ComputeDAG.of([x, z])
    for sketch in generate(dag, TARGETS[0])[:4]:
        check(dag, sketch.fill(sketch.defaults()))
    for step, verb in ((Inline("y"), "compute_inline"), (ComputeAt("y", "z", "i"), "compute_at")):
        with pytest.raises(ScheduleError, match=f"{verb}: stage 'y' carries state; it is computed by itself"):
            Trace((step,)).replay(dag)


def test_steps_stay_in_order() -> None:
    s, y = schedule(wave)
    s[y.op.input_tensors[1]].compute_inline()
    t, _ = s[y].op.axis
    s[y].parallel(t)
    with pytest.raises(ScheduleError, match="carries state along axis 't': that loop stays whole and serial"):
        lower(s.trace.replay(s.dag))


def test_neighbours_that_steps_read_stay_inside() -> None:
    s, y = schedule(wave)
    s[y.op.input_tensors[1]].compute_inline()
    t, i = s[y].op.axis
    s[y].reorder(i, t)
    with pytest.raises(ScheduleError, match="outside 't', but steps read others along it"):
        lower(s.trace.replay(s.dag))
    s, y = schedule(iir)
    s[y.op.input_tensors[1]].compute_inline()
    t, i = s[y].op.axis
    s[y].reorder(i, t)
    lower(s.trace.replay(s.dag))
