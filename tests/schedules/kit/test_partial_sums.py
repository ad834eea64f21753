"""The sums that the rules cut into parts, the places of the cuts, and the smaller error."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import parse
from autotensor.compiler import compile_trace
from autotensor.runtime.module import Module
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from schedules.generate import default_trace
from schedules.kit.partial_sums import in_parts


def window(*extents, dtype="float32", reducer=te.sum):
    """The stage of a reduction over axes of these extents."""
    x = te.placeholder((8, *extents), dtype, name="X")
    axes = [te.reduce_axis(n, name=f"r{d}") for d, n in enumerate(extents)]
    y = te.compute((8,), lambda i: reducer(x[(i, *axes)], axis=axes), name="Y")
    return ComputeDAG.of([x, y]).stages[-1]


@pytest.mark.parametrize(
    ("extents", "loop", "loops"),
    [
        ((3, 3, 64), None, ("r0", "r1", "r2")),  # short
        ((3, 3, 128), "r0", ("r0", "r1", "r2")),  # 384 terms a row of the window
        ((3, 3, 256), "r1", ("r0", "r1", "r2")),
        ((3, 3, 512), "r2.0", ("r0", "r1", "r2.0", "r2.1")),
        ((1024,), None, ("r0",)),
        ((2048,), "r0.0", ("r0.0", "r0.1")),
        ((1, 1021), None, ("r0", "r1")),
        ((1031,), None, ("r0",)),  # a prime: nothing to cut it at
        ((3, 1031), "r0", ("r0", "r1")),
    ],
)
def test_where_a_sum_is_cut(extents, loop, loops):
    parts = in_parts("Y", window(*extents))
    assert parts.loops == loops
    assert parts.mark == (() if loop is None else (Pragma("Y", loop, "sum_apart", "1"),))
    assert bool(parts.cut) == (len(loops) > len(extents))
    assert parts.inner == (256 if parts.cut else extents[-1])


def test_parts_are_of_the_wanted_length():
    assert in_parts("Y", window(512), 64).inner == 64
    assert in_parts("Y", window(256), 64).mark == ()


def test_what_does_not_round_is_not_cut():
    assert in_parts("Y", window(4096, dtype="int32")).mark == ()
    assert in_parts("Y", window(4096, reducer=te.max)).mark == ()


def dense(m, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, 64), name="B", constant=True)
    r = te.reduce_axis(k, name="r")
    return ComputeDAG.of(
        [a, b, te.compute((m, 64), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]
    )


def convolution(channels):
    x = te.placeholder((1, 8, 8, channels), name="A")
    w = te.placeholder((3, 3, channels, 64), name="B", constant=True)
    y, z, k = te.reduce_axis(3, name="y"), te.reduce_axis(3, name="z"), te.reduce_axis(channels, name="k")
    padded = te.compute(
        (1, 10, 10, channels),
        lambda n, i, j, c: te.select(
            te.all(i >= 1, i <= 8, j >= 1, j <= 8), x[n, i - 1, j - 1, c], te.const(0.0, "float32")
        ),
        name="P",
    )
    out = te.compute(
        (1, 8, 8, 64),
        lambda n, i, j, c: te.sum(padded[n, i + y, j + z, k] * w[y, z, k, c], axis=[y, z, k]),
        name="C",
    )
    return ComputeDAG.of([x, w, out])


@pytest.mark.parametrize("dag", [dense(1, 512), dense(1, 2048), convolution(256), convolution(512)])
def test_defaults_round_like_sums_in_parts(dag):
    """Less than half the error of one accumulator, which `without` has."""
    arrays = random_inputs(dag, seed=0)
    exact = evaluate(dag, arrays, accumulate=np.float64)["C"]
    trace = default_trace(dag, parse("llvm -numerics=strict -threads=1"))
    without = type(trace)(
        tuple(s for s in trace.steps if not (isinstance(s, Pragma) and s.key == "sum_apart"))
    )
    assert without != trace
    parts, whole = (
        np.std(Module(compile_trace(dag, t, parse(None)), threads=1)(arrays["A"], arrays["B"]) - exact)
        for t in (trace, without)
    )
    assert parts < whole / 2
