"""The compiler uses the program that was lowered to check whether its trace can be lowered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotensor as at
import autotensor.compiler as compiler
from autotensor import te
from autotensor.base import switches
from autotensor.base.target import parse
from autotensor.compiler import compile_workload, kept_obstacle
from autotensor.lowering.lowered_before import lowered_before, obstacle
from autotensor.lowering.pipeline import lower
from autotensor.resolve import safe_default
from autotensor.runtime.files.object_cache import ObjectCache
from autotensor.schedule.primitives.below import Below
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace

TARGET = parse("llvm -threads=1")


def workload(most: int) -> Workload:
    n = te.var("n", range=(1, most))
    x = te.placeholder((n, 8), name="x")
    return Workload.of(ComputeDAG.of([x, te.compute((n, 8), lambda i, j: x[i, j] * 2.0, name="y")]))


def test_it_is_given_out_once_and_lives_as_long_as_the_workload():
    asked, trace = workload(100), Trace()
    assert lowered_before(trace, asked, TARGET) is None
    assert not obstacle(trace, asked, TARGET)
    assert lowered_before(trace, asked, parse("llvm -threads=2")) is None
    assert lowered_before(trace, workload(101), TARGET) is None
    assert lowered_before(trace, workload(100), TARGET) is not None  # an equal one
    assert lowered_before(trace, asked, TARGET) is None
    assert not obstacle(trace, asked, TARGET)
    del asked
    assert lowered_before(trace, workload(100), TARGET) is None


def test_the_compiler_lowers_nothing_again(tmp_path, monkeypatch):
    asked, trace = workload(200), Trace()
    assert not obstacle(trace, asked, TARGET)
    fresh = compiler.compile_trace(asked.dag, trace, TARGET, "double")
    monkeypatch.setattr(compiler, "lower", lambda *_, **__: pytest.fail("lowered again"))
    made = compile_workload(asked, trace, TARGET, "double", ObjectCache(tmp_path, 1 << 20))
    assert (made.objects, made.texts) == (fresh.objects, fresh.texts)


def test_the_answer_is_kept_on_disk(tmp_path, monkeypatch):
    asked, trace, cache = workload(250), Trace(), ObjectCache(tmp_path, 1 << 20)
    assert not kept_obstacle(trace, asked, TARGET, cache)
    parts = Trace((SplitStep("t0", "i0", (), 4),))  # a run-time extent cannot be cut into a number of parts
    why = kept_obstacle(parts, asked, TARGET, cache)
    assert "it cannot be split into a number of parts" in why
    monkeypatch.setattr(compiler, "obstacle", lambda *_: pytest.fail("lowered again"))
    again = ObjectCache(tmp_path, 1 << 20)
    assert [kept_obstacle(t, asked, TARGET, again) for t in (trace, parts)] == ["", why]


def test_what_lowering_does_is_written_where_it_is_wanted(tmp_path):
    """AUTOTENSOR_DUMP needs every pass, so the kernel is lowered again."""
    asked, trace = workload(300), Trace()
    assert not obstacle(trace, asked, TARGET)
    with switches.override(dump=tmp_path / "passes"):
        compile_workload(asked, trace, TARGET, "double", ObjectCache(tmp_path / "cache", 1 << 20))
    assert list((tmp_path / "passes" / "double").glob("*unroll*"))


@pytest.mark.parametrize("rows", [64, 512, 4096])
@pytest.mark.parametrize("columns", [96, 768])
def test_products_of_any_number_of_rows_keep_their_tiles(rows: int, columns: int) -> None:
    n, k = te.var("n", range=(1, rows)), te.reduce_axis(256, name="k")
    a, w = te.placeholder((n, 256), name="A"), te.placeholder((256, columns), name="W", constant=True)
    c = te.compute((n, columns), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    dense = Workload.of(ComputeDAG.of([a, w, c]), "dense")
    target = parse("llvm -mcpu=x86-64-v4 -threads=1")
    assert safe_default(dense, target) == default_trace(dense.dag, target)


@pytest.mark.parametrize("steps", [2, 4, 8])
@pytest.mark.sample(1)
def test_convolutions_of_images_of_any_size_keep_their_algorithm(steps: int) -> None:
    """Winograd's tiles of a row and a column, whose numbers are known only at the call."""
    weights = np.ones((64, 64, 3, 3), np.float32)
    size = te.var("size", range=(40, 80), multiple_of=steps)

    def net(size: int) -> Any:
        return at.ops.conv2d(at.input((1, 64, size, size)), weights, padding=1)

    (conv,) = (t for t in at.plan_model(at.open_graph(net, size)).tasks if "conv2d" in t.workload.name)
    target = parse("llvm -mcpu=x86-64-v4 -threads=1")
    trace = safe_default(conv.workload, target)
    schedules = 1 + sum(isinstance(s, Below) for s in trace.steps)
    assert str(trace).count("winograd") == schedules


def test_a_default_that_takes_numbers_only_is_followed_by_the_next_sketch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, k = te.var("n", range=(1, 64)), te.reduce_axis(16, name="k")
    a, w = te.placeholder((n, 16), name="A"), te.placeholder((16, 32), name="W", constant=True)
    c = te.compute((n, 32), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    dense, target = Workload.of(ComputeDAG.of([a, w, c]), "dense"), parse("llvm -threads=1")
    first = default_trace(dense.dag, target)
    monkeypatch.setattr(
        "autotensor.resolve.obstacle", lambda t, *asked: "no" if t == first else obstacle(t, *asked)
    )
    assert safe_default(dense, target).steps
    assert safe_default(dense, target) != first


def cut_product(most: int, terms: int) -> str:
    """The loops of a product of n rows, n up to `most`, with 768 columns of weights, after they are cut."""
    n, k = te.var("n", range=(1, most)), te.reduce_axis(terms, name="k")
    a, w = te.placeholder((n, terms), name="A"), te.placeholder((terms, 768), name="W", constant=True)
    c = te.compute((n, 768), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    dense = Workload.of(ComputeDAG.of([a, w, c]), "dense")
    target = parse("llvm -mcpu=x86-64-v4 -threads=1")
    texts: dict[str, str] = {}
    state = default_trace(dense.dag, target).replay(dense.dag)
    lower(
        state,
        target,
        hook=lambda done, kernel: texts.update({done.name: texts.get(done.name, "") + str(kernel)}),
    )
    return texts["partition tails"]


def test_blocks_of_tiles_leave_out_rows_as_tiles_alone_do() -> None:
    """The last tile of 13 rows computes only about the rows that are left, also if blocks of tiles are cut.
    The code for each number of rows exists once, and the loop over a block's tiles ends at the extent."""
    cut = cut_product(512, 768)
    assert "in unrolled(13)" in cut
    assert [cut.count(f"* 13 + {left} < n0:") for left in (11, 9, 7, 6, 5, 4, 3, 2, 1)] == [1] * 9
    assert "in range(max(min((n0 + 12) // 13 - t0_i0_0 * 10, 10), 0))" in cut


def test_a_tile_that_holds_all_rows_leaves_out_rows_too() -> None:
    cut = cut_product(8, 3072)
    assert "in unrolled(8)" in cut
    assert [cut.count(f"if n0 >= {left + 1}:") for left in (7, 6, 5, 4, 3, 2, 1)] == [1] * 7
