"""Vectorized reductions: an accumulator per lane, joined half by half."""

from __future__ import annotations

import pytest
from comparison import check

from autotensor import te
from autotensor.lowering.pipeline import PIPELINE, lower
from autotensor.schedule import Schedule, create_schedule


def row_sums(n: int, lanes: int) -> Schedule:
    a = te.placeholder((3, n), name="A")
    k = te.reduce_axis(n, name="k")
    s = create_schedule(te.compute((3,), lambda i: te.sum(a[i, k], axis=k), name="C"))
    ko, ki = s["C"].split("k", factor=lanes)
    s["C"].reorder("i", ki, ko)
    s["C"].vectorize(ki)
    return s


def test_the_tree() -> None:
    text = str(lower(row_sums(24, 6).state).run[0])
    assert (
        text[text.index("    C_lanes[0:6] = x6") :]
        == """\
    C_lanes[0:6] = x6(0)
    for C_k_0 in range(4):
      C_lanes[0:6] += A[C_i*24+C_k_0*6:C_i*24+C_k_0*6+6]
    C_lanes_4 = register([4], float32)
    C_lanes_2 = register([2], float32)
    C_lanes_1 = register([1], float32)
    C_lanes_4[0:2] = C_lanes[0:2] + C_lanes[4:6]
    C_lanes_4[2:4] = C_lanes[2:4]
    C_lanes_2[0:2] = C_lanes_4[0:2] + C_lanes_4[2:4]
    C_lanes_1[0] = C_lanes_2[0] + C_lanes_2[1]
    C[C_i] += C_lanes_1[0]"""
    )


@pytest.mark.parametrize("lanes", [1, 2, 3, 7, 16, 33, 64, 100, 128])
def test_any_number_of_lanes(lanes: int) -> None:
    s = row_sums(100, lanes)
    check(s.dag, s.trace)


def test_lanes_inside_the_other_loop() -> None:
    a = te.placeholder((3, 20), name="A")
    k = te.reduce_axis(20, name="k")
    s = create_schedule(te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="C"))
    s["C"].split("k", factor=8)
    s["C"].vectorize("k.1")
    check(s.dag, s.trace)


def test_rows_inside_the_lanes() -> None:
    """Accumulators of several rows, the last block of rows cut off."""
    s = row_sums(20, 8)
    io, ii = s["C"].split("i", factor=2)
    s["C"].reorder(io, "k.1", ii, "k.0")
    s["C"].unroll(ii)
    check(s.dag, s.trace)
    assert "register([2, 8]" in str(lower(s.state).run[0])


def test_pairs() -> None:
    """A tuple reduction: places and values are joined together, for any number of lanes in the tail."""
    larger = te.comm_reducer(
        lambda x, y: (
            te.select(te.any(x[1] > y[1], te.all((x[1] == y[1]).expr(), x[0] < y[0])), x[0], y[0]),
            te.maximum(x[1], y[1]),
        ),
        lambda t0, t1: (te.max_value(t0), te.min_value(t1)),
        name="argmax",
    )
    for n, lanes in ((1, 3), (20, 8), (21, 16), (16, 16)):
        a = te.placeholder((3, n), name="A")
        k = te.reduce_axis(n, name="k")
        at, _ = te.compute((3,), lambda i, a=a, k=k: larger((k.var, a[i, k]), axis=k), name="C")
        s = create_schedule(at)
        _, ki = s["C"].split("k", factor=lanes)
        s["C"].reorder("i", ki, "k.0")
        s["C"].vectorize(ki)
        check(s.dag, s.trace)


def test_the_pass_leaves_other_loops_alone() -> None:
    a = te.placeholder((3, 16), name="A")
    s = create_schedule(te.compute((3, 16), lambda i, j: a[i, j] + 1, name="C"))
    s["C"].vectorize("j")
    before = [p for p in PIPELINE if p.name != "join lanes"]
    assert str(lower(s.state, passes=tuple(before))) == str(lower(s.state))


def test_rows_unrolled_by_a_pragma_inside_the_lanes() -> None:
    s = row_sums(20, 8)
    s["C"].reorder("k.1", "i", "k.0")
    s["C"].pragma("k.1", "auto_unroll_max_step", 9)
    check(s.dag, s.trace)
