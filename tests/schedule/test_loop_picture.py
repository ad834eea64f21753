"""Operands of a picture: loads that differ by constants are one, and their bytes are those of their union."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.extents import Access, access
from autotensor.schedule.loop_picture import LoopPicture, StagePicture, appearance, looks, picture
from autotensor.schedule.state import State
from autotensor.search.propose.population import sample
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate, structure

ROWS, COLUMNS = 12, 16
Walk = Callable[[Any], Any]
Taps = list[tuple[int, int]]

WALKS: dict[str, Walk] = {
    "one": lambda i: i,
    "two": lambda i: 2 * i + 1,
    "half": lambda i: i // 2,
    "half and one": lambda i: i // 2 + 1,
    "third of a half": lambda i: (i // 2 + 1) // 3,
    "remainder": lambda i: i % 5,
}
TAPS: dict[str, Taps] = {
    "point": [(0, 0)],
    "row": [(0, k) for k in range(9)],
    "square": [(r, c) for r in range(3) for c in range(3)],
    "cross": [(0, 2), (1, 2), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2), (4, 2)],
    "far apart": [(0, 0), (40, 60)],
}


def stage_of(rows: Walk, columns: Walk, taps: Taps) -> StagePicture:
    """The picture of a sum of shifted loads, in plain loops."""
    a = te.placeholder((80, 100), name="a")
    out = te.compute(
        (ROWS, COLUMNS), lambda i, j: sum(a[rows(i) + r, columns(j) + c] for r, c in taps) * 1.0, name="out"
    )
    return picture(State.initial(ComputeDAG.of([a, out])), {}).stages[0]


@pytest.mark.parametrize("taps", TAPS.values(), ids=TAPS)
@pytest.mark.parametrize("columns", WALKS)
@pytest.mark.parametrize("rows", WALKS)
def test_bytes_of_taps_are_those_of_their_union(rows: str, columns: str, taps: Taps) -> None:
    down, across = WALKS[rows], WALKS[columns]
    s = stage_of(down, across, taps)
    reads = [(o, sizes) for o, sizes in zip(s.operands, s.bytes, strict=True) if not o.write]
    assert sum(o.count for o, _ in reads) == len(taps)
    spans = [(range(ROWS), range(COLUMNS)), ([6], range(COLUMNS)), ([6], [8])]  # level by level
    for level, (i_s, j_s) in enumerate(spans):
        touched = {(down(i) + r, across(j) + c) for i in i_s for j in j_s for r, c in taps}
        said = sum(float(sizes[level]) for _, sizes in reads) / 4
        assert said >= len(touched)
        box = (max(x for x, _ in touched) - min(x for x, _ in touched) + 2) * (
            max(y for _, y in touched) - min(y for _, y in touched) + 2
        )  # a quotient may reach one more
        assert said <= max(box, len(taps) * len(i_s) * len(j_s))


def test_a_stencil_is_one_operand() -> None:
    s = stage_of(WALKS["one"], WALKS["one"], TAPS["square"])
    read, written = s.operands
    assert (read.count, read.shifts, written.write) == (9, ((0, 1, 2), (0, 1, 2)), True)
    assert [float(b) / 4 for b in s.bytes[0]] == [(ROWS + 2) * (COLUMNS + 2), 3 * (COLUMNS + 2), 9]


def test_taps_far_apart_are_not_a_box() -> None:
    s = stage_of(WALKS["one"], WALKS["one"], TAPS["far apart"])
    assert float(s.bytes[0][0]) / 4 == 2 * ROWS * COLUMNS


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_an_index_is_the_access_that_is_read_off_it(walk: Walk) -> None:
    a = te.placeholder((80,), name="a")
    dag = ComputeDAG.of([a, te.compute((30,), lambda i: a[walk(i)] * 1.0, name="out")])
    (load,) = dag.stages[0].loads()
    found = access(load.indices[0])
    assert found is not None
    for i in range(30):
        assert at(found, i) == walk(i)


def at(a: Access, i: int) -> int:
    total = a.constant + sum(a.steps.values()) * i
    return total // a.div if a.div else total % a.mod if a.mod else total


def test_an_index_that_data_says_touches_as_many_places_as_points() -> None:
    a, which = te.placeholder((80, 100), name="a"), te.placeholder((ROWS,), "int32", name="which")
    out = te.compute((ROWS, COLUMNS), lambda i, j: a[which[i], j] * 1.0, name="out")
    s = picture(State.initial(ComputeDAG.of([a, which, out])), {}).stages[0]
    (sizes,) = [b for o, b in zip(s.operands, s.bytes, strict=True) if o.buffer.name == "a"]
    assert [float(b) / 4 for b in sizes] == [ROWS * COLUMNS, COLUMNS, 1]


def told(p: LoopPicture, row: int) -> tuple[object, ...]:
    """The contents of `looks` for one candidate, as text."""

    def at(x: Any) -> float:
        return float(x if isinstance(x, int | float) else x[row])

    out: list[object] = []
    for s in p.stages:
        for n, v in enumerate(s.levels):
            trips = tuple((axis, at(x)) for axis, x in v.parts if at(x) != 1.0)
            if trips:
                out.append((s.name, v.kind, v.mark, trips, *(at(sizes[n]) for sizes in s.bytes)))
    return tuple(out)


def test_candidates_look_the_same_when_their_loops_come_to_the_same() -> None:
    """For all sketches of a product with a stage after it: equal looks mean equal descriptions, and the other
    way round."""
    a, b = te.placeholder((24, 20), name="a"), te.placeholder((20, 30), name="b")
    k = te.reduce_axis(20, name="k")
    c = te.compute((24, 30), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    dag = ComputeDAG.of([a, b, te.compute((24, 30), lambda i, j: c[i, j] + 1.0, name="d")])
    pairs = []
    for n, s in enumerate(generate(dag, parse("llvm -mcpu=znver3 -threads=2"))):
        p = sample(s, structure(s, dag), 200, np.random.default_rng(n)).picture
        pairs += [(said, told(p, row)) for row, said in enumerate(looks(appearance(p), p.count))]
    assert len({said for said, _ in pairs}) == len({words for _, words in pairs}) == len(set(pairs))
    assert 1 < len(set(pairs)) < len(pairs)  # some are alike, some are not
