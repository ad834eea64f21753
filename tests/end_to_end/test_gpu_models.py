"""Whole models through OpenCL, untuned: equal to the processor's within 1e-4, saved and loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotensor as at
from autotensor.api.model_tuning import tune_model
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.graph.ir import Graph
from autotensor.models import MODELS, bert, resnet
from autotensor.models.transformer import Size
from autotensor.runtime.device.module import DeviceModule
from autotensor.runtime.open_artifact import Function, open_artifact
from autotensor.search.options import TuneOptions

pytestmark = [pytest.mark.opencl, pytest.mark.timeout(600)]

BOTH = ("opencl", "opencl -device=gpu")  # schedules for a processor, and for a card
BLOCK = Size(layers=1, hidden=64, heads=4, vocabulary=100, positions=40)


def untuned(graph: Graph, target: str) -> Function:
    plan = plan_model(graph, target)
    return open_artifact(link_model(plan, default_traces(plan)))


def compare(graph: Graph, inputs: Mapping[str, Any], target: str = "opencl") -> Function:
    """Runs the graph on both; differences are relative to the largest output."""
    arrays = list(inputs.values())
    f = untuned(graph, target)
    assert isinstance(f, DeviceModule)
    wanted, found = untuned(graph, "llvm")(*arrays), f(*arrays)
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-4)
    return f


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_small_models(name: str, tmp_path: Path) -> None:
    model = MODELS.get(name)
    inputs = model.inputs(np.random.default_rng(0))
    f = compare(model.build(), inputs)
    f.save(tmp_path / "model.atm")
    again = at.load(tmp_path / "model.atm")
    assert isinstance(again, DeviceModule)
    np.testing.assert_array_equal(again(*inputs.values()), f(*inputs.values()))


@pytest.mark.parametrize("target", BOTH)
def test_a_block_of_a_transformer(target: str) -> None:
    inputs = bert.inputs(np.random.default_rng(0), 1, 24, BLOCK)
    compare(bert.build(1, tokens=24, size=BLOCK), inputs, target)


@pytest.mark.parametrize("target", ["opencl", pytest.param("opencl -device=gpu", marks=pytest.mark.slow)])
def test_resnet18_of_small_images(target: str) -> None:
    compare(resnet.build(18, image=32), resnet.inputs(np.random.default_rng(0), image=32), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", BOTH)
def test_resnet18(target: str) -> None:
    model = MODELS.get("resnet18")
    compare(model.build(), model.inputs(np.random.default_rng(0)), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", BOTH)
def test_a_whole_block_of_bert(target: str) -> None:
    size = replace(bert.BASE, layers=1, vocabulary=1000)
    inputs = bert.inputs(np.random.default_rng(0), 1, 128, size)
    compare(bert.build(1, tokens=128, size=size), inputs, target)


@pytest.mark.slow
def test_tuned_is_right_and_not_slower(tmp_path: Path) -> None:
    """The whole way: search, race in the model, file; the same command again measures nothing."""
    model, db = MODELS.get("mlp"), tmp_path / "log.db"
    plan = plan_model(model.build(), "opencl")
    options = TuneOptions(trials=24)
    report = tune_model(plan, options, db=db, path=tmp_path / "mlp.atm", progress=False)
    assert report.tuning.trials == 24
    assert report.tuned_s <= report.default_s
    again = tune_model(plan, options, db=db, path=tmp_path / "mlp.atm", progress=False)
    assert again.tuning.reused == again.tuning.trials
    arrays = list(model.inputs(np.random.default_rng(0)).values())
    wanted = untuned(model.build(), "llvm")(*arrays)
    np.testing.assert_allclose(at.load(tmp_path / "mlp.atm")(*arrays), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_tuned_resnet18_of_small_images_equals_the_processors(tmp_path: Path) -> None:
    graph, path = resnet.build(18, image=32), tmp_path / "resnet.atm"
    options = TuneOptions(trials=40)
    report = tune_model(
        plan_model(graph, "opencl"), options, db=tmp_path / "log.db", path=path, progress=False
    )
    assert report.tuned_s <= report.default_s
    arrays = list(resnet.inputs(np.random.default_rng(0), image=32).values())
    wanted, found = untuned(graph, "llvm")(*arrays), at.load(path)(*arrays)
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-4)


def test_the_arena_is_shared_and_the_kernels_have_times() -> None:
    """Offsets suit any device's parts of buffers; every kernel of the plan has its launches and its time."""
    from autotensor.runtime.kernel_times import kernel_times
    from autotensor.runtime.sample_arrays import sample_inputs

    model = MODELS.get("small_cnn")
    f = untuned(model.build(), "opencl")
    meta = f.artifact.meta
    assert all(offset % 512 == 0 for k in meta["kernels"] for _, offset in k["slots"])
    assert sum(k["launches"] for k in meta["kernels"]) == len(meta["launches"]["run"])
    assert meta["memory"]["arena_bytes"] < meta["memory"]["unshared_bytes"]
    times = kernel_times(f.artifact, sample_inputs(f.args, f.artifact.index_range), 1, rounds=2)
    assert [t.name for t in times] == [k["name"] for k in meta["kernels"]]
    assert all(t.seconds > 0 for t in times)
