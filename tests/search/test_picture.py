"""A row of a population's picture is the picture of its decisions' trace; and every such trace is right."""

from __future__ import annotations

import numpy as np
import pytest
from zoo import SMALL

from autotensor.base.target import host
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.schedule.loop_picture import LoopPicture, StagePicture, picture
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.step import refs
from autotensor.schedule.trace import Trace
from autotensor.search.propose.population import Population, sample
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import tolerance
from autotensor.te.workload import Workload
from schedules.generate import generate, structure

TARGETS = (host().with_threads(2), host().with_threads(3))
each_workload = pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)


def population(sketch: Sketch, dag: ComputeDAG, count: int, seed: int) -> Population:
    return sample(sketch, structure(sketch, dag), count, np.random.default_rng(seed))


def row_of(value: object, row: int) -> float:
    array = np.asarray(value)
    return float(array if array.ndim == 0 else array[row])


def described(s: StagePicture, row: int) -> tuple[object, ...]:
    """Everything in a stage's picture, of one candidate."""
    return (
        s.name,
        tuple(
            (
                v.stage,
                v.axis,
                row_of(v.extent, row),
                row_of(v.trips, row),
                tuple((a, row_of(t, row)) for a, t in v.parts),
                v.mark,
                v.kind,
            )
            for v in s.levels
        ),
        s.own,
        row_of(s.points, row),
        s.flops_per_point,
        s.work,
        s.is_reduction,
        tuple((o.buffer.name, o.write, o.constant, o.vector) for o in s.operands),
        tuple(tuple(row_of(b, row) for b in sizes) for sizes in s.bytes),
        row_of(s.lanes, row),
    )


def loops(p: LoopPicture, row: int) -> dict[str, object]:
    """Loops and points alone, by stage."""
    return {s.name: described(s, row)[1:4] for s in p.stages}


def without_packing(sketch: Sketch, trace: Trace) -> Trace:
    """The trace less the repacking steps whose width was a hole: they change operands, not loops."""
    kept = [
        t for s, t in zip(sketch.steps, trace.steps, strict=True) if not (isinstance(s, Layout) and refs(s))
    ]
    return Trace(tuple(kept))


def check_rows(workload: Workload, sketch: Sketch, pop: Population, rows: list[int]) -> None:
    for row in rows:
        trace = sketch.fill(pop.decisions(row))
        one = picture(without_packing(sketch, trace).replay(workload.dag), {})
        assert [described(s, row) for s in pop.picture.stages] == [described(s, 0) for s in one.stages], trace
        whole = loops(picture(trace.replay(workload.dag), {}), 0)
        mine = loops(pop.picture, row)
        assert {name: whole[name] for name in mine} == mine, trace


@each_workload
def test_a_row_is_the_picture_of_its_trace(workload: Workload) -> None:
    for target in TARGETS:
        for n, sketch in enumerate(generate(workload.dag, target)):
            pop = population(sketch, workload.dag, 64, n)
            rng = np.random.default_rng(n)
            check_rows(workload, sketch, pop, [int(r) for r in rng.integers(0, len(pop), 3)])


@pytest.mark.slow
@each_workload
def test_all_rows_are_pictures_of_their_traces(workload: Workload) -> None:
    for target in TARGETS:
        for n, sketch in enumerate(generate(workload.dag, target)):
            pop = population(sketch, workload.dag, 150, 100 + n)
            check_rows(workload, sketch, pop, list(range(len(pop))))


def check_answer(workload: Workload, trace: Trace, seed: int) -> None:
    dag = workload.dag
    module = Module(compile_trace(dag, trace, TARGETS[0]), threads=2)
    exactly = random_inputs(dag, seed)
    want = evaluate(dag, exactly, accumulate=np.float64)
    module = module.bind(**{n: a for n, a in exactly.items() if n in dag.constants})
    outputs = {b.name: np.full(b.shape, np.nan, b.dtype.numpy) for b in dag.outputs}
    everything = {**exactly, **outputs}
    module(*(everything[a.name] for a in module.args))
    for name, allowed in tolerance(dag, exactly, want).items():
        assert (np.abs(outputs[name] - want[name]) <= allowed).all(), f"{name} under\n{trace}"


def check_sketches(workload: Workload, defaults: bool, each: int, seed: int, most: int = 64) -> None:
    sketches = generate(workload.dag, TARGETS[0])
    for n in range(0, len(sketches), -(-len(sketches) // most)):
        sketch = sketches[n]
        pop = population(sketch, workload.dag, 64, seed + n)
        rng = np.random.default_rng(seed + n)
        if defaults:
            check_answer(workload, sketch.fill(sketch.defaults()), n)
        for row in rng.integers(0, len(pop), each):
            check_answer(workload, sketch.fill(pop.decisions(int(row))), n)


@each_workload
def test_random_candidates_are_right(workload: Workload) -> None:
    check_sketches(workload, defaults=False, each=1, seed=0, most=4)


@pytest.mark.slow
@each_workload
def test_many_random_candidates_are_right(workload: Workload) -> None:
    check_sketches(workload, defaults=True, each=12, seed=1000)
