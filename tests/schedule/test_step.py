"""Steps and traces as text: JSON, Python, names of other authors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, get_type_hints

import pytest
from comparison import inverse
from fixed_cases import CASES
from gpu_cases import CASES as GPU_CASES

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.operators import OPERATORS
from autotensor.operators.cumulative import top_positions
from autotensor.schedule import Ref, Schedule, State, Trace, create_schedule
from autotensor.schedule.axis import fresh
from autotensor.schedule.primitives.below import Below
from autotensor.schedule.primitives.cache import CacheRead
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole, Sketch
from autotensor.schedule.state import Size
from autotensor.schedule.step import (
    KINDS,
    STEPS,
    AxisName,
    StageName,
    Step,
    Steps,
    Word,
    fill,
    from_json,
    refs,
    rename,
    rename_axis,
    rename_stage,
    step,
    to_json,
)

NAMES = {"C": "t0", "A": "a0", "C.y": "i0", "C.x": "i1", "C.k": "r0", "D": "t1", "D.y": "i0"}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("C", "t0"),
        ("C.local", "t0.local"),
        ("C.rf1", "t0.rf1"),
        ("A.local:C", "a0.local:t0"),
        ("A.local1:C.rf", "a0.local1:t0.rf"),
        ("A.packed", "a0.packed"),
        ("A.shared:A.packed", "a0.shared:a0.packed"),
        ("local.local:rf", "local.local:rf"),  # names of another program
    ],
)
def test_stages_in_other_names(name: str, want: str) -> None:
    assert rename_stage(name, NAMES) == want


def test_names_that_look_derived_are_kept_apart() -> None:
    names = {"local": "t0", "rf": "t1", "packed": "a0"}
    assert rename_stage("local.local:rf", names) == "t0.local:t1"
    assert rename_stage("packed.packed", names) == "a0.packed"


@pytest.mark.parametrize(
    ("axis", "stage", "want"),
    [
        ("y", "C", "i0"),
        ("y.0", "C", "i0.0"),
        ("(y.0*(x*k.1))", "C", "(i0.0*(i1*r0.1))"),
        ("k.1", "C.rf", "r0.1"),
        ("y", "C.local", "i0"),
        ("y", "D", "i0"),
        ("x", "D", "x"),
        ("i0", "A.local:C", "i0"),
        ("d1o", "C.packed", "d1o"),
    ],
)
def test_axes_in_other_names(axis: str, stage: str, want: str) -> None:
    assert rename_axis(axis, stage, NAMES) == want


def test_axes_of_copies_are_nobody_s() -> None:
    """A has an axis called i1; its copy has its own axes i0 and i1."""
    names = {"A": "t0", "A.i1": "i0", "A.i0": "i1", "C": "t1"}
    step = Reorder("A.local:C", ("i1", "i0"))
    assert rename(step, names) == Reorder("t0.local:t1", ("i1", "i0"))
    assert rename(Reorder("A", ("i1", "i0")), names) == Reorder("t0", ("i0", "i1"))


# -- what an argument is, by its type ------------------------------------------------------------------------

# the value of an argument of each type, and the same in the names of ROOM; "x" and "C" are names as well
SAMPLES: dict[Any, tuple[Any, Any]] = {
    StageName: ("C.local", "t0.local"),
    AxisName: ("(y.0*x)", "(i0.0*i1)"),
    Word: ("C x", "C x"),
    Steps: ('[["Unroll","C","y"]]', '[["Unroll","t0","i0"]]'),
    int: (3, 3),
    Size: (Ref("C", 1), Ref("C", 1)),
    Size | None: (None, None),
    tuple[StageName, ...]: (("D", "C"), ("t1", "t0")),
    tuple[AxisName, ...]: (("x", "k.1"), ("i1", "r0.1")),
    tuple[Size, ...]: ((2, Ref("x")), (2, Ref("x"))),
    tuple[tuple[int, Size], ...]: (((0, 4), (1, Ref("C"))), ((0, 4), (1, Ref("C")))),
}
ROOM = {"C": "t0", "C.y": "i0", "C.x": "i1", "C.k": "r0", "D": "t1", "D.y": "i1", "D.x": "i0"}
BACK = {"t0": "C", "t0.i0": "y", "t0.i1": "x", "t0.r0": "k", "t1": "D", "t1.i1": "y", "t1.i0": "x"}


@pytest.fixture
def planting() -> Iterator[None]:
    """Steps that a test defines are removed after the test."""
    known = dict(STEPS)
    yield
    STEPS.clear()
    STEPS.update(known)


def sampled(cls: type, which: int) -> Step:
    types = get_type_hints(cls, include_extras=True)
    made: Step = cls(*(SAMPLES[types[f.name]][which] for f in fields(cls)))
    return made


def test_there_is_a_sample_of_every_kind() -> None:
    assert list(SAMPLES) == list(KINDS)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_in_other_names_and_back(name: str) -> None:
    mine, theirs = sampled(STEPS[name], 0), sampled(STEPS[name], 1)
    assert rename(mine, ROOM) == theirs != mine
    assert rename(theirs, BACK) == mine
    assert from_json(to_json(mine)) == mine


@pytest.mark.usefixtures("planting")
def test_what_an_argument_is_called_decides_nothing() -> None:
    """An argument of type AxisName called `other` is an axis of the stage before it. A Word called `axis` is
    a word."""

    @step
    class Planted:
        first: StageName
        other: AxisName
        second: StageName
        third: tuple[AxisName, ...]
        axis: Word

        def apply(self, state: State) -> State:
            return state

    mine, theirs = Planted("C", "y.0", "D", ("y", "x"), "y"), Planted("t0", "i0.0", "t1", ("i1", "i0"), "y")
    assert rename(mine, ROOM) == theirs
    assert rename(theirs, BACK) == mine
    assert from_json(to_json(mine)) == mine


@pytest.mark.usefixtures("planting")
def test_an_argument_of_no_known_kind_is_refused_where_the_step_is_defined() -> None:
    said = (
        "step 'Planted': the type of argument 'axis' does not say what it is. "
        "Take StageName, AxisName, Word, int, Size or a tuple as in KINDS of schedule/step.py."
    )
    with pytest.raises(ScheduleError, match=re.escape(said)):

        @step
        class Planted:
            stage: StageName
            axis: str

    assert "Planted" not in STEPS


@pytest.mark.usefixtures("planting")
def test_an_axis_of_nobody_is_refused_where_the_step_is_defined() -> None:
    said = (
        "step 'Planted': its first argument is not a StageName. "
        "Begin with the stage, or the tensor, that the step is about."
    )
    with pytest.raises(ScheduleError, match=re.escape(said)):

        @step
        class Planted:
            axis: AxisName
            stage: StageName

    assert "Planted" not in STEPS


def passes() -> Schedule:
    """The steps that no other case has: of reductions in one pass, a hint, a stage at root again."""
    x, p, k = te.placeholder((8,), name="x"), te.placeholder((8,), "int64", name="p"), te.reduce_axis(8, "k")

    def sums(name: str, term: Callable[[Any], Any]) -> te.Tensor:
        body = lambda y: te.sum(te.select(term(y), x[k], 0.0), axis=k)  # noqa: E731
        return te.compute((8,), body, name=name, axis_names=("y",))

    placed, run = sums("placed", lambda y: p[k].equal(y)), sums("run", lambda y: k.var <= y)
    both = te.compute((8,), lambda y: placed[y] + run[y], name="both", axis_names=("y",))
    s = create_schedule([both, top_positions(x, 3, 0)])
    s["placed"].reorder("k", "y")
    s["placed"].solve("y")
    s["run"].scan("y")
    s["run"].pragma("k", "auto_unroll_max_step", 4)
    s["run"].compute_at(s["both"], "y")
    s["run"].compute_root()
    s["rank"].sort("i0")
    return s


def by_algorithm() -> Schedule:
    x, w = te.placeholder((1, 8, 8, 4), name="x"), te.placeholder((4, 4, 3, 3), name="w", constant=True)
    s = create_schedule(OPERATORS.get("conv2d").compute(x, w, padding=1, layout="NHWC"))
    s.algorithm(s.dag.outputs[0].name, "winograd_f2")
    return s


def by_looking_ahead() -> Schedule:
    x, y = te.placeholder((64,), name="x"), te.placeholder((64,), name="before")
    first = te.compute((1,), lambda t: x[t], name="first")
    s = create_schedule(te.scan(first, te.compute((64,), lambda t: y[t - 1] + x[t], name="u"), y, name="y"))
    s["u"].compute_inline()
    s["y"].look_ahead(8)
    return s


def by_size() -> Schedule:
    n = te.var("n", range=(1, 64))
    x = te.placeholder((n,), name="x")
    s = create_schedule(te.compute((n,), lambda y: x[y] + 1, name="C", axis_names=("y",)))
    s.do(Below("C", 8, '[["Parallel","C","y"]]'))
    return s


EVERY = {
    **CASES,
    **GPU_CASES,
    "passes": passes,
    "by_algorithm": by_algorithm,
    "by_looking_ahead": by_looking_ahead,
    "by_size": by_size,
}


def test_every_step_stands_in_a_schedule() -> None:
    """The next tests rename these schedules, and so find a name that was declared as a word."""
    assert {type(t).__name__ for make in EVERY.values() for t in make().trace.steps} == set(STEPS)


@pytest.mark.parametrize("name", EVERY)
def test_canonical_names_and_back(name: str) -> None:
    s = EVERY[name]()
    canonical, names = s.dag.canonical()
    there = s.trace.renamed(names)
    assert there.renamed(inverse(s.dag, names)) == s.trace
    assert Schedule(canonical, Trace.from_json(there.to_json())).trace == there


def test_equal_computations_share_traces() -> None:
    """For any names that the authors chose."""

    def product(stage: str, y: str, x: str) -> Schedule:
        a, b = te.placeholder((4, 5), name="P"), te.placeholder((5, 6), name="Q")
        k = te.reduce_axis(5, name="inner")
        body = lambda i, j: te.sum(a[i, k] * b[k, j], axis=k)  # noqa: E731
        s = create_schedule(te.compute((4, 6), body, name=stage, axis_names=(y, x)))
        s[stage].split(x, factor=2)
        s[stage].reorder(y, "inner", f"{x}.0", f"{x}.1")
        s.cache_read("P", "local", [stage])
        return s

    texts = [
        s.trace.renamed(s.dag.canonical()[1]).to_json()
        for s in (product("C", "y", "x"), product("local", "x", "y"))
    ]
    assert texts[0] == texts[1]


# -- JSON ----------------------------------------------------------------------------------------------------


def test_json_of_every_kind_of_argument() -> None:
    for made in (
        SplitStep("C", "y", (2, Ref("tile", 1))),
        SplitStep("C", "y", (), Ref("parts")),
        CacheRead("A", "local", ()),
        Layout("A", ((1, 4), (0, Ref("f"))), "1.0 0.0 1.1 0.1"),
    ):
        assert from_json(to_json(made)) == made


def test_json_is_stable() -> None:
    """Old records must stay readable for years, so this text is a format."""
    s = CASES["register_tile"]()
    assert s.trace.to_json() == (
        '{"version":1,"steps":[["Layout","B",[[1,8]],"1.0 0 1.1"],["SplitStep","D","y",[3],null],'
        '["SplitStep","D","x",[2,4],null],["Reorder","D",["y.0","x.0","y.1","x.1","x.2"]],'
        '["ComputeAt","C","D","x.0"],["SplitStep","C","x",[4],null],["Reorder","C",["k","y","x.0","x.1"]],'
        '["Unroll","C","y"],["Unroll","C","x.0"],["Vectorize","C","x.1"],["Unroll","D","y.1"],'
        '["Unroll","D","x.1"],["Vectorize","D","x.2"],["Parallel","D","y.0"]]}'
    )


def test_names_of_steps_are_a_format() -> None:
    assert {
        "CacheRead", "CacheWrite", "ComputeAt", "ComputeRoot", "FuseStep", "Inline", "Layout", "Parallel",
        "Pragma", "RFactor", "Reorder", "SplitStep", "Unroll", "Vectorize",
    } <= set(STEPS)  # fmt: skip


# -- holes ---------------------------------------------------------------------------------------------------


def test_holes_are_found_and_filled() -> None:
    step = SplitStep("C", "y", (2, Ref("tile", 1), Ref("tile", 0)))
    assert refs(step) == (Ref("tile", 1), Ref("tile", 0))
    assert fill(step, {"tile": (3, 5)}) == SplitStep("C", "y", (2, 5, 3))
    assert fill(Reorder("C", ("y",)), {}) == Reorder("C", ("y",))


# -- the naming law ------------------------------------------------------------------------------------------


def test_numbers_come_before_the_reader() -> None:
    """A.local1:C, not A.local:C1, which is the copy that a stage C1 reads."""
    assert fresh("A.local", set(), ":C") == "A.local:C"
    assert fresh("A.local", {"A.local:C"}, ":C") == "A.local1:C"
    assert fresh("C.rf", {"C.rf", "C.rf1"}) == "C.rf2"


def test_two_copies_for_one_reader() -> None:
    s = CASES["copies"]()
    s.cache_read("A.local:C", "global", ["C"])
    s.cache_read("B", "local", ["C"])
    s.cache_read("B.local:C", "local", ["C"])
    assert s.state.names == (
        "scaled", "A.local:C", "A.local:C.global:C", "B.local:C", "B.local:C.local:C", "C",
    )  # fmt: skip


def test_a_sketch_prints_its_steps_and_its_holes() -> None:
    hole = Hole("t0/tile", ((1, 8), (2, 8)), (2, 8))
    steps = (SplitStep("t0", "i0", (Ref("t0/tile"), Ref("t0/tile", 1))),)
    assert str(Sketch(steps, (hole,))).splitlines() == [
        's["t0"].split("i0", factors=[Ref("t0/tile"), Ref("t0/tile", 1)])',
        "# t0/tile: 2 options, default (2, 8)",
    ]
