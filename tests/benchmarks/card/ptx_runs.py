"""Kernels as NVRTC's PTX, executed lane by lane, without a device or CuPy's names between.

check_ptx(dag, trace)                              raises comparison.Different or CardFault when not right
run_ptx(artifact, inputs, edit=lambda ptx: …)      the outputs by name; edit: a fault to plant
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from comparison import agree
from simulated_card.ptx_lanes import launch
from simulated_card.ptx_memory import GlobalMemory
from simulated_card.ptx_text import parse as parse_ptx

from autotensor.base.dtype import dtype_of
from autotensor.base.target import parse
from autotensor.codegen.c.nvrtc import ptx_of
from autotensor.compiler import compile_trace
from autotensor.runtime.arrays import Array
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.launches import launches
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs


def check_ptx(
    dag: ComputeDAG, trace: Trace, arch: str = "sm_80", edit: Callable[[str], str] = str, seed: int = 0
) -> str:
    """The PTX, after a check of its results: bit for bit if the computation is exact on small integers."""
    inputs = random_inputs(dag, seed, "integer")
    artifact = compile_trace(dag, trace, parse(f"cuda -arch={arch}"), "k")
    outputs, text = run_ptx(artifact, inputs, arch, edit)
    agree(dag, inputs, evaluate(dag, inputs), outputs)
    return text


def run_ptx(
    artifact: Artifact, inputs: Mapping[str, Array], arch: str, edit: Callable[[str], str] = str
) -> tuple[dict[str, Array], str]:
    """The outputs by name, and the PTX of all kernels."""
    texts = [edit(ptx_of(source.decode(), arch)) for source in artifact.objects]
    kernels = [parse_ptx(text) for text in texts]
    memory, at, data = GlobalMemory(1 << 30), {}, {}
    for spec in artifact.args:
        at[spec.name], data[spec.name] = memory.allocate(spec.bytes)
        if spec.name in inputs:
            data[spec.name][:] = np.ascontiguousarray(inputs[spec.name]).reshape(-1).view(np.uint8)
    for call in (*launches(artifact, "prepare"), *launches(artifact, "run")):
        params = [at[artifact.args[n].name] + offset for n, offset in call.args]
        launch(
            kernels[call.object][call.kernel],
            memory,
            params,
            call.grid,
            call.block,
            call.dynamic_shared_bytes,
        )
    outputs = {
        spec.name: data[spec.name].view(dtype_of(spec.dtype).numpy).reshape(spec.shape)
        for spec in artifact.role("output")
    }
    return outputs, "\n".join(texts)
