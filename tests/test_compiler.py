"""A computation that was compiled before is not lowered again, unless a part of its key differs."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotensor as at
from autotensor import compiler, te
from autotensor.base import switches
from autotensor.base.target import host
from autotensor.compiler import compile_trace, compile_workload
from autotensor.runtime.files.object_cache import ObjectCache
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace


def workload() -> Workload:
    a, w = te.placeholder((9, 8), name="a"), te.placeholder((8, 16), name="w", constant=True)
    k = te.reduce_axis(8, name="k")
    return Workload.of(ComputeDAG.of(te.compute((9, 16), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k))))


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "objects", 1 << 20)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for every time that something is compiled."""
    said: list[str] = []
    real = compiler.compile_trace

    def told(dag, trace, target, name="kernel", asm=False, **options):
        said.append(name)
        return real(dag, trace, target, name, asm, **options)

    monkeypatch.setattr(compiler, "compile_trace", told)
    return said


def test_it_is_compiled_once(cache: ObjectCache, lowered: list[str]) -> None:
    w = workload()
    trace = default_trace(w.dag, host())
    first, again = (compile_workload(w, trace, host(), "dense", cache) for _ in range(2))
    assert lowered == ["dense"]
    assert (again.entry, again.args, again.objects) == (first.entry, first.args, first.objects)
    assert dict(again.texts) == dict(first.texts)
    assert dict(again.meta) == dict(first.meta)


def test_anything_else_is_another(cache: ObjectCache, lowered: list[str], monkeypatch) -> None:
    w, one = workload(), host()
    trace = default_trace(w.dag, one)
    compile_workload(w, trace, one, "a", cache)
    compile_workload(w, trace, one, "b", cache)
    s = Schedule(w.dag)
    s["t0"].unroll(s["t0"].op.axis[1])
    compile_workload(w, s.trace, one, "c", cache)
    compile_workload(w, trace, one, "a", cache, frozenset({"t0"}))
    monkeypatch.setattr(compiler, "source_digest", lambda folders: "another version")
    compile_workload(w, trace, one, "a", cache)
    assert lowered == ["a", "b", "c", "a", "a"]


def test_watched_compilations_are_not_kept(cache: ObjectCache, lowered: list[str], tmp_path: Path) -> None:
    w = workload()
    with switches.override(dump=tmp_path / "dump"):
        for _ in range(2):
            compile_workload(w, Trace(), host(), "x", cache)
    with switches.override(verify=True):
        compile_workload(w, Trace(), host(), "x", cache)
    assert lowered == ["x", "x", "x"]


@pytest.mark.parametrize("name", ["k" * 300, "../k"])
def test_dumped_kernels_of_any_name_lie_in_the_folder(name: str, tmp_path: Path) -> None:
    with switches.override(dump=tmp_path / "dump"):
        compile_trace(workload().dag, Trace(), host(), name)
    assert list((tmp_path / "dump").glob("*/*.txt"))
    assert [p.name for p in tmp_path.iterdir()] == ["dump"]


def test_steps_of_others_are_compiled_each_time(cache: ObjectCache, lowered: list[str], monkeypatch) -> None:
    """A user's step may have another meaning later."""
    s = Schedule(workload().dag)
    s["t0"].unroll(s["t0"].op.axis[1])
    monkeypatch.setattr(type(s.trace.steps[0]), "__module__", "theirs")
    for _ in range(2):
        compile_workload(workload(), s.trace, host(), "x", cache)
    assert lowered == ["x", "x"]


def test_a_source_that_cannot_be_read_keeps_nothing(cache: ObjectCache, lowered, monkeypatch) -> None:
    monkeypatch.setattr(compiler, "source_digest", lambda folders: "")
    for _ in range(2):
        compile_workload(workload(), Trace(), host(), "x", cache)
    assert lowered == ["x", "x"]


LEVELS = ("kernel square: compiled", "trace of square:", "loops of square:", "source of square:")


@pytest.mark.parametrize("level", range(7))
def test_each_level_of_debug_tells_what_its_help_says(level: int, caplog: pytest.LogCaptureFixture) -> None:
    A = te.placeholder((8, 4), name="A")
    B = te.compute((8, 4), lambda i, j: A[i, j] * A[i, j] + float(level), name="square")
    with switches.override(debug=level):
        at.build([A, B], target="llvm -threads=1", db=":memory:")
    seen = [text in caplog.text for text in (*LEVELS, "square, pass vectorize:", "rules for t0: ")]
    assert seen == [level >= n for n in range(1, 7)]


def test_kernels_of_a_model_are_told_with_their_origin(tmp_path, caplog, monkeypatch) -> None:
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path))
    for how in ("compiled in ", "from the cache"):
        with switches.override(debug=1):
            at.compile_model(at.ops.relu(at.input((3, 5), name="x")), db=":memory:")
        assert f"kernel relu 3x5: {how}" in caplog.text
