"""The number of rows of a stencil that are unrolled without measuring."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.te.dag import ComputeDAG, StageOp
from schedules.placement.reads import of_all_terms, points_read
from schedules.placement.rows import distinct, rows_together

TARGET = parse("llvm -mcpu=znver5 -threads=2")
CROSS = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
SQUARE = [(r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)]


def stencil(taps: Sequence[tuple[int, int]], columns: int) -> StageOp:
    a = te.placeholder((66, columns + 2), name="a")
    out = te.compute(
        (64, columns), lambda i, j: sum(a[i + 1 + r, j + 1 + c] for r, c in taps) * 0.2, name="o"
    )
    (op,) = ComputeDAG.of([a, out]).stages
    return op


def rows_of(
    taps: Sequence[tuple[int, int]], columns: int, whole: bool = True, target: Target = TARGET
) -> int:
    op = stencil(taps, columns)
    return rows_together(op, points_read(op, (), (op,)) or {}, target, whole)


@pytest.mark.parametrize(
    ("taps", "columns", "want"),
    [
        (CROSS, 128, 4),  # rows begin on lines
        (CROSS, 130, 1),  # rows do not begin on lines, and little is saved
        (SQUARE, 130, 4),  # rows do not begin on lines, but much is saved
    ],
)
def test_several_rows_are_written_at_once_where_that_saves_loads(
    taps: Sequence[tuple[int, int]], columns: int, want: int
) -> None:
    assert rows_of(taps, columns) == want


ZEN4 = parse("llvm -mcpu=znver4 -threads=1")


def test_rows_that_begin_on_no_line_cost_nothing_where_the_record_says_so() -> None:
    assert rows_of(CROSS, 130, target=ZEN4) == 4


@pytest.mark.parametrize(("columns", "want"), [(996, 1), (1020, 1), (1052, 1), (1060, 4), (900, 4)])
def test_they_cost_where_rows_are_nearly_pages_apart(columns: int, want: int) -> None:
    assert rows_of(CROSS, columns, target=ZEN4) == want


def test_rows_of_a_tile_lie_in_an_array_of_its_own() -> None:
    assert rows_of(CROSS, 130, whole=False) == 4


def test_what_neighbouring_rows_have_in_common_counts_once() -> None:
    down, across = ([(r, 0) for r in range(-1, 2)], [(0, c) for c in range(-1, 2)])
    for taps, points in ((down, 6), (across, 12)):
        op = stencil(taps, 128)
        reads = points_read(op, (), (op,))
        assert reads is not None
        assert distinct(reads["a"], op, 4) == points


def test_values_in_common_need_registers() -> None:
    wide = [(r, c) for r in (-1, 0, 1) for c in range(-4, 5)]  # as 27 points of a cube
    assert rows_of(wide, 128) == 4
    assert rows_of(wide, 128, target=parse("llvm -mcpu=haswell -threads=2")) == 2
    assert rows_of(wide, 128, target=ZEN4) == 2


def test_rows_that_are_pages_apart_leave_the_cache_together() -> None:
    def rows(width: int, target: Target = TARGET) -> int:
        a = te.placeholder((66, width), name="a")
        b = te.placeholder((66, width), name="b")
        out = te.compute(
            (64, width), lambda i, j: a[i, j] + a[i + 1, j] + a[i + 2, j] + b[i + 1, j], name="o"
        )
        (op,) = ComputeDAG.of([a, b, out]).stages
        return rows_together(op, points_read(op, (), (op,)) or {}, target, True)

    assert rows(1024) == 1
    assert rows(1040) == 4
    assert rows(1024, ZEN4) == 4  # where the second cache is near


def test_terms_that_are_written_out_share_rows_too() -> None:
    """Windows along a column share values; windows along a row, and long windows, do not."""

    def rows(down: int, along: int) -> int:
        x = te.placeholder((64 + down, 128 + along), name="x")
        a, b = te.reduce_axis(down, name="a"), te.reduce_axis(along, name="b")
        (op,) = ComputeDAG.of(
            [x, te.compute((64, 128), lambda i, j: te.max(x[i + a, j + b], axis=[a, b]), name="m")]
        ).stages
        return rows_together(op, of_all_terms(op, points_read(op, (), (op,)) or {}), TARGET, False)

    assert rows(9, 1) == 4
    assert rows(1, 9) == 1
    assert rows(9, 9) == 1
