"""Libraries that read the ONNX file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from peers.peer_spec import Array, Ready, Skip, Spec


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
    keep = (taken, given)  # keeps the arrays alive, because the binding only has their addresses

    def run(_: object = keep) -> None:
        session.run_with_iobinding(binding)

    def output() -> Array:
        run()
        return np.array(given[0].numpy())

    return run, output


def openvino(job: Any, spec: Spec) -> Ready:
    """OpenVINO for latency, with inputs set once. float32 must be requested, because bf16 is the default on
    some CPUs."""
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

    # starts and waits, because `infer` would copy results into new arrays
    def run(_: object = arrays) -> None:
        request.start_async()
        request.wait()

    def output() -> Array:
        run()
        return np.array(request.get_output_tensor(0).data)

    return run, output


def iree(job: Any, spec: Spec) -> Ready:
    """IREE for this processor at its highest level of optimisation. Inputs are copied to its device
    beforehand."""
    import iree.runtime as library

    with tempfile.TemporaryDirectory() as folder:
        graph, program = Path(folder, "model.mlir"), Path(folder, "model.vmfb")
        _call("iree-import-onnx", _file(job, folder), "-o", graph, "--opset-version", "20")
        local = ("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu")
        how = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling")
        _call("iree-compile", graph, "-o", program, *local, *how)
        code = program.read_bytes()
    library.flags.parse_flags(f"--task_topology_group_count={spec.threads}")
    config = library.Config("local-task")
    module = library.VmModule.copy_buffer(config.vm_instance, code)
    context = library.SystemContext(config=config)
    context.add_vm_module(module)
    name = next(n for n in module.function_names if not n.startswith("__") and "$" not in n)
    function = context.modules[module.name][name]
    given = [library.asdevicearray(config.device, a) for a in job.arrays[0]]

    def run() -> Any:
        return function(*given)

    def output() -> Array:
        result = run()
        return np.array((result[0] if isinstance(result, tuple) else result).to_host())

    return run, output


def tinygrad(job: Any, spec: Spec) -> Ready:
    """tinygrad with its graph captured, but without its search (BEAM), which takes minutes for each
    network."""
    from tinygrad import Device, Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    with tempfile.TemporaryDirectory() as folder:
        runner = OnnxRunner(_file(job, folder))
    given = {n: Tensor(a).realize() for n, a in zip(runner.graph_inputs, job.arrays[0], strict=True)}

    @TinyJit
    def compiled(**tensors: Any) -> Any:
        return next(iter(runner(tensors).values())).realize()

    def run() -> Any:
        result = compiled(**given)
        Device[Device.DEFAULT].synchronize()
        return result

    for _ in range(3):  # the second call captures the graph
        run()
    return run, lambda: np.array(run().numpy())


def ncnn(job: Any, spec: Spec) -> Ready:
    """ncnn, with a model converted by pnnx. Winograd is allowed. Storage in float16 is not allowed, because
    that is not float32."""
    import ncnn as library
    import pnnx

    arrays = job.arrays[0]
    kinds = {"float32": "f32", "int64": "i64", "int32": "i32"}
    shapes = ",".join(f"[{','.join(map(str, a.shape))}]{kinds[a.dtype.name]}" for a in arrays)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "model.onnx")
        copy.write_bytes(Path(_file(job, folder)).read_bytes())
        _call(pnnx.EXEC_PATH, copy, f"inputshape={shapes}", "fp16=0", folder=folder)
        net = library.Net()
        net.opt.num_threads = spec.threads
        net.opt.use_winograd_convolution = True
        for half in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
            setattr(net.opt, half, False)
        if net.load_param(str(Path(folder, "model.ncnn.param"))):
            raise Skip("pnnx writes operators that ncnn has not")
        net.load_model(str(Path(folder, "model.ncnn.bin")))
    # pnnx removes the batch axis, because ncnn has none
    given = [library.Mat(np.ascontiguousarray(_narrow(a)[0])).clone() for a in arrays]
    names, result = net.input_names(), net.output_names()[0]

    def run(_: object = net) -> Any:
        extractor = net.create_extractor()
        for name, value in zip(names, given, strict=True):
            extractor.input(name, value)
        return extractor.extract(result)[1]

    return run, lambda: np.array(run())[None]


def mnn(job: Any, spec: Spec) -> Ready:
    """MNN with high precision (float32)."""
    import MNN.expr as expr
    import MNN.nn as library
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        source, program = _file(job, folder), Path(folder, "model.mnn")
        graph = onnx.load(source, load_external_data=False).graph
        _call("mnnconvert", "-f", "ONNX", "--modelFile", source, "--MNNModel", program, "--bizCode", "x")
        weights = {w.name for w in graph.initializer}
        names = [i.name for i in graph.input if i.name not in weights]
        asked = {"backend": "CPU", "numThread": spec.threads, "precision": "high"}
        manager = library.create_runtime_manager((asked,))
        net = library.load_module_from_file(
            str(program), names, [graph.output[0].name], runtime_manager=manager
        )
    types = {"float32": expr.float, "int32": expr.int}
    arrays = [_narrow(a) for a in job.arrays[0]]
    given = [expr.const(a, list(a.shape), expr.NCHW, types[a.dtype.name]) for a in arrays]

    def run() -> Any:
        return net.forward(given)[0].read()

    return run, lambda: np.array(run())


def _narrow(array: Array) -> Array:
    """The array, with integers as int32, for libraries that have no other integers."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _file(job: Any, folder: str) -> str:
    """The job's ONNX file. If the job has bytes, they are written to a file in the folder."""
    source = job.onnx()
    if isinstance(source, str):
        return source
    path = Path(folder, "source.onnx")
    path.write_bytes(source)
    return str(path)


def _call(tool: str, *words: object, folder: str | None = None) -> None:
    """Runs a library's converter, which is in the interpreter's folder. Raises Skip, with the converter's
    last line, if it fails."""
    # an absolute path `tool` stays unchanged
    command = [str(Path(sys.executable).parent / tool), *map(str, words)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
        raise Skip(f"{Path(tool).name} cannot convert it: {' '.join(last)[:200]}")
