"""The number of rows that a chain computes at the same time: more if all rows come from the second cache."""

from __future__ import annotations

from autotensor import te
from autotensor.base.target import parse
from autotensor.te.dag import ComputeDAG
from schedules.generate import generate

TARGET = parse("llvm -mcpu=znver4 -threads=1")


def softmax(rows: int, columns: int) -> ComputeDAG:
    x = te.placeholder((rows, columns), name="x")
    k, j = te.reduce_axis((0, columns), name="k"), te.reduce_axis((0, columns), name="j")
    most = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="most")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, j] - most[i]), axis=j), name="total")
    y = te.compute((rows, columns), lambda i, c: te.exp(x[i, c] - most[i]) / total[i], name="y")
    return ComputeDAG.of([x, y])


def rows_at_once(dag: ComputeDAG) -> int:
    (found,) = (h.default[0] for h in generate(dag, TARGET)[0].holes if h.name == "y/rows")
    return int(found)


def test_more_rows_at_once_where_all_come_from_the_second_cache() -> None:
    near, far = softmax(256, 768), softmax(16_384, 768)
    assert rows_at_once(near) > rows_at_once(far) == 1


def test_one_stage_alone_is_cut_into_as_many_blocks_as_before() -> None:
    k = te.reduce_axis((0, 4096), name="k")
    x = te.placeholder((64, 4096), name="x")
    y = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="y")
    assert rows_at_once(ComputeDAG.of([x, y])) == 1
