"""Micro-kernels: their tiles, their results, and the rates from their times."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import Target, host
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.search.machine import microkernels
from autotensor.search.machine.microkernels import MicroTile, measure_microkernels, tile_trace, tiles
from autotensor.te.dag import ComputeDAG


@pytest.mark.parametrize(("registers", "least", "most"), [(32, 35, 60), (16, 15, 35)])
def test_tiles_fit_into_the_registers(registers: int, least: int, most: int) -> None:
    found = tiles(Target("llvm", vector_bytes=64, vector_registers=registers))
    assert least <= len(found) <= most
    assert len(set(found)) == len(found)
    for t in found:
        assert t.rows >= 1
        assert t.rows * t.vectors + (1 if t.vectors == 1 else t.vectors + 1) <= registers


@pytest.mark.parametrize("t", [MicroTile(1, 1), MicroTile(6, 4), MicroTile(14, 2), MicroTile(5, 3)])
def test_kernels_multiply_matrices(t: MicroTile) -> None:
    target, panels, steps = host().with_threads(1), 3, 7
    width = t.vectors * target.lanes(32)
    a = te.placeholder((t.rows, steps), name="a")
    b = te.placeholder((panels, steps, width), name="b")
    k = te.reduce_axis(steps, name="k")
    c = te.compute((t.rows, panels, width), lambda i, p, j: te.sum(a[i, k] * b[p, k, j], axis=k), name="c")
    dag = ComputeDAG.of([a, b, c])
    f = Module(compile_trace(dag, tile_trace(target.lanes(32)), target), threads=1)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((t.rows, steps), (panels, steps, width)))
    np.testing.assert_allclose(f(x, y), np.einsum("ik,pkj->ipj", x, y), rtol=1e-5, atol=1e-5)


def test_beginning_and_end_of_a_loop_are_no_part_of_a_step() -> None:
    rest, near, far = 50.0, 24.0, 26.0
    amounts = [100.0, 200.0, 1000.0]
    times = [rest + near * 100, rest + near * 200, (rest / microkernels.FAR_STEPS + far) * 1000]
    steps = microkernels._steps(amounts, [a / t for a, t in zip(amounts, times, strict=True)])
    assert steps == pytest.approx((near, far))


def test_vectors_from_afar_never_cost_less() -> None:
    steps = microkernels._steps([100.0, 200.0, 1000.0], [1 / 24, 1 / 24, 1 / 20])
    assert steps == pytest.approx((24.0, 24.0))


def test_this_machine() -> None:
    """The rates are plausible, even if other programs run."""
    told: list[tuple[int, int]] = []
    found = measure_microkernels(host(), [MicroTile(4, 2), MicroTile(1, 1)], lambda *x: told.append(x))
    assert found.lanes == host().lanes(32)
    assert set(found.steps) == {(4, 2), (1, 1)}
    assert told == [(0, 2)]
    for (rows, vectors), times in found.steps.items():
        assert all(0.2 * rows * vectors < t < 100.0 * rows * vectors for t in times)
        assert list(times) == sorted(times)
