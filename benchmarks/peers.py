"""How each library is set up, as its users would for speed: one function per library.

    run, output = onnxruntime(job, spec)        run() computes once, output() gives the result as an array

A job is a `suite.case.Case` or a `networks.Network`: it knows itself as torch module, as ONNX bytes, as NumPy
function. Everything that can be done ahead (packing weights, binding inputs, compiling) is done here and not
timed. All compute in float32 with as many threads as the spec says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Ready = tuple[Callable[[], object], Callable[[], Array]]


class Skip(Exception):
    """This contestant does not take part in this job, and why; not a failure."""


@dataclass(frozen=True)
class Spec:
    """A contestant: which library, and how. Travels to its process as JSON."""

    kind: str  # a key of KINDS
    threads: int
    channels_last: bool = False  # torch: activations and weights in channels-last order
    numerics: str = "strict"  # ours: "fast" also allows Winograd's convolution
    log: str = ""  # ours: tuning log; "" takes default schedules
    file: str = ""  # ours: a compiled model, or a folder of schedules; tvm: where its packages are
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """Environment of its process: every library's own way to say how many threads."""
        names = (
            "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS",
            "AUTOTENSOR_NUM_THREADS",
        )  # fmt: skip
        ours = {"AUTOTENSOR_NO_SHIPPED": "1"}  # what comes tuned may have been tuned on these very rows
        return {
            **dict.fromkeys(names, str(self.threads)),
            "PYTHONUNBUFFERED": "1",
            **ours,
            **self.environment,
        }


def ours(job: Any, spec: Spec) -> Ready:
    """autotensor; the output array is given, as with the other runtimes' bound outputs."""
    ready: Ready = job.ours(spec)
    return ready


def numpy(job: Any, spec: Spec) -> Ready:
    """NumPy as a person would write it."""
    function = job.numpy_function()
    if function is None:
        raise Skip("not one NumPy expression")
    return function, function


def _module(job: Any, spec: Spec) -> tuple[Any, tuple[Any, ...]]:
    """The torch module and its inputs, in the layout of the spec."""
    import torch

    torch.set_num_threads(spec.threads)
    module = job.module()
    if module is None:
        raise Skip("there is no torch module of it")
    inputs = tuple(map(torch.from_numpy, job.arrays[0]))
    if spec.channels_last:
        layout = {2: torch.channels_last, 3: torch.channels_last_3d}.get(job.channels_last)
        if layout is None:
            raise Skip("not an operator on images")
        rank = job.channels_last + 2
        inputs = tuple(x.to(memory_format=layout) if x.dim() == rank else x for x in inputs)
        module = module.to(memory_format=layout)
    return module, inputs


def _as_array(result: Any) -> Array:
    """torch's (first) result as a row-major array."""
    import torch

    tensor = result if torch.is_tensor(result) else result[0]
    return np.ascontiguousarray(tensor.detach().numpy())


def torch(job: Any, spec: Spec) -> Ready:
    """torch eager, in inference mode."""
    import torch as library

    library.inference_mode().__enter__()  # for the life of this process: entering it costs a microsecond
    module, inputs = _module(job, spec)

    def run() -> Any:
        return module(*inputs)

    return run, lambda: _as_array(run())


def inductor(job: Any, spec: Spec) -> Ready:
    """torch.compile: max-autotune, weights frozen (constants folded and packed). Needs a C++ compiler."""
    import torch as library
    import torch._inductor.config as config

    config.freezing = True
    library.set_grad_enabled(False)  # freezing asks for it
    library._dynamo.reset()  # code of the last job, and its count of recompilations
    module, inputs = _module(job, spec)
    compiled = library.compile(module, mode="max-autotune")

    def run() -> Any:
        return compiled(*inputs)

    for _ in range(3):
        run()
    return run, lambda: _as_array(run())


def backend(job: Any, spec: Spec) -> Ready:
    """torch.compile with our backend, called as in a torch program: tensors in, new tensors out."""
    import warnings

    import torch as library

    from autotensor.integrations.torch_compile import autotensor

    library.set_grad_enabled(False)
    library._dynamo.reset()
    module, inputs = _module(job, spec)
    target = f"llvm -threads={spec.threads} -numerics={spec.numerics}"
    compiled = library.compile(
        module, backend=autotensor, options={"log": spec.log or ":memory:", "target": target}
    )

    def run() -> Any:
        return compiled(*inputs)

    with warnings.catch_warnings():  # what would run in torch's eager mode is no time of ours
        warnings.filterwarnings("error", message="autotensor: a part of the model runs in eager mode")
        run()
    return run, lambda: _as_array(run())


def onnxruntime(job: Any, spec: Spec) -> Ready:
    """onnxruntime with all graph optimisations, inputs and outputs bound."""
    import onnxruntime as library

    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = spec.threads, 1
    options.log_severity_level = 3
    model, arrays = job.onnx(), job.arrays[0]
    session = library.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    taken = [library.OrtValue.ortvalue_from_numpy(a) for a in arrays]
    for entry, value in zip(session.get_inputs(), taken, strict=True):
        binding.bind_ortvalue_input(entry.name, value)
    first = session.run(None, {e.name: a for e, a in zip(session.get_inputs(), arrays, strict=True)})
    given = [library.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for a in first]
    for entry, value in zip(session.get_outputs(), given, strict=True):
        binding.bind_ortvalue_output(entry.name, value)
    keep = (taken, given)  # the binding holds bare addresses

    def run(_: object = keep) -> None:
        session.run_with_iobinding(binding)

    def output() -> Array:
        run()
        return np.array(given[0].numpy())

    return run, output


def openvino(job: Any, spec: Spec) -> Ready:
    """OpenVINO for latency, inputs set once. float32 must be asked for: bf16 is its default on some CPUs."""
    import openvino as library

    core = library.Core()
    source, arrays = job.onnx(), job.arrays[0]
    model = core.read_model(source) if isinstance(source, str) else core.read_model(source, b"")
    asked = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": spec.threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", asked).create_infer_request()
    for n, array in enumerate(arrays):
        request.set_input_tensor(n, library.Tensor(array, shared_memory=True))

    def run(_: object = arrays) -> None:  # start and wait: `infer` would copy results into new arrays
        request.start_async()
        request.wait()

    def output() -> Array:
        run()
        return np.array(request.get_output_tensor(0).data)

    return run, output


def tvm(job: Any, spec: Spec) -> Ready:
    """What TVM's MetaSchedule found (metaschedule.py), outputs given. Its own packages come last in line."""
    import sys

    if spec.file not in sys.path:
        sys.path.append(spec.file)
    library, arrays, take = job.tvm(spec.threads)
    import tvm as package

    function = package.runtime.load_module(str(library))["main"]
    given = [package.runtime.tensor(a) for a in arrays]
    out = package.runtime.empty(take.shape, "float32")
    keep = (*given, out)

    def run(_: object = keep) -> None:
        function(*keep)

    def output() -> Array:
        run()
        return np.asarray(take(out.numpy()))

    return run, output


KINDS: dict[str, Callable[[Any, Spec], Ready]] = {
    "ours": ours,
    "backend": backend,
    "numpy": numpy,
    "torch": torch,
    "inductor": inductor,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "tvm": tvm,
}
# of a kind, where it has another name
PACKAGES = {"inductor": "torch", "backend": "torch", "ours": "autotensor"}


def cache_folder() -> str:
    """Where compiled code and tuning logs of the benchmarks live between runs."""
    import platformdirs

    folder = os.path.join(platformdirs.user_cache_dir("autotensor"), "benchmarks")
    os.makedirs(folder, exist_ok=True)
    return folder
