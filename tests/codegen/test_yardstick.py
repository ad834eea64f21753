"""Yardsticks do the work that they claim, and no part of it is optimised away."""

from __future__ import annotations

import time

import numpy as np
import pytest

from autotensor.base.dtype import float32
from autotensor.base.target import host
from autotensor.codegen.peak import fma_yardstick
from autotensor.codegen.yardstick import (
    Yardstick,
    clock_yardstick,
    copying_yardstick,
    handing_yardstick,
    joining_yardstick,
    load,
    reading_yardstick,
    region_yardstick,
)
from autotensor.ir.expr import Load, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.stmt import Store
from autotensor.runtime.arrays import aligned_empty


def rate(stick: Yardstick, count: int = 1) -> float:
    """The best of ten."""
    stick.run(1)
    best = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        stick.run(count)
        best = min(best, time.perf_counter() - began)
    return count * stick.amount / best


@pytest.mark.parametrize("threads", [1, 2])
def test_rates_are_physical(threads: int) -> None:
    """Code without its work would be a thousand times faster than any machine; other tests may slow it."""
    assert 0 < rate(fma_yardstick(threads)) < threads * 1e12
    assert 0 < rate(reading_yardstick(threads, 16 << 10)) < threads * 2e12
    assert 0 < rate(reading_yardstick(threads, 4 << 20)) < threads * 1e12
    assert 0 < rate(copying_yardstick(threads, 16 << 10)) < threads * 2e12
    assert 0 < rate(region_yardstick(threads), 100) < 1e9
    assert 0 < rate(handing_yardstick(threads, 16), 100) < 1e9
    assert 0 < rate(joining_yardstick(threads, 16), 100) < 1e9


def test_the_clock() -> None:
    assert 0 < rate(clock_yardstick()) < 8e9


def test_amounts() -> None:
    each = 1 << 20  # less would be read more than once
    assert reading_yardstick(2, each).amount == pytest.approx(2 * each, rel=0.5)
    assert fma_yardstick(2, steps=40).amount == 2 * fma_yardstick(1, steps=40).amount
    assert region_yardstick(2).threads == 2
    assert handing_yardstick(2, 4).amount == 2.0  # there and back
    assert 12 * fma_yardstick(steps=40, chains=1).amount == fma_yardstick(steps=40, chains=12).amount


def test_fewer_accumulators_wait_for_themselves() -> None:
    one, many = (rate(fma_yardstick(steps=4000, chains=n)) for n in (1, 8))
    assert many > 2 * one


def test_every_thread_copies_the_first_half_of_its_part_to_the_second() -> None:
    blocks = aligned_empty((2, 2, 2048), "float32")  # [thread, half, element]
    blocks[:, 0], blocks[:, 1] = np.arange(4096.0).reshape(2, 2048), -1.0
    stick = copying_yardstick(2, 16 << 10, blocks.reshape(-1))
    stick.run(1)
    np.testing.assert_array_equal(blocks[:, 1], np.arange(4096.0).reshape(2, 2048))
    assert stick.amount == pytest.approx(2 << 20, rel=0.1)  # read and written


def test_the_next_run_reads_the_next_part() -> None:
    x, y = Buffer("x", (1,), float32), Buffer("y", (1,), float32)
    add = Store(y, (const(0),), Load(y, (const(0),)) + Load(x, (const(0),)))
    program = Program(((x, Role.INPUT), (y, Role.OUTPUT)), (), (PrimFunc("k", (x, y), add),))
    parts, total = [aligned_empty((1,), "float32") for _ in range(3)], aligned_empty((1,), "float32")
    for n, part in enumerate(parts):
        part[0] = 10.0**n
    total[0] = 0.0
    stick = load(program, host(), 1, 1.0, *((part, total) for part in parts))
    stick.run(2)
    assert total[0] == 11.0
    stick.run(2)
    assert total[0] == 112.0
    alone = load(program, host(), 1, 1.0, (parts[0], total))
    alone.run(5)
    assert total[0] == np.float32(117.0)
