"""Every message that a person can meet while scheduling: the text is the golden.

One sentence that names the stage and the axis and says what exists, and one that says what to do.
"""

from __future__ import annotations

import pytest
from message_cases import Cases, chain, schedule

from autotensor import te
from autotensor.base.errors import LoweringError
from autotensor.lowering.pipeline import lower
from autotensor.schedule import create_schedule

CASES = Cases()


# -- names ---------------------------------------------------------------------------------------------------


@CASES.says("stage 'C' has no axis 'q'; it has i, j, k.")
def unknown_axis() -> None:
    schedule()["C"].vectorize("q")


@CASES.says("stage 'C' has no axis 'i'; it has i.0, i.1, j, k.")
def axis_that_was_split() -> None:
    s = schedule()
    s["C"].split("i", factor=4)
    s["C"].unroll("i")


@CASES.says("there is no stage 'X'; there are C, D, E.")
def unknown_stage() -> None:
    schedule()["X"].unroll("i")


@CASES.says(
    "cache_read: stage 'P' is inlined, so no stage reads it. "
    "Use cache_read first, then compute_inline: the copy computes the stage."
)
def copy_of_an_inlined_stage() -> None:
    s = chain()
    s["P"].compute_inline()
    s.cache_read("P", "local", ["Q"])


@CASES.says("there is no tensor 'X'; there are A, B, C, D, E.")
def unknown_tensor() -> None:
    schedule().cache_read("X", "local", ["C"])


@CASES.says("'A' is an input and has no loops. Use cache_read to copy it.")
def placeholder_scheduled() -> None:
    a = te.placeholder((4,), name="A")
    create_schedule(te.compute((4,), lambda i: a[i], name="B"))[a].unroll("i")


@CASES.says("axis 'i' belongs to stage 'D', not to 'C'. Take it from s['C'].op.")
def axis_of_another_stage() -> None:
    s = schedule()
    s["C"].unroll(s["D"].op.axis[0])


@CASES.says("3 is not an axis. Pass what split or fuse returned, or C.op.axis[0].")
def not_an_axis() -> None:
    schedule()["C"].unroll(3)  # type: ignore[arg-type]


@CASES.says("[x, y] is not an axis. Pass axes one by one: s[C].reorder(y, x), or s[C].fuse(*axes).")
def a_list_of_axes() -> None:
    class Names(list[str]):
        __repr__ = lambda self: "[x, y]"  # noqa: E731

    schedule()["C"].reorder(Names(["i", "j"]))  # type: ignore[arg-type]


@CASES.says("axis 'q' belongs to no stage of this schedule. Its stages: C, D, E.")
def axis_of_another_schedule() -> None:
    a = te.placeholder((4,), name="A")
    schedule()["C"].unroll(te.compute((4,), lambda q: a[q], name="B").op.axis[0])


@CASES.says("StageRef(C) is not part of this schedule. Its stages: P, Q, R.")
def stage_of_another_schedule() -> None:
    chain()[schedule()["C"]].unroll("i")


@CASES.says("3 is not part of this schedule. Its stages: C, D, E.")
def not_a_stage() -> None:
    schedule()[3].unroll("i")  # type: ignore[index]


@CASES.says("create_schedule takes tensors, got int.")
def schedule_of_a_number() -> None:
    create_schedule(3)


# -- split, fuse, reorder ------------------------------------------------------------------------------------


@CASES.says("split: factor -2 of axis 'i' of stage 'C' is not positive.")
def negative_factor() -> None:
    schedule()["C"].split("i", factor=-2)


@CASES.says("split: factor 2.5 of axis 'i' of stage 'C' is not a whole number.")
def fractional_factor() -> None:
    schedule()["C"].split("i", factor=2.5)  # type: ignore[arg-type]


@CASES.says("split: factor 2.5 of axis 'i' of stage 'C' is not a whole number.")
def one_number_for_all_factors() -> None:
    schedule()["C"].split("i", factors=2.5)  # type: ignore[arg-type]


@CASES.says("split: factor 4294967296 of axis 'i' of stage 'C' is more than 2147483647.")
def factor_beyond_all_extents() -> None:
    schedule()["C"].split("i", factor=1 << 32)


