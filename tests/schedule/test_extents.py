"""Boxes of attached stages: difficult cases by hand; the same boxes for ints, arrays and symbols by a
property."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from comparison import check
from strategies import case_of

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.ir.simplify import simplify
from autotensor.schedule import Ref, Schedule, Trace, create_schedule
from autotensor.schedule.extents import derive
from autotensor.schedule.primitives.split import SplitStep
from autotensor.te.dag import ComputeDAG


def box(s: Schedule, stage: str) -> list[tuple[int, str]]:
    """(extent, base) per axis of an attached stage."""
    spans = derive(s.state, symbolic=True).boxes[stage]
    return [(int(span.extent), str(simplify(span.base))) for span in spans if span.base is not None]


def reading(n: int, index: Any, extent: int, **reduce: int) -> Schedule:
    """P[n] = A + 1, read by C[i] = Σ P[index(i, *ks)]; C is split by 4 and P computed at its outer loop."""
    a = te.placeholder((n,), name="A")
    p = te.compute((n,), lambda i: a[i] + 1, name="P")
    ks = [te.reduce_axis(e, name=k) for k, e in reduce.items()]
    c = te.compute(
        (extent,),
        lambda i: te.sum(p[index(i, *ks)], axis=ks) if ks else p[index(i)],
        name="C",
    )
    s = create_schedule(c)
    s["C"].split("i", factor=4)
    s["P"].compute_at(s["C"], "i.0")
    return s


@pytest.mark.parametrize(
    ("n", "extent", "index", "reduce", "want"),
    [
        (16, 16, lambda i: i, {}, (4, "C_i_0 * 4")),
        (19, 16, lambda i: i + 3, {}, (4, "C_i_0 * 4 + 3")),
        (16, 16, lambda i: 15 - i, {}, (4, "12 - C_i_0 * 4")),
        (18, 16, lambda i, k: i + k, {"k": 3}, (6, "C_i_0 * 4")),
        (33, 16, lambda i, k: 2 * i + k, {"k": 3}, (9, "C_i_0 * 8")),
        (37, 16, lambda i, k: 2 * i + 3 * k, {"k": 3}, (13, "C_i_0 * 8")),
        (18, 16, lambda i, k: i - k + 2, {"k": 3}, (6, "C_i_0 * 4")),
        (8, 16, lambda i: i // 2, {}, (2, "C_i_0 * 2")),
        (9, 16, lambda i: (i + 1) // 2, {}, (3, "C_i_0 * 2")),
        (4, 16, lambda i: i // 4, {}, (1, "C_i_0")),
        (6, 16, lambda i: i // 3, {}, (2, "C_i_0 * 4 // 3")),
        (8, 16, lambda i: i % 8, {}, (4, "C_i_0 % 2 * 4")),
        (4, 16, lambda i: i % 4, {}, (4, "0")),
        (6, 16, lambda i: i % 6, {}, (6, "0")),
        (9, 16, lambda i, k: i // 2 + k, {"k": 2}, (3, "C_i_0 * 2")),
        (3, 16, lambda i, k: k, {"k": 3}, (3, "0")),
        (16, 16, lambda i: te.maximum(i, 1), {}, (16, "0")),
    ],
)
def test_one_reader(n: int, extent: int, index: Any, reduce: dict[str, int], want: tuple[int, str]) -> None:
    assert box(reading(n, index, extent, **reduce), "P") == [want]


@pytest.mark.parametrize(
    ("by", "want"),
    [
        (2, [(4, "Y_h_0 * 4 + Y_h_2 // 2"), (1, "Y_h_2 % 2")]),  # every second row: one phase
        (4, [(3, "Y_h_0 * 2 + Y_h_2 // 4"), (4, "0")]),
        (3, [(3, "(Y_h_0 * 8 + Y_h_2) // 3"), (3, "0")]),
    ],
)
def test_digits_of_an_axis_that_runs_in_steps(by: int, want: list[tuple[int, str]]) -> None:
    """P[i, p] read at h // by, h % by, where h runs in steps of 2: the remainder by 2 stands still."""
    a = te.placeholder((48 // by, by), name="A")
    p = te.compute((48 // by, by), lambda i, j: a[i, j] + 1, name="P")
    y = te.compute((48,), lambda h: p[h // by, h % by], name="Y")
    s = create_schedule(y)
    s["Y"].split("h", factors=[4, 2])
    s["Y"].reorder("h.0", "h.2", "h.1")
    s["P"].compute_at(s["Y"], "h.2")
    assert box(s, "P") == want


def test_a_box_is_at_most_the_dimension() -> None:
    assert box(reading(5, lambda i, k: i + k, 3, k=3), "P") == [(5, "0")]


def two_readers(first: Any, second: Any) -> list[tuple[int, str]]:
    a = te.placeholder((40,), name="A")
    p = te.compute((40,), lambda i: a[i] + 1, name="P")
    c = te.compute((16,), lambda i: p[first(i)] * p[second(i)], name="C")
    s = create_schedule(c)
    s["C"].split("i", factor=4)
    s["P"].compute_at(s["C"], "i.0")
    return box(s, "P")


def test_two_reads_that_start_together_are_joined() -> None:
    assert two_readers(lambda i: i, lambda i: i + 5) == [(9, "C_i_0 * 4")]
    assert two_readers(lambda i: i + 5, lambda i: i + 1) == [(8, "C_i_0 * 4 + 1")]


def test_two_reads_that_part_need_everything() -> None:
    assert two_readers(lambda i: i, lambda i: 2 * i) == [(40, "0")]
    assert two_readers(lambda i: i, lambda i: 15 - i) == [(40, "0")]
    assert two_readers(lambda i: i, lambda i: i // 2) == [(40, "0")]


def test_a_fused_host_that_stands_still_keeps_its_axes() -> None:
    """The parts of a fused loop are separate variables, so the box stays a tile."""
    a = te.placeholder((10, 12), name="A")
    p = te.compute((10, 12), lambda y, x: a[y, x] + 1, name="P")
    c = te.compute((8, 10), lambda y, x: p[y, x] + p[y + 2, x + 2], name="C")
    s = create_schedule(c)
    yo, xo, _, _ = s["C"].tile("y", "x", 4, 5)
    s["P"].compute_at(s["C"], s["C"].fuse(yo, xo))
    assert box(s, "P") == [(6, "C_y_0 * 4"), (7, "C_x_0 * 5")]


@pytest.mark.parametrize(
    ("factor", "want"),
    [
        (4, [(1, "C_y_x_0 // 2"), (4, "C_y_x_0 % 2 * 4")]),  # stays in its row
        (8, [(1, "C_y_x_0"), (8, "0")]),
        (16, [(2, "C_y_x_0 * 2"), (8, "0")]),
        (12, [(2, "C_y_x_0 * 3 // 2"), (8, "0")]),  # begins at a multiple of 4 in its row
        (3, [(2, "C_y_x_0 * 3 // 8"), (8, "0")]),
        (48, [(6, "0"), (8, "0")]),
    ],
)
def test_a_window_of_a_fused_loop(factor: int, want: list[tuple[int, str]]) -> None:
    a = te.placeholder((6, 8), name="A")
    p = te.compute((6, 8), lambda y, x: a[y, x] + 1, name="P")
    s = create_schedule(te.compute((6, 8), lambda y, x: p[y, x] * 2, name="C"))
    outer, _ = s["C"].split(s["C"].fuse("y", "x"), factor=factor)
    s["P"].compute_at(s["C"], outer)
    assert box(s, "P") == want


def chain_of_three() -> Schedule:
    """P is read by Q, Q by R; Q is computed at R's outer loop."""
    a = te.placeholder((40,), name="A")
    p = te.compute((36,), lambda i: a[i + 4], name="P")
    q = te.compute((34,), lambda i: p[i] + p[i + 2], name="Q")
    s = create_schedule(te.compute((16,), lambda i: q[2 * i] + q[2 * i + 3], name="R"))
    s["R"].split("i", factor=4)
    s["Q"].compute_at(s["R"], "i.0")
    return s


def grouped(width: int, tile: int, shift: int = 0) -> Schedule:
    """P[3, width] is read by its digits, as in a grouped convolution. The last tile of each group is larger
    than the rest of the group. P is computed for a tile."""
    n = 3 * width - shift
    a = te.placeholder((3, width), name="A")
    p = te.compute((3, width), lambda g, j: a[g, j] + 1, name="P")
    c = te.compute((n,), lambda i: p[(i + shift) // width, (i + shift) % width] * 2, name="C")
    s = create_schedule(c)
    s["C"].split("i", factor=width)
    s["C"].split("i.1", factor=tile)
    s["P"].compute_at(s["C"], "i.1.0")
    return s


def test_tiles_that_stick_out_of_a_group_read_nothing_of_the_next() -> None:
    assert [extent for extent, _ in box(grouped(56, 32), "P")] == [1, 32]
    assert [extent for extent, _ in box(grouped(56, 32, shift=1), "P")] == [2, 56]  # no step of the loops


@pytest.mark.parametrize("seed", range(24))
def test_digits_under_ragged_tiles_are_right(seed: int) -> None:
    """Boxes may be larger than their domains, and any stage may be attached: a random group, tile, tile
    within the tile, loop."""
    rng = random.Random(seed)
    width, shift = rng.randint(3, 11), rng.choice((0, 0, 1))
    a = te.placeholder((4, width), name="A")
    p = te.compute((4, width), lambda g, j: a[g, j] + 1, name="P")
    c = te.compute((4 * width - shift,), lambda i: p[(i + shift) // width, (i + shift) % width] * 2, name="C")
    d = te.compute(c.shape, lambda i: c[i] + 3, name="D")
    s = create_schedule(d)
    host = rng.choice("CD")
    if host == "C":  # attached itself: its own tiles run to their ends
        s["D"].split("i", factor=rng.choice((width, 5)))
        s["C"].compute_at(s["D"], "i.0")
    else:
        s["C"].compute_inline()
    s[host].split("i", factor=rng.choice((width, width, 2 * width)))
    s[host].split("i.1", factor=rng.randint(2, width))
    s[host].split("i.1.1", factor=rng.randint(1, 4))
    s["P"].compute_at(s[host], rng.choice(("i.0", "i.1.0", "i.1.1.0")))
    check(ComputeDAG.of([a, d]), s.trace)


def test_nested_boxes_start_in_the_whole_tensor() -> None:
    """A stage inside a stage inside a loop: the inner base counts from the very beginning."""
    s = chain_of_three()
    s["P"].compute_at(s["Q"], "i")
    assert box(s, "Q") == [(10, "R_i_0 * 8")]
    assert box(s, "P") == [(3, "R_i_0 * 8 + Q_i")]


def test_a_chain_at_one_loop() -> None:
    """P is needed by Q, which is computed at the same loop: the union over Q's box."""
    s = chain_of_three()
    s["P"].compute_at(s["R"], "i.0")
    assert box(s, "P") == [(12, "R_i_0 * 8")]


def test_a_loop_inside_the_reduction_needs_one_slice() -> None:
    a, b = te.placeholder((8, 12), name="A"), te.placeholder((12, 4), name="B")
    k = te.reduce_axis(12, name="k")
    c = te.compute((8, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    near = s.cache_read("B", "local", "C")  # one reader needs no list
    s["C"].split("k", factor=3)
    s["C"].reorder("i", "k.0", "j", "k.1")
    near.compute_at(s["C"], "k.0")
    assert box(s, "B.local:C") == [(3, "C_k_0 * 3"), (4, "0")]


def test_extents_of_loops_follow_the_box() -> None:
    """split then compute_at equals compute_at then split."""
    extents = []
    for first in (True, False):
        s = reading(34, lambda i, k: 2 * i + k, 16, k=3)
        if first:
            s["P"].compute_root()
        s["P"].split("i", factor=4)
        if first:
            s["P"].compute_at(s["C"], "i.0")
        found = derive(s.state)
        extents.append([found["P", n] for n in ("i", "i.0", "i.1")])
    assert extents[0] == extents[1] == [9, 3, 4]


def test_read_outside_is_noticed_when_deriving() -> None:
    s = reading(16, lambda i: i, 16)
    s["C"].reorder("i.1", "i.0")
    assert box(s, "P") == [(1, "C_i_0 * 4 + C_i_1")]
    a = te.placeholder((8,), name="A")
    p = te.compute((8,), lambda i: a[i], name="P")
    q = te.compute((8,), lambda i: p[i], name="Q")
    s = create_schedule(te.compute((8,), lambda i: q[i] + p[i], name="R"))
    s["Q"].compute_at(s["R"], "i")
    s["P"].compute_at(s["R"], "i")
    s["Q"].compute_root()
    with pytest.raises(ScheduleError, match="also read by 'Q'"):
        derive(s.state)


# -- one code for ints and arrays ----------------------------------------------------------------------------

CANDIDATES = 7


def with_holes(trace: Trace, rng: random.Random) -> tuple[Trace, dict[str, np.ndarray[Any, Any]]]:
    """The trace with holes for its split factors, and random decisions for a population."""
    steps, values = [], {}
    factored = {getattr(s, "stage", "") for s in trace.steps if type(s).__name__ == "RFactor"}
    for n, s in enumerate(trace.steps):
        fixed = getattr(s, "stage", "") in factored  # rfactor needs numbers
        if isinstance(s, SplitStep) and s.nparts is None and not fixed:
            holes = tuple(Ref(f"h{n}", k) for k in range(len(s.factors)))
            for h in holes:
                values[h] = np.array([rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(CANDIDATES)])
            s = SplitStep(s.stage, s.axis, holes)
        elif isinstance(s, SplitStep) and s.nparts is not None and not fixed:
            values[Ref(f"h{n}", 0)] = np.array([rng.choice((1, 2, 3, 7)) for _ in range(CANDIDATES)])
            s = SplitStep(s.stage, s.axis, (), Ref(f"h{n}", 0))
        steps.append(s)
    return Trace(tuple(steps)), values


@pytest.mark.parametrize("seed", range(60))
def test_a_population_is_its_candidates(seed: int) -> None:
    """Row c of the arrays equals the numbers of candidate c alone, with and without symbols."""
    dag, trace = case_of(seed, steps=14)
    holed, values = with_holes(trace, random.Random(seed))
    rows = derive(holed.replay(dag), values)
    for c in range(CANDIDATES):
        decided = {h: (0,) * h.index + (int(v[c]),) for h, v in values.items()}
        chosen: dict[str, tuple[int, ...]] = {}
        for h, v in sorted(decided.items(), key=lambda item: item[0].index):
            chosen[h.hole] = (*chosen.get(h.hole, ()), v[h.index])
        state = holed.fill(chosen).replay(dag)
        one, symbolic = derive(state), derive(state, symbolic=True)
        for key, value in one.of.items():
            assert at(rows[key], c) == value == symbolic[key], (key, c)
        for name, spans in one.boxes.items():
            for row, span in zip(rows.boxes[name], spans, strict=True):
                assert (at(row.extent, c), at(row.at, c)) == (span.extent, span.at), (name, c)


def at(value: Any, c: int) -> int:
    return int(value[c]) if isinstance(value, np.ndarray) and value.ndim else int(value)


def test_a_part_of_a_fused_loop_reads_one_piece_of_what_is_flat() -> None:
    """Parts of 8 of the 35 elements begin anywhere in a row of 7, and still need only 8 elements of P."""
    a = te.placeholder((35,), name="A")
    p = te.compute((35,), lambda m: a[m] + 1, name="P")
    c = te.compute((5, 7), lambda i, j: p[i * 7 + j], name="C")
    s = create_schedule(c)
    part, _ = s["C"].split(s["C"].fuse("i", "j"), factor=8)
    s["P"].compute_at(s["C"], part)
    assert box(s, "P") == [(8, "C_i_j_0 * 8")]
    check(s.state.dag, s.trace)
