"""te.rounded on GPU targets: no multiply-add reaches through it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.codegen.c import nvrtc
from autotensor.compiler import compile_trace
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.primitives.mark import Vectorize
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

N = 16


def sums(dtype: str, *, negated: bool = False) -> ComputeDAG:
    """a * b + c, or c - a * b, the product rounded first."""
    a, b, c = (te.placeholder((N,), dtype, name=n) for n in "abc")
    sign = -1.0 if negated else 1.0
    body = lambda i: te.rounded(sign * (a[i] * b[i])) + c[i]  # noqa: E731
    return ComputeDAG.of([a, b, c, te.compute((N,), body, name="y")])


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("negated", [False, True])
def test_opencl_adds_the_rounded_product(dtype: str, vectors: bool, negated: bool) -> None:
    """c is the rounded product, so a multiply-add would leave the rounding error."""
    dag = sums(dtype, negated=negated)
    trace = Trace((Vectorize("y", "i"),)) if vectors else Trace()
    artifact = compile_trace(dag, trace, parse("opencl"), "k")
    assert f"at_rounded_{dtype}{f'x{N}' if vectors else ''}(" in artifact.texts["opencl"]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(N).astype(dtype) for _ in range(2))
    product = -(a * b) if negated else a * b
    np.testing.assert_array_equal(open_artifact(artifact)(a, b, -product), np.zeros(N, dtype))


@pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}.")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cuda_keeps_product_and_sum_apart(dtype: str) -> None:
    source = compile_trace(sums(dtype), Trace(), parse("cuda"), "k").texts["cuda"]
    assert f"at_rounded_{dtype}(a[" in source
    nvrtc.compile_source(source, "sm_80")
    assert "fma.rn" not in ptx(source)
    assert "fma.rn" in ptx(source.replace(f" at_rounded_{dtype}(a[", " (a["))  # it would be, without


def ptx(source: str) -> str:
    """The PTX that NVRTC makes of a source."""
    library, program, size = nvrtc.library(), ctypes.c_void_p(), ctypes.c_size_t()
    assert library is not None
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None) == 0
    option = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_80")
    assert library.nvrtcCompileProgram(program, 1, option) == 0
    assert library.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert library.nvrtcGetPTX(program, text) == 0
    return text.value.decode()
