"""The elements that a tile needs, compared with a count of the elements that its points read."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from schedules.placement.regions import extents_of, regions, windows

BODIES = {
    "stencil": lambda x, i, j: x[i, j + 1] + x[i + 2, j],
    "every other": lambda x, i, j: x[2 * i, j] + x[2 * i + 1, j],
    "doubled": lambda x, i, j: x[i // 2, j] + x[i // 2 + 1, j],
    "turned": lambda x, i, j: x[j, i],
    "around": lambda x, i, j: x[(i + 3) % 40, j],
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.sample(2)
def test_a_box_holds_what_is_read(name: str) -> None:
    x = te.placeholder((40, 40), name="x")
    y = te.compute((16, 16), lambda i, j: BODIES[name](x, i, j), name="y")
    z = te.compute((16, 16), lambda i, j: y[i, j] * 2.0, name="z")
    dag = ComputeDAG.of([x, z])
    found = regions(dag.stages[-1], {"i": 4, "j": 8}, dag.stages)
    assert extents_of(found["y"]) == (4, 8)
    rows, columns = found["z"]
    read = np.zeros((40, 40), bool)
    for at in np.ndindex(40, 40):
        one = np.zeros((40, 40), np.float32)
        one[at] = 1.0
        out = next(iter(evaluate(dag, {"x": one}).values()))
        read[at] = out[rows[0] : rows[1] + 1, columns[0] : columns[1] + 1].any()
    inside = tuple(slice(low, high + 1) for low, high in found["x"])
    outside = read.copy()
    outside[inside] = False
    assert not outside.any()
    if name != "around":  # a remainder may be anything
        assert [int(np.ptp(axis)) + 1 for axis in np.nonzero(read)] == [*extents_of(found["x"])]


def test_data_may_say_anything() -> None:
    x = te.placeholder((40, 40), name="x")
    at = te.placeholder((16,), "int32", name="at")
    y = te.compute((16, 16), lambda i, j: x[at[i], j], name="y")
    dag = ComputeDAG.of([x, at, y])
    found = regions(dag.stages[-1], {"i": 1, "j": 1}, dag.stages)
    assert extents_of(found["x"]) == (40, 1)


def test_a_step_needs_of_each_stage_what_its_new_rows_read() -> None:
    """Three stencils: four rows of each are new, and two more are kept. If every other row is read, there are
    twice as many."""
    x = te.placeholder((200, 40), name="x")
    a = te.compute((190, 40), lambda i, j: x[i, j] + x[i + 2, j], name="a")
    b = te.compute((90, 40), lambda i, j: a[2 * i, j] + a[2 * i + 1, j] + a[2 * i + 2, j], name="b")
    c = te.compute((80, 40), lambda i, j: b[i, j] + b[i + 2, j], name="c")
    dag = ComputeDAG.of([x, c])
    found = windows(dag.stages[-1], {"i": 80, "j": 40}, dag.stages, "i", 4)
    assert {name: extents_of(box)[0] for name, box in found.items()} == {"c": 4, "b": 6, "a": 9, "x": 10}


def test_results_of_one_stage_come_together() -> None:
    """Stages with different readers, and places that no stage reads."""
    x = te.placeholder((40, 16), name="x")
    a, b, _ = te.compute((40, 16), lambda i, j: (x[i, j], -x[i, j], x[i, j] * 2.0), name="y")
    z = te.compute((16, 16), lambda i, j: a[i, j] + b[i + 3, j], name="z")
    dag = ComputeDAG.of([x, z])
    found = regions(dag.stages[-1], {"i": 4}, dag.stages)
    assert [extents_of(found[buffer.name]) for buffer in dag.stages[0].buffers] == [(7, 16)] * 3


@pytest.mark.parametrize(("shift", "rows"), [(1, 16), (15, 16), (4, 4)])
def test_a_box_has_all_rows_if_some_tile_goes_around_the_end(shift: int, rows: int) -> None:
    """All tiles have boxes of one size. Tiles that end where the rows end do not go around."""
    x = te.placeholder((16, 40), name="x")
    y = te.compute((16, 40), lambda i, j: x[(i + shift) % 16, j], name="y")
    dag = ComputeDAG.of([x, y])
    assert extents_of(regions(dag.stages[-1], {"i": 4, "j": 8}, dag.stages)["x"]) == (rows, 8)
