"""The device contract: memory, plans, modules. One class of tests for every device; CUDA's need a card."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor.base.errors import ArgumentError, ArtifactError, TargetError
from autotensor.base.target import parse
from autotensor.codegen.c.cuda import CUDA
from autotensor.runtime.device.array import DeviceArray, to_device
from autotensor.runtime.device.contract import DeviceCall
from autotensor.runtime.device.cuda import VECTOR_BYTES
from autotensor.runtime.device.devices import device_of, open_device, opened
from autotensor.runtime.device.module import DeviceModule
from autotensor.runtime.device.opencl import choose_platform
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.launches import LaunchSpec, launches
from autotensor.runtime.open_artifact import open_artifact

SOURCES = {
    "opencl": """
__kernel void twice(__global float* y, __global const float* x) {
    int i = get_group_id(0) * get_local_size(0) + get_local_id(0);
    y[i] = 2.0f * x[i];
}
__kernel void add(__global float* y, __global const float* x, __global const float* w) {
    int i = get_group_id(0) * get_local_size(0) + get_local_id(0);
    y[i] = x[i] + w[i];
}
""",
    "cuda": """
extern "C" __global__ void twice(float* y, const float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}
extern "C" __global__ void add(float* y, const float* x, const float* w) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] + w[i];
}
""",
}
N = 128
SHAPE = {"grid": [2, 1, 1], "block": [64, 1, 1]}


def function(kind: str) -> Artifact:
    """y = x + p, where p = 2 w is prepared of the constant w."""
    args = (
        ArgSpec("x", "input", (N,), "float32"),
        ArgSpec("w", "constant", (N,), "float32"),
        ArgSpec("y", "output", (N,), "float32"),
        ArgSpec("p", "prepared", (N,), "float32"),
    )
    run = {"kernel": "add", "args": [[2, 0], [0, 0], [3, 0]], **SHAPE}
    prepare = {"kernel": "twice", "args": [[3, 0], [1, 0]], **SHAPE}
    meta = {"entry_constants": [], "launches": {"prepare": [prepare], "run": [run]}}
    return Artifact(
        "f", parse(kind), "add", "twice", args, (SOURCES[kind].encode(),), texts={kind: "…"}, meta=meta
    )


class DeviceContract:
    """The abilities of every device."""

    kind = ""

    def test_bytes_come_back_as_they_were_written(self):
        device, x = open_device(self.kind), np.arange(N, dtype=np.float32)
        memory = device.allocate(4 * N + device.alignment)
        part = device.part(memory, device.alignment, 4 * N)
        device.write(part, x)
        back = np.empty_like(x)
        device.read(part, back)
        np.testing.assert_array_equal(back, x)

    def test_a_plan_runs_its_calls_in_order(self):
        device, x = open_device(self.kind), np.arange(N, dtype=np.float32)
        a, b, c = (device.allocate(4 * N) for _ in range(3))
        device.write(a, x)
        calls = [
            DeviceCall("twice", (b, a), (2, 1, 1), (64, 1, 1)),
            DeviceCall("add", (c, b, a), (2, 1, 1), (64, 1, 1)),
        ]
        run = device.plan((SOURCES[self.kind].encode(),), calls)
        out = np.empty_like(x)
        for _ in range(3):  # CUDA makes a graph of it at the second
            run()
            device.read(c, out)
            np.testing.assert_array_equal(out, 3 * x)
        assert device.seconds(run, 4) > 0.0

    def test_the_smallest_numbers_stay_what_they_are(self):
        device, x = open_device(self.kind), np.full(N, 1e-40, np.float32)
        a, b = (device.allocate(4 * N) for _ in range(2))
        device.write(a, x)
        device.plan((SOURCES[self.kind].encode(),), [DeviceCall("twice", (b, a), (2, 1, 1), (64, 1, 1))])()
        out = np.empty_like(x)
        device.read(b, out)
        np.testing.assert_array_equal(out, 2 * x)

    def test_source_that_does_not_compile_is_an_artifact_error(self):
        device = open_device(self.kind)
        with pytest.raises(ArtifactError, match="refuse"):
            device.plan((b"this is no kernel",), [DeviceCall("k", (), (1, 1, 1), (1, 1, 1))])

    def test_unknown_kernel_is_an_artifact_error(self):
        device = open_device(self.kind)
        with pytest.raises(ArtifactError, match="'nobody'"):
            device.plan((SOURCES[self.kind].encode(),), [DeviceCall("nobody", (), (1, 1, 1), (1, 1, 1))])

    def test_module_prepares_binds_and_takes_outputs(self):
        f = open_artifact(function(self.kind))
        assert isinstance(f, DeviceModule)
        rng = np.random.default_rng(0)
        x, w = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
        np.testing.assert_allclose(f(x, w), x + 2 * w)
        g = f.bind(w=w)
        assert [a.name for a in g.args] == ["x", "y"]
        assert [a.name for a in g.signature.inputs] == ["x"]
        np.testing.assert_allclose(g(x), x + 2 * w)
        y = np.empty_like(x)
        assert g(x, y) is None
        np.testing.assert_allclose(y, x + 2 * w)
        assert all(s > 0 for s in g.time([x], repeat=3, min_seconds=1e-4))

    def test_saved_module_needs_no_preparing(self, tmp_path):
        w, x = np.ones(N, np.float32), np.arange(N, dtype=np.float32)
        DeviceModule(function(self.kind)).bind(w=w).save(tmp_path / "f.atm")
        g = open_artifact(artifacts.load(tmp_path / "f.atm"))
        assert [a.name for a in g.args] == ["x", "y"]
        np.testing.assert_allclose(g(x), x + 2)

    def test_arrays_of_the_device_stay_there(self):
        w, x = np.ones(N, np.float32), np.arange(N, dtype=np.float32)
        g = DeviceModule(function(self.kind)).bind(w=w)
        y = g(to_device(x, self.kind))
        assert isinstance(y, DeviceArray)
        z = g(y)
        np.testing.assert_allclose(z.numpy(), x + 4)
        np.testing.assert_allclose(y.numpy(), x + 2)  # a later call does not overwrite it

    def test_wrong_arguments_are_named(self):
        g = DeviceModule(function(self.kind)).bind(w=np.ones(N, np.float32))
        with pytest.raises(ArgumentError, match="argument 'x' is float64"):
            g(np.ones(N))
        with pytest.raises(ArgumentError, match=r"argument 'x' is float32\[4\]"):
            g(to_device(np.ones(4, np.float32), self.kind))


@pytest.mark.opencl
class TestOpenCL(DeviceContract):
    kind = "opencl"

    def test_arrays_say_that_they_cannot_be_shared(self):
        y = to_device(np.ones(3, np.float32), "opencl")
        assert not hasattr(y, "__cuda_array_interface__")
        with pytest.raises(ArgumentError, match=r"Use \.numpy\(\)"):
            y.__dlpack__()

    def test_a_card_is_taken_where_there_is_one(self):
        """There is no card here, so the target of cards uses the device that exists."""
        device = device_of(parse("opencl -device=gpu"))
        assert device.limits["max_threads_per_block"] >= 256
        x = to_device(np.ones(3, np.float32), "opencl -device=gpu")
        assert x.device is device

    def test_an_unknown_platform_is_refused_with_what_there_is(self):
        with pytest.raises(TargetError, match=r"called 'nonsense'; there are: .*Portable"):
            device_of(parse("opencl -platform=nonsense"))


@pytest.mark.gpu
class TestCuda(DeviceContract):
    kind = "cuda"

    def test_arrays_are_shared_with_cupy_both_ways(self):
        import cupy

        x = cupy.arange(N, dtype=cupy.float32)
        g = DeviceModule(function("cuda")).bind(w=np.ones(N, np.float32))
        y = g(x)
        assert isinstance(y, DeviceArray)
        np.testing.assert_allclose(cupy.from_dlpack(y).get(), np.arange(N) + 2)
        np.testing.assert_allclose(cupy.asarray(y).get(), np.arange(N) + 2)

    def test_an_array_that_vectors_cannot_load_is_refused_by_its_name(self):
        import cupy

        g = DeviceModule(function("cuda")).bind(w=np.ones(N, np.float32))
        with pytest.raises(ArgumentError, match="'x': an array on the card begins 4 bytes after a multiple"):
            g(cupy.arange(N + 1, dtype=cupy.float32)[1:])
        x = cupy.arange(N + 4, dtype=cupy.float32)[4:]
        np.testing.assert_allclose(g(x).numpy(), np.arange(N) + 6)


def test_platforms_are_chosen_by_name_cards_first():
    names = ("Oclgrind", "Portable Computing Language", "NVIDIA CUDA")
    assert choose_platform(names) == "NVIDIA CUDA"
    assert choose_platform(names[:2]) == "Portable Computing Language"
    assert choose_platform(names, fitting=names[:2]) == "Portable Computing Language"
    assert choose_platform(names, fitting=()) == "NVIDIA CUDA"
    assert choose_platform(names, "portable") == "Portable Computing Language"
    with pytest.raises(TargetError, match=r"finds no platform here\. pip install 'autotensor\[opencl\]'"):
        choose_platform(names[:1])


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [("opencl", "pyopencl", "opencl"), ("cuda", "cupy", "cuda12x")]
)
def test_a_missing_package_is_one_sentence_with_the_command(kind, package, extra, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    opened.cache_clear()
    try:
        with pytest.raises(TargetError, match=rf"not installed\. pip install 'autotensor\[{extra}\]'"):
            open_device(kind)
    finally:
        opened.cache_clear()


def test_what_an_array_must_be_aligned_to_is_what_kernels_access_at_once():
    assert CUDA.widest == VECTOR_BYTES


def test_launches_survive_json_and_wrong_ones_are_named():
    spec = LaunchSpec("k", ((0, 0), (1, 512)), (4, 1, 1), (64, 2, 1), 1024, 3)
    assert LaunchSpec.of(spec.plain()) == spec
    plain = Artifact("m", parse("opencl"), "k", None, (), (b"",))
    with pytest.raises(ArtifactError, match="m does not say how its kernels are launched"):
        launches(plain, "run")
    too_far = Artifact(
        "m", parse("opencl"), "k", None, (), (b"",), meta={"launches": {"run": [spec.plain()]}}
    )
    with pytest.raises(ArtifactError, match="'k' is launched with memory that does not exist"):
        launches(too_far, "run")
