"""Sums as bytes: one formula gives the same bits everywhere, also at halves and at the ends of types."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from comparison import Native, interpreted

from autotensor import te
from autotensor.base.errors import TensorError
from autotensor.base.target import host, parse
from autotensor.codegen import backend
from autotensor.codegen.interp.interpreter import run_program
from autotensor.lowering.pipeline import lower
from autotensor.runtime.module import Module
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

N = 96


def expression(dtype: str, zero: int) -> ComputeDAG:
    T, S = te.placeholder((N,), "int32", name="T"), te.placeholder((N,), "float32", name="S")
    Y = te.compute((N,), lambda i: te.requantize(T[i], S[i], zero, dtype), name="Y")
    return ComputeDAG.of([T, S, Y])


def operands() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    total = rng.integers(-(1 << 20), 1 << 20, N).astype("i4")
    scale = (rng.random(N) / 4096).astype("f4")
    total[:8], scale[:8] = (-5, -3, -1, 1, 3, 5, 7, 9), 0.5  # halves
    total[8:12], scale[8:12] = (2**31 - 1, -(2**31), 2**24 + 1, -7), (1.0, 1.0, 2.0**-18, np.inf)
    total[12], scale[12] = 0, np.inf  # no number
    return {"T": total, "S": scale}


def formula(inputs: dict[str, np.ndarray], dtype: str, zero: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        real = np.rint(inputs["T"].astype("f4") * inputs["S"]) + np.float32(zero)
    ends = np.iinfo(dtype)
    return np.where(np.isnan(real), 0, np.clip(real, ends.min, ends.max)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "zero"), [("uint8", 0), ("uint8", 131), ("int8", -4), ("int8", 0), ("int16", 9)]
)
def test_the_same_bits_everywhere(dtype: str, zero: int) -> None:
    dag, inputs = expression(dtype, zero), operands()
    want = formula(inputs, dtype, zero)
    for target in (parse("interp"), host()):
        program = lower(default_trace(dag, target).replay(dag), target)
        assert np.array_equal(interpreted(dag, program, inputs, 1)["Y"], want)
    assert np.array_equal(Native(dag, program, host())(inputs, 1)["Y"], want)


@pytest.mark.opencl
@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="no OpenCL")
def test_the_same_bits_by_opencl() -> None:
    import autotensor as at

    T, S = te.placeholder((N,), "int32", name="T"), te.placeholder((N,), "float32", name="S")
    Y = te.compute((N,), lambda i: te.requantize(T[i], S[i], 131), name="Y")
    inputs = operands()
    got = at.build([T, S, Y], target="opencl")(inputs["T"], inputs["S"])
    assert np.array_equal(got, formula(inputs, "uint8", 131))


def test_a_scale_that_is_no_number_gives_zero() -> None:
    inputs = operands() | {"S": np.full(N, np.nan, "f4")}
    dag = expression("uint8", 131)
    program = lower(default_trace(dag, host()).replay(dag), host())
    out = {**inputs, "Y": np.ones(N, "u1")}
    run_program(program, out)
    module = Module(backend.compile(program, host(), name="nan"), threads=1)
    assert not out["Y"].any()
    assert not module(inputs["T"], inputs["S"]).any()


def test_halves_go_to_even() -> None:
    want = formula(operands(), "int8", 0)[:8]
    assert want.tolist() == [-2, -2, 0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_other_types_are_refused(dtype: str) -> None:
    with pytest.raises(TensorError, match="is not an integer type of at most 16 bits"):
        te.requantize(te.const(3, "int32"), te.const(1.0), 0, dtype)
