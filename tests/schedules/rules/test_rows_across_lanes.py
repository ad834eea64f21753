"""Chains over rows shorter than a vector: each lane has a row if this is faster; answers are right for any
rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, preferred

TARGET = parse("llvm -mcpu=x86-64-v3 -threads=1")  # vectors of eight
Program = Callable[[int], Sequence[Any]]


def softmax(n: int, k: int = 5) -> Sequence[Any]:
    x, a, b = te.placeholder((n, k), name="x"), te.reduce_axis(k, name="a"), te.reduce_axis(k, name="b")
    m = te.compute((n,), lambda i: te.max(x[i, a], axis=a), name="m")
    e = te.compute((n, k), lambda i, j: te.exp(x[i, j] - m[i]), name="e")
    z = te.compute((n,), lambda i: te.sum(e[i, b], axis=b), name="z")
    return x, te.compute((n, k), lambda i, j: e[i, j] / z[i], name="p")


def rotated(n: int, k: int = 3) -> Sequence[Any]:
    p, r = te.placeholder((n, k), name="p"), te.placeholder((k, k), name="r")
    b = te.reduce_axis(k, name="b")
    return p, r, te.compute((n, k), lambda i, a: te.sum(r[a, b] * p[i, b], axis=b), name="o")


def gray(n: int) -> Sequence[Any]:
    x, w, c = te.placeholder((2, n, 3), name="x"), te.placeholder((3,), name="w"), te.reduce_axis(3, name="c")
    return x, w, te.compute((2, n), lambda i, j: te.sum(x[i, j, c] * w[c], axis=c), name="g")


def solved(n: int) -> Sequence[Any]:
    """Systems of two equations, by Cramer's rule."""
    m, v, k = (
        te.placeholder((n, 2, 2), name="m"),
        te.placeholder((n, 2), name="v"),
        te.reduce_axis(2, name="k"),
    )
    adj = te.compute(
        (n, 2, 2),
        lambda r, p, q: te.select(p.equal(q), m[r, 1 - p, 1 - q], -m[r, p, q]),
        name="adj",
    )
    det = te.compute((n,), lambda r: m[r, 0, 0] * m[r, 1, 1] - m[r, 0, 1] * m[r, 1, 0] + 9.0, name="det")
    y = te.compute((n, 2), lambda r, p: te.sum(adj[r, p, k] * v[r, k], axis=k), name="y")
    return m, v, te.compute((n, 2), lambda r, p: y[r, p] / det[r], name="x")


def forces(n: int) -> Sequence[Any]:
    """The effect of many bodies on each of n points: three numbers whose terms share parts."""
    x, p, k = (
        te.placeholder((n, 3), name="x"),
        te.placeholder((50, 3), name="p"),
        te.reduce_axis(50, name="k"),
    )

    def body(i: Any, c: Any) -> Any:
        d = [x[i, q] - p[k, q] for q in range(3)]
        far = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.5
        return te.sum((x[i, c] - p[k, c]) / (far * te.sqrt(far)), axis=k)

    return x, p, te.compute((n, 3), body, name="f")


def turns(n: int) -> Sequence[Any]:
    """Matrices of angles: no reduction, and three functions of a number for four results."""
    a = te.placeholder((n,), name="a")

    def body(i: Any, p: Any, q: Any) -> Any:
        c, s = te.exp(a[i]) * te.cos(a[i]), te.exp(a[i]) * te.sin(a[i])
        return te.select(p.equal(q), c, te.select(p < q, -s, s))

    return a, te.compute((n, 2, 2), body, name="r")


def pooled(n: int, k: int = 3) -> Sequence[Any]:
    """Windows that do not overlap: the terms of a row of a window are neighbours."""
    x, u, v = (
        te.placeholder((2 * k, k * n), name="x"),
        te.reduce_axis(k, name="u"),
        te.reduce_axis(k, name="v"),
    )
    return x, te.compute((2, n), lambda i, j: te.max(x[k * i + u, k * j + v], axis=[u, v]), name="m")


def largest(n: int, k: int) -> Sequence[Any]:
    x, a = te.placeholder((n, k), name="x"), te.reduce_axis(k, name="a")
    return x, te.compute((n,), lambda i: te.max(x[i, a], axis=a), name="m")


def depthwise(n: int) -> Sequence[Any]:
    x, w = te.placeholder((4, 6, n), name="x"), te.placeholder((n, 3, 3), name="w")
    u, v = te.reduce_axis(3, name="u"), te.reduce_axis(3, name="v")
    return (
        x,
        w,
        te.compute((2, 4, n), lambda i, j, c: te.sum(x[i + u, j + v, c] * w[c, u, v], axis=[u, v]), name="y"),
    )


ACROSS: dict[str, Program] = {
    "a pool": pooled,
    "maxima of rows of ten": lambda n: largest(n, 10),
    "softmax": softmax,
    "rotated": rotated,
    "gray": gray,
    "solved": solved,
    "forces": forces,
    "turns": turns,
}


def columns(n: int) -> Sequence[Any]:
    x, k = te.placeholder((3, n), name="x"), te.reduce_axis(3, name="k")
    return x, te.compute((n,), lambda j: te.sum(x[k, j], axis=k), name="s")


def far_apart(n: int) -> Sequence[Any]:
    x, k = te.placeholder((n, 100), name="x"), te.reduce_axis(3, name="k")
    return x, te.compute((n,), lambda j: te.sum(x[j, k], axis=k), name="s")


def distances(n: int) -> Sequence[Any]:
    x, y, k = te.placeholder((9, 4), name="x"), te.placeholder((n, 4), name="y"), te.reduce_axis(4, name="k")
    far = lambda i, j: x[i, k] - y[j, k]  # noqa: E731
    return x, y, te.compute((9, n), lambda i, j: te.sum(far(i, j) * far(i, j), axis=k), name="d")


def looked_up(n: int) -> Sequence[Any]:
    x, at = te.placeholder((90, 3), name="x"), te.placeholder((n,), "int32", name="at")
    k = te.reduce_axis(3, name="k")
    return x, at, te.compute((n,), lambda j: te.sum(x[at[j], k], axis=k), name="s")


NOT_ACROSS: dict[str, Program] = {
    "windows across memory": depthwise,
    "maxima of long rows": lambda n: largest(n, 15),
    "rows of vectors": lambda n: softmax(n, 8),
    "long rows": lambda n: softmax(n, 100),
    "in memory's order": columns,
    "far apart": far_apart,
    "as in a product": distances,
    "looked up": looked_up,
    "few rows": lambda n: softmax(12),
}


def rules_of(program: Program, n: int) -> tuple[str, ...]:
    return preferred(ComputeDAG.of(program(n)), TARGET).made_by


@pytest.mark.parametrize("how", ACROSS)
def test_short_rows_lie_across_lanes(how: str) -> None:
    assert "short_rows" in rules_of(ACROSS[how], 64)


@pytest.mark.parametrize("how", NOT_ACROSS)
def test_others_do_not(how: str) -> None:
    assert "short_rows" not in rules_of(NOT_ACROSS[how], 64)


@pytest.mark.parametrize("n", [16, 23, 64, 101])
@pytest.mark.parametrize("how", ACROSS)
def test_the_answer_is_right_with_any_rest(how: str, n: int) -> None:
    dag = ComputeDAG.of(ACROSS[how](n))
    check(dag, default_trace(dag, TARGET))


def test_all_stages_of_a_row_stay_near() -> None:
    trace = default_trace(ComputeDAG.of(softmax(64)), TARGET).to_python()
    assert trace.count(".compute_at(") == 3
    assert trace.count(".vectorize(") == 4
