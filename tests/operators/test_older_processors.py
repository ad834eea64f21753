"""Default schedules on processors with fewer features: AVX2 without AVX-512, and plain x86-64 (SSE2).

This machine runs their code as well, so each result is compared, not only compiled.
"""

from __future__ import annotations

import platform

import numpy as np
import pytest

from autotensor.base.target import parse
from autotensor.codegen.llvm.assembly import asm_facts
from autotensor.compiler import compile_trace
from autotensor.operators import OPERATORS, Case
from autotensor.runtime.module import Module
from autotensor.te import placeholder
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.tolerance import tolerance
from schedules.generate import default_trace

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86-64 code")

PROCESSORS = ("haswell", "x86-64")
NHWC = {"layout": "NHWC"}
SIZES = {
    "convolution": ("conv2d", Case(((1, 14, 14, 32), (48, 32, 3, 3)), {"padding": 1, **NHWC})),
    "pointwise": ("conv2d", Case(((1, 7, 7, 64), (40, 64, 1, 1)), NHWC)),
    "depthwise": ("conv2d", Case(((1, 9, 9, 40), (40, 1, 3, 3)), {"padding": 1, "groups": 40, **NHWC})),
    "grouped": ("conv2d", Case(((1, 9, 9, 32), (32, 8, 3, 3)), {"padding": 1, "groups": 4, **NHWC})),
    "transposed": ("conv2d_transpose", Case(((1, 5, 5, 32), (32, 24, 4, 4)), {"stride": 2, **NHWC})),
    "product": ("matmul", Case(((33, 65), (65, 47)))),
    "one row": ("dense", Case(((1, 257), (100, 257)))),
    "softmax": ("softmax", Case(((17, 130),))),
    "layer norm": ("layer_norm", Case(((9, 200), (200,), (200,)))),
    "pooling": ("max_pool2d", Case(((1, 14, 14, 24),), {"kernel": 3, "stride": 2, "padding": 1, **NHWC})),
    "gelu": ("gelu", Case(((3, 333),))),
    "sum": ("sum", Case(((40, 1000),), {"axis": 1})),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("what", SIZES)
@pytest.mark.sample(8)
def test_default_schedules_give_the_right_numbers(processor: str, what: str) -> None:
    name, case = SIZES[what]
    op, target = OPERATORS.get(name), parse(f"llvm -mcpu={processor} -threads=2")
    arrays = case.arrays(np.random.default_rng(0))
    inputs = [
        placeholder(a.shape, "float32", name=f"x{n}", constant=n in op.constants)
        for n, a in enumerate(arrays)
    ]
    dag = ComputeDAG.of([*inputs, op.compute(*inputs, **case.attrs)])
    values = {f"x{n}": a for n, a in enumerate(arrays)}
    output = dag.outputs[0].name
    exact = evaluate(dag, values, accumulate=np.float64)
    expected = exact[output]
    module = Module(compile_trace(dag, default_trace(dag, target), target), threads=2)
    constants = {f"x{n}": a for n, a in enumerate(arrays) if n in op.constants}
    bound = module.bind(**constants) if constants else module
    found = bound(*(a for n, a in enumerate(arrays) if n not in op.constants))
    assert (np.abs(found - expected) <= tolerance(dag, values, exact)[output]).all()


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("numerics", ["strict", "fast"])
@pytest.mark.sample(2)
def test_register_tiles_fit_sixteen_registers(processor: str, numerics: str) -> None:
    """Half as many vector registers, and narrower ones: the tile's rule must know.

    Fast numerics use Winograd's transforms here. They store temporaries on the stack, but carry none from one
    iteration to the next.
    """
    target = parse(f"llvm -mcpu={processor} -numerics={numerics}")
    x = placeholder((1, 14, 14, 32), "float32", name="x")
    w = placeholder((64, 32, 3, 3), "float32", name="w", constant=True)
    dag = ComputeDAG.of([x, w, OPERATORS.get("conv2d").compute(x, w, padding=1, **NHWC)])
    artifact = compile_trace(dag, default_trace(dag, target), target, asm=True)
    facts = asm_facts(artifact.texts["asm"])
    assert facts.carried == 0
    assert numerics == "fast" or facts.spills == 0
