"""The rule for tensor cores: the targets, types and loops for which it has sketches, and these sketches."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_comparison import check_gpu
from half_products import PRODUCTS, convolution, matrices, narrow_sums

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.schedule.loop_picture import picture
from autotensor.search.propose.population import sample
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate, structure
from schedules.prior.predict import predict
from schedules.prior.rates import Rates

TARGET = parse("cuda -arch=sm_80")


def made_by(dag: ComputeDAG, target: str) -> set[str]:
    return {name for s in generate(dag, parse(target)) for name in s.made_by}


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"])
def test_cards_with_the_instruction_may_use_it_or_not(arch: str) -> None:
    found = made_by(matrices(64, 64, 64), f"cuda -arch={arch}")
    assert {"tensor_cores", "gpu_tile"} <= found


@pytest.mark.parametrize(
    "target", ["cuda -arch=sm_70", "cuda -arch=sm_75", "opencl -device=gpu", "opencl", "llvm"]
)
def test_no_other_target_does(target: str) -> None:
    assert "tensor_cores" not in made_by(matrices(64, 64, 64), target)


def test_float32_is_not_rounded_for_their_sake() -> None:
    assert "tensor_cores" not in made_by(matrices(64, 64, 64, "float32"), "cuda -arch=sm_80")


@pytest.mark.parametrize("dag", [matrices(64, 64, 64), narrow_sums(64, 64, 64)])
def test_strict_numerics_forbid_them(dag: ComputeDAG) -> None:
    assert "tensor_cores" in made_by(dag, "cuda")
    assert "tensor_cores" not in made_by(dag, "cuda -numerics=strict")


def test_few_rows_have_no_tile() -> None:
    assert "tensor_cores" not in made_by(matrices(4, 512, 512), "cuda")


def test_what_is_no_sum_of_products_is_left_alone() -> None:
    a, k = te.placeholder((64, 64), "float16", name="A"), te.reduce_axis(64, name="k")
    most = te.compute((64, 64), lambda i, j: te.max(a[i, k] * a[k, j], axis=k), name="M")
    squares = te.compute((64,), lambda i: te.sum(te.cast("float32", a[i, k] * a[i, k]), axis=k), name="S")
    assert "tensor_cores" not in made_by(ComputeDAG.of([a, most]), "cuda")
    assert "tensor_cores" not in made_by(ComputeDAG.of([a, squares]), "cuda")


@pytest.mark.parametrize("name", ["no extent is a multiple", "convolution, odd"])
def test_the_interpreter_finds_no_race_and_the_same_numbers(name: str) -> None:
    """This test needs no NVRTC; tests/benchmarks/card simulates more of these schedules."""
    dag = PRODUCTS[name]
    check_gpu(dag, default_trace(dag, TARGET), target=TARGET)


def test_nothing_but_the_result_is_in_memory() -> None:
    """A convolution is one kernel: its rows, with their padding, are made in shared memory."""
    dag = convolution(56, 64, 64)
    (kernel,) = lower(default_trace(dag, TARGET).replay(dag), TARGET).run
    assert {b.name for b in kernel.params} == {"X", "W", "Y"}


def source(dag: ComputeDAG) -> str:
    return compile_trace(dag, default_trace(dag, TARGET), TARGET, "k").texts["cuda"]


def test_zeros_of_padding_are_copied_like_the_rest() -> None:
    """Rows with padding are copied asynchronously, too: a copy of zero bytes writes zeros."""
    text = source(convolution(56, 64, 64))
    assert "at_copy16_if(Y_rows" in text
    assert "at_copy16(Y_columns" in text


def test_each_row_and_column_is_fetched_once_a_step() -> None:
    """With 4 x 8 instructions, the rows of all four are fetched before the loop over columns, and columns
    inside it."""
    text = source(matrices(4096, 4096, 4096))
    before, _, inside = text.partition("unsigned int b[2];")
    assert "unsigned int a[4][4];" in before
    assert "at_ldmatrix4(a[i_2]" in before
    assert "ldmatrix" not in inside.partition("at_mma_f16")[0].partition(";")[2]


@pytest.mark.parametrize("turned", [False, True])
def test_turned_rows_are_turned_on_the_way_to_registers(turned: bool) -> None:
    text = source(matrices(64, 64, 64, turned=(turned, False)))
    assert f"at_ldmatrix4{'t' if turned else ''}(" in text
    assert "at_copy16(C_rows" in text


def test_every_option_keeps_the_limits_and_the_prior_ranks_them() -> None:
    """The target is the card with the least shared memory."""
    dag, target = matrices(256, 256, 128), parse("cuda -arch=sm_86")
    for sketch in (s for s in generate(dag, target) if "tensor_cores" in s.made_by):
        population = sample(sketch, structure(sketch, dag), 64, np.random.default_rng(0))
        seconds, _ = predict(population.picture, target, Rates.guess(target))
        assert np.all(np.isfinite(seconds))
        assert np.all(seconds > 0)
        (hole,) = sketch.holes
        for option in hole.options[:: len(hole.options) // 4]:
            (kernel,) = lower(sketch.fill({hole.name: option}).replay(dag), target).run
            assert kernel.launch is not None
            assert np.prod(kernel.launch.block) <= target.max_threads_per_block
            assert kernel.launch.shared_bytes <= target.max_shared_bytes


def test_the_prior_knows_their_peak() -> None:
    """The prediction for large products is faster than FMAs can be, and not faster than the card's peak."""
    n, target = 4096, parse("cuda -arch=sm_80")
    dag, rates = matrices(n, n, n), Rates.guess(target)
    by = {}
    for sketch in generate(dag, target):
        trace = sketch.fill(sketch.defaults())
        seconds = float(predict(picture(trace.replay(dag), {}), target, rates)[0][0])
        by.setdefault(sketch.made_by[0], 2 * n**3 / seconds)
    peak = rates.peak(target.num_cores)
    assert by["gpu_tile"] < peak < by["tensor_cores"] < 8 * peak


def test_reuse_is_what_large_tiles_are_for() -> None:
    """Warps of a large product have 64 x 64 results; a small one is cut finer, for more multiprocessors."""
    (large, *_), (small, *_) = (generate(matrices(n, n, n), TARGET) for n in (4096, 256))
    assert large.holes[0].default[2:4] == (64 // 16, 64 // 8)
    wm, wn, mi, ni, *_ = small.holes[0].default
    assert 256 // (wm * mi * 16) * (256 // (wn * ni * 8)) >= TARGET.num_cores // 4