@CASES.says("tile: factor 2.0 of stage 'C' is not a whole number.")
def fractional_tile() -> None:
    schedule()["C"].tile("i", "j", 4, 8 / 4)  # type: ignore[arg-type]


@CASES.says("split: axis 'i' of stage 'C' needs exactly one of factor, nparts, factors.")
def factor_and_parts() -> None:
    schedule()["C"].split("i", factor=2, nparts=2)


@CASES.says("split: axis 'i' of stage 'C' needs either factors or nparts.")
def no_factor() -> None:
    schedule()["C"].split("i", factors=())


@CASES.says("split: axis 'j' of stage 'C' is already vectorized. Split before marking it.")
def split_of_a_marked_axis() -> None:
    s = schedule()
    s["C"].vectorize("j")
    s["C"].split("j", factor=2)


@CASES.says("split: stage 'P' is computed at axis 'i' of stage 'Q'. Split before compute_at.")
def split_of_a_host() -> None:
    s = chain()
    s["P"].compute_at(s["Q"], "i")
    s["Q"].split("i", factor=2)


@CASES.says("fuse: axis 'k' of stage 'C' is not directly inside 'i'. Reorder first; the order is i, j, k.")
def fuse_not_adjacent() -> None:
    schedule()["C"].fuse("i", "k")


@CASES.says("fuse: axes 'j' (spatial) and 'k' (reduce) of stage 'C' differ in kind. Fuse loops of one kind.")
def fuse_of_two_kinds() -> None:
    schedule()["C"].fuse("j", "k")


@CASES.says("fuse: axis 'i' of stage 'C' is already parallel. Fuse before marking it.")
def fuse_of_a_marked_axis() -> None:
    s = schedule()
    s["C"].parallel("i")
    s["C"].fuse("i", "j")


@CASES.says("fuse: stage 'P' is computed at axis 'j' of stage 'Q'. Fuse before compute_at.")
def fuse_of_a_host() -> None:
    s = chain()
    s["P"].compute_at(s["Q"], "j")
    s["Q"].fuse("i", "j")


@CASES.says("fuse: no axes of stage 'C' given.")
def fuse_of_nothing() -> None:
    schedule()["C"].fuse()


@CASES.says("reorder: an axis of stage 'C' is named twice: i, j, i.")
def reorder_twice() -> None:
    schedule()["C"].reorder("i", "j", "i")


# -- marks ---------------------------------------------------------------------------------------------------


@CASES.says(
    "parallel: axis 'k' of stage 'C' is a reduction; its iterations depend on one another. "
    "Make it spatial with rfactor, or parallel another axis."
)
def parallel_reduction() -> None:
    schedule()["C"].parallel("k")


@CASES.says("unroll: axis 'j' of stage 'C' is already vectorized.")
def marked_twice() -> None:
    s = schedule()
    s["C"].vectorize("j")
    s["C"].unroll("j")


@CASES.says("parallel: axis 'i' of stage 'C' is parallel already. Fuse the two axes first.")
def two_parallel_axes() -> None:
    s = schedule()
    s["C"].parallel("i")
    s["C"].parallel("j")


@CASES.says("parallel: stage 'P' is computed inside another stage. Parallelise that stage's outer loop.")
def parallel_inside() -> None:
    s = chain()
    s["P"].compute_at(s["Q"], "i")
    s["P"].parallel("i")


@CASES.says(
    "parallel: axis 'j' of stage 'C' is not outermost (i is outside it). "
    "Reorder so that 'j' comes first, or fuse it with the loops outside."
)
def parallel_not_outermost() -> None:
    s = schedule()
    s["C"].parallel("j")
    lower(s.state)


@CASES.says("vectorize: axes 'i' and 'j' of stage 'C' are both vectorized. Fuse them, or vectorize one.")
def vectorized_twice() -> None:
    s = schedule()
    s["C"].vectorize("i")
    s["C"].vectorize("j")
    lower(s.state)


@CASES.says("vectorize: stage 'P' is computed inside axis 'i' of stage 'Q'. Attach it further out.")
def vectorized_host() -> None:
    s = chain()
    s["P"].compute_at(s["Q"], "j")
    s["Q"].vectorize("i")
    lower(s.state)


@CASES.says(
    "bind: target 'llvm' has no thread axes; use parallel('i'). "
    'GPUs have them: target="cuda", or target="opencl".'
)
def bind() -> None:
    s = schedule()
    s["C"].bind("i", "blockIdx.x")
    lower(s.state)


