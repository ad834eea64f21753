"""Products of bfloat16 without a faster instruction: operands become float32 beforehand, and the schedule is
as good as for float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from comparison import interpreted

from autotensor import te
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.widened_floats import NAME
from schedules.generate import default_trace

XEON, ZEN5 = parse("llvm -mcpu=cooperlake -threads=2"), parse("llvm -mcpu=znver5 -threads=2")


def product(m: int, n: int, k: int, dtype: str = "bfloat16", same: bool = False) -> ComputeDAG:
    A = te.placeholder((m, k), dtype, name="A")
    W = A if same else te.placeholder((k, n), dtype, name="W", constant=True)
    r = te.reduce_axis(k, name="r")

    def wide(x):
        return x if dtype == "float32" else x.astype("float32")

    C = te.compute((m, n), lambda i, j: te.sum(wide(A[i, r]) * wide(W[r, j]), axis=r), name="C")
    return ComputeDAG.of([A, C] if same else [A, W, C])


@pytest.mark.parametrize("shape", [(5, 37, 19), (1, 33, 40), (16, 48, 8)])
def test_terms_and_sums_are_the_same(shape: tuple[int, int, int]) -> None:
    dag, rng = product(*shape), np.random.default_rng(2)
    inputs = {b.name: rng.integers(-8, 9, b.shape).astype(ml_dtypes.bfloat16) for b in dag.inputs}
    trace = default_trace(dag, XEON)
    program = lower(trace.replay(dag), XEON)
    assert f'"{NAME}"' in str(trace)
    assert [f.name for f in program.prepare], "weights are widened and packed beforehand"
    want = inputs["A"].astype("f4") @ inputs["W"].astype("f4")
    assert np.array_equal(interpreted(dag, program, inputs, 2)["C"], want)


def test_weights_are_widened_once() -> None:
    dag = product(16, 48, 8)
    program = lower(default_trace(dag, XEON).replay(dag), XEON)
    assert any("W.to_float32" in f.name for f in program.prepare)
    assert not any("W.to_float32" in f.name for f in program.run)


def test_where_an_instruction_is_faster_it_is_taken() -> None:
    text = str(default_trace(product(16, 48, 8), ZEN5))
    assert "vdpbf16ps" in text
    assert NAME not in text


@pytest.mark.parametrize("dag", [product(4, 4, 4, "float32"), product(4, 4, 4, same=True)], ids=["f32", "AA"])
def test_others_stay(dag: ComputeDAG) -> None:
    state = State.initial(dag)
    assert ALGORITHMS.get(NAME).expand(state, state.stage("C")) is None
