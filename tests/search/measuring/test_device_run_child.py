"""Measuring on a device: right candidates get times, wrong ones their status, and the next ones go on."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import TargetError
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.device.devices import opened
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate
from tuning_db.records import Status

OPTIONS = MeasureOptions(repeat=3, min_seconds=1e-4, run_timeout_s=20.0, workers=1, asm=False)


def matmul(n: int = 32) -> Workload:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B", constant=True)
    k = te.reduce_axis(n, name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return Workload.of(ComputeDAG.of([a, b, c]), "matmul")


@pytest.mark.opencl
def test_candidates_are_checked_and_timed_on_the_device() -> None:
    workload, target = matmul(), parse("opencl")
    traces = [s.fill(s.defaults()) for s in generate(workload.dag, target)[:2]]
    with LocalMeasurer(target, OPTIONS) as measurer:
        results = measurer.measure(workload, traces)
    assert [r.status for r in results] == [Status.OK] * len(traces)
    assert all(len(r.seconds) >= 3 and min(r.seconds) > 0 for r in results)
    assert all(r.max_error is not None and r.max_error <= (r.tolerance or 0) for r in results)


@pytest.mark.opencl
def test_wrong_answers_stray_writes_and_hangs_are_found() -> None:
    """Faults in the kernel's source. The candidate after them is measured as usual."""
    workload, target = matmul(), parse("opencl")
    good = compile_trace(workload.dag, default_trace(workload.dag, target), target, "good")
    (source,) = good.objects
    text = source.decode()
    body = text.index("{", text.index(f" {good.entry}("))  # of the run part, not of the part that packs b
    planted = {
        "spoils its input": "((__global float*)a0)[0] = 7.0f;",
        "writes beyond": "t0[1024 + 3] = 1.0f;",
        "hangs": "volatile int on = 1; while (on) {}",
    }
    from dataclasses import replace

    bad = [
        replace(good, name=name, objects=((text[: body + 1] + code + text[body + 1 :]).encode(),))
        for name, code in planted.items()
    ]
    empty = text[: body + 1] + "return;" + text[body + 1 :]
    none = replace(good, name="does nothing", objects=(empty.encode(),))
    options = MeasureOptions(
        repeat=3, min_seconds=1e-4, build_timeout_s=5.0, run_timeout_s=1.0, workers=1, asm=False
    )
    with LocalMeasurer(target, options) as measurer:
        found = measurer.measure_artifacts(workload, [*bad, none, good])
    spoils, beyond, hangs, nothing, right = found
    assert spoils.status is Status.WRONG_RESULT
    assert "changed its input 'a0'" in (spoils.error or "")
    assert beyond.status is Status.WRONG_RESULT
    assert "bytes beyond the end of 't0'" in (beyond.error or "")
    assert hangs.status is Status.RUN_TIMEOUT
    assert nothing.status is Status.WRONG_RESULT
    assert right.status is Status.OK


@pytest.mark.parametrize(("kind", "package"), [("opencl", "pyopencl"), ("cuda", "cupy")])
def test_without_a_device_measuring_is_refused_in_one_sentence(kind, package, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    opened.cache_clear()
    try:
        with pytest.raises(TargetError, match="not installed"):
            LocalMeasurer(parse(kind), OPTIONS)
    finally:
        opened.cache_clear()


@pytest.mark.opencl
@pytest.mark.slow
def test_tuning_finds_something_and_is_verified(tmp_path) -> None:
    import autotensor as at

    a, b = te.placeholder((96, 96), name="A"), te.placeholder((96, 96), name="B")
    k = te.reduce_axis(96, name="k")
    c = te.compute((96, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    db = tmp_path / "log.db"
    report = at.tune([a, b, c], trials=12, target="opencl", db=db, progress=False)
    (task,) = report.tasks
    assert task.trials == 12
    assert task.best_s is not None
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((96, 96)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(at.build([a, b, c], target="opencl", db=db)(x, y), x @ y, rtol=1e-4, atol=1e-4)
