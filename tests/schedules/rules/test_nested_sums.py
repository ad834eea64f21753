"""Sums of sums: the inner one in the outer one's loops, where no operand serves several inner sums."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.operators import OPERATORS
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import tolerance
from schedules.generate import default_trace, generate

TARGET = parse("llvm -threads=2")


def scaled(m: int, n: int, groups: int, length: int, bits: int, inner_last: bool = True) -> list[te.Tensor]:
    """Weights of few bits with a scale for each group, and a stage behind."""
    each = 8 // bits
    W = te.placeholder((n, groups, length), "uint8", name="W", constant=True)
    S = te.placeholder((n, groups), name="S", constant=True)
    X = te.placeholder((m, groups, length, each), name="X")
    g, v, e = te.reduce_axis(groups, "g"), te.reduce_axis(length, "v"), te.reduce_axis(each, "e")

    def part(i, j, g):
        q = W[j, g, v].astype("int32") >> (e * bits).astype("int32") & (1 << bits) - 1
        return te.sum(q.astype("float32") * X[i, g, v, e], axis=[v, e])

    if inner_last:
        P = te.compute((m, n, groups), part, name="P")
        Y = te.compute((m, n), lambda i, j: te.sum(P[i, j, g] * S[j, g], axis=g), name="Y")
    else:
        P = te.compute((groups, m, n), lambda g, i, j: part(i, j, g), name="P")
        Y = te.compute((m, n), lambda i, j: te.sum(P[g, i, j] * S[j, g], axis=g), name="Y")
    Z = te.compute((m, n), lambda i, j: te.maximum(Y[i, j], 0.0), name="Z")
    return [W, S, X, Z]


def of_rule(args: list[te.Tensor]):
    """The sketches of the rule."""
    return [s for s in generate(ComputeDAG.of(args), TARGET) if "nested_sums" in s.made_by]


@pytest.mark.parametrize(
    "shape", [(1, 40, 3, 16, 4), (5, 33, 2, 16, 4), (3, 64, 2, 8, 8), (1, 16, 1, 1, 4), (2, 19, 3, 70, 8)]
)
@pytest.mark.parametrize("inner_last", [True, False])
def test_sketches_keep_the_meaning(shape, inner_last):
    args = scaled(*shape, inner_last=inner_last)
    dag = ComputeDAG.of(args)
    (sketch,) = of_rule(args)
    rng = random.Random(0)
    arrays = random_inputs(dag, seed=1)
    truth = evaluate(dag, arrays, accumulate=np.float64)
    allowed = tolerance(dag, arrays, {"Z": truth["Z"]})["Z"]
    for decisions in (sketch.defaults(), sketch.random(rng), sketch.random(rng)):
        s = te.create_schedule(args[-1])
        for step in sketch.fill(decisions).steps:
            s.do(step)
        f = at.build(s, args, TARGET).bind(W=arrays["W"], S=arrays["S"])
        assert (np.abs(f(arrays["X"]) - truth["Z"]) <= allowed).all()


def test_inner_sum_stays_in_registers():
    f = at.build(scaled(1, 64, 4, 16, 4), target="llvm -threads=1 -mcpu=znver3")
    text = f.source("nest")
    assert "P = local(" in text
    assert "Y = local(" in text  # Z takes the totals as they are made
    assert "W_packed" in text
    assert "S_packed" in text


def test_weights_that_serve_several_sums_are_left_alone():
    """A mean over a convolution's pixels: each pixel's sum reads all weights again."""
    X = te.placeholder((64, 32), name="X")
    W = te.placeholder((48, 32), name="W", constant=True)
    k, p = te.reduce_axis(32, "k"), te.reduce_axis(64, "p")
    P = te.compute((64, 48), lambda p, n: te.sum(X[p, k] * W[n, k], axis=k), name="P")
    Y = te.compute((48,), lambda n: te.sum(P[p, n], axis=p), name="Y")
    assert not of_rule([X, W, Y])


def test_inner_sum_that_others_read_is_left_alone():
    X2 = te.placeholder((1, 64, 4), name="X2")
    g, h = te.reduce_axis(4, "g"), te.reduce_axis(4, "h")
    k = te.reduce_axis(8, "k")
    A = te.placeholder((1, 64, 4, 8), name="A", constant=True)
    B = te.compute((1, 64, 4), lambda i, j, g: te.sum(A[i, j, g, k], axis=k), name="B")
    Y = te.compute((1, 64), lambda i, j: te.sum(B[i, j, g] * X2[i, j, g], axis=g), name="Y")
    V = te.compute((1, 64), lambda i, j: te.max(B[i, j, h], axis=h), name="V")
    assert not of_rule([A, X2, Y, V])


@pytest.mark.parametrize("rows", [13, 64])
def test_tiles_are_not_tall(rows):
    """13 rows at once take twice as long as 8 and 5."""
    (sketch,) = of_rule(scaled(rows, 1024, 32, 16, 4))
    (tile,) = [h.default for h in sketch.holes if h.name.endswith("/tile")]
    assert tile[1] <= 8


@pytest.mark.parametrize(("depth", "beside"), [(1024, False), (4096, True)])
def test_panels_side_by_side_are_long(depth: int, beside: bool) -> None:
    """Panels of a vector's width only where each is long enough to be fetched ahead."""
    target = parse("llvm -mcpu=znver4 -threads=1")
    columns = (1 << 23) // depth
    shapes = (
        ((1, depth), "float32"),
        ((columns, depth // 32, 16), "uint8"),
        ((columns, depth // 32), "float16"),
    )
    x, w, s = (te.placeholder(shape, t, f"x{n}", constant=n > 0) for n, (shape, t) in enumerate(shapes))
    dag = ComputeDAG.of([x, w, s, OPERATORS.get("dense_nbits").compute(x, w, s, rounded=8)])
    trace = str(default_trace(dag, target))
    (width,) = re.findall(r's.layout\("x1.words", \[\(0, (\d+)\)\]', trace)
    assert int(width) == (16 if beside else 64)
