"""Convolutions with channels first use dots, too, with data and result transposed. The results are exact."""

from __future__ import annotations

import random

import numpy as np
import pytest
from comparison import interpreted
from dot_products import Array, drawn

from autotensor import te
from autotensor.base.target import parse
from autotensor.ir.expr import Dot
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.schedule.algorithm import ALGORITHMS
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG
from schedules.algorithms.channels_last import NAME
from schedules.algorithms.narrow_products import narrow_products
from schedules.generate import default_trace, generate

VNNI = parse("llvm -mcpu=sapphirerapids -threads=2")
LAYERS = [(5, 8, 20, 3, 1, 7), (6, 5, 17, 3, 2, 0), (4, 24, 33, 1, 1, 100)]


def convolution(h, ci, co, k, stride, zero, types=("uint8", "int8"), last: bool = False) -> ComputeDAG:
    """NCHW, the border holds the zero point; last: the weights' own axis is innermost."""
    p, size = k // 2, (h + 2 * (k // 2) - k) // stride + 1
    X = te.placeholder((ci, h, h), types[0], name="X")
    W = te.placeholder((co, ci, k, k), types[1], name="W", constant=True)

    def padded(c, y, x):
        inside = te.all(y >= p, y < h + p, x >= p, x < h + p)
        return te.if_then_else(inside, X[c, y - p, x - p], te.const(zero, types[0]))

    P = te.compute((ci, h + 2 * p, h + 2 * p), padded, name="P") if p else X
    c, kh, kw = (te.reduce_axis(n, name=name) for n, name in ((ci, "c"), (k, "kh"), (k, "kw")))

    def term(o, y, x):
        pixel = P[c, y * stride + kh, x * stride + kw].astype("int32") - zero
        return te.sum(pixel * W[o, c, kh, kw].astype("int32"), axis=[c, kh, kw])

    if last:
        return ComputeDAG.of([X, W, te.compute((size, size, co), lambda y, x, o: term(o, y, x), name="C")])
    return ComputeDAG.of([X, W, te.compute((co, size, size), term, name="C")])


def wanted(inputs: dict[str, Array], h, ci, co, k, stride, zero) -> Array:
    p, size = k // 2, (h + 2 * (k // 2) - k) // stride + 1
    x = np.pad(inputs["X"].astype("i8") - zero, ((0, 0), (p, p), (p, p)))
    w = inputs["W"].astype("i8")
    out = np.zeros((co, size, size), "i8")
    for a in range(k):
        for b in range(k):
            part = x[:, a : a + stride * size : stride, b : b + stride * size : stride]
            out += np.einsum("oc,chw->ohw", w[:, :, a, b], part)
    return out.astype("i4")


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.sample(2)
def test_they_are_exact_and_have_dots(layer, types) -> None:
    dag, rng = convolution(*layer, types), np.random.default_rng(3)
    inputs = {b.name: drawn(rng, b.dtype.numpy, b.shape) for b in dag.inputs}
    default = default_trace(dag, VNNI)
    program = lower(default.replay(dag), VNNI)
    assert f'"{NAME}"' in str(default)
    assert any(collect(f.body, Dot) for f in program.run)
    want = wanted(inputs, *layer)
    assert np.array_equal(interpreted(dag, program, inputs, 2)["C"], want)
    sketch = next(s for s in generate(dag, VNNI)[1:] if "dots" in s.made_by)
    other = lower(sketch.fill(sketch.random(random.Random(1))).replay(dag), VNNI)
    assert np.array_equal(interpreted(dag, other, inputs, 1)["C"], want)


def test_channels_that_are_innermost_stay() -> None:
    state = State.initial(convolution(*LAYERS[2], last=True))
    assert ALGORITHMS.get(NAME).expand(state, state.stage("C")) is None


@pytest.mark.parametrize(
    ("term", "plain"),
    [
        (lambda a, w: a * w, True),
        (lambda a, w: w * a, True),
        (lambda a, w: (a - 0) * w, False),
        (lambda a, w: a * (w - 0), False),
    ],
    ids=["a*w", "w*a", "(a-0)*w", "a*(w-0)"],
)
def test_a_written_zero_is_left_out_and_what_is_plain_stays(term, plain: bool) -> None:
    A, W = te.placeholder((4, 8), "uint8"), te.placeholder((8, 16), "int8", constant=True)
    k = te.reduce_axis(8)
    C = te.compute(
        (4, 16), lambda i, j: te.sum(term(A[i, k].astype("int32"), W[k, j].astype("int32")), axis=k), name="C"
    )
    dag = ComputeDAG.of([A, W, C])
    state = State.initial(dag)
    assert (narrow_products(state, state.stage("C")) is None) is plain
    program = lower(default_trace(dag, VNNI).replay(dag), VNNI)
    assert any(collect(f.body, Dot) for f in program.run)