@CASES.says(
    "pragma: key 'unroll' is unknown. Known: auto_unroll_max_step, skip_zeros, skip_unread, sum_apart."
)
def unknown_pragma() -> None:
    schedule()["C"].pragma("i", "unroll", 4)


@CASES.says(
    "pragma: key 'unroll_explicit' is unknown. "
    "Leave it out: loops are always unrolled in the code that LLVM gets."
)
def pragma_of_tvm() -> None:
    schedule()["C"].pragma("i", "unroll_explicit", True)


@CASES.says("pragma: auto_unroll_max_step is 'many'; it must be a whole number.")
def odd_pragma() -> None:
    schedule()["C"].pragma("i", "auto_unroll_max_step", "many")


@CASES.says("pragma: skip_zeros is 3; it must be 1 or 2. Leave the pragma out where it is not needed.")
def pragma_value() -> None:
    schedule()["C"].pragma("i", "skip_zeros", 3)


@CASES.says("vectorize: loop 'B:i' has 1000 lanes; at most 256 fit. Split it first.", LoweringError)
def long_vector() -> None:
    a = te.placeholder((1000,), name="A")
    s = create_schedule(te.compute((1000,), lambda i: a[i], name="B"))
    s["B"].vectorize("i")
    lower(s.state)


@CASES.says(
    "unroll: loop 'B:i' has 5000 iterations; at most 4096 are written out. Split it first.", LoweringError
)
def long_unroll() -> None:
    a = te.placeholder((5000,), name="A")
    s = create_schedule(te.compute((5000,), lambda i: a[i], name="B"))
    s["B"].unroll("i")
    lower(s.state)


# -- places --------------------------------------------------------------------------------------------------


@CASES.says("compute_at: 'C' is also read by 'D', which is outside loop 'i' of 'E'. Compute 'C' at root.")
def read_outside() -> None:
    s = schedule()
    s["C"].compute_at(s["E"], "i")


@CASES.says(
    "compute_at: 'P' is also read by 'Q', which is outside loop 'i' of 'R'. "
    "Attach 'Q' there first, or compute 'P' at root."
)
def read_by_a_stage_that_can_be_attached_first() -> None:
    a = te.placeholder((8, 4), name="A")
    p = te.compute((8, 4), lambda i, j: a[i, j] + 1, name="P")
    q = te.compute((8, 4), lambda i, j: p[i, j] * 2, name="Q")
    s = create_schedule(te.compute((8, 4), lambda i, j: q[i, j] - p[i, j], name="R"))
    s["P"].compute_at(s["R"], "i")


@CASES.says(
    "compute_at: 'P' is also read by 'Q', which is outside loop 'j' of 'R'. Compute it at root, or inline it."
)
def reader_moved_outside() -> None:
    """P is read by Q, which a reorder puts outside the loop of P."""
    s = chain()
    s["Q"].compute_at(s["R"], "j")
    s["P"].compute_at(s["R"], "j")
    s["R"].split("i", factor=2)
    s["Q"].compute_at(s["R"], "i.1")
    lower(s.state)


@CASES.says(
    "compute_at: stage 'D' is an output; it is computed whole. "
    "Leave it out of the arguments, or compute it at root."
)
def attached_output() -> None:
    s = schedule()
    s["D"].compute_at(s["E"], "i")


@CASES.says("compute_at: stage 'P' would be computed inside itself.")
def attached_to_itself() -> None:
    s = chain()
    s["P"].compute_at(s["P"], "i")


@CASES.says("compute_at: stage 'Q' is inlined and has no loops. Attach it to a reader.")
def attached_to_inlined() -> None:
    s = chain()
    s["Q"].compute_inline()
    s["P"].compute_at(s["Q"], "i")


@CASES.says("compute_at: stage 'P' is inlined and computed nowhere.")
def inlined_attached() -> None:
    s = chain()
    s["P"].compute_inline()
    s["P"].compute_at(s["Q"], "i")


@CASES.says("compute_at: axis 'j' of stage 'Q' is vectorized. Attach it further out.")
def attached_to_vector() -> None:
    s = chain()
    s["Q"].vectorize("j")
    s["P"].compute_at(s["Q"], "j")


