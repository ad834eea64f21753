"""A program that was lowered to see whether its trace fits is the one that the compiler takes."""

from __future__ import annotations

import pytest

import autotensor.compiler as compiler
from autotensor import te
from autotensor.base import switches
from autotensor.base.target import parse
from autotensor.compiler import compile_workload
from autotensor.lowering.lowered_before import fits, lowered_before
from autotensor.lowering.pipeline import lower
from autotensor.resolve import safe_default
from autotensor.runtime.files.object_cache import ObjectCache
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
    assert fits(trace, asked, TARGET)
    assert lowered_before(trace, asked, parse("llvm -threads=2")) is None
    assert lowered_before(trace, workload(101), TARGET) is None
    assert lowered_before(trace, workload(100), TARGET) is not None  # an equal one
    assert lowered_before(trace, asked, TARGET) is None
    assert fits(trace, asked, TARGET)
    del asked
    assert lowered_before(trace, workload(100), TARGET) is None


def test_the_compiler_lowers_nothing_again(tmp_path, monkeypatch):
    asked, trace = workload(200), Trace()
    assert fits(trace, asked, TARGET)
    fresh = compiler.compile_trace(asked.dag, trace, TARGET, "double")
    monkeypatch.setattr(compiler, "lower", lambda *_, **__: pytest.fail("lowered again"))
    made = compile_workload(asked, trace, TARGET, "double", ObjectCache(tmp_path, 1 << 20))
    assert (made.objects, made.texts) == (fresh.objects, fresh.texts)


def test_what_lowering_does_is_written_where_it_is_wanted(tmp_path):
    """AUTOTENSOR_DUMP asks for every pass, so that the kernel is lowered again."""
    asked, trace = workload(300), Trace()
    assert fits(trace, asked, TARGET)
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


def test_blocks_of_tiles_leave_out_rows_as_tiles_alone_do() -> None:
    """Of a tile of 13 rows, as many halves as are left are computed, also where blocks of tiles are cut."""
    n, k = te.var("n", range=(1, 512)), te.reduce_axis(768, name="k")
    a, w = te.placeholder((n, 768), name="A"), te.placeholder((768, 768), name="W", constant=True)
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
    assert "* 13 + t0_i0_2 < n0" in texts["simplify nest"]
    assert all(f"* 13 + {left} < n0" in texts["partition tails"] for left in (6, 3, 1))
