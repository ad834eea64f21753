"""Points that no reader lets through a Select are not computed."""

from __future__ import annotations

import pytest
from comparison import check

from autotensor import te
from autotensor.lowering.nest.when.unread_points import needed
from autotensor.lowering.pipeline import lower_nest
from autotensor.schedule.schedule import Schedule
from autotensor.te.dag import ComputeDAG

N = 70
ENDS = "if S_j < B0_i_0 * 10 + 10:"  # an element of the tile needs the row


def softmax_like(*readers, dtype="float32"):
    """S[j, i] = 2 * X[j, i], and its reader."""
    x = te.placeholder((N, N), dtype, name="X")
    s = te.compute((N, N), lambda j, i: x[j, i] * 2, name="S")
    return ComputeDAG.of([x, *(reader(s, n) for n, reader in enumerate(readers))])


def below(s, n):
    j = te.reduce_axis(N, name="j")
    return te.compute((N,), lambda i: te.sum(te.select(j <= i, s[j, i], 0), axis=j), name=f"B{n}")


def everything(s, n):
    j = te.reduce_axis(N, name="j")
    return te.compute((N,), lambda i: te.sum(s[j, i], axis=j), name=f"E{n}")


def shifted(s, n):
    j = te.reduce_axis(N - 1, name="j")
    return te.compute((N,), lambda i: te.sum(te.select(j <= i, s[j + 1, i], 0), axis=j), name=f"M{n}")


def conditions(dag, stage="S", asked=True):
    s = Schedule(dag)
    if asked:
        s[stage].pragma(s.state.stage(stage).leaves[0].name, "skip_unread", 1)
    return [str(c) for c in needed(s.state, s.state.stage(stage))]


def test_the_condition_of_a_select_is_said_of_the_stage():
    assert conditions(softmax_like(below)) == ["j <= i"]


def test_without_the_pragma_all_points_are_needed():
    assert conditions(softmax_like(below), asked=False) == []


def test_all_readers_must_agree():
    assert conditions(softmax_like(below, below)) == ["j <= i"]
    assert conditions(softmax_like(below, everything)) == []


def test_an_index_that_is_not_an_axis_says_nothing():
    assert conditions(softmax_like(shifted)) == []


def test_whole_numbers_are_all_computed():
    """A reader might divide by the old contents of memory."""
    assert conditions(softmax_like(below, dtype="int32")) == []


def test_what_is_read_by_points_that_nobody_needs_is_not_needed():
    x = te.placeholder((N, N), name="X")
    s = te.compute((N, N), lambda j, i: x[j, i] * 2, name="S")
    e = te.compute((N, N), lambda j, i: te.exp(s[j, i]), name="E")
    assert conditions(ComputeDAG.of([x, below(e, 0)])) == ["j <= i"]


def test_an_output_is_needed_everywhere():
    x = te.placeholder((N, N), name="X")
    s = te.compute((N, N), lambda j, i: x[j, i] * 2, name="S")
    assert conditions(ComputeDAG.of([x, s, below(s, 0)])) == []


@pytest.mark.parametrize("vectors", [False, True], ids=["scalars", "vectors"])
def test_loops_end_where_the_last_reader_does(vectors):
    dag = softmax_like(below)
    s = Schedule(dag)
    s["B0"].split("i", factors=[10])
    s["B0"].reorder("i.0", "j", "i.1")
    s["S"].compute_at(s["B0"], "i.0")
    s["S"].pragma("j", "skip_unread", 1)
    s["B0"].pragma("j", "skip_zeros", 2)
    if vectors:
        s["B0"].vectorize("i.1")
        s["S"].vectorize("i")
    assert ENDS in str(lower_nest(s.state).run[0])
    check(dag, s.trace)
