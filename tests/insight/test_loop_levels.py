"""Loop levels of a stage: bytes, caches, reuse, as a person would count them."""

from __future__ import annotations

import pytest

from autotensor import te
from autotensor.base.target import Target
from autotensor.insight.loop_levels import BODY, LevelTable, heaviest, level_table
from autotensor.schedule import Schedule
from autotensor.schedule.loop_picture import picture
from autotensor.te.dag import ComputeDAG
from schedules.prior.predict import stage_terms
from schedules.prior.rates import Rates

# one row of A and a block of B fit into L1, all of B into L2
TARGET = Target("llvm", num_cores=1, vector_bytes=32, cache_bytes=(8 << 10, 64 << 10, 1 << 20))


def gemm(m: int, n: int, k: int) -> Schedule:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return Schedule(ComputeDAG.of([a, b, c]))


def blocked() -> LevelTable:
    """C[64, 128] = A[64, 100] B[100, 128], for i, jo, k, ji with ji in vectors of 16."""
    s = gemm(64, 128, 100)
    i, j = s["C"].op.axis
    (r,) = s["C"].op.reduce_axis
    jo, ji = s["C"].split(j, factor=16)
    s["C"].reorder(i, jo, r, ji)
    s["C"].vectorize(ji)
    return level_table(picture(s.state, {}).stages[0], TARGET)


def test_bytes_of_every_loop() -> None:
    t = blocked()
    assert t.operands == ("A", "B")  # sums are in registers
    assert [(x.loop, x.extent, x.mark, x.runs) for x in t.loops] == [
        ("i", 64, "", 1.0),
        ("j.0", 8, "", 64.0),
        ("r", 100, "", 512.0),
        ("j.1", 16, "vector", 51200.0),
        (BODY, 0, "", 819200.0),
    ]
    assert [x.bytes for x in t.loops] == [
        (64 * 400.0, 100 * 512.0),
        (400.0, 100 * 512.0),
        (400.0, 100 * 64.0),
        (4.0, 64.0),
        (4.0, 4.0),
    ]
    assert [x.fits for x in t.loops] == ["L3", "L2", "L1", "L1", "L1"]


def test_what_a_cache_keeps_and_what_it_is_brought() -> None:
    l1, l2, l3 = blocked().caches
    assert (l1.keeps, l2.keeps, l3.keeps) == ("r", "j.0", "i")
    # a row of A stays while jo goes round; all of B comes again for every row
    assert l1.brought == (64 * 400.0, 64 * 100 * 512.0)
    assert l1.reuse == (128.0, 1.0)
    assert l2.brought == (64 * 400.0, 100 * 512.0)  # B is the same in every row
    assert l3.reuse == (128.0, 64.0)


def test_the_prior_times_the_same_bytes() -> None:
    s = gemm(64, 128, 100)
    stage = picture(s.state, {}).stages[0]
    rates = Rates(1e11, (1e9, 1e9, 1e9), 1e9)
    moves = stage_terms(stage, 1, TARGET, rates).moves
    brought = [sum(c.brought) for c in level_table(stage, TARGET).caches]
    assert [float(m[0]) * 1e9 for m in moves[:2]] == pytest.approx(brought[:2])


def test_loops_of_one_iteration_are_left_out() -> None:
    s = gemm(1, 16, 8)
    t = level_table(picture(s.state, {}).stages[0], TARGET)
    assert [x.loop for x in t.loops] == ["j", "r", BODY]
    assert t.caches[0].keeps == "j"


def test_the_heaviest_stage_and_an_operand_read_twice() -> None:
    a = te.placeholder((128,), name="A")
    b = te.compute((62,), lambda i: a[i] * a[i + 2] * a[2 * i], name="B")  # neighbours are one operand
    k = te.reduce_axis(62, name="k")
    c = te.compute((50,), lambda i: te.sum(b[k] * b[k], axis=k), name="C")
    s = Schedule(ComputeDAG.of([a, c]))
    p = picture(s.state, {})
    assert heaviest(p).name == "C"
    names = level_table(p.stages[0], TARGET).operands
    assert names == ("A #1", "A #2", "B out")
