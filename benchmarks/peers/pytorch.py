"""Libraries that run the torch module: torch itself, its compilers, and runtimes for exported modules."""

from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any

import numpy as np

from peers.peer_spec import Array, Ready, Skip, Spec

MOST_STEPS = 128  # most steps of a Python loop that torch.compile unrolls


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


def _as_array(job: Any, result: Any) -> Array:
    """torch's (first) result as a row-major array. For a tensor program, all results."""
    import torch

    if hasattr(job, "flat"):
        return job.flat(result)

    tensor = result if torch.is_tensor(result) else result[0]
    return np.ascontiguousarray(tensor.detach().numpy())


def torch(job: Any, spec: Spec) -> Ready:
    """torch eager, in inference mode."""
    import torch as library

    # entered once for the life of this process, because entering costs a microsecond
    library.inference_mode().__enter__()
    module, inputs = _module(job, spec)

    def run() -> Any:
        return module(*inputs)

    return run, lambda: _as_array(job, run())


def inductor(job: Any, spec: Spec) -> Ready:
    """torch.compile: max-autotune, weights frozen (constants folded and packed). Needs a C++ compiler."""
    import torch as library
    import torch._inductor.config as config

    if getattr(job, "steps", 0) > MOST_STEPS:
        raise Skip(f"{job.steps} steps, which it would write out")

    config.freezing = True
    library.set_grad_enabled(False)  # freezing requires this
    library._dynamo.reset()  # removes the code of the last job, and its count of recompilations
    module, inputs = _module(job, spec)
    compiled = library.compile(module, mode="max-autotune")

    def run() -> Any:
        return compiled(*inputs)

    for _ in range(3):
        run()
    return run, lambda: _as_array(job, run())


def backend(job: Any, spec: Spec) -> Ready:
    """torch.compile with autotensor's backend, called as in a torch program: tensors in, new tensors out."""
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

    # a part that runs in torch's eager mode would not be autotensor's time, so its warning is an error
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="autotensor: a part of the model runs in eager mode")
        run()
    return run, lambda: _as_array(job, run())


def zentorch(job: Any, spec: Spec) -> Ready:
    """AMD's backend of torch.compile, weights frozen."""
    import torch as library
    import torch._inductor.config as config

    importlib.import_module("zentorch")  # registers the backend
    config.freezing = True
    library.set_grad_enabled(False)
    library._dynamo.reset()
    module, inputs = _module(job, spec)
    compiled = library.compile(module, backend="zentorch")

    def run() -> Any:
        return compiled(*inputs)

    for _ in range(3):
        run()
    return run, lambda: _as_array(job, run())


def xla(job: Any, spec: Spec) -> Ready:
    """XLA through JAX and torchax. Weights are constants of the program, which XLA may fold."""
    import jax
    import torchax

    module, inputs = _module(job, spec)
    weights, function = torchax.extract_jax(module)
    compiled = jax.jit(lambda *given: function(weights, given))
    given = [jax.numpy.asarray(x.numpy()) for x in inputs]

    def run() -> Any:
        return jax.block_until_ready(compiled(*given))

    run()
    return run, lambda: np.asarray(jax.tree.leaves(run())[0])


def executorch(job: Any, spec: Spec) -> Ready:
    """ExecuTorch with its CPU delegate (XNNPACK)."""
    import torch as library
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    module, inputs = _module(job, spec)
    exported = library.export.export(module, inputs)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    loaded = Runtime.get().load_program(program.buffer)
    method = loaded.load_method("forward")

    def run(_: object = loaded) -> Any:
        return method.execute(list(inputs))

    return run, lambda: _as_array(job, run()[0])


def litert(job: Any, spec: Spec) -> Ready:
    """LiteRT (TensorFlow Lite) with its CPU delegate (XNNPACK), inputs set once."""
    import litert_torch
    from ai_edge_litert.interpreter import Interpreter

    module, inputs = _module(job, spec)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.tflite")
        litert_torch.convert(module, inputs).export(path)
        interpreter = Interpreter(path, num_threads=spec.threads)
    interpreter.allocate_tensors()
    for entry, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(entry["index"], value.numpy().astype(entry["dtype"]))  # LiteRT narrows int64
    result = interpreter.get_output_details()[0]["index"]

    def output() -> Array:
        interpreter.invoke()
        return np.array(interpreter.get_tensor(result))

    return interpreter.invoke, output


def opt_einsum(job: Any, spec: Spec) -> Ready:
    """torch eager, with contractions split by opt_einsum. Its expressions are made beforehand."""
    from functools import cache

    import opt_einsum as library

    from peers import torch_words

    expression = cache(library.contract_expression)

    def einsum(spec: str, *operands: Any, optimize: bool = False) -> Any:
        return expression(spec, *(tuple(x.shape) for x in operands))(*operands, backend="torch")

    torch_words.einsum = einsum
    run, output = torch(job, spec)
    run()
    if not expression.cache_info().currsize:
        raise Skip("nothing in it is written as an einsum")
    return run, output