@CASES.says("compute_at: stage 'P' has a parallel loop. Attach it before parallel, or not at all.")
def attached_parallel() -> None:
    s = chain()
    s["P"].parallel("i")
    s["P"].compute_at(s["Q"], "i")


@CASES.says("compute_root: stage 'P' is inlined already. Leave the inline step out.")
def root_of_inlined() -> None:
    s = chain()
    s["P"].compute_inline()
    s["P"].compute_root()


@CASES.says(
    "compute_inline: stage 'D' is an output; it must be computed. "
    "Leave it out of the arguments, or inline its producers into it."
)
def inlined_output() -> None:
    schedule()["D"].compute_inline()


@CASES.says("compute_inline: stage 'C' is a reduction and has no expression to inline. Use compute_at.")
def inlined_reduction() -> None:
    schedule()["C"].compute_inline()


@CASES.says(
    "compute_inline: stage 'P' is computed inside 'Q'. Inline 'Q' first, or move 'P' with compute_root."
)
def inlined_host() -> None:
    s = chain()
    s["P"].compute_at(s["Q"], "i")
    s["Q"].compute_inline()


# -- copies, layouts, partial results ------------------------------------------------------------------------


@CASES.says("cache_read: scope 'near' is unknown. Known: global, shared, local.")
def unknown_scope() -> None:
    schedule().cache_read("A", "near", ["C"])


@CASES.says("cache_read: stage 'D' does not read 'A'. It is read by C.")
def wrong_reader() -> None:
    schedule().cache_read("A", "local", ["D"])


@CASES.says("cache_read: nothing reads 'E'.")
def cache_of_an_output() -> None:
    schedule().cache_read("E", "local", [])


@CASES.says("cache_write: scope 'near' is unknown. Known: global, shared, local.")
def unknown_write_scope() -> None:
    schedule().cache_write("C", "near")


@CASES.says("cache_write: stage 'C' has been scheduled already. Make cache_write its first step.")
def cache_write_after_scheduling() -> None:
    s = schedule()
    s["C"].split("i", factor=2)
    s.cache_write("C", "local")


@CASES.says("layout: order '0 1' of 'B' must name each of 0, 1.0, 1.1 once.")
def layout_order() -> None:
    schedule().layout("B", [(1, 2)], "0 1")


@CASES.says("layout: 'B' has no dimension 2; it has 2.")
def layout_dimension() -> None:
    schedule().layout("B", [(2, 2)], "0 1 2.0 2.1")


@CASES.says("layout: a dimension of 'B' is tiled twice. Give each its one factor.")
def layout_twice() -> None:
    schedule().layout("B", [(1, 2), (1, 4)], "0 1.0 1.1")


@CASES.says("layout: factor 0 of 'B' is not positive.")
def layout_factor() -> None:
    schedule().layout("B", [(1, 0)], "0 1.0 1.1")


@CASES.says("layout: nothing reads 'E'.")
def layout_of_an_output() -> None:
    schedule().layout("E", [], "1 0")


@CASES.says("rfactor: axis 'i' of stage 'C' is not a reduction. Its reduction loops: k.")
def rfactor_of_a_spatial_axis() -> None:
    schedule().rfactor("C", "i")


@CASES.says("rfactor: spatial loops of stage 'C' have been changed already. Use rfactor first.")
def rfactor_too_late() -> None:
    s = schedule()
    s["C"].split("i", factor=2)
    s.rfactor("C", "k")


@CASES.says("rfactor: stage 'C' is computed inside another. Use rfactor before compute_at.")
def rfactor_of_an_attached_stage() -> None:
    a = te.placeholder((4, 4), name="A")
    k = te.reduce_axis(4, name="k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = create_schedule(te.compute((4,), lambda i: c[i] + 1, name="D"))
    s["C"].compute_at(s["D"], "i")
    s.rfactor("C", "k")


@CASES.says("rfactor: stage 'A.local:C' is computed inside 'C'. Use rfactor first.")
def rfactor_of_a_host() -> None:
    s = schedule()
    s.cache_read("A", "local", ["C"]).compute_at(s["C"], "i")
    s.rfactor("C", "k")


@pytest.mark.parametrize("name", [*CASES])
def test_message(name: str) -> None:
    CASES.check(name)
