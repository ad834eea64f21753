"""Sources for GPUs: their text (goldens), whether NVRTC accepts them, and the launches of kernels."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest
from gpu_cases import CASES
from gpu_traces import gpu_trace
from random_dags import random_dag

import autotensor as at
from autotensor import te
from autotensor.base.errors import CodegenError, TargetError
from autotensor.base.target import parse
from autotensor.codegen.backend import compile
from autotensor.codegen.c import nvrtc
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.runtime.files.artifact import Artifact
from autotensor.schedule.schedule import create_schedule

Golden = Callable[[str], None]
needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")


def built(name: str, target: str) -> Artifact:
    made = parse(target)
    return compile(lower(CASES[name]().state, made), made, name=name)


@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.parametrize(
    "name", ["elementwise", "vectors", "matmul", "virtual_threads", "row_sums", "softmax"]
)
def test_sources(name: str, target: str, golden: Golden) -> None:
    golden(built(name, target).texts[target])


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(16)
def test_nvrtc_compiles_every_case(name: str, arch: str) -> None:
    artifact = built(name, f"cuda -arch={arch}")
    made = nvrtc.compile_source(artifact.texts["cuda"], arch)
    launches = [x for part in artifact.meta["launches"].values() for x in part]
    assert {x["kernel"] for x in launches} == set(made.resources)
    assert all(r.spill_bytes == 0 for r in made.resources.values())
    assert made.cubin.startswith(b"\x7fELF")


@pytest.mark.opencl
def test_kernels_of_long_names_run() -> None:
    """PoCL makes a folder with a kernel's name, and ends the process if the name is too long for the
    system."""
    A = te.placeholder((8,), name="A" * 300)
    f = at.build([A, te.compute((8,), lambda i: A[i] + 1.0, name="B" * 300)], target="opencl")
    assert all(len(x["kernel"]) < 100 for x in f.artifact.meta["launches"]["run"])
    assert (f(np.ones(8, np.float32)) == 2).all()


@pytest.mark.parametrize("seed", [*range(50, 60), *range(70, 80)])
def test_shared_memory_is_declared_once(seed: int) -> None:
    """A copy inside of one that is computed ahead is allocated before the loop and in it."""
    rng = random.Random(seed)
    dag = random_dag(rng, 2)
    source = compile_trace(dag, gpu_trace(rng, dag, 4), parse("opencl"), "k").texts["opencl"]
    for kernel in source.split("__kernel")[1:]:
        declared = re.findall(r"__local \w+ (\w+)\[", kernel)
        assert len(declared) == len(set(declared)), kernel


@needs_nvrtc
def test_what_nvrtc_refuses_is_said() -> None:
    with pytest.raises(
        CodegenError, match=r"NVRTC refused a kernel for sm_80: .*identifier \"x\" is undefined"
    ):
        nvrtc.compile_source('extern "C" __global__ void k(float* p) { p[0] = x; }', "sm_80")


def test_launches_say_all_that_a_runtime_needs() -> None:
    artifact = built("split_k", "opencl")
    first, last = artifact.meta["launches"]["run"]
    assert [a.name for a in artifact.args] == ["A", "B", "C", "C.rf"]
    assert [a.role for a in artifact.args] == ["input", "input", "output", "workspace"]
    assert first["grid"] == [4, 1, 1]
    assert first["block"] == [8, 8, 1]
    assert first["args"] == [[0, 0], [1, 0], [3, 0]]
    assert last["args"] == [[2, 0], [3, 0]]
    assert artifact.entry == first["kernel"]
    assert artifact.objects == (artifact.texts["opencl"].encode(),)


def test_large_shared_memory_is_asked_for_at_launch() -> None:
    a = te.placeholder((16384,), name="A")
    b = te.compute((16384,), lambda i: a[16383 - i] + 1.0, name="B")
    s = create_schedule(b)
    outer, inner = s[b].split("i", factor=16384)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    copy = s.cache_read("A", "shared", [b])
    s[copy].compute_at(s[b], outer)
    target = parse("cuda -arch=sm_80")
    artifact = compile(lower(s.state, target), target, name="k")
    assert artifact.meta["launches"]["run"][0]["dynamic_shared_bytes"] == 65536
    assert "extern __shared__" in artifact.texts["cuda"]
    assert inner.name == "i.1"
    with pytest.raises(TargetError) as caught:
        lower(s.state, parse("opencl"))
    assert str(caught.value) == (
        "build: kernel 'B' needs 65536 bytes of shared memory (A.shared:B 65536), target opencl offers "
        "32768. Shrink the loops that 'A.shared:B' is computed for: its box is 16384."
    )


def test_too_many_threads_are_refused_before_compiling() -> None:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    s[b].bind("i", te.thread_axis("threadIdx.y"))
    s[b].bind("j", te.thread_axis("threadIdx.x"))
    with pytest.raises(TargetError) as caught:
        lower(s.state, parse("cuda -arch=sm_80"))
    assert str(caught.value) == (
        "build: kernel 'B' needs 4096 threads in a block, target sm_80 offers 1024. "
        "Bind shorter loops: threadIdx.x 64 × threadIdx.y 64."
    )


def test_indices_stay_wide_where_they_must() -> None:
    n = 1 << 32
    a = te.placeholder((n,), name="A", dtype="int8")
    b = te.compute((n,), lambda i: a[i] + a[i], name="B")
    s = create_schedule(b)
    outer, inner = s[b].split("i", factor=256)
    s[b].bind(outer, te.thread_axis("blockIdx.x"))
    s[b].bind(inner, te.thread_axis("threadIdx.x"))
    target = parse("cuda")
    text = compile(lower(s.state, target), target, name="k").texts["cuda"]
    assert "256L" in text


def test_sixteen_bit_helpers_agree_with_numpy() -> None:
    """The C of `at_f2h` and `at_h2f`, transcribed, on every half and around every tie."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    wide = halves.view(np.float16).astype(np.float32)
    finite = wide[np.isfinite(wide)]
    cases = np.concatenate([finite, np.nextafter(finite, np.float32(np.inf)), finite * np.float32(1.0003)])
    with np.errstate(over="ignore"):
        assert (to_half(cases) == cases.astype(np.float16).view(np.uint16)).all()


def to_half(x: np.ndarray) -> np.ndarray:
    u = x.view(np.uint32)
    sign, body = (u >> 16) & 0x8000, u & 0x7FFFFFFF
    small = ((body.view(np.float32) + np.float32(0.5)).view(np.uint32) - np.uint32(0x3F000000)) | sign
    rounded = body + 0xFFF + ((body >> 13) & 1)
    normal = sign | ((rounded - 0x38000000) >> 13)
    out = np.where(body >= 0x477FF000, sign | 0x7C00, np.where(body < 0x38800000, small, normal))
    return out.astype(np.uint16)
