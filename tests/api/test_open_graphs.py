"""Models whose extents are known when they are called: one program, called with arrays of any extent."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArgumentError
from autotensor.codegen.llvm import backend as llvm_backend
from autotensor.graph.build import ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph, GraphNode
from autotensor.runtime.kernel_times import kernel_times
from autotensor.runtime.module import Module
from autotensor.runtime.open_module import OpenModule
from tests.kit.graph_families import drawn_choices, random_family

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def no_plain_loops(caplog: pytest.LogCaptureFixture):
    """Default schedules can be lowered with run-time extents, whatever the constant ones are."""
    yield
    assert not [text for r in caplog.get_records("call") if "plain loops" in (text := r.getMessage())]


n = te.var("n", range=(1, 20))
m = te.var("m", range=(4, 24), multiple_of=4)
WEIGHTS = np.random.default_rng(0).standard_normal((3, 10, 10)).astype(np.float32)


def perceptron(n: int) -> GraphNode:
    x = at.input((n, 10), name="x")
    for w in WEIGHTS:
        x = ops.relu(ops.dense(x, w))
    return ops.softmax(x)


def windows(n: int) -> GraphNode:
    """Reads of windows whose places depend on n, in the arena and in a result."""
    x = at.input((2, n, 10), name="x")
    both = ops.reshape(ops.dense(ops.reshape(x, (2 * n, 10)), WEIGHTS[0]), (2, n, 10))
    first, second = (ops.reshape(ops.slice(both, (k,), (k + 1,), axes=(0,)), (n, 10)) for k in (0, 1))
    return ops.concat(ops.softmax(second, axis=0), ops.tanh(first) * second, axis=0)


def two_inputs(n: int, m: int) -> Graph:
    x, y = at.input((n, m), name="x"), at.input((m, 10), name="y")
    return Graph((x, y), (ops.matmul(x, y), ops.mean(x, axis=1)), "two", ("product", "means"))


@pytest.fixture(scope="module")
def model() -> Any:
    return at.compile_model(at.open_graph(perceptron, n), target="llvm -threads=1")


@pytest.fixture(scope="module")
def two() -> Any:
    return at.compile_model(at.open_graph(two_inputs, n, m), target="llvm -threads=2")


def check(f: Any, make: Callable[..., Any], *extents: int) -> None:
    from autotensor.api.models import as_graph

    graph = as_graph(make(*extents))
    rng = np.random.default_rng(sum(extents))
    arrays = [rng.standard_normal(x.shape).astype(np.float32) for x in graph.inputs]
    found = f(*arrays)
    for a, b in zip(found if isinstance(found, tuple) else (found,), evaluate(graph, *arrays), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, 1e-3, 1e-4)


def test_one_program_takes_all_extents(model: Any, two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_backend, "build", None)  # nothing is compiled any more
    assert isinstance(model, OpenModule)
    for extent in range(1, 21):
        check(model, perceptron, extent)
    for pair in ((1, 4), (20, 24), (1, 24), (20, 4), (7, 12)):
        check(two, two_inputs, *pair)


@pytest.mark.parametrize("threads", [1, 3])
def test_places_of_windows_follow_the_extents(threads: int) -> None:
    f = at.compile_model(at.open_graph(windows, n), target=f"llvm -threads={threads}")
    for extent in (1, 2, 7, 13, 20):
        for _ in range(5):  # a missing wait between threads does not show in every run
            check(f, windows, extent)


@pytest.mark.parametrize("seed", range(4))
def test_random_models_run_at_any_extents(seed: int) -> None:
    check_compiled(seed, draws=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 40))
def test_more_random_models_run_at_any_extents(seed: int) -> None:
    check_compiled(seed, draws=8)


def check_compiled(seed: int, draws: int) -> None:
    family, make = random_family(seed)
    f = at.compile_model(family, target="llvm -threads=2")
    for choice in drawn_choices(family, np.random.default_rng(seed), draws):
        check(f, make, *choice.values())


def test_greatest_extents_may_need_more_memory_than_there_is() -> None:
    def scores(n: int) -> GraphNode:
        """A number for each pair of rows: 16 TiB at the greatest extent."""
        x = at.input((n, 10), name="x")
        y = ops.dense(x, WEIGHTS[0])
        return ops.matmul(ops.softmax(ops.tanh(ops.matmul(y, ops.transpose(x, (1, 0)))), axis=0), x)

    f = at.compile_model(at.open_graph(scores, te.var("n", range=(1, 2**21))), target="llvm -threads=1")
    check(f, scores, 7)


def test_memory_is_that_of_the_call(model: Any) -> None:
    def arena(extent: int) -> int:
        view: Module = model.view([np.zeros((extent, 10), np.float32)])
        return next(a.bytes for a in view.artifact.args if a.name == "workspace.arena")

    assert arena(20) == model.artifact.meta["memory"]["arena_bytes"] == 2 * 832
    assert (arena(1), arena(8)) == (2 * 64, 2 * 320)


def test_refusals_of_shapes(model: Any, two: Any) -> None:
    def says(f: Any, message: str, *shapes: tuple[int, ...]) -> None:
        with pytest.raises(ArgumentError) as caught:
            f(*(np.zeros(s, np.float32) for s in shapes))
        assert message in str(caught.value)

    says(model, "axis 0 of argument 'x' is 21; it is compiled for n from 1 to 20", (21, 10))
    says(two, "axis 1 of argument 'x' is 6; it is compiled for m from 4 to 24 in steps of 4", (2, 6), (6, 10))
    says(
        two, "argument 'y' has shape [12, 10]; expected [m, 10], which is [8, 10] for n = 2", (2, 8), (12, 10)
    )
    says(two, "argument 'x' has 1 axis; expected [n, m]", (2,), (4, 10))


def test_it_is_saved_and_copied(two: Any, tmp_path: Path) -> None:
    two.save(tmp_path / "plain.atm")
    two.save(tmp_path / "prepared.atm", store="prepared")
    saved = [at.load(tmp_path / name) for name in ("plain.atm", "prepared.atm")]
    for f in (*saved, copy.copy(two), pickle.loads(pickle.dumps(two))):
        check(f, two_inputs, 3, 16)
        f.threads = 1
        check(f, two_inputs, 19, 4)
    assert "x: float32[n, m]" in repr(saved[0])


def test_kernels_are_timed_at_the_greatest_extents(two: Any) -> None:
    arrays = [np.zeros(a.shape, np.float32) for a in two.signature.inputs]
    times = kernel_times(two.artifact, arrays, 1, rounds=2)
    assert len(times) == len(two.artifact.meta["kernels"]) >= 2


def test_an_open_model_is_tuned_and_its_file_uses_the_log(tmp_path: Path) -> None:
    plan = at.plan_model(at.open_graph(perceptron, n), "llvm -threads=1")
    place = tmp_path / "a.atm"
    report = at.tune_model(
        plan, at.TuneOptions(trials=8), db=str(tmp_path / "log.db"), path=place, progress=False
    )
    assert sum(t.trials for t in report.tuning.tasks) == 8
    assert {t.key for t in report.times} == {t.task.workload.key for t in report.tuning.tasks}
    assert all(t.inside_s > 0.0 for t in report.times)
    tuned = at.load(place)
    for rows in (1, 7, 20):
        check(tuned, perceptron, rows)


def test_trials_measure_the_greatest_extents() -> None:
    plan = at.plan_model(at.open_graph(perceptron, n), "llvm -threads=1")
    assert {t.workload.at_greatest.dag.symbols() for t in plan.tasks} == {()}
    assert all(t.workload.dag.symbols() for t in plan.tasks)
