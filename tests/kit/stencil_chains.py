"""Random chains of stencils, and schedules of them whose stages slide along a loop of the last one.

    dag, trace = sliding_case(random.Random(7))

Stages read one or two earlier tensors: at a few points around their own, at every other row or column, or at
half of the row's number. Some stages pad, and some sum over a window. The last stage's rows are cut into
strips and steps that seldom divide them. The earlier stages are computed at a step, and some of them are
stored at a strip.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.lowering.nest.nest import build_program
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.primitives.store_at import StoreAt
from autotensor.schedule.state import State
from autotensor.schedule.step import Step
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import AxisKind

FACTORS = (1, 2, 2, 3, 4, 5)


def chain_dag(rng: random.Random) -> ComputeDAG:
    """Two to five stages over tensors of two or three dimensions, the last of which is the result."""
    rank = rng.choice((2, 2, 2, 3, 1))
    shape = tuple(rng.randint(9, 23) for _ in range(rank))
    made = [te.placeholder(shape, name="X")]
    stages = rng.randint(2, 5)
    for n in range(stages):
        make = rng.choice((_around, _around, _around, _padded, _window, _coarser, _finer, _reversed))
        older = rng.choice(made[max(0, len(made) - 3) :]) if len(made) > 1 and rng.random() < 0.4 else None
        made.append(make(rng, made[-1], older, f"s{n}"))
    return ComputeDAG.of([made[0], made[-1]])


def _smaller(x: Any, older: Any, by: tuple[int, ...]) -> tuple[int, ...]:
    """A shape in which both tensors have the points that are `by` further on."""
    sides = [int(n) - b for n, b in zip(x.shape, by, strict=True)]
    if older is not None:
        sides = [min(n, int(m)) for n, m in zip(sides, older.shape, strict=True)]
    return tuple(max(1, n) for n in sides)


def _with(value: Any, older: Any, index: tuple[Any, ...]) -> Any:
    return value if older is None else value - older[index]


def _around(rng: random.Random, x: Any, older: Any, name: str) -> Any:
    """Sums of neighbouring points, at random corners."""
    by = tuple(rng.choice((0, 1, 2, 2, 3)) if int(n) > 4 else 0 for n in x.shape)
    points = [tuple(rng.randint(0, b) for b in by) for _ in range(rng.randint(1, 4))]

    def body(*i: Any) -> Any:
        total = None
        for p in points:
            value = x[tuple(a + d for a, d in zip(i, p, strict=True))]
            total = value if total is None else total + value
        return _with(total, older, i)

    return te.compute(_smaller(x, older, by), body, name=name)


def _padded(rng: random.Random, x: Any, older: Any, name: str) -> Any:
    """The point before and the point after; zero beyond the border."""
    axis = rng.randrange(len(x.shape))
    n = int(x.shape[axis])

    def body(*i: Any) -> Any:
        def at(d: int) -> Any:
            moved = tuple(a + d if m == axis else a for m, a in enumerate(i))
            return te.select(te.all(moved[axis] >= 0, moved[axis] < n), x[moved], 0.0)

        return _with(at(-1) + at(1) - at(0), older, i)

    return te.compute(_smaller(x, older, (0,) * len(x.shape)), body, name=name)


def _window(rng: random.Random, x: Any, older: Any, name: str) -> Any:
    """A reduction over a few points."""
    by = tuple(rng.choice((0, 1, 2)) if int(n) > 3 else 0 for n in x.shape)
    terms = [te.reduce_axis(b + 1, name=f"r{m}") for m, b in enumerate(by)]
    reduce = rng.choice((te.sum, te.max))

    def body(*i: Any) -> Any:
        return reduce(x[tuple(a + r for a, r in zip(i, terms, strict=True))], axis=terms)

    return te.compute(_smaller(x, None, by), body, name=name)


def _coarser(rng: random.Random, x: Any, older: Any, name: str) -> Any:
    """Every other row, with its neighbours."""
    axis = rng.randrange(len(x.shape))
    if int(x.shape[axis]) < 6:
        return _around(rng, x, older, name)

    def body(*i: Any) -> Any:
        def at(d: int) -> Any:
            return x[tuple(2 * a + d if m == axis else a for m, a in enumerate(i))]

        return at(0) + 2.0 * at(1) + at(2)

    shape = tuple((int(n) - 1) // 2 if m == axis else int(n) for m, n in enumerate(x.shape))
    return te.compute(shape, body, name=name)


def _finer(rng: random.Random, x: Any, older: Any, name: str) -> Any:
    """Two rows for each row."""
    axis = rng.randrange(len(x.shape))

    def body(*i: Any) -> Any:
        def at(of: Callable[[Any], Any]) -> Any:
            return x[tuple(of(a) if m == axis else a for m, a in enumerate(i))]

        return at(lambda a: a // 2) + at(lambda a: a // 2 + a % 2)

    shape = tuple(min(30, 2 * (int(n) - 1)) if m == axis else int(n) for m, n in enumerate(x.shape))
    return te.compute(shape, body, name=name)


def _reversed(rng: random.Random, x: Any, older: Any, name: str) -> Any:
    """The reverse order along an axis. This is seldom the axis of rows, because then no rows can be kept."""
    axis = rng.randrange(len(x.shape)) if rng.random() < 0.1 else len(x.shape) - 1
    n = int(x.shape[axis])

    def body(*i: Any) -> Any:
        there = tuple(n - 1 - a if m == axis else a for m, a in enumerate(i))
        return _with(x[there] + 1.0, older, i)

    return te.compute(_smaller(x, older, (0,) * len(x.shape)), body, name=name)


def sliding_case(rng: random.Random) -> tuple[ComputeDAG, Trace]:
    """A chain and a schedule in which at least one stage slides."""
    while True:
        dag = chain_dag(rng)
        trace = _Sliding(rng, dag).trace()
        if any(isinstance(s, StoreAt) for s in trace.steps):
            return dag, trace


class _Sliding:
    """Writes a schedule step by step. A step is left out if it, or its loops, are refused."""

    def __init__(self, rng: random.Random, dag: ComputeDAG) -> None:
        self.rng, self.state, self.steps = rng, State.initial(dag), Trace()
        self.last = dag.stages[-1].name

    def do(self, step: Step) -> bool:
        try:
            after = step.apply(self.state)
            build_program(after)
        except ScheduleError:
            return False
        self.steps, self.state = self.steps.then(step), after
        return True

    def trace(self) -> Trace:
        rng, last = self.rng, self.last
        axes = [a.name for a in self.state.stage(last).op.axes]
        slid = axes[0] if rng.random() < 0.8 else rng.choice(axes)
        rows = rng.random() < 0.5
        self.do(SplitStep(last, slid, (rng.choice(FACTORS[1:]), *((rng.choice(FACTORS),) if rows else ()))))
        outer, inner = [f"{slid}.0"], [f"{slid}.1", *([f"{slid}.2"] if rows else [])]
        for a in axes:
            if a != slid and rng.random() < 0.4:
                self.do(SplitStep(last, a, (rng.choice((3, 4, 8)),)))
                outer.insert(0, f"{a}.0")
                inner.append(f"{a}.1")
            elif a != slid:
                inner.append(a)
        loops = [a.name for a in self.state.stage(last).leaves]
        self.do(Reorder(last, (*outer, *inner, *(a for a in loops if a not in (*outer, *inner)))))
        at, store = f"{slid}.1", outer[-1]
        if len(outer) > 1 and rng.random() < 0.5 and self.do(FuseStep(last, *outer[-2:])):
            outer = [*outer[:-2], f"({outer[-2]}*{outer[-1]})"]
            store = outer[-1]
        self._producers(at, store)
        if rng.random() < 0.5:
            self.do(Vectorize(last, inner[-1]))
        if rng.random() < 0.5:
            self.do(Parallel(last, outer[0]))
        if rng.random() < 0.1:
            self.do(Unroll(last, at))
        return self.steps

    def _producers(self, at: str, store: str) -> None:
        rng = self.rng
        for name in reversed(self.state.names[:-1]):
            kind = rng.random()
            if kind < 0.1:
                self.do(Inline(name))
            elif kind < 0.95 and self.do(ComputeAt(name, self.last, at)):
                if rng.random() < 0.85:
                    self.do(StoreAt(name, self.last, store))
                self._loops(name)

    def _loops(self, name: str) -> None:
        rng = self.rng
        axes = [a.name for a in self.state.stage(name).leaves if a.kind is AxisKind.SPATIAL]
        if len(axes) > 1 and rng.random() < 0.3:
            self.do(Storage(name, tuple(rng.sample(axes, len(axes))), rng.choice((0, 3))))
        for a in axes:
            if rng.random() < 0.3:
                self.do(SplitStep(name, a, (rng.choice(FACTORS[1:]),)))
        loops = [a.name for a in self.state.stage(name).leaves]
        if rng.random() < 0.4:
            self.do(Reorder(name, tuple(rng.sample(loops, len(loops)))))
        if rng.random() < 0.6:
            spatial = [a.name for a in self.state.stage(name).leaves if a.kind is AxisKind.SPATIAL]
            self.do(Vectorize(name, rng.choice((spatial[-1], rng.choice(spatial)))))
        if rng.random() < 0.3:
            self.do(Unroll(name, rng.choice([a.name for a in self.state.stage(name).leaves])))
