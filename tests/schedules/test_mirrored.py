"""Symmetric reductions are found, only one half of them is computed, and the results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.lowering.nest.when.unread_points import needed
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.mirrored import NAME, exchangeable
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def pairs(term: Callable[[Any, Any], Any], n: int = 66, depth: int = 33, most: bool = False) -> ComputeDAG:
    """A reduction of terms of two rows of one matrix, [n, n]."""
    x = te.placeholder((n, depth), name="x")
    k = te.reduce_axis(depth, name="k")
    join = te.max if most else te.sum
    p = te.compute((n, n), lambda i, j: join(term(x[i, k], x[j, k]), axis=k), name="p")
    return ComputeDAG.of([x, p])


SYMMETRIC = (
    lambda a, b: a * b,
    lambda a, b: (a - b) * (a - b),
    lambda a, b: te.abs(a - b),
    lambda a, b: te.maximum(a, b) * 2.0 + (b + a),
    lambda a, b: te.exp(a * b) / (1.0 + b * a),
)
OTHERS = (
    lambda a, b: a - b,
    lambda a, b: a * (b + 1.0),
    lambda a, b: (a - b) * (a + b),
    lambda a, b: te.exp(a - b),
    lambda a, b: te.select(a < b, a, b * 2.0),
    lambda a, b: 1.0 / (a - b),
)


def is_mirrored(dag: ComputeDAG) -> bool:
    steps = default_trace(dag, TARGET).steps
    return any(isinstance(s, UseAlgorithm) and s.algorithm == NAME for s in steps)


@pytest.mark.parametrize("term", SYMMETRIC)
def test_half_is_made(term: Callable[[Any, Any], Any]) -> None:
    dag = pairs(term)
    trace = default_trace(dag, TARGET)
    assert is_mirrored(dag)
    assert any(isinstance(s, Pragma) and s.key == "skip_unread" for s in trace.steps)
    check(dag, trace)


@pytest.mark.parametrize("term", OTHERS)
def test_others_are_made_whole(term: Callable[[Any, Any], Any]) -> None:
    dag = pairs(term)
    assert exchangeable(dag.stages[-1]) is None
    assert not is_mirrored(dag)


@pytest.mark.parametrize("n", [64, 71])
def test_all_of_its_sketches_are_right(n: int) -> None:
    dag = pairs(SYMMETRIC[0], n)
    half = [s for s in generate(dag, TARGET) if s.made_by[0] == "fewer_operations"]
    assert half
    for sketch in half[:3]:
        check(dag, sketch.fill(sketch.defaults()))


def test_a_batch_and_readers_behind_it() -> None:
    x = te.placeholder((2, 64, 33), name="x")
    k = te.reduce_axis(33, name="k")
    p = te.compute((2, 64, 64), lambda b, i, j: te.sum(x[b, i, k] * x[b, j, k], axis=k), name="p")
    dag = ComputeDAG.of(
        [x, p, te.compute((2, 64, 64), lambda b, i, j: p[b, i, j] / 7.0 + x[b, i, 0], name="y")]
    )
    assert is_mirrored(dag)
    check(dag, default_trace(dag, TARGET))


def test_another_matrix_breaks_the_symmetry() -> None:
    x, y = te.placeholder((70, 40), name="x"), te.placeholder((70, 40), name="y")
    k = te.reduce_axis(40, name="k")
    dag = ComputeDAG.of(
        [x, y, te.compute((70, 70), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="p")]
    )
    assert exchangeable(dag.stages[-1]) is None


def test_few_terms_and_small_results_are_made_whole() -> None:
    assert not is_mirrored(pairs(SYMMETRIC[0], 70, 4))
    assert not is_mirrored(pairs(SYMMETRIC[0], 20, 40))


def test_what_a_choice_halves_already_is_not_halved_again() -> None:
    x, k = te.placeholder((70, 40), name="x"), te.reduce_axis(40, name="k")
    p = te.compute((70, 70), lambda i, j: te.sum(te.select(j <= i, x[i, k] * x[j, k], 0.0), axis=k), name="p")
    assert not is_mirrored(ComputeDAG.of([x, p]))


def test_the_upper_half_is_left_out() -> None:
    dag = pairs(SYMMETRIC[0])
    state = default_trace(dag, TARGET).replay(dag)
    (condition,) = needed(state, state.stage("p.half.local"))
    assert str(condition) == "j <= i"


def distances(x: Any, n: int) -> tuple[Any, Any]:
    k = te.reduce_axis(33, name="k")
    p = te.compute((n, n), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), name="p")
    return p, te.compute((n, n), lambda i, j: p[i, i] + p[j, j] - 2.0 * p[i, j], name="y")


def test_who_reads_the_diagonal_gets_all_of_it() -> None:
    x = te.placeholder((64, 33), name="x")
    dag = ComputeDAG.of([x, distances(x, 64)[1]])
    assert not is_mirrored(dag)
    check(dag, default_trace(dag, TARGET))


def test_extents_of_run_time_are_not_taken_for_equal() -> None:
    n, m = (te.var(name, range=(64, 80)) for name in ("n", "m"))
    x = te.placeholder((80, 33), name="x")
    k = te.reduce_axis(33, name="k")
    u, v = te.placeholder((n,), name="u"), te.placeholder((m,), name="v")
    p = te.compute((n, m), lambda i, j: te.sum(x[i, k] * x[j, k], axis=k), name="p")
    dag = ComputeDAG.of([x, u, v, te.compute((n, m), lambda i, j: p[i, j] + u[i] + v[j], name="q")])
    assert not is_mirrored(dag)


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_whole_numbers_are_made_whole(dtype: str) -> None:
    x, k = te.placeholder((66, 33), dtype, name="x"), te.reduce_axis(33, name="k")
    p = te.compute((66, 66), lambda i, j: te.sum(te.abs(x[i, k] - x[j, k]), axis=k), name="p")
    dag = ComputeDAG.of([x, p])
    assert not is_mirrored(dag)
    assert (exchangeable(dag.stages[-1]) is None) == (
        dtype == "uint8"
    )  # the absolute value of an unsigned number is the number itself


def test_bodies_that_share_much_are_compared_at_once() -> None:
    def term(a: Any, b: Any) -> Any:
        t = a * b
        for _ in range(40):
            t = t * 0.5 + t * t
        return t

    assert exchangeable(pairs(term).stages[-1]) is not None


def test_reducers_of_several_results_are_made_whole() -> None:
    """The place of the greatest term: symmetric, but two results."""
    x, k = te.placeholder((66, 33), name="x"), te.reduce_axis(33, name="k")
    greatest = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.select(a[1] >= b[1], a[1], b[1])),
        lambda t, u: (te.const(-1, t), te.min_value(u)),
        name="greatest",
    )
    at, value = te.compute((66, 66), lambda i, j: greatest((k.var, x[i, k] * x[j, k]), axis=k), name="p")
    dag = ComputeDAG.of([x, at, value])
    assert exchangeable(dag.stages[-1]) is None
    check(dag, default_trace(dag, TARGET))
