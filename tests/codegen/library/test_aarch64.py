"""aarch64: C libraries of operators and of models answer right under qemu-user. A sample; all with `-m slow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aarch64
import numpy as np
import pytest
from aarch64 import EMULATOR, needs_qemu
from c_programs import ran
from operator_tools import CASES

from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.dtype import dtype_of
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.graph.execute import execute
from autotensor.models import MODELS
from autotensor.operators import OPERATORS
from autotensor.te import placeholder, reduce_axis
from autotensor.te import compute as te_compute
from autotensor.te import sum as te_sum
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.tolerance import tolerance
from schedules.generate import default_trace

pytestmark = needs_qemu

# LLVM's name → qemu's: NEON alone; with dot products of bytes; with i8mm, bf16 and SVE2
PROCESSORS = {"generic": "cortex-a53", "neoverse-n1": "neoverse-n1", "neoverse-n2": "max"}
SAMPLE = [("conv2d", 0), ("matmul", 0), ("softmax", 0), ("layer_norm", 0), ("argmax", 0), ("erf", 0)]
SAMPLE_MODELS = ("small_cnn", "mlp", "gru")
assert set(SAMPLE) <= set(CASES)


def target_of(processor: str) -> str:
    return f"llvm -mtriple=aarch64-linux-gnu -mcpu={processor} -threads=2"


def check_operator(name: str, number: int, processor: str, folder: Path) -> None:
    """The default schedule's answer is within what is allowed for the sums that it takes."""
    op, target = OPERATORS.get(name), parse(target_of(processor))
    case = op.cases[number]
    arrays = case.arrays(np.random.default_rng(number))
    inputs = [
        placeholder(a.shape, dtype_of(a.dtype), name=f"x{n}", constant=n in op.constants)
        for n, a in enumerate(arrays)
    ]
    dag = ComputeDAG.of([*inputs, op.compute(*inputs, **case.attrs)])
    check(dag, {f"x{n}": a for n, a in enumerate(arrays)}, target, processor, folder)


def check(dag: ComputeDAG, values: dict[str, Any], target: Any, processor: str, folder: Path) -> str:
    """Gives the assembly."""
    artifact = compile_trace(dag, default_trace(dag, target), target, name="f", asm=True)
    constants = {spec.name: values[spec.name] for spec in artifact.role("constant")}
    ready = aarch64.prepared(bound(artifact, constants), folder, PROCESSORS[processor])
    given = [values[spec.name] for spec in artifact.role("input")]
    (found,) = aarch64.run(ready, folder, given, PROCESSORS[processor])
    exact = evaluate(dag, values, accumulate=np.float64)
    output = dag.outputs[0].name
    expected, allowed = exact[output], tolerance(dag, values, exact)[output]
    unlike = ~np.isclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=allowed, equal_nan=True)
    assert found.shape == expected.shape
    assert not unlike.any()
    return artifact.texts["asm"]


def bound(artifact: Any, values: dict[str, Any]) -> Any:
    from dataclasses import replace

    return replace(artifact, values=values)


@pytest.mark.parametrize(("name", "number"), SAMPLE, ids=[f"{name}-{n}" for name, n in SAMPLE])
def test_operators(name: str, number: int, tmp_path: Path) -> None:
    check_operator(name, number, "neoverse-n2", tmp_path)
