"""Kernels that are too small for a team run on the calling thread, whichever rule made them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotensor import te
from autotensor.base.target import Target
from autotensor.operators import OPERATORS
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.te.dag import ComputeDAG
from autotensor.te.tensor import Tensor
from schedules.cpu import ZEN4
from schedules.generate import default_trace, generate
from schedules.kit.parallel_region import cycles

TARGET = Target("llvm", "znver4", vector_bytes=64, vector_registers=32, num_cores=2)


def operator(
    name: str, side: int, channels: int, kernel: int = 0, groups: int = 1, **how: int
) -> list[Tensor]:
    x = te.placeholder((1, side, side, channels), name="x")
    if not kernel:
        return [x, OPERATORS.get(name).compute(x, **how)]
    w = te.placeholder((channels, channels // groups, kernel, kernel), name="w", constant=True)
    return [x, w, OPERATORS.get(name).compute(x, w, groups=groups, layout="NHWC", **how)]


def product(n: int) -> list[Tensor]:
    x, w = te.placeholder((n, n), name="x"), te.placeholder((n, n), name="w", constant=True)
    return [x, w, OPERATORS.get("matmul").compute(x, w)]


KERNELS: dict[str, Callable[[int], list[Tensor]]] = {
    "convolution": lambda n: operator("conv2d", n, 16, kernel=3, padding=1),
    "windows": lambda n: operator("conv2d", n, 16, kernel=3, groups=16, padding=1),
    "few_channels": lambda n: operator("conv2d", n, 16, kernel=1, groups=16),
    "tile_cpu": product,
    "pointwise": lambda n: operator("relu", n, 16),
    "row_chain": lambda n: operator("softmax", n, 16),
}


@pytest.mark.parametrize("name", KERNELS)
def test_small_kernels_stay_with_the_caller_and_large_ones_do_not(name: str) -> None:
    for n, parallel in ((2, False), (96, True)):
        dag = ComputeDAG.of(KERNELS[name](n))
        for sketch in generate(dag, TARGET):
            assert any(isinstance(s, Parallel) for s in sketch.steps) is parallel, (n, sketch.made_by)


def long_sum(n: int) -> list[Tensor]:
    x = te.placeholder((n,), name="x")
    return [x, OPERATORS.get("sum").compute(x)]


def thin_product(n: int) -> list[Tensor]:
    x, w = te.placeholder((1, n // 32), name="x"), te.placeholder((n // 32, 32), name="w", constant=True)
    return [x, w, OPERATORS.get("matmul").compute(x, w)]


@pytest.mark.parametrize("made", [long_sum, thin_product])
def test_reductions_are_cut_for_the_cores_from_one_size_on(made: Callable[[int], list[Tensor]]) -> None:
    for n, cut in ((40_000, False), (80_000, True)):  # 6,700 and 13,300 cycles
        steps = default_trace(ComputeDAG.of(made(n)), TARGET).steps
        assert any(isinstance(s, RFactor) for s in steps) is cut, n


def test_tiles_that_keep_their_cores_busy_briefly_are_not_cut() -> None:
    """1 x 512 by 512 x 256 on 16 cores: three tiles of 7,300 cycles each, of 22,000 in all."""
    x, w = te.placeholder((1, 512), name="x"), te.placeholder((512, 256), name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("matmul").compute(x, w)])
    steps = default_trace(dag, TARGET.with_threads(16)).steps
    assert not any(isinstance(s, RFactor) for s in steps)


def test_cycles_are_operations_or_what_moves() -> None:
    a = te.placeholder((4096,), name="a")
    copied = ComputeDAG.of([a, te.compute((4096,), lambda i: a[i] + 1.0, name="b")])
    assert cycles(copied.stages[0], 16, TARGET) == pytest.approx(2 * 4096 * 4 / ZEN4.l2_rate)
    called = ComputeDAG.of([a, te.compute((4096,), lambda i: te.tanh(a[i]), name="b")])
    assert cycles(called.stages[0], 16, TARGET) == 4096 / 16 * ZEN4.called
