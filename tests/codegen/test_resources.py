"""Kernels that need more registers than there are, and the spills of what we ship."""

from __future__ import annotations

import pytest
from gpu_cases import fetch, product, tiled

import autotensor as at
from autotensor.api.models import plan_model
from autotensor.base.errors import TargetError
from autotensor.base.target import parse
from autotensor.cli.inputs import build_graph
from autotensor.codegen import nvrtc
from autotensor.codegen.resources import check_resources, registers_for, tile_of
from autotensor.compiler import compile_state, compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.schedule.schedule import Schedule
from autotensor.te import Tensor
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

ARCHS = ("sm_80", "sm_90")
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
