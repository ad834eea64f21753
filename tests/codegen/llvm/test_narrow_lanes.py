"""Lanes of bytes from a few stretches of memory: all are found, and nothing beyond them is read."""

from __future__ import annotations

import random

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.dtype import float32, uint8, uint16
from autotensor.codegen.llvm.lanes.stretches import between_steps, narrow_windows

RNG = np.random.default_rng(0)


def rows(count, length, apart):
    return [k // count + k % count * apart for k in range(count * length)]


def test_the_fewest_stretches_and_of_these_the_narrowest():
    kind = uint8.with_lanes(64)
    assert narrow_windows(kind, rows(4, 16, 100)).starts == (0, 100, 200, 300)
    assert narrow_windows(kind, rows(4, 16, 100)).width == 16
    assert narrow_windows(uint8.with_lanes(32), range(0, 128, 4)).starts == (0, 61)
    assert narrow_windows(kind, [k // 4 * 99 + k % 4 for k in range(64)]).width == 4
    assert narrow_windows(kind, range(0, 6400, 100)) is None
    assert narrow_windows(float32.with_lanes(16), rows(4, 4, 100)) is None


def test_stretches_hold_all_lanes_and_nothing_beyond():
    rng = random.Random(0)
    for _ in range(400):
        kind = rng.choice((uint8, uint16)).with_lanes(rng.choice((8, 16, 32, 64)))
        step, first = rng.choice((1, 2, 3, 4, 7, 50)), rng.randrange(-20, 20)
        count = rng.choice((1, 2, 4, 8))
        offsets = [first + k // count * step + k % count * rng.choice((1, 5)) for k in range(kind.lanes)]
        rng.shuffle(offsets)
        found = narrow_windows(kind, offsets)
        if found is None:
            continue
        places = [found.place(o) for o in offsets]
        elements = [s + n for s in found.starts for n in range(found.width)]
        assert [elements[p] for p in places] == offsets
        assert min(elements) >= min(offsets)
        assert max(elements) <= max(offsets)
        assert found.width * kind.element.bytes <= 64


def test_lanes_of_one_step_have_the_vectors_that_the_lanes_between_have():
    kind = float32.with_lanes(8)
    for step in (2, 3, 4):
        for first in range(-3, 9):
            at = between_steps(kind, 5, range(first, first + 8 * step, step))
            assert (at[0] + 5) % step == 0
            assert len(at) == step
            assert at[0] <= first < at[0] + step
    assert not between_steps(uint8.with_lanes(8), 0, range(0, 16, 2))
    assert not between_steps(kind, 0, range(0, 40, 5))
    assert not between_steps(kind, 0, (0, 2, 4, 6, 8, 10, 12, 15))


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("order", ["1.0 0.0 1.1 0.1", "0.0 1.0 0.1 1.1"])
def test_copies_in_words(order, dtype, target):
    """Groups of rows next to one another, and groups along rows."""
    size = 4 // np.dtype(dtype).itemsize
    X = te.placeholder((64, 96), dtype, name="X")
    Y = te.compute((64, 96), lambda i, j: X[i, j], name="Y")
    s = at.create_schedule([X, Y])
    tiles = [(0, size), (1, 32)] if order.endswith("0.1") else [(0, 32), (1, size)]
    s.layout("X", tiles, order)
    x = RNG.integers(-99, 99, (64, 96)).astype(dtype)
    assert np.array_equal(at.build(s, [X, Y], target=target)(x), x)


def test_words_are_written_as_vectors():
    X = te.placeholder((64, 96), "uint8", name="X")
    Y = te.compute((64, 96), lambda i, j: X[i, j], name="Y")
    s = at.create_schedule([X, Y])
    s.layout("X", [(0, 4), (1, 32)], "1.0 0.0 1.1 0.1")
    text = at.build(s, [X, Y], target="llvm -threads=1").source("llvm")
    assert text.count("insertelement <64 x i8>") == 0
