"""Windows over few channels use dots along lines of columns and channels. Every schedule is exact."""

from __future__ import annotations

import random

import numpy as np
import pytest
from comparison import interpreted
from dot_products import drawn

from autotensor import te
from autotensor.base.target import parse
from autotensor.ir.expr import Dot
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.joined_window import NAME
from schedules.generate import default_trace, generate

TARGETS = ("sapphirerapids", "haswell")
HALF = ("bfloat16", "bfloat16")
# rows and columns, channels in and out, window, stride, dilation, border, zero points of data and weights
LAYERS = [
    (9, 3, 20, 3, 2, 1, 1, 7, 0),  # nine terms, and three places without a term
    (8, 3, 17, 4, 4, 1, 0, 100, 5),  # patches: twelve terms
    (7, 1, 16, 5, 1, 1, 2, 0, 0),
    (5, 6, 18, 3, 1, 1, 1, 0, 100),
]


def convolution(
    h, ci, co, k, stride, dilation, pad, zero, w_zero, types=("uint8", "int8"), zeros=None
) -> ComputeDAG:
    """NHWC, the border holds the zero point; zeros: of the weights' channels, as a tensor."""
    size = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    X = te.placeholder((h, h, ci), types[0], name="X")
    W = te.placeholder((co, ci, k, k), types[1], name="W", constant=True)
    Z = te.placeholder((co,), "int32", name="Z", constant=True) if zeros else None

    def padded(y, x, c):
        inside = te.all(y >= pad, y < h + pad, x >= pad, x < h + pad)
        return te.if_then_else(inside, X[y - pad, x - pad, c], te.const(zero, types[0]))

    P = te.compute((h + 2 * pad, h + 2 * pad, ci), padded, name="P") if pad else X
    c, kh, kw = (te.reduce_axis(n, name=name) for n, name in ((ci, "c"), (k, "kh"), (k, "kw")))

    def term(y, x, o):
        data = P[y * stride + kh * dilation, x * stride + kw * dilation, c]
        if types == HALF:
            return te.sum(data.astype("float32") * W[o, c, kh, kw].astype("float32"), axis=[c, kh, kw])
        data = data.astype("int32") - zero
        less = w_zero if Z is None else Z[o]
        return te.sum(data * (W[o, c, kh, kw].astype("int32") - less), axis=[c, kh, kw])

    C = te.compute((size, size, co), term, name="C")
    return ComputeDAG.of([X, W, *([] if Z is None else [Z]), C])


def wanted(inputs, h, ci, co, k, stride, dilation, pad, zero, w_zero):
    size = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    x = np.pad(inputs["X"].astype("i8") - zero, ((pad, pad), (pad, pad), (0, 0)))
    w = inputs["W"].astype("i8") - w_zero
    out = np.zeros((size, size, co), "i8")
    for a in range(k):
        for b in range(k):
            part = x[a * dilation :: stride, b * dilation :: stride][:size, :size]
            out += np.einsum("oc,hwc->hwo", w[:, :, a, b], part)
    return out.astype("i4")


def applies(dag: ComputeDAG) -> bool:
    state = State.initial(dag)
    return ALGORITHMS.get(NAME).stages(state, state.stage("C")) is not None


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(4)
def test_they_are_exact_and_have_dots(layer, types, target) -> None:
    target = parse(f"llvm -mcpu={target} -threads=2")
    dag, rng = convolution(*layer, types), np.random.default_rng(3)
    inputs = {b.name: drawn(rng, b.dtype.numpy, b.shape) for b in dag.inputs}
    want = wanted(inputs, *layer)
    sketch = next(s for s in generate(dag, target) if any(NAME in x.call() for x in s.steps))
    traces = [default_trace(dag, target), sketch.fill(sketch.random(random.Random(1)))]
    assert f'"{NAME}"' in str(traces[0])
    for trace in traces:
        program = lower(trace.replay(dag), target)
        assert any(collect(f.body, Dot) for f in program.run)
        assert np.array_equal(interpreted(dag, program, inputs, 2)["C"], want)


@pytest.mark.parametrize(
    ("layer", "joined"),
    [
        ((15, 3, 20, 7, 2, 1, 3, 0, 0), True),  # 21 terms and a product with zero
        ((22, 1, 16, 7, 1, 1, 0, 0, 0), True),
        ((8, 2, 16, 4, 1, 1, 0, 0, 0), False),  # channels fill groups of two
    ],
)
@pytest.mark.sample(1)
def test_windows_in_bfloat16(layer, joined: bool) -> None:
    dag, rng = convolution(*layer, HALF), np.random.default_rng(3)
    inputs = {b.name: rng.integers(-8, 9, b.shape).astype(b.dtype.numpy) for b in dag.inputs}
    whole = {name: a.astype("i1") for name, a in inputs.items()}
    for options, wanted_here in (("", joined), ("-numerics=strict", False)):
        target = parse(f"llvm -mcpu=sapphirerapids -threads=1 {options}")
        trace = default_trace(dag, target)
        assert (f'"{NAME}"' in str(trace)) == wanted_here
        program = lower(trace.replay(dag), target)
        assert np.array_equal(interpreted(dag, program, inputs, 1)["C"], wanted(whole, *layer))


@pytest.mark.parametrize(
    "layer",
    [
        (9, 3, 20, 3, 1, 2, 1, 7, 0),  # columns that are windowed lie apart
        (9, 3, 20, 1, 1, 1, 0, 7, 0),  # one column
        (9, 8, 20, 3, 1, 1, 1, 7, 0),  # channels fill groups
    ],
)
def test_other_windows_stay(layer) -> None:
    assert not applies(convolution(*layer))


def test_what_stands_behind_the_terms_must_vanish() -> None:
    """If each channel has its own zero point, no single number adds nothing."""
    assert applies(convolution(*LAYERS[1], zeros=True))  # twelve terms: nothing stands behind
    assert not applies(convolution(*LAYERS[0], zeros=True))
