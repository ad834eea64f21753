"""Copies that transpose dimensions are right for all decisions, and have vectors on both sides."""

from __future__ import annotations

import random
import re

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

WIDE = parse("llvm -mcpu=x86-64-v4 -threads=2")
TARGETS = (WIDE, parse("llvm -mcpu=haswell -threads=2"), parse("llvm -mcpu=x86-64 -threads=3"))


def transpose(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32") -> ComputeDAG:
    x = te.placeholder(shape, dtype, name="x")
    return ComputeDAG.of([x, OPERATORS.get("transpose").compute(x, axes=axes)])


def every_other(channels: int, length: int) -> ComputeDAG:
    """Even and odd elements, separated."""
    x = te.placeholder((channels, 2 * length + 1), name="x")
    y = te.compute((channels, length), lambda c, i: x[c, 2 * i] + x[c, 2 * i + 1] * x[c, 2 * i + 2], name="y")
    return ComputeDAG.of([x, y])


CASES = {
    "pixels of 3 colours": lambda: transpose((1, 3, 4, 48), (0, 2, 3, 1)),
    "pixels with a tail": lambda: transpose((2, 3, 3, 37), (0, 2, 3, 1)),
    "pixels of 2": lambda: transpose((2, 5, 33), (1, 2, 0)),
    "pixels of 5": lambda: transpose((5, 70), (1, 0)),
    "colours of pixels": lambda: transpose((1, 4, 48, 3), (0, 3, 1, 2)),
    "colours with a tail": lambda: transpose((2, 37, 3), (0, 2, 1)),
    "squares": lambda: transpose((32, 48), (1, 0)),
    "squares with tails": lambda: transpose((33, 17), (1, 0)),
    "a batch": lambda: transpose((3, 20, 16), (0, 2, 1)),
    "bytes": lambda: transpose((3, 64), (1, 0), "int8"),
    "doubles": lambda: transpose((16, 24), (1, 0), "float64"),
    "one column": lambda: transpose((40, 1), (1, 0)),
    "every other": lambda: every_other(3, 40),
}


@pytest.mark.parametrize("name", CASES)
def test_any_decision_gives_the_same(name: str) -> None:
    dag, draws = CASES[name](), random.Random(name)
    for n, target in enumerate(TARGETS):
        sketches = generate(dag, target)
        sketch = draws.choice(sketches) if n else sketches[0]
        check(dag, sketch.fill(sketch.random(draws) if n else sketch.defaults()), seed=n)


def turned_on_the_way() -> ComputeDAG:
    """Two results read a stage that reverses rows; it may be inlined into both."""
    x, w = te.placeholder((48, 64), name="x"), te.placeholder((48,), name="w")
    turned = te.compute((64, 48), lambda i, j: x[j, i] * 0.5, name="turned")
    y = te.compute((64, 48), lambda i, j: turned[i, j] * w[j], name="y")
    z = te.compute((48, 64), lambda i, j: turned[j, i] + w[i], name="z")
    return ComputeDAG.of([x, w, y, z])


def test_rows_that_are_read_across_through_another_stage_are_cut_into_squares() -> None:
    dag = turned_on_the_way()
    sketches = generate(dag, WIDE)
    draws = random.Random(0)
    for n, sketch in enumerate(draws.sample(sketches, min(6, len(sketches)))):
        check(dag, sketch.fill(sketch.random(draws)), seed=n)
    inlined = [s for s in sketches if any(x.call().endswith("compute_inline()") for x in s.steps)]
    assert inlined
    text = compile_trace(dag, inlined[0].fill(inlined[0].defaults()), WIDE).texts["llvm"]
    assert not re.search(r"insertelement [^\n]* i64 [1-9]", text)  # no lane but the first, of a broadcast


@pytest.mark.parametrize("name", ["pixels of 3 colours", "colours of pixels", "squares"])
@pytest.mark.parametrize("target", TARGETS[:2], ids=str)
def test_no_element_is_moved_by_itself(name: str, target) -> None:  # type: ignore[no-untyped-def]
    dag = CASES[name]()
    text = compile_trace(dag, default_trace(dag, target), target).texts["llvm"]
    assert "insertelement" not in text
    assert "shufflevector" in text


def test_a_load_ends_with_the_last_that_some_lane_wants() -> None:
    """The array ends with the last element that is read, and memory may end there, too."""
    x = te.placeholder((31,), name="x")
    y = te.compute((16,), lambda i: x[2 * i] * 2, name="y")
    dag = ComputeDAG.of([x, y])
    trace = default_trace(dag, WIDE)
    check(dag, trace)
    text = compile_trace(dag, trace, WIDE).texts["llvm"]
    ends = [
        int(at or 0) + int(width)
        for at, width in re.findall(r"(?:getelementptr[^\n]* i64 (\d+)\n[^\n]*)?load <(\d+) x float>", text)
    ]
    assert "shufflevector" in text
    assert max(ends) == 31


def test_threads_meet_before_what_others_wrote_is_turned() -> None:
    """The loads of squares are made together, ahead of the stores that want them."""
    x = te.placeholder((128, 128), name="x")
    k = te.reduce_axis(128, name="k")
    y = te.compute((128, 128), lambda i, j: te.sum(x[i, k] * x[k, j], axis=k), name="y")
    z = te.compute((128, 128), lambda i, j: y[j, i], name="z")
    dag = ComputeDAG.of([x, z])
    text = compile_trace(dag, default_trace(dag, WIDE), WIDE).texts["llvm"]
    calls = [line for line in text.splitlines() if "call void @run." in line or "call void @meet" in line]
    assert ["run" in c for c in calls] == [True, False, True]
