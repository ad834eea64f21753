"""aarch64: C libraries of operators and models answer right under qemu-user. A sample; all with `-m slow`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import aarch64
import numpy as np
import pytest
from aarch64 import EMULATOR, needs_qemu
from c_programs import ran
from operator_tools import CASES

import autotensor as at
from autotensor import te
from autotensor.api.models import default_traces, link_model
from autotensor.base.dtype import dtype_of
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.models import MODELS
from autotensor.operators import OPERATORS
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.tolerance import tolerance
from schedules.generate import default_trace

pytestmark = needs_qemu

# LLVM's name → qemu's: NEON alone; with dot products of bytes; with i8mm, bf16 and SVE2
PROCESSORS = {"generic": "cortex-a53", "neoverse-n1": "neoverse-n1", "neoverse-n2": "max"}
SAMPLE = [("conv2d", 0), ("matmul", 0), ("softmax", 0), ("layer_norm", 0), ("argmax", 0), ("erf", 0)]
SAMPLE_MODELS = ("small_cnn", "mlp")
assert set(SAMPLE) <= set(CASES)


def target_of(processor: str) -> str:
    return f"llvm -mtriple=aarch64-linux-gnu -mcpu={processor} -threads=2"


def check_operator(name: str, number: int, processor: str, folder: Path) -> None:
    """The default schedule's answer is within what is allowed for the sums that it takes."""
    op, target = OPERATORS.get(name), parse(target_of(processor))
    case = op.cases[number]
    arrays = case.arrays(np.random.default_rng(number))
    inputs = [
        te.placeholder(a.shape, dtype_of(a.dtype), name=f"x{n}", constant=n in op.constants)
        for n, a in enumerate(arrays)
    ]
    dag = ComputeDAG.of([*inputs, op.compute(*inputs, **case.attrs)])
    check(dag, {f"x{n}": a for n, a in enumerate(arrays)}, target, processor, folder)


def check(dag: ComputeDAG, values: dict[str, Any], target: Any, processor: str, folder: Path) -> str:
    """Gives the assembly."""
    artifact = compile_trace(dag, default_trace(dag, target), target, name="f", asm=True)
    constants = {spec.name: values[spec.name] for spec in artifact.role("constant")}
    ready = aarch64.prepared(replace(artifact, values=constants), folder, PROCESSORS[processor])
    given = [values[spec.name] for spec in artifact.role("input")]
    (found,) = aarch64.run(ready, folder, given, PROCESSORS[processor])
    exact = evaluate(dag, values, accumulate=np.float64)
    output = dag.outputs[0].name
    expected, allowed = exact[output], tolerance(dag, values, exact)[output]
    assert found.shape == expected.shape
    assert np.isclose(found.astype(float), expected.astype(float), rtol=0, atol=allowed, equal_nan=True).all()
    return artifact.texts["asm"]


@pytest.mark.parametrize(("name", "number"), SAMPLE, ids=[f"{name}-{n}" for name, n in SAMPLE])
@pytest.mark.sample(2)
def test_operators(name: str, number: int, tmp_path: Path) -> None:
    check_operator(name, number, "neoverse-n2", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{name}-{n}" for name, n in CASES])
def test_all_operators(name: str, number: int, processor: str, tmp_path: Path) -> None:
    check_operator(name, number, processor, tmp_path)


# what is multiplied, on which processor → an instruction of the listing
DOTS = {
    ("int8", "int8", "int32", "neoverse-n1"): "sdot",
    ("uint8", "uint8", "int32", "neoverse-n1"): "udot",
    ("uint8", "int8", "int32", "neoverse-n2"): "usdot",
    ("bfloat16", "bfloat16", "float32", "neoverse-n2"): "bfdot",
}


@pytest.mark.parametrize("case", DOTS, ids=DOTS.values())
@pytest.mark.sample(1)
def test_dot_instructions(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    left, right, sums, processor = case
    A = te.placeholder((8, 64), left, name="A")
    B = te.placeholder((64, 32), right, name="B", constant=True)
    k = te.reduce_axis(64)
    C = te.compute((8, 32), lambda i, j: te.sum(A[i, k].astype(sums) * B[k, j].astype(sums), axis=k))
    rng = np.random.default_rng(0)
    values = {
        t.name: rng.integers(0 if str(t.dtype) == "uint8" else -9, 99, t.shape).astype(t.dtype.numpy)
        for t in (A, B)
    }
    listing = check(ComputeDAG.of([A, B, C]), values, parse(target_of(processor)), processor, tmp_path)
    assert DOTS[case] in listing.split()


@pytest.mark.parametrize("processor", [*PROCESSORS][-1:])
@pytest.mark.parametrize("name", SAMPLE_MODELS)
@pytest.mark.sample(1)
def test_models(name: str, processor: str, tmp_path: Path) -> None:
    check_model(name, processor, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "gpt2_decode"])
def test_larger_models(name: str, processor: str, tmp_path: Path) -> None:
    check_model(name, processor, tmp_path)


def check_model(name: str, processor: str, folder: Path) -> None:
    model = MODELS.get(name)
    graph = model.build()
    arrays = model.inputs(np.random.default_rng(0))
    plan = at.plan_model(graph, target=target_of(processor))
    artifact = link_model(plan, default_traces(plan), prepared=True)
    given = [arrays[spec.name] for spec in artifact.role("input")]
    found = aarch64.run(artifact, folder, given, PROCESSORS[processor])
    here = at.compile_model(graph)(*given)  # which other tests compare
    for one, expected in zip(found, here if isinstance(here, tuple) else (here,), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


def test_a_processor_that_lacks_something_is_refused(tmp_path: Path) -> None:
    A = te.placeholder((8,), name="A")
    dag = ComputeDAG.of([A, te.compute((8,), lambda i: A[i] * 2.0)])
    target = parse(target_of("neoverse-n2"))
    program = aarch64.program(compile_trace(dag, default_trace(dag, target), target, name="f"), tmp_path)
    words = ("run", "none", 1, 0, tmp_path / "in", tmp_path / "out")
    np.zeros(8, np.float32).tofile(tmp_path / "in")
    ran([EMULATOR, "-cpu", "max", str(program)], *words)
    said = ran([EMULATOR, "-cpu", "cortex-a53", str(program)], *words, code=3)
    assert "this processor, or its system, lacks one of the features needed" in said
    assert "sve2" in said
