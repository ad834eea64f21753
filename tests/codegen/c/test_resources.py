"""Kernels that need more registers than the device has, and spills of the shipped schedules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_cases import fetch, product, tiled

import autotensor as at
from autotensor.api.models import compile_tasks, plan_model
from autotensor.base.errors import TargetError
from autotensor.base.target import parse
from autotensor.cli.inputs import build_graph
from autotensor.codegen.c import nvrtc
from autotensor.codegen.c.resources import check_resources, refuse_unfit, registers_for, tile_of
from autotensor.compiler import compile_state, compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.resolve import Resolved
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.te import Tensor
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace

ARCHS = ("sm_80", "sm_90")
REFUSED = r"target sm_80 offers 64: .* bytes are spilled\. Shrink axis"
needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")


def with_tile(threads: int, each: int, c: Tensor | None = None) -> Schedule:
    """A block of threads × threads; each has each × each sums in registers."""
    n = threads * each
    s = tiled(product(n, n, 64) if c is None else c, threads=threads, each=each, depth=8)
    for tensor in ("A", "B"):
        fetch(s, tensor, "C.local", "k.0", (threads, threads), 1)
    return s


def test_registers_of_a_block() -> None:
    assert [registers_for(n) for n in (32, 256, 257, 512, 1000, 1024)] == [255, 255, 224, 128, 64, 64]


def test_the_tile_of_a_kernel() -> None:
    (kernel,) = lower(with_tile(4, 2).state, parse("cuda")).run
    found = tile_of(kernel)
    assert found == {"buffer": "C.local", "elements": 4, "stage": "C.local", "axis": "i", "extent": 2}


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_more_registers_than_a_block_has(arch: str) -> None:
    target = parse(f"cuda -arch={arch}")
    artifact = compile_state(with_tile(32, 10).state, target, "k")
    with pytest.raises(TargetError) as caught:
        check_resources(artifact, arch)
    said = str(caught.value)
    assert said.startswith("build: kernel 'C' needs ")
    assert f"registers in each of its 1024 threads, target {arch} offers 64: " in said
    assert "bytes are spilled. Shrink axis 'i' of stage 'C.local': each thread keeps 100 elements of" in said
    needed = int(said.split("needs ")[1].replace("at least ", "").split()[0])
    assert 100 < needed < 256


@needs_nvrtc
def test_what_fits_is_let_through() -> None:
    facts = check_resources(compile_state(with_tile(16, 4).state, parse("cuda"), "k"), "sm_80")
    assert facts["spill_bytes"] == 0
    assert 16 < facts["registers"] < 128


@needs_nvrtc
def test_build_refuses_before_it_looks_for_a_card() -> None:
    c = product(320, 320, 64)
    s = with_tile(32, 10, c)
    with pytest.raises(TargetError, match=r"target sm_80 offers 64: .* bytes are spilled"):
        at.build(s, [*c.op.input_tensors, c], target="cuda -arch=sm_80")


@pytest.fixture
def too_large() -> tuple[ComputeDAG, Trace]:
    """A product and a schedule of it that spills, in canonical names."""
    c = product(320, 320, 64)
    s = with_tile(32, 10, c)
    dag, names = s.dag.canonical()
    return dag, s.trace.renamed(names)


@needs_nvrtc
def test_the_best_known_schedule_is_refused_before_a_card_is_looked_for(
    too_large: tuple[ComputeDAG, Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, trace = too_large
    monkeypatch.setattr("autotensor.api.kernels.resolve", lambda *_: Resolved(trace, "log"))
    c = product(320, 320, 64)
    with pytest.raises(TargetError, match=REFUSED):
        at.build([*c.op.input_tensors, c], target="cuda -arch=sm_80")


@needs_nvrtc
def test_a_models_schedules_are_refused_before_they_are_linked(too_large: tuple[ComputeDAG, Trace]) -> None:
    dag, trace = too_large
    workload = Workload.of(dag, "product")
    tasks: Any = (SimpleNamespace(workload=workload, name="product"),)
    plan = replace(plan_model(at.input((4, 4)) + 1.0, target="cuda -arch=sm_80"), tasks=tasks, groups=())
    with pytest.raises(TargetError, match=REFUSED):
        compile_tasks(plan, {workload.key: trace}, {})


@needs_nvrtc
def test_a_saved_kernel_is_refused_when_it_is_loaded(
    too_large: tuple[ComputeDAG, Trace], tmp_path: Path
) -> None:
    dag, trace = too_large
    artifacts.save(tmp_path / "k.atm", compile_trace(dag, trace, parse("cuda -arch=sm_80"), "k"))
    with pytest.raises(TargetError, match=REFUSED):
        at.load(tmp_path / "k.atm")


@needs_nvrtc
def test_a_model_has_many_sources_and_the_one_that_does_not_fit_is_found(
    too_large: tuple[ComputeDAG, Trace],
) -> None:
    target = parse("cuda -arch=sm_80")
    bad = compile_trace(*too_large, target, "bad")
    good = compile_state(with_tile(16, 4).state, target, "good")
    second = [{**x, "object": 1} for x in bad.meta["launches"]["run"]]
    meta = {"launches": {"prepare": [], "run": [*good.meta["launches"]["run"], *second]}}
    both = replace(good, objects=(*good.objects, *bad.objects), meta=meta)
    with pytest.raises(TargetError, match=REFUSED):
        refuse_unfit(both)
    assert refuse_unfit(good) is good
    on_opencl = replace(both, target=parse("opencl"))
    assert refuse_unfit(on_opencl) is on_opencl


@needs_nvrtc
def test_what_a_kernel_takes_is_kept_by_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTENSOR_CACHE_DIR", str(tmp_path))
    source = compile_state(with_tile(16, 4).state, parse("cuda"), "k").objects[0].decode()
    nvrtc.resources_of.cache_clear()
    found = nvrtc.resources_of(source, "sm_80")
    nvrtc.resources_of.cache_clear()
    monkeypatch.setattr(nvrtc, "compile_source", None)  # not called again
    assert nvrtc.resources_of(source, "sm_80") == found
    nvrtc.resources_of.cache_clear()


# -- what is shipped -----------------------------------------------------------------------------------------
def spilled(dag: ComputeDAG, arch: str) -> int:
    target = parse(f"cuda -arch={arch}")
    return check_resources(compile_trace(dag, default_trace(dag, target), target, "k"), arch)["spill_bytes"]


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", [(512, 512, 512), (4096, 4096, 4096), (1, 1000, 512), (49, 2048, 512)])
def test_default_products_do_not_spill(shape: tuple[int, int, int], arch: str) -> None:
    assert spilled(ComputeDAG.of([product(*shape)]), arch) == 0


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("model", ["mlp", "resnet18", "gpt2"])
def test_default_schedules_of_models_do_not_spill(model: str, arch: str) -> None:
    plan = plan_model(build_graph(model), parse(f"cuda -arch={arch}"))
    assert {t.name: spilled(t.workload.dag, arch) for t in plan.tasks} == {t.name: 0 for t in plan.tasks}
