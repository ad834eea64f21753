"""Sums of sums: the inner sum is computed in the outer sum's loops if no operand serves several inner
sums."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from comparison import check

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.lowering.pipeline import lower
from autotensor.operators import OPERATORS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import tolerance
from schedules.generate import default_trace, generate

TARGET = parse("llvm -threads=2")


def scaled(m: int, n: int, groups: int, length: int, bits: int, inner_last: bool = True) -> list[te.Tensor]:
    """Weights of few bits with a scale for each group, and a stage after the sum."""
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
@pytest.mark.sample(3)
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
    """Panels as wide as a vector are used only if each is long enough to be fetched ahead."""
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


# -- inner sums that share vectors --------------------------------------------------------------------------


def shifted(
    sizes: tuple[int, ...], order: str = "yxd", join: str = "max", product: bool = True
) -> ComputeDAG:
    """The best or the sum of several shifts (d) and copies (c) of a correlation: a[k, y, x] serves all."""
    rows, columns, depth, shifts, copies = sizes
    a = te.placeholder((depth, rows, columns), name="a")
    b = te.placeholder((copies, depth, rows, columns + shifts - 1), name="b")
    k, d, c = te.reduce_axis(depth, "k"), te.reduce_axis(shifts, "d"), te.reduce_axis(copies, "c")
    extents = {"y": rows, "x": columns, "d": shifts, "c": copies}
    names = order if "c" in order else f"c{order}"

    def inner(*at):
        i = dict(zip(names, at, strict=True))
        mine, other = a[k, i["y"], i["x"]], b[i["c"], k, i["y"], i["x"] + i["d"]]
        return te.sum(mine * other if product else (mine - other) * (mine - other), axis=k)

    body = eval(f"lambda {', '.join(names)}: inner({', '.join(names)})", {"inner": inner})
    p = te.compute(tuple(extents[n] for n in names), body, name="P")

    def outer(y, x):
        at = {"y": y, "x": x, "d": d, "c": c}
        return getattr(te, join)(te.maximum(p[tuple(at[n] for n in names)], 0.25), axis=[c, d])

    return ComputeDAG.of([a, b, te.compute((rows, columns), outer, name="M")])


def nested(dag: ComputeDAG, target=TARGET):
    return [s for s in generate(dag, target) if "nested_sums" in s.made_by]


def test_several_inner_sums_of_a_tile_are_registers():
    dag = shifted((4, 256, 8, 9, 1))
    target = parse("llvm -threads=1 -mcpu=x86-64-v4")
    (run,) = lower(default_trace(dag, target).replay(dag)).run
    sums = re.search(r"P\S* = register\(\[1, (\d+), 1, (\d+)\]", str(run))
    assert sums is not None
    assert int(sums[1]) > 1
    assert int(sums[1]) * int(sums[2]) >= 16 * 16  # most registers hold sums
    assert "local(" not in str(run)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.sample(3)
def test_inner_sums_together_keep_the_meaning(seed):
    rng = random.Random(seed)
    sizes = (
        rng.randint(4, 7),
        rng.choice((128, 129, 160)),
        rng.randint(1, 6),
        rng.randint(2, 11),
        rng.randint(1, 2),
    )
    names = [*"cyxd"]
    rng.shuffle(names)
    dag = shifted(sizes, "".join(names), rng.choice(("max", "min", "sum")), rng.random() < 0.5)
    sketches = nested(dag)
    assert sketches
    sketch = rng.choice(sketches)
    for decisions in (sketch.defaults(), sketch.random(rng)):
        check(dag, sketch.fill(decisions), native=seed % 4 == 0)


def test_inner_sums_together_where_it_does_not_pay():
    assert nested(shifted((4, 256, 8, 9, 1)))
    assert not nested(shifted((4, 256, 2048, 9, 1)))  # a tile's vectors of all k are beyond the nearest cache
    assert not nested(shifted((1, 48, 8, 9, 1)))  # few columns for two cores
    x, w = te.placeholder((64, 512), "uint8", name="x"), te.placeholder((32, 64), "int8", name="w")
    k, j = te.reduce_axis(64, "k"), te.reduce_axis(32, "j")
    p = te.compute(
        (32, 512), lambda j, i: te.sum(x[k, i].astype("int32") * w[j, k].astype("int32"), axis=k), name="p"
    )
    m = te.compute((512,), lambda i: te.max(p[j, i], axis=j), name="m")
    assert not nested(ComputeDAG.of([x, w, m]))  # dot instructions add four products


def test_windows_share_terms_in_their_own_rule():
    x, y = te.placeholder((68, 164), name="x"), te.placeholder((68, 171), name="y")
    a, b, d = te.reduce_axis(5, "a"), te.reduce_axis(5, "b"), te.reduce_axis(8, "d")
    c = te.compute(
        (8, 64, 160), lambda d, i, j: te.sum(te.abs(x[i + a, j + b] - y[i + a, j + b + d]), axis=[a, b])
    )
    m = te.compute((64, 160), lambda i, j: te.min(c[d, i, j], axis=d), name="m")
    parts = UseAlgorithm("compute", "shared_windows")
    alone = [s for s in nested(ComputeDAG.of([x, y, m])) if parts not in s.steps]
    assert not alone


def test_windows_that_a_reader_reduces_are_turned_before_they_are_divided():
    x, y = te.placeholder((100, 164), name="x"), te.placeholder((100, 171), name="y")
    a, b, d = te.reduce_axis(5, "a"), te.reduce_axis(5, "b"), te.reduce_axis(8, "d")
    c = te.compute(
        (96, 160, 8),
        lambda i, j, d: te.sum(te.abs(x[i + a, j + b] - y[i + a, j + b + d]), axis=[a, b]),
        name="c",
    )
    m = te.compute((96, 160), lambda i, j: te.min(c[i, j, d], axis=d), name="m")
    steps = default_trace(ComputeDAG.of([x, y, m]), TARGET).steps
    assert steps[0] == UseAlgorithm("c", "axis_last")
    assert UseAlgorithm("c.along", "shared_windows") in steps
