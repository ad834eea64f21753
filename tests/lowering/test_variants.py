"""Programs of several schedules: the extents of a call choose one."""

from __future__ import annotations

import numpy as np
import pytest
from open_convolutions import open_convolution

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.ir.func import Role
from autotensor.lowering.pipeline import lower
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.below import Below
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel, Vectorize
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.step import Step, steps_text
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.fixed_extents import fixed, narrowed
from autotensor.te.reference import evaluate, random_inputs
from schedules.generate import default_trace

TARGET = parse("llvm -threads=2")


def product() -> ComputeDAG:
    n = te.var("n", range=(1, 64))
    a = te.placeholder((n, 8), name="a")
    w = te.placeholder((8, 32), name="w", constant=True)
    k = te.reduce_axis(8, name="k")
    return ComputeDAG.of(
        [a, w, te.compute((n, 32), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="c")]
    )


def tiled(rows: int, columns: int) -> tuple[Step, ...]:
    """Rows in parallel blocks, and weights in panels."""
    return (
        Layout("w", ((1, columns),), "1.0 0 1.1"),
        SplitStep("c", "i", (rows,)),
        SplitStep("c", "j", (columns,)),
        Parallel("c", "i.0"),
        Vectorize("c", "j.1"),
    )


def prepared(trace: Trace) -> list[tuple[int, ...]]:
    return [b.shape for b in lower(trace.replay(product()), TARGET).buffers(Role.PREPARED)]


def test_each_size_has_the_loops_of_its_schedule() -> None:
    small, middle = steps_text(tiled(2, 8)), steps_text(tiled(4, 8))
    trace = Trace((*tiled(8, 16), Below("c", 20, middle), Below("c", 5, small)))
    program = lower(trace.replay(product()), TARGET)
    loops = [line.strip() for f in program.run for line in str(f).splitlines() if "parallel" in line]
    assert [f.name for f in program.run] == ["c.below5", "c.below20", "c"]
    assert loops == [
        "for c_i_0 in parallel(((n + 1) // 2 if n < 5 else 0)):",
        "for c_i_0 in parallel(((n + 3) // 4 if n >= 5 and n < 20 else 0)):",
        "for c_i_0 in parallel(((n + 7) // 8 if n >= 20 else 0)):",
    ]
    assert prepared(trace) == [(2, 8, 16), (4, 8, 8)]  # the two small ones share their panels
    f = open_artifact(compile_trace(product(), trace, TARGET, "product"), threads=2)
    w = np.arange(256, dtype=np.float32).reshape(8, 32)
    bound = f.bind(w=w)
    for n in (1, 4, 5, 19, 20, 64):
        a = np.full((n, 8), 0.5, np.float32)
        np.testing.assert_array_equal(bound(a), a @ w)


def test_the_trace_is_kept_as_text_and_in_other_names() -> None:
    trace = Trace((*tiled(8, 16), Below("c", 20, steps_text(tiled(4, 8)))))
    assert Trace.from_json(trace.to_json()) == trace
    there = trace.renamed({"c": "t0", "c.i": "i0", "c.j": "i1", "w": "a1"})
    assert '["Parallel","t0","i0.0"]' in there.steps[-1].steps  # type: ignore[attr-defined]
    assert trace.to_python().splitlines()[-2:] == [
        '#   s["c"].parallel("i.0")',
        '#   s["c"].vectorize("j.1")',
    ]


@pytest.mark.parametrize("steps", ["no JSON", "{}", "[" * 5000])
def test_other_text_is_refused(steps: str) -> None:
    with pytest.raises(ScheduleError, match="is not the JSON of steps"):
        Trace((Below("c", 20, steps),)).replay(product())


def test_numbers_have_one_schedule() -> None:
    dag = product()
    with pytest.raises(ScheduleError, match="below: the extents are numbers"):
        Trace((Below("c", 20, "[]"),)).replay(fixed(dag, dict.fromkeys(dag.symbols(), 7)))


def test_a_convolution_is_right_on_both_sides_of_every_number() -> None:
    dag = open_convolution(4, 40)
    less = default_trace(narrowed(dag, dict.fromkeys(dag.symbols(), 14)), TARGET)
    trace = default_trace(dag, TARGET).then(Below("y", 196, steps_text(less.steps)))
    f = open_artifact(compile_trace(dag, trace, TARGET, "convolution"), threads=2)
    for height, width in ((4, 4), (5, 40), (13, 14), (14, 14), (17, 23), (40, 40), (40, 4)):
        exact = fixed(dag, dict(zip(dag.symbols(), (height, width), strict=True)))
        given = random_inputs(exact, seed=height)
        want = evaluate(exact, given)["y"]
        got = f.bind(w=given["w"])(given["x"])
        assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max(), (height, width)
