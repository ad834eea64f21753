"""Register tiles of loop pictures: size, loads, crowded sets."""

from __future__ import annotations

import numpy as np
import pytest
from zoo import conv, gemm, scheduled

from autotensor.base.target import parse
from autotensor.schedule.loop_picture import StagePicture, picture
from autotensor.schedule.schedule import Schedule
from schedules.prior.register_tile import Tile, is_product, tile_of, ways


def tile(s: StagePicture, lanes: int = 8) -> Tile:
    return tile_of(s, 1, np.full(1, float(lanes)))


def test_rows_vectors_and_depth() -> None:
    s = scheduled(gemm(24, 64, 32, epilogue=False), rows=6, columns=2, depth=4)
    t = tile(s)
    assert (t.rows[0], t.vectors[0], t.depth[0], t.size[0]) == (6.0, 2.0, 4.0, 12.0)
    assert t.loads[0] == 6 * 4 + 2 * 4  # scalars and vectors
    assert t.chained[0] == 1.0
    assert is_product(s)


def test_a_reduction_that_is_wholly_unrolled_is_no_chain() -> None:
    assert tile(scheduled(gemm(24, 64, 4, epilogue=False), 6, 2, depth=4)).chained[0] == 0.0


@pytest.mark.parametrize(
    ("k", "rows", "lines"),
    [(1024, 12, 12), (512, 12, 6), (512, 25, 13), (1000, 12, 1), (16, 12, 1), (2048, 3, 3)],
)
def test_rows_far_apart_share_sets(k: int, rows: int, lines: int) -> None:
    """Rows of k floats: with rows of a multiple of 4 KiB, all are in one set; with 2 KiB, in two sets."""
    assert tile(scheduled(gemm(50, 64, k, epilogue=False), rows, 1)).lines[0] == lines


def test_a_depthwise_convolution_is_no_product() -> None:
    w = conv(9, 24, 24, 3, groups=24)
    s = Schedule(w.dag)
    name = next(st.name for st in s.state.stages if st.op.is_reduction)
    stage = s[name]
    stage.vectorize(stage.op.axis[-1])
    found = next(st for st in picture(s.state, {}).stages if st.name == name)
    assert not is_product(found)


def test_ways_of_a_cache() -> None:
    assert ways(parse("llvm -mcpu=x86-64-v4 -threads=2")) >= 2.0
