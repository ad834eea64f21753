"""Bytes that loops bring into caches: sliding windows, ends of rows, and data that other stages left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotensor import te
from autotensor.base.target import Target
from autotensor.schedule.loop_picture import LoopPicture, StagePicture, picture
from autotensor.schedule.schedule import Schedule
from autotensor.te.dag import ComputeDAG
from schedules.prior.predict import predict
from schedules.prior.rates import Rates
from schedules.prior.traffic import between, bytes_moved

L1, L2, L3 = 32 << 10, 1 << 20, 32 << 20
TARGET = Target("llvm", "x86-64-v4", num_cores=1, vector_bytes=64, cache_bytes=(L1, L2, L3))
RATES = Rates(1e11, (1e11, 6e10, 2e10), 2e10, region_s=0.0, warm_weights=True)
FLOAT = 4


def moved(s: StagePicture, passed: dict[str, int] | None = None) -> list[float]:
    """Bytes into each cache."""
    return [float(b[0]) for b in bytes_moved(s, 1, TARGET, RATES, passed or {})]


def copy_of(rows: int, columns: int, body: Any, fuse: bool = False) -> StagePicture:
    """One pointwise stage in vectors of 16, of the rows of `a`."""
    a = te.placeholder((rows + 4, columns), name="a")
    c = te.compute((rows, columns), lambda i, j: body(a, i, j), name="c")
    s = Schedule(ComputeDAG.of([a, c]))
    last = "j"
    if fuse:
        s["c"].fuse("i", "j")
        last = "(i*j)"
    s["c"].split(last, factors=[16])
    s["c"].vectorize(f"{last}.1")
    (stage,) = picture(s.state, {}).stages
    return stage


def test_a_window_that_slides_brings_new_rows_only() -> None:
    """Five rows of 4 kB lie in the nearest cache: each turn brings the next one."""
    rows, columns = 2000, 1024
    s = copy_of(rows, columns, lambda a, i, j: a[i, j] + a[i + 1, j] + a[i + 2, j] + a[i + 4, j])
    both = FLOAT * columns * (2 * rows + 4)
    assert moved(s)[0] == pytest.approx(both)


def test_rows_that_do_not_fit_are_brought_again() -> None:
    rows, columns = 500, 4096
    s = copy_of(rows, columns, lambda a, i, j: a[i, j] + a[i + 1, j] + a[i + 2, j] + a[i + 4, j])
    assert moved(s)[0] > 4 * FLOAT * rows * columns


@pytest.mark.parametrize("columns", [500, 512])
def test_vectors_walk_on_into_the_next_row(columns: int) -> None:
    """Fused rows are one long row: a vector across the end of a row is loaded like any other."""
    s = copy_of(240, columns, lambda a, i, j: a[i, j] * 2.0, fuse=True)
    assert [o.vector for o in s.operands] == ["unit", "unit"]
    assert s.fetched == (16, 16)


def test_fused_loops_have_the_levels_that_they_had_before() -> None:
    a = te.placeholder((300, 1024), name="a")
    c = te.compute((200, 1024), lambda i, j: a[i, j] + a[i + 50, j] + a[i + 100, j], name="c")
    s = Schedule(ComputeDAG.of([a, c]))
    s["c"].split("j", factors=[16])
    s["c"].fuse("i", "j.0")
    s["c"].vectorize("j.1")
    (stage,) = picture(s.state, {}).stages
    (part,) = stage.parts
    assert (part.level, part.trips) == (0, 200)
    assert part.bytes == (3 * 4096, 4096)


def two(rows: int, columns: int) -> LoopPicture:
    """p is written by one nest and read by the next but one."""
    a, b = (te.placeholder((rows, columns), name=n) for n in "ab")
    p = te.compute((rows, columns), lambda i, j: a[i, j] + 1.0, name="p")
    q = te.compute((rows, columns), lambda i, j: b[i, j] * 2.0, name="q")
    r = te.compute((rows, columns), lambda i, j: p[i, j] + 3.0, name="r")
    return picture(Schedule(ComputeDAG.of([a, b, q, r])).state, {})


def test_what_came_in_between_is_counted() -> None:
    rows, columns = 64, 256
    one = FLOAT * rows * columns
    found = dict(zip((s.name for s in two(rows, columns).stages), between(two(rows, columns)), strict=True))
    order = [s.name for s in two(rows, columns).stages]
    others = 2 * one if order.index("q") in (order.index("p") + 1,) else 0
    assert found["r"]["p"] == others + one  # and a, which the nest of p reads
    assert found["q"]["b"] == 4 * one - one  # a, p and r since the last call


def test_what_others_have_pushed_out_is_brought_again() -> None:
    (stage,) = (s for s in two(64, 256).stages if s.name == "r")
    assert moved(stage)[1] == 0.0
    assert moved(stage, {"p": L2})[1] >= FLOAT * 64 * 256


def test_short_pieces_of_long_rows_take_longer_from_afar() -> None:
    """Tiles of 64 columns of rows that are longer than a page, beyond the second cache."""
    a = te.placeholder((2048, 2048), name="a")
    c = te.compute((2048, 2048), lambda i, j: a[i, j] + 1.0, name="c")
    found = []
    for width in (64, 2048):
        s = Schedule(ComputeDAG.of([a, c]))
        s["c"].split("i", factors=[256])
        s["c"].split("j", factors=[width])
        s["c"].reorder("i.0", "j.0", "i.1", "j.1")
        (stage,) = picture(s.state, {}).stages
        found.append(moved(stage)[1])
    assert found[0] > 2 * found[1]


def test_vectors_of_several_registers_and_divisions_take_their_time() -> None:
    def seconds(lanes: int, body: Any) -> float:
        a = te.placeholder((4096,), name="a")
        c = te.compute((4096,), lambda i: body(a[i]), name="c")
        s = Schedule(ComputeDAG.of([a, c]))
        s["c"].split("i", factors=[lanes])
        s["c"].vectorize("i.1")
        _, terms = predict(picture(s.state, {}), TARGET, replace(RATES, bandwidths=(1e15,) * 3))
        return float(terms[0].compute[0])

    assert seconds(64, lambda v: v + 1.0) > 0.6 * seconds(16, lambda v: v + 1.0)
    assert seconds(16, lambda v: 1.0 / v) > 3 * seconds(16, lambda v: 1.0 - v)
    assert seconds(16, lambda v: te.exp(v)) > 3 * seconds(16, lambda v: 1.0 - v)
    meanwhile = seconds(16, lambda v: 1.0 / (v * v + v + 2.0))  # the divider works meanwhile
    assert meanwhile == pytest.approx(seconds(16, lambda v: 1.0 / v))
    assert seconds(16, lambda v: te.exp(v) / (1.0 + v)) > meanwhile
