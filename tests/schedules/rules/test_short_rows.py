"""Pointwise stages: vectors along rows, also along rows of fewer bytes than a register has."""

from __future__ import annotations

import numpy as np
import pytest
from comparison import interpreted

from autotensor import te
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace
from schedules.rules.pointwise import fitting

AVX512 = parse("llvm -mcpu=znver4 -threads=1")


def rescaled(channels: int) -> ComputeDAG:
    """Bytes times a scale for each channel, as bytes again: rows cannot be joined."""
    X = te.placeholder((6, channels), "uint8", name="X")
    S = te.placeholder((channels,), "float32", name="S")
    y = te.compute(
        (6, channels), lambda i, c: te.cast("uint8", te.cast("float32", X[i, c]) * S[c] + 0.5), name="Y"
    )
    return ComputeDAG.of([X, S, y])


@pytest.mark.parametrize(("channels", "lanes"), [(16, 16), (32, 32), (40, 32), (48, 16), (64, 64), (96, 64)])
def test_rows_of_few_bytes_are_vectors_all_the_same(channels, lanes) -> None:
    dag = rescaled(channels)
    trace = default_trace(dag, AVX512)
    assert f"{lanes}]" in next(line for line in str(trace).splitlines() if ".split(" in line)
    rng = np.random.default_rng(1)
    inputs = {"X": rng.integers(0, 256, (6, channels)).astype("u1"), "S": rng.random(channels).astype("f4")}
    want = (inputs["X"].astype("f4") * inputs["S"] + np.float32(0.5)).astype("u1")
    got = interpreted(dag, lower(trace.replay(dag), AVX512), inputs, 1)["Y"]
    assert (np.abs(got.astype(int) - want) <= 1).all()
    assert (got == want).mean() > 0.9


def test_a_row_shorter_than_a_vector_of_floats_has_none() -> None:
    assert fitting(9, 64, 16) == 64
    assert "vectorize" not in str(default_trace(rescaled(9), AVX512))
