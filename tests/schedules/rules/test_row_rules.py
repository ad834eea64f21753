"""Row chains, column sums, long reductions: every sketch gives the right results at any size."""

from __future__ import annotations

import random
from typing import Any

import pytest
from comparison import check

from autotensor import te
from autotensor.base.target import parse
from autotensor.operators import OPERATORS
from autotensor.schedule.axis import Mark
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.primitives.split import SplitStep
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")
SIZES = (1, 7, 17, 33, 100, 129)


def of(name: str, *shapes: tuple[int, ...], dtype: str = "float32", **attrs) -> ComputeDAG:
    inputs = [te.placeholder(s, dtype, f"x{n}") for n, s in enumerate(shapes)]
    out = OPERATORS.get(name).compute(*inputs, **attrs)
    return ComputeDAG.of([*inputs, out])


def made_by(dag: ComputeDAG, target=TARGET) -> tuple[str, ...]:
    return generate(dag, target)[0].made_by


def all_ways(dag: ComputeDAG, draws: int = 2) -> None:
    """The default of every sketch, and some random decisions."""
    rng = random.Random(0)
    for sketch in generate(dag, TARGET):
        for decisions in (sketch.defaults(), *(sketch.random(rng) for _ in range(draws))):
            check(dag, sketch.fill(decisions))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sum", "max", "mean"])
@pytest.mark.sample(8)
def test_rows_of_any_length(name: str, n: int) -> None:
    attrs = {} if "softmax" in name else {"axis": -1}
    all_ways(of(name, (5, n), **attrs))


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.sample(2)
def test_any_number_of_rows(rows: int) -> None:
    all_ways(of("softmax", (rows, 19)), draws=1)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8", "float16"])
@pytest.mark.parametrize("name", ["sum", "max", "min"])
@pytest.mark.sample(4)
def test_types_and_reducers(name: str, dtype: str) -> None:
    all_ways(of(name, (3, 100), dtype=dtype, axis=1))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("n", [7, 33, 100])
@pytest.mark.sample(2)
def test_reductions_of_pairs(name: str, n: int) -> None:
    all_ways(of(name, (3, n), axis=1))


def test_norms() -> None:
    all_ways(of("layer_norm", (7, 33), (33,), (33,)))
    all_ways(of("layer_norm", (2, 3, 5, 7), (5, 7), (5, 7), axis=-2))
    all_ways(of("rms_norm", (5, 100), (100,)))
    all_ways(of("group_norm", (2, 6, 3, 5), (6,), (6,), groups=3))


