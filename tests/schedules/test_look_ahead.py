"""Scans whose steps are joined, against the same recurrence step by step in float64."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from recurrences import Step, drawn_step, drawn_sum, lines_of

import autotensor as at
from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.schedule.primitives.look_ahead import LookAhead
from autotensor.schedule.schedule import Schedule
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

BODIES: dict[str, tuple[int, Step]] = {  # name: (states that it reads, step)
    "sum": (1, lambda s, x, c: s[0] + x),
    "difference": (1, lambda s, x, c: x - s[0]),
    "one pole": (1, lambda s, x, c: 0.9 * s[0] + 0.25 * x),
    "growing": (1, lambda s, x, c: (s[0] + x) * (1 + 2.0**-10)),
    "two poles": (2, lambda s, x, c: 1.6 * s[0] - 0.8 * s[1] + x),
    "three poles": (3, lambda s, x, c: 0.5 * s[0] + 0.1 * s[1] - 0.2 * s[2] + x),
    "second alone": (2, lambda s, x, c: 0.7 * s[1] + x),
    "sum of sums": (2, lambda s, x, c: 2.0 * s[0] - s[1] + x),
}


def expected(order: int, step: Step, x: Any, c: Any) -> Any:
    x, c = x.astype(np.float64), c.astype(np.float64)
    y = list((x + c)[:order])
    for t in range(order, len(x)):
        y.append(step(y[-1 : -order - 1 : -1], x[t], c[t]))
    return np.array(y)


def looks_ahead(trace: Any) -> bool:
    return any(isinstance(s, LookAhead) for s in trace.steps)


@pytest.mark.parametrize("target", ["llvm -threads=2", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("name", BODIES)
def test_joined_steps_give_what_single_ones_do(name: str, target: str) -> None:
    (order, step), rng = BODIES[name], random.Random(name + target)
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    joined = 0
    for n in (order, order + 1, 16, 17, 33, 64, rng.randrange(65, 300), 1000):
        dtype = rng.choice(("float32", "float64"))
        args = lines_of(order, step, n, dtype)
        x, c = (numbers.uniform(-1, 1, n).astype(dtype) for _ in range(2))
        true = expected(order, step, x, c)
        dag = ComputeDAG.of(args)
        for sketch in generate(dag, parse(target)):
            trace = sketch.fill(sketch.defaults())
            joined += looks_ahead(trace)
            y = at.build(Schedule(dag, trace), args, target)(x, c)
            room = 1e-5 if dtype == "float32" else 1e-12
            np.testing.assert_allclose(y, true, rtol=room, atol=room * max(1.0, np.abs(true).max()))
    assert joined


LINES = ((), (1,), (2,), (3,), (2, 2), (4,), (5,), (7,))


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 300))]
)
def test_drawn_steps_give_what_single_ones_do(seed: int) -> None:
    rng = random.Random(seed)
    order, step = drawn_step(rng)
    dtype, n = rng.choice(("float32", "float64")), rng.randrange(20, 200)
    lines, target = (
        rng.choice(LINES),
        rng.choice(("llvm -threads=2", "llvm -mcpu=haswell", "llvm -mcpu=x86-64")),
    )
    args = lines_of(order, step, n, dtype, lines)
    numbers = np.random.default_rng(seed)
    x, c = (numbers.uniform(-1, 1, (n, *lines)).astype(dtype) for _ in range(2))
    true = expected(order, step, x, c)
    dag = ComputeDAG.of(args)
    for sketch in generate(dag, parse(target)):
        y = at.build(Schedule(dag, sketch.fill(sketch.defaults())), args, target)(x, c)
        room = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(y, true, rtol=room, atol=room * max(1.0, np.abs(true).max()))


def test_most_drawn_steps_are_joined() -> None:
    joined = 0
    for seed in range(40):
        rng = random.Random(seed)
        dag = ComputeDAG.of(lines_of(*drawn_step(rng), 200, lines=rng.choice(LINES)))
        joined += looks_ahead(default_trace(dag, parse("llvm -mcpu=haswell")))
    assert joined >= 30


def test_of_one_order_what_is_not_finite_is_the_same() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        step = drawn_sum(rng, [rng.choice((-0.9, -0.5, 0.5, 1.0))])
        args = lines_of(1, step, 120, "float64", lines=(rng.choice((1, 2, 3)),))
        x, c = np.ones(args[0].shape), np.full(args[0].shape, 0.5)
        for _ in range(4):
            x[rng.randrange(120)] = rng.choice((np.inf, -np.inf, np.nan))
        assert looks_ahead(default_trace(ComputeDAG.of(args), parse("llvm -mcpu=haswell")))
        with np.errstate(invalid="ignore"):
            true = expected(1, step, x, c)
        np.testing.assert_allclose(at.build(args, target="llvm -mcpu=haswell")(x, c), true, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_spreads_as_step_by_step(bad: float) -> None:
    for name in ("sum", "one pole", "two poles"):
        order, step = BODIES[name]
        args = lines_of(order, step, 200)
        x, c = np.ones(200, np.float32), np.full(200, 0.5, np.float32)
        x[77] = bad
        y = at.build(args, target="llvm")(x, c)
        with np.errstate(invalid="ignore"):
            true = expected(order, step, x, c)
        np.testing.assert_array_equal(np.isfinite(y), np.isfinite(true))


def test_extremes_are_joined_whatever_the_numerics() -> None:
    x, s = te.placeholder((500,), "int32", name="x"), te.placeholder((500,), "int32", name="s")
    first = te.compute((1,), lambda t: x[t], name="first")
    y = te.scan(first, te.compute((500,), lambda t: te.maximum(x[t], s[t - 1]), name="u"), s, name="y")
    strict = "llvm -numerics=strict"
    assert looks_ahead(default_trace(ComputeDAG.of([x, y]), parse(strict)))
    given = np.random.default_rng(0).integers(-1000, 1000, 500, np.int32)
    given[:50] = -5000
    np.testing.assert_array_equal(at.build([x, y], target=strict)(given), np.maximum.accumulate(given))


@pytest.mark.parametrize(("extreme", "exact"), [(te.maximum, np.maximum), (te.minimum, np.minimum)])
@pytest.mark.parametrize("lines", [(), (3,)])
def test_extremes_keep_what_is_not_a_number(extreme: Any, exact: Any, lines: tuple[int, ...]) -> None:
    args = lines_of(1, lambda s, x, c: extreme(s[0], x), 60, lines=lines)
    assert looks_ahead(default_trace(ComputeDAG.of(args), parse("llvm -mcpu=haswell")))
    f = at.build(args, target="llvm -mcpu=haswell")
    x = np.random.default_rng(0).uniform(-1, 1, (60, *lines)).astype(np.float32)
    x[0] = {te.maximum: -np.inf, te.minimum: np.inf}[extreme]
    for bad in (None, 0, 1, 7, 8, 9, 33, 59):
        given = x.copy()
        if bad is not None:
            given[bad] = np.nan
        np.testing.assert_array_equal(f(given, np.zeros_like(x)), exact.accumulate(given, axis=0))


def test_extremes_begin_with_the_last_step_that_is_given() -> None:
    x, s = te.placeholder((100,), "int32", name="x"), te.placeholder((100,), "int32", name="s")
    five = te.const(5, "int32")
    first = te.compute((2,), lambda t: te.select(t < 1, five, -five), name="first")
    y = te.scan(first, te.compute((100,), lambda t: te.maximum(x[t], s[t - 1]), name="u"), s, name="y")
    found = at.build([x, y], target="llvm")(np.zeros(100, np.int32))
    np.testing.assert_array_equal(found, [5, -5] + [0] * 98)


def test_what_a_step_computes_on_its_way_is_not_computed_for_many() -> None:
    s = te.create_schedule(lines_of(*BODIES["sum"], 100)[-1])
    s["u"].compute_root()
    outer, _ = s["y"].split("t", 4)
    s["u"].compute_at(s["y"], outer)
    with pytest.raises(ScheduleError, match="carries state along axis 't'"):
        lower(s.trace.replay(s.dag))


def test_strict_numerics_add_in_the_order_that_was_written() -> None:
    args = lines_of(*BODIES["sum"], 300)
    strict = parse("llvm -numerics=strict")
    assert not any(looks_ahead(s.fill(s.defaults())) for s in generate(ComputeDAG.of(args), strict))


@pytest.mark.parametrize(
    "step",
    [
        lambda s, x, c: te.tanh(s[0]) + x,
        lambda s, x, c: s[0] * s[0] + x,
        lambda s, x, c: 1e-6 * s[0] + x,  # its powers vanish: infinity times 0
        lambda s, x, c: 1.2e30 * s[0] + x,
        lambda s, x, c: 1.5 * s[0] + x,  # errors would grow with the number of groups
        lambda s, x, c: c * s[0] + x,  # products of coefficients that vary may overflow
        lambda s, x, c: s[0] * (1.0 + 0.01 * x),
    ],
)
def test_other_steps_are_left_alone(step: Step) -> None:
    dag = ComputeDAG.of(lines_of(1, step, 100))
    assert not looks_ahead(default_trace(dag, parse("llvm")))


def test_groups_of_steps_do_not_wait_for_one_another() -> None:
    args = lines_of(*BODIES["sum"], 100)
    for ahead, size, fits in ((8, 8, True), (8, 4, True), (8, 9, False), (2, 4, False)):
        s = te.create_schedule(args[-1])
        s["u"].compute_inline()
        s["y"].look_ahead(ahead)
        _, inner = s["y"].split("t", size)
        s["y"].vectorize(inner)
        if fits:
            at.build(s, args)
        else:
            with pytest.raises(ScheduleError, match="carries state along axis 't'"):
                at.build(s, args)
