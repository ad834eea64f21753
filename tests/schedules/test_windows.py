"""Depthwise convolution and pooling by the rule for windows: right for all decisions, with sums in
registers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.codegen.llvm.assembly import asm_facts
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.operators import OPERATORS
from autotensor.schedule.primitives.algorithm import algorithms_of
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.sketch import Sketch
from autotensor.te import Tensor
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

WIDE = parse("llvm -mcpu=x86-64-v4 -threads=2")
TARGETS = (WIDE, parse("llvm -mcpu=haswell -threads=2"), parse("llvm -mcpu=x86-64 -threads=3"))


def depthwise(shape: tuple[int, ...], kernel: tuple[int, int] = (3, 3), **attrs: object) -> ComputeDAG:
    channels = shape[-1]
    x = te.placeholder(shape, name="x")
    w = te.placeholder((channels, 1, *kernel), name="w", constant=True)
    b = te.placeholder((channels,), name="b", constant=True)
    y = OPERATORS.get("conv2d").compute(x, w, b, groups=channels, layout="NHWC", **attrs)
    return ComputeDAG.of([x, w, b, OPERATORS.get("relu").compute(y)])


def pool(op: str, shape: tuple[int, ...], **attrs: object) -> ComputeDAG:
    x = te.placeholder(shape, name="x")
    return ComputeDAG.of([x, OPERATORS.get(op).compute(x, **attrs)])


def line(length: int, channels: int, stride: int) -> ComputeDAG:
    """One axis, no padding, and weights that are not constant."""
    x, w = te.placeholder((length, channels), name="x"), te.placeholder((3, channels), name="w")
    k = te.reduce_axis(3, name="k")
    out = (length - 3) // stride + 1
    y: Tensor = te.compute(
        (out, channels), lambda i, c: te.sum(x[i * stride + k, c] * w[k, c], axis=k), name="y"
    )
    return ComputeDAG.of([x, w, y])


def volume(shape: tuple[int, ...]) -> ComputeDAG:
    """Three sliding axes, two of them in the tile."""
    x, w = (
        te.placeholder(shape, name="x"),
        te.placeholder((shape[-1], 1, 3, 3, 3), name="w", constant=True),
    )
    conv = OPERATORS.get("conv3d").compute
    return ComputeDAG.of([x, w, conv(x, w, padding=1, groups=shape[-1], layout="NDHWC")])


LAST = {"layout": "NHWC"}
CASES = {
    "17 channels": lambda: depthwise((1, 7, 9, 17), padding=1),
    "7 channels, stride 2": lambda: depthwise((1, 9, 8, 7), padding=1, stride=2),
    "33 channels, stride 3, two images": lambda: depthwise((2, 7, 7, 33), padding=1, stride=3),
    "5x5": lambda: depthwise((1, 6, 11, 16), (5, 5), padding=2),
    "2x3, uneven padding": lambda: depthwise((1, 5, 10, 24), (2, 3), padding=(1, 0, 0, 2)),
    "dilated": lambda: depthwise((1, 9, 9, 16), padding=2, dilation=2),
    "no padding": lambda: depthwise((1, 5, 9, 32)),
    "padding beyond the map": lambda: depthwise((1, 2, 3, 16), (5, 5), padding=2),
    "maximum": lambda: pool("max_pool2d", (1, 9, 7, 17), kernel=3, stride=2, padding=1, **LAST),
    "maximum to the ceiling": lambda: pool(
        "max_pool2d", (1, 6, 7, 16), kernel=3, stride=2, ceil_mode=True, **LAST
    ),
    "mean": lambda: pool("avg_pool2d", (1, 8, 6, 40), kernel=2, stride=2, **LAST),
    "mean of what is there": lambda: pool(
        "avg_pool2d", (1, 6, 7, 16), kernel=3, padding=1, stride=1, count_include_pad=False, **LAST
    ),
    "channels first": lambda: pool("max_pool2d", (2, 3, 6, 20), kernel=3, stride=1, padding=1),
    "a volume": lambda: volume((1, 3, 4, 5, 18)),
    "a line": lambda: line(23, 17, 2),
}


def by_windows(dag: ComputeDAG, target: Target) -> list:  # type: ignore[type-arg]
    return [s for s in generate(dag, target) if "windows" in s.made_by]


@pytest.mark.parametrize("name", CASES)
def test_any_decision_gives_the_same(name: str) -> None:
    dag, draws = CASES[name](), random.Random(name)
    for n, target in enumerate(TARGETS):
        sketches = by_windows(dag, target)
        sketch = draws.choice(sketches) if n else sketches[0]
        check(dag, sketch.fill(sketch.random(draws) if n else sketch.defaults()), seed=n)


def test_products_and_long_sums_are_left_to_others() -> None:
    x, w = te.placeholder((8, 16), name="x"), te.placeholder((16, 32), name="w")
    assert not by_windows(ComputeDAG.of([x, w, OPERATORS.get("matmul").compute(x, w)]), WIDE)
    whole = by_windows(pool("avg_pool2d", (1, 20, 20, 16), kernel=9, stride=1, **LAST), WIDE)
    assert all("shared_windows" in algorithms_of(sketch.steps) for sketch in whole)  # of parts that are short


def test_a_block_holds_all_channels_unless_cores_would_wait() -> None:
    blocks = {
        side: dict(default_choices(depthwise((1, side, side, 64), padding=1)))["conv/channels"]
        for side in (3, 48)
    }
    assert blocks[48] == (4,)
    assert blocks[3][0] < 4


def pooled_by(side: int, channels: int, **window: int) -> tuple[int, ...]:
    chosen = default_choices(pool("avg_pool2d", (1, side, side, channels), **window, **LAST))
    return next(v for k, v in chosen.items() if k.endswith("/tile"))


def test_inputs_that_wait_for_other_rows_count_as_registers() -> None:
    """For 3 x 5 sums of a 3x3 window, 21 inputs wait in registers in addition to 15 sums."""
    assert pooled_by(28, 192, kernel=3, stride=1, padding=1) == (3, 4)
    assert default_choices(depthwise((1, 56, 56, 144), padding=1))["conv/tile"] == (3, 4)


def test_windows_apart_are_few_in_a_tile() -> None:
    """With fewer of them, more of memory is read in its order."""
    assert pooled_by(112, 64, kernel=3, stride=2, padding=1) == (2, 2)
    assert pooled_by(224, 64, kernel=2, stride=2) == (1, 1)


@pytest.mark.parametrize(
    ("dag", "largest"),
    [
        (lambda: depthwise((1, 28, 28, 192), padding=1, stride=2), {(2, 5), (3, 3)}),
        (lambda: depthwise((1, 28, 28, 192), padding=1), {(2, 7), (3, 4)}),
    ],
)
def test_no_tile_on_offer_wants_the_stack(
    dag: Callable[[], ComputeDAG], largest: set[tuple[int, int]]
) -> None:
    sketch = by_windows(dag(), WIDE)[0]
    hole = next(h for h in sketch.holes if h.name.endswith("/tile"))
    assert largest < set(hole.options)
    assert (3, 6) not in hole.options  # 2 x 6 of stride 2 put 9 vectors aside, 3 x 6 of stride 1 43
    for tile in largest:
        trace = sketch.fill(sketch.defaults() | {hole.name: tile})
        assert asm_facts(compile_trace(dag(), trace, WIDE, asm=True).texts["asm"]).spills == 0


def test_the_next_tile_finds_its_weights_in_registers() -> None:
    """A 3x3 window has 9 weights, so fewer sums fit. With one vector of channels, all tiles of a row use
    them."""
    across, along = (
        next(h for h in s.holes if h.name.endswith("/tile")).options
        for s in generate(depthwise((1, 28, 28, 32), padding=1), WIDE)[:3:2]
    )
    assert (3, 4) in across
    assert (3, 4) not in along


@pytest.mark.parametrize(
    ("shape", "threads", "first"),
    [((1, 14, 14, 384), 2, "i1.0"), ((1, 7, 7, 960), 2, "i3.0"), ((1, 14, 14, 384), 16, "i3.0")],
)
def test_cores_divide_rows_where_there_are_enough(shape: tuple[int, ...], threads: int, first: str) -> None:
    target = parse(f"llvm -mcpu=x86-64-v4 -threads={threads}")
    by_default, *others = by_windows(depthwise(shape, padding=1), target)
    assert blocks_of(by_default)[1] == first
    assert {blocks_of(s)[1] for s in others} == {"i1.0", "i3.0"}, "a search may choose"


def blocks_of(sketch: Sketch) -> list[str]:
    """Axes of the parallel loop, outermost first."""
    (step,) = (s for s in sketch.steps if isinstance(s, Parallel))
    return re.findall(r"[ir]\d+(?:\.\d+)?", step.axis)


def default_choices(dag: ComputeDAG) -> dict[str, tuple[int, ...]]:
    sketch = generate(dag, WIDE)[0]
    return dict(sketch.defaults())


def test_the_interior_runs_without_tests_and_copies() -> None:
    dag = depthwise((1, 28, 28, 32), padding=1)
    (kernel,) = lower(default_trace(dag, WIDE).replay(dag)).run
    text = str(kernel)
    assert "if_then_else" not in text
    assert "pad" not in text
    asm = compile_trace(dag, default_trace(dag, WIDE), WIDE, asm=True).texts["asm"]
    spills = re.findall(r"vmov[au]ps\s+%zmm\d+, -?\d*\(%rsp\)", asm)
    assert not spills, f"{len(spills)} spills"