def test_several_row_axes_and_several_reduced_ones() -> None:
    all_ways(of("softmax", (2, 3, 4, 21)))
    all_ways(of("sum", (3, 1, 5, 7), axis=(1, 3)))
    all_ways(of("max", (3, 5, 7), axis=(1, 2)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", [(1000,), (17, 33), (3, 5, 70), (2, 3), (1,)])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
@pytest.mark.sample(12)
def test_one_number_of_all(name: str, shape: tuple[int, ...], dtype: str) -> None:
    if name == "mean" and dtype == "int8":
        return
    all_ways(of(name, shape, dtype=dtype))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.sample(1)
def test_the_place_of_one_number_of_all(name: str) -> None:
    all_ways(of(name, (1000,), axis=0))


@pytest.mark.parametrize("threads", [1, 2])
def test_one_number_of_all_is_reduced_in_vectors(threads: int) -> None:
    """Also on one of two cores, if dividing such small work gains nothing."""
    dag, target = of("max", (24, 100)), parse(f"llvm -mcpu=x86-64-v4 -threads={threads}")
    state = default_trace(dag, target).replay(dag)
    (stage,) = [s for s in state.stages if s.op.is_reduction]
    assert any(a.mark is Mark.VECTORIZED for a in stage.leaves)


def norm(batch: int, rows: int, columns: int) -> ComputeDAG:
    x = te.placeholder((batch, rows, columns), name="x")
    i, j = te.reduce_axis(rows, "i"), te.reduce_axis(columns, "j")
    total = te.compute((batch,), lambda b: te.sum(x[b, i, j] * x[b, i, j], axis=(i, j)), name="total")
    return ComputeDAG.of([x, te.compute((batch,), lambda b: te.sqrt(total[b]), name="norm")])


@pytest.mark.parametrize("shape", [(1, 128, 129), (1, 17, 1000), (3, 129, 100), (16, 33, 9)])
@pytest.mark.sample(2)
def test_long_norms(shape: tuple[int, int, int]) -> None:
    dag = norm(*shape)
    check(dag, default_trace(dag, TARGET))


def test_a_long_reduction_with_one_result_is_cut_for_the_cores() -> None:
    dag = norm(1, 256, 256)
    assert made_by(dag) == ("streamed_sums", "row_chain")
    assert made_by(norm(16, 256, 256)) == ("row_chain",)
    assert made_by(dag, parse("llvm -mcpu=x86-64-v4 -threads=1")) == ("row_chain",)
    state = default_trace(dag, TARGET).replay(dag)
    parts = state.stage("total.rf")
    assert parts.leaves[0].mark is Mark.PARALLEL
    assert any(a.mark is Mark.VECTORIZED for a in parts.leaves)


def test_long_column_sums_with_few_columns_are_cut() -> None:
    dag = of("sum", (5000, 16), axis=0)
    assert made_by(dag)[0] == "streamed_sums"
    check(dag, default_trace(dag, TARGET))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["sum", "max", "mean"])
@pytest.mark.sample(5)
def test_columns(name: str, n: int) -> None:
    all_ways(of(name, (n, 35), axis=0))


def test_columns_behind_other_axes() -> None:
    pooled = of("mean", (2, 7, 7, 33), axis=(1, 2))
    assert made_by(pooled) == ("streamed_sums",)
    all_ways(pooled)
    all_ways(of("sum", (3, 5, 2, 17), axis=(0, 2)))
    all_ways(of("min", (9, 20), dtype="int32", axis=0))
    all_ways(of("sum", (9, 20), dtype="float64", axis=0))


def test_softmax_is_one_kernel_and_small_ones_open_no_region() -> None:
    big, small = of("softmax", (1536, 128)), of("softmax", (7, 17))
    for dag, parallel in ((big, True), (small, False)):
        state = default_trace(dag, TARGET).replay(dag)
        out = state.stage("softmax")
        assert {s.place.stage for s in state.live() if s is not out} == {"softmax"}
        assert (out.leaves[0].mark is Mark.PARALLEL) == parallel


def test_a_running_sum_is_one_pass_also_in_front_of_something() -> None:
    x = te.placeholder((3000,), name="x")
    k = te.reduce_axis(3000, "k")
    s = te.compute((3000,), lambda i: te.sum(te.select(k <= i, x[k], 0.0), axis=k), name="s")
    o = te.compute((3000,), lambda i: s[i] * 2.0, name="o")
    made = [m for sketch in generate(ComputeDAG.of([x, o]), TARGET) for m in sketch.made_by]
    assert "one_pass" in made


@pytest.mark.parametrize("n", [3, 5, 7])
@pytest.mark.sample(1)
def test_a_short_axis_of_rows_is_one_block(n: int) -> None:
    """Points of space in longer records, rotated: no block of two rows leaves a rest of one."""
    p, turn = te.placeholder((400, 100), name="p"), te.placeholder((n, n), name="turn")
    k = te.reduce_axis(n, "k")
    y = te.compute((400, n), lambda i, j: te.sum(turn[j, k] * p[i, k], axis=k), name="y")
    dag = ComputeDAG.of([p, turn, y])
    trace = default_trace(dag, TARGET)
    assert next(s.factors for s in trace.steps if isinstance(s, SplitStep) and s.axis == "j") == (n,)
    check(dag, trace)


def test_a_pointwise_stage_that_is_read_once_has_no_row_of_its_own() -> None:
    """The reader uses each element where it is computed. A stage that sums read, too, is kept for the row."""
    x, k = te.placeholder((6, 100), name="x"), te.reduce_axis(100, name="k")
    m = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="m")
    z = te.compute((6, 100), lambda i, j: te.exp(x[i, j] - m[i]), name="z")
    y = te.compute((6, 100), lambda i, j: te.select(z[i, j] > 1.0, z[i, j], 0.1 * z[i, j]), name="y")
    alone = ComputeDAG.of([x, y])
    assert Inline("z") in default_trace(alone, TARGET).steps
    s = te.compute((6,), lambda i: te.sum(z[i, k], axis=k), name="s")
    both = ComputeDAG.of([x, te.compute((6, 100), lambda i, j: z[i, j] / s[i], name="p")])
    assert Inline("z") not in default_trace(both, TARGET).steps
    all_ways(alone)
    all_ways(both)


@pytest.mark.parametrize(("n", "first"), [(128, "tile_cpu"), (600, "one_pass")])
def test_few_elements_are_counted_rather_than_sorted(n: int, first: str) -> None:
    x, k = te.placeholder((4, n), "int32", name="x"), te.reduce_axis(n, "k")

    def is_before(b: Any, i: Any) -> Any:
        return te.any(x[b, k] < x[b, i], te.all(x[b, k].equal(x[b, i]), k.var < i))

    y = te.compute((4, n), lambda b, i: te.sum(te.cast("int32", is_before(b, i)), axis=k), name="y")
    dag = ComputeDAG.of([x, y])
    assert made_by(dag)[-1] == first
    check(dag, default_trace(dag, TARGET))
