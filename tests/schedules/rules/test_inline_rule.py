"""Expensive pointwise stages are inlined if nothing is computed twice and vectors still run along memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace
from schedules.rules.inline import inline

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")
Point = Callable[[Any, Any, Any], Any]
ROWS, COLUMNS = 24, 40


def is_inlined(first: Point, then: Point, shape: tuple[int, int]) -> bool:
    """Whether the default inlines p = first(x, i, j) into y = then(p, i, j); its answer is compared."""
    x = te.placeholder((ROWS, COLUMNS), name="x")
    p = te.compute((ROWS, COLUMNS), lambda i, j: first(x, i, j), name="p")
    y = te.compute(shape, lambda i, j: then(p, i, j), name="y")
    dag = ComputeDAG.of([x, y])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    return 's["p"].compute_inline()' in trace.to_python()


def root(x: Any, i: Any, j: Any) -> Any:
    return te.sqrt(te.abs(x[i, j]))


READ_ONCE: dict[str, tuple[Point, tuple[int, int]]] = {
    "at its own place": (lambda p, i, j: p[i, j] + 1.0, (ROWS, COLUMNS)),
    "shifted": (lambda p, i, j: p[i + 1, j + 3] + 1.0, (ROWS - 1, COLUMNS - 3)),
    "every second row": (lambda p, i, j: p[2 * i + 1, j] + 1.0, (ROWS // 2, COLUMNS)),
    "backwards": (lambda p, i, j: p[ROWS - 1 - i, j] + 1.0, (ROWS, COLUMNS)),
}
READ_AGAIN: dict[str, tuple[Point, tuple[int, int]]] = {
    "by every row": (lambda p, i, j: p[3, j] + i, (ROWS, COLUMNS)),
    "at two places": (lambda p, i, j: p[i, j] + p[i + 1, j], (ROWS - 1, COLUMNS)),
    "by two rows each": (lambda p, i, j: p[i // 2, j] + 1.0, (ROWS, COLUMNS)),
}


@pytest.mark.parametrize("how", READ_ONCE)
def test_what_each_point_reads_alone_is_inlined(how: str) -> None:
    assert is_inlined(root, *READ_ONCE[how])


@pytest.mark.parametrize("how", READ_AGAIN)
def test_what_several_points_read_is_kept(how: str) -> None:
    assert not is_inlined(root, *READ_AGAIN[how])


def turned(p: Any, i: Any, j: Any) -> Any:
    return p[j, i] + 1.0


def test_vectors_are_not_computed_across_memory() -> None:
    """Squares of a turned stage are read and written as vectors; its operands would be gathered."""
    assert not is_inlined(root, turned, (COLUMNS, ROWS))


@pytest.mark.parametrize("between", [False, True])
def test_turned_twice_is_not_turned(between: bool) -> None:
    """The stage reads across memory itself, or through a cheap stage that will be inlined into it."""
    x = te.placeholder((ROWS, COLUMNS), name="x")
    shape = (COLUMNS, ROWS)
    half = te.compute(shape, lambda i, j: x[j, i] * 0.5, name="half")
    first = (lambda i, j: root(half, i, j)) if between else (lambda i, j: root(x, j, i))
    p = te.compute(shape, first, name="p")
    y = te.compute((ROWS, COLUMNS), lambda i, j: turned(p, i, j), name="y")
    dag = ComputeDAG.of([x, y])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    assert trace.to_python().count("compute_inline()") == 1 + between


@pytest.mark.parametrize("directions", [1, 9])
@pytest.mark.sample(1)
def test_what_comes_to_be_read_at_many_points_is_weighed(directions: int) -> None:
    """Several stages read a sum at points of their own, and one stage reads them all, like the directions in
    which particles stream."""
    f = te.placeholder((9, 64, 64), name="f")
    total = te.compute(
        (64, 64), lambda i, j: sum((f[k, i, j] for k in range(1, 9)), f[0, i, j]), name="total"
    )
    parts = [
        te.compute((64, 64), lambda i, j, n=n: f[n, i, j] * total[i, j], name=f"part{n}")
        for n in range(directions)
    ]

    def stream(k: Any, i: Any, j: Any) -> Any:
        moved = [p[(i + n) % 64, j] for n, p in enumerate(parts)]
        out = moved[-1]
        for n, one in reversed([*enumerate(moved[:-1])]):
            out = te.select(k.equal(n), one, out)
        return out

    dag = ComputeDAG.of([f, te.compute((directions, 64, 64), stream, name="out")])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    inlined = trace.to_python().count("compute_inline()")
    assert inlined == directions + (directions == 1)


def test_a_long_chain_is_not_looked_through_again_for_every_load() -> None:
    """Each stage reads the one before at two places. Separately, these would be 2^40 loads."""
    x = te.placeholder((ROWS, 200), name="x")
    last, width = x, 200
    for n in range(40):
        width -= 1
        last = te.compute(
            (ROWS, width), lambda i, j, last=last: last[i, j] + 0.5 * last[i, j + 1], name=f"s{n}"
        )
    p = te.compute((ROWS, width), lambda i, j: root(last, i, j), name="p")
    y = te.compute((ROWS, width), lambda i, j: p[i, j] + 1.0, name="y")
    state = State.initial(ComputeDAG.of([x, y]))
    assert [step for e in inline(state, state.stage("p"), TARGET) for step in e.steps] == [Inline("p")]


def test_an_expensive_stage_goes_into_the_sum_that_reads_it_once_if_vectors_lie_across_its_rows() -> None:
    """Each row's sum has its own lane, because the two coordinates of a point do not fill a vector. If the
    exponentials were stored, they would be read across their rows."""
    q, x = te.placeholder((64, 2), name="q"), te.placeholder((48, 2), name="x")
    k = te.reduce_axis(48, name="k")
    near = lambda i, j: te.exp(-te.abs(q[i, 0] - x[j, 0]) - te.abs(q[i, 1] - x[j, 1]))  # noqa: E731
    p = te.compute((64, 48), near, name="p")
    dag = ComputeDAG.of([q, x, te.compute((64,), lambda i: te.sum(p[i, k], axis=k), name="y")])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    assert 's["p"].compute_inline()' in trace.to_python()


def test_an_expensive_stage_of_one_element_is_inlined_into_a_row_of_one() -> None:
    """It has no axes along which vectors could run."""
    x = te.placeholder((), name="x")
    p = te.compute((), lambda: te.sqrt(te.abs(x[()])), name="p")
    dag = ComputeDAG.of([x, te.compute((1,), lambda i: p[()] + 1.0, name="y")])
    trace = default_trace(dag, TARGET)
    check(dag, trace)
    assert 's["p"].compute_inline()' in trace.to_python()
