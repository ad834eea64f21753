"""The object `Schedule`: the arguments that it accepts, its results and its text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import ScheduleError, TensorError
from autotensor.schedule import Schedule, Trace, create_schedule
from autotensor.schedule.loop_names import display_names
from autotensor.schedule.state import State
from autotensor.te import Tensor


def product() -> tuple[Tensor, Tensor, te.IterVar, Schedule]:
    a, b = te.placeholder((8, 6), name="A"), te.placeholder((6, 4), name="B")
    k = te.reduce_axis(6, name="k")
    c = te.compute((8, 4), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C")
    return a, c, k, create_schedule(c)


def test_axes_are_accepted_in_every_form() -> None:
    _, c, k, s = product()
    yo, yi = s[c].split(c.op.axis[0], factor=4)  # te axis
    xo, xi = s[c.op].split("x", nparts=2)  # name
    ko, ki = s["C"].split(k, factors=[3])
    assert [str(a) for a in s[c].leaf_iter_vars] == ["y.0", "y.1", "x.0", "x.1", "k.0", "k.1"]
    s[c].reorder(yo, xo, ko, yi, ki, xi)  # what split returned
    assert [str(a) for a in s[s[c]].leaf_iter_vars] == ["y.0", "x.0", "k.0", "y.1", "k.1", "x.1"]


def test_numpy_numbers_are_numbers() -> None:
    _, c, _, s = product()
    s[c].split("y", factor=np.int64(4))  # type: ignore[arg-type]
    s.layout("B", [(1, np.int64(2))], "1.0 0 1.1")  # type: ignore[list-item]
    assert Trace.from_json(s.trace.to_json()) == s.trace


def test_a_write_cache_has_the_axes_of_its_origin() -> None:
    _, c, k, s = product()
    near = s.cache_write(c, "local")
    near.split(k, factor=2)
    near.compute_at(s[c], c.op.axis[0])
    assert near.name == "C.local"
    assert [a.name for a in near.op.reduce_axis] == ["k"]


def test_a_failed_call_leaves_no_trace() -> None:
    _, c, _, s = product()
    before = s.trace, s.state
    with pytest.raises(Exception, match="no axis"):
        s[c].split("q", factor=2)
    assert (s.trace, s.state) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.tile("y", "x", 2, -2),  # the second split fails
        lambda c: c.tile("y", "y", 2, 2),
        lambda c: c.fuse("y", "x", "k"),  # the second fusion fails
    ],
)
def test_calls_of_several_steps_apply_all_or_none(call: Any) -> None:
    _, _, _, s = product()
    before = s.state
    with pytest.raises(ScheduleError):
        call(s["C"])
    assert s.trace.steps == ()
    assert s.state is before


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s, b: b.storage_align("i", 1.5, 0), "storage_align: factor 1.5 of stage 'B'"),
        (lambda s, b: b.storage_align("i", 4, "1"), "storage_align: offset '1' of stage 'B'"),
        (lambda s, b: b.storage("i", pad=0.5), "storage: pad 0.5 of stage 'B'"),
        (lambda s, b: b.swizzle(4.0), "swizzle: chunk 4.0 of stage 'B'"),
        (lambda s, b: b.double_buffer("2"), "double_buffer: turns '2' of stage 'B'"),
        (lambda s, b: b.look_ahead(te.const(2)), "look_ahead: steps <Const 2> of stage 'B'"),
        (lambda s, b: s.layout("A", [(0, 4.5)], "0.0 0.1"), "layout: factor 4.5 of 'A'"),
    ],
)
def test_numbers_of_primitives_are_whole(call: Any, says: str) -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    s = create_schedule(te.compute((8,), lambda i: b[i] * 2, name="C"))
    s[b].compute_at(s["C"], "i")
    before = s.trace
    with pytest.raises(ScheduleError, match=re.escape(f"{says} is not a whole number.")):
        call(s, s[b])
    assert s.trace == before


@pytest.mark.parametrize(("tiles", "order"), [((1, 16), "1.0 0 1.1"), ([(1, 16)], [1, 0]), ([(1,)], "0 1")])
def test_the_tiles_of_a_layout_are_pairs(tiles: Any, order: Any) -> None:
    with pytest.raises(
        ScheduleError, match=r"layout: 'A' takes pairs .* and a text, not .* For example s\.l"
    ):
        product()[3].layout("A", tiles, order)


def test_fuse_of_three() -> None:
    a = te.placeholder((2, 3, 4), name="A")
    s = create_schedule(te.compute((2, 3, 4), lambda i, j, k: a[i, j, k], name="B"))
    assert s["B"].fuse("i", "j", "k").name == "((i*j)*k)"
    assert s["B"].fuse("((i*j)*k)").name == "((i*j)*k)"


def test_rfactor_returns_the_new_stage() -> None:
    _, c, k, s = product()
    rf = s.rfactor(c, k)
    assert rf.name == "C.rf"
    assert [a.name for a in rf.op.axis] == ["k", "y", "x"]


def test_states_are_shared_and_traces_branch() -> None:
    _, c, _, s = product()
    s[c].split("y", factor=4)
    one, two = Schedule(s.dag, s.trace), Schedule(s.dag, s.trace)
    one[c].unroll("y.1")
    two[c].vectorize("x")
    assert one.trace.steps[:-1] == two.trace.steps[:-1] == s.trace.steps
    assert s.state.stage("C").leaves != one.state.stage("C").leaves


def test_several_outputs_and_ops() -> None:
    a = te.placeholder((4,), name="A")
    two = te.compute((4,), lambda i: (a[i] + 1, a[i] * 2), name="T")
    assert create_schedule(two[0].op).state.names == ("T",)
    assert create_schedule(list(two)).dag.outputs == create_schedule(two[0].op).dag.outputs


# -- names in print ------------------------------------------------------------------------------------------


def shown(s: Schedule) -> dict[str, str]:
    return display_names(s.state)


def test_halves_are_called_outer_and_inner() -> None:
    _, c, _, s = product()
    s[c].split("y", factor=4)
    s[c].split("x", factors=(2, 2))
    s[c].split("y.1", factor=2)
    names = shown(s)
    assert [names[f"C:{a}"] for a in ("y.0", "y.1.0", "y.1.1", "x.0", "x.1", "x.2", "k")] == [
        "yo", "yio", "yii", "x0", "x1", "x2", "k",
    ]  # fmt: skip


def test_two_stages_with_one_axis_name() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i], name="B")
    s = create_schedule(te.compute((4,), lambda i: b[i], name="C"))
    assert shown(s) == {"B:i": "B_i", "C:i": "C_i"}


@pytest.mark.parametrize("axes", [("y", "yo"), ("yi", "y"), ("A", "y"), ("y_1", "y")])
def test_names_never_meet(axes: tuple[str, str]) -> None:
    a = te.placeholder((4, 4), name="A")
    s = create_schedule(te.compute((4, 4), lambda i, j: a[i, j], name="B", axis_names=axes))
    for axis in axes:
        s["B"].split(axis, factor=2)
    s["B"].fuse(f"{axes[0]}.1", f"{axes[1]}.0")
    lines = [line.split()[1] for line in str(s).splitlines() if "for " in line]
    assert len(set(lines)) == len(lines) == 3


def test_state_of_the_empty_trace() -> None:
    _, _, _, s = product()
    assert Trace().replay(s.dag) == State.initial(s.dag) == s.state


def test_spellings_of_tvm_that_are_nearly_right() -> None:
    _, c, k, s = product()
    for wrong, says in (
        (lambda: s[c].tensorize(k, None), "an instruction is named by text; got NoneType"),  # type: ignore[arg-type]
        (lambda: s[c].pragma(k, "parallel_launch_point"), "key 'parallel_launch_point' is unknown"),
        (lambda: s[c].pragma(k, "skip_zeros"), "skip_zeros is ''; it must be a whole number"),
        (lambda: s.cache_write([], "local"), "cache_write takes results of one stage, got none"),
    ):
        with pytest.raises(ScheduleError, match=says):
            wrong()
    assert s.cache_write([c], "local").name == "C.local"
    with pytest.raises(TensorError, match=r"te\.maximum\(a, b\) is the max of two expressions"):
        te.compute((4,), lambda i: te.max(i, 0.0))


def test_loops_that_cannot_run_yet_are_printed_with_the_reason() -> None:
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, j] * 2, name="C")
    s = te.create_schedule(C)
    s[B].compute_at(s[C], "i")
    s[C].parallel("j")
    reason, *loops = str(s).split("\n")
    assert reason.startswith("# These loops cannot run yet. parallel: axis 'j' of stage 'C' is not outermost")
    assert loops == [
        *("# B, computed in loop i of C", "for i:", "  for j:", "    B = ..."),
        *("# C", "for i:", "  for j in parallel:", "    C = ..."),
    ]
