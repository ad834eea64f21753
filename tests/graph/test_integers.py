"""Quantised graphs in integers: the bits of docs/numerics.md, and the meaning in floats to a step."""

from __future__ import annotations

import importlib.util
import random

import numpy as np
import pytest
from comparison import interpreted

import autotensor as at
from autotensor.base.errors import GraphError
from autotensor.base.target import parse
from autotensor.graph.build import input, ops
from autotensor.graph.evaluate import evaluate
from autotensor.graph.ir import Graph
from autotensor.graph.partition import partition
from autotensor.graph.rules import optimize
from autotensor.graph.rules.integers import in_integers
from autotensor.lowering.pipeline import lower
from schedules.generate import generate

F = np.float32
RNG = np.random.default_rng(0)
FLOATS = ("dequantize", "quantize")


# -- the formula, once more --------------------------------------------------------------------------------


def rounded(total, scale, zero, dtype, shift=None):
    """docs/numerics.md's formula in NumPy; total: int64."""
    y = total.astype(F) * np.asarray(scale, F)
    y = np.rint(y if shift is None else y + np.asarray(shift, F)) + F(zero)
    limits = np.iinfo(dtype)
    return np.clip(y, limits.min, limits.max).astype(dtype)


def convolved(x, w, zero_x, zero_w, stride, pad, groups):
    """Σ (x - zero)(w - zero) over NCHW windows, in int64."""
    x = np.pad(x.astype(np.int64) - zero_x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    w = w.astype(np.int64) - zero_w
    co, ci, kh, kw = w.shape
    h, v = ((n - k) // stride + 1 for n, k in zip(x.shape[2:], (kh, kw), strict=True))
    y = np.zeros((x.shape[0], co, h, v), np.int64)
    each = co // groups
    for o in range(co):
        part = x[:, o // each * ci : (o // each + 1) * ci]
        for i, j in np.ndindex(h, v):
            window = part[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
            y[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return y


def drawn(shape, dtype="uint8", low=None, high=None):
    limits = np.iinfo(dtype)
    return RNG.integers(
        limits.min if low is None else low, (limits.max if high is None else high) + 1, shape
    ).astype(dtype)


def real(q, scale, zero, dtype):
    return ops.dequantize(q, np.asarray(scale, F), np.asarray(zero, dtype))


def back(y, scale, zero, dtype):
    return ops.quantize(y, np.asarray(scale, F), np.asarray(zero, dtype), dtype=dtype)


def compiled(y, *arrays, inputs, target="llvm -threads=1"):
    """The result; checks that no float is left between the bytes."""
    graph = Graph(inputs, (y,), "m")
    left = [n.op_name for n in optimize(graph).applies if n.op_name in FLOATS and n.dtype.is_float]
    return at.compile_model(graph, target=target)(*arrays), left


# -- products ----------------------------------------------------------------------------------------------

CONVOLUTIONS = [  # channels in and out, window, stride, padding, groups, types of x, w and y, zero points
    (16, 24, 3, 1, 1, 1, ("uint8", "int8", "uint8"), (127, 0, 3)),
    (16, 24, 1, 1, 0, 1, ("int8", "int8", "int8"), (-5, 0, 7)),
    (5, 7, 3, 2, 1, 1, ("uint8", "uint8", "int8"), (0, 128, -128)),
    (12, 12, 3, 1, 1, 12, ("uint8", "int8", "uint8"), (9, 0, 0)),
    (8, 6, 3, 1, 1, 2, ("int8", "uint8", "uint8"), (-128, 100, 200)),
]


@pytest.mark.parametrize("target", ["llvm -threads=1", "llvm -mcpu=x86-64-v2 -threads=1"])
@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("ends", ["none", "relu", "relu6"])
@pytest.mark.sample(8)
def test_a_convolution_has_the_bits_of_the_formula(case, ends, target):
    ci, co, k, stride, pad, groups, types, (zx, zw, zy) = case
    x = input((2, ci, 7, 6), types[0], name="x")
    w, b = drawn((co, ci // groups, k, k), types[1], *((-127, 127) if types[1] == "int8" else ())), None
    b = RNG.integers(-4000, 4000, co).astype(np.int32)
    sx, sw, sy = F(0.02), (RNG.random(co).astype(F) + F(0.1)) / F(100), F(0.05)
    y = ops.conv2d(
        real(x, sx, zx, types[0]),
        ops.dequantize(w, sw.reshape(-1, 1, 1, 1), np.asarray(zw, types[1])),
        ops.dequantize(b, sx * sw),
        stride=stride,
        padding=pad,
        groups=groups,
    )
    y = y if ends == "none" else ops.relu(y) if ends == "relu" else ops.relu6(y)
    array = drawn(x.shape, types[0])
    got, left = compiled(back(y, sy, zy, types[2]), array, inputs=(x,), target=target)
    total = convolved(array, w, zx, zw, stride, pad, groups) + b.reshape(-1, 1, 1)
    want = rounded(total, (sx * sw / sy).reshape(-1, 1, 1), zy, types[2])
    if ends != "none":
        want = np.maximum(want, np.asarray(zy, types[2]))
    if ends == "relu6":
        want = np.minimum(want, rounded(np.array(1), F(6) / sy, zy, types[2]))
    assert np.array_equal(got, want)
    assert not left


@pytest.mark.parametrize("target", ["sapphirerapids", "haswell"])
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.sample(2)
def test_every_schedule_has_the_same_bits(target, depthwise):
    """By the interpreter, after all passes: also with instructions that this machine has not."""
    target = parse(f"llvm -mcpu={target} -threads=2")
    x = input((1, 5, 6, 16), "uint8", name="x")
    w = drawn((16 if depthwise else 18, 1 if depthwise else 16, 3, 3), "int8", -127, 127)
    y = ops.conv2d(x, w, padding=1, layout="NHWC", groups=16 if depthwise else 1, zeros=(7, 0))
    y = ops.requantize(y + np.arange(w.shape[0], dtype=np.int32), F(0.002), zero=3)
    (group,) = partition(Graph((x,), (y,), "m"))
    dag, array = group.workload.dag, drawn(x.shape)
    values = {x: array} | {c: c.array for c in Graph((x,), (y,), "m").constants}
    inputs = {b.name: values[v].reshape(b.shape) for b, v in zip(dag.inputs, group.inputs, strict=True)}
    want, rng = evaluate(Graph((x,), (y,), "m"), array)[0], random.Random(3)
    sketches = generate(dag, target)
    assert depthwise or any("dots" in s.made_by for s in sketches)
    for sketch in sketches[:: max(1, len(sketches) // 4)]:
        program = lower(sketch.fill(sketch.random(rng)).replay(dag), target)
        (got,) = interpreted(dag, program, inputs, 2).values()
        assert np.array_equal(got.reshape(want.shape), want), sketch.made_by


@pytest.mark.opencl
@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="no OpenCL")
def test_the_same_bits_by_opencl():
    graph = Net(3).graph()
    x = RNG.standard_normal(graph.inputs[0].shape).astype(F)
    assert np.array_equal(at.compile_model(graph, target="opencl")(x), evaluate(optimize(graph), x)[0])


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_with_weights_has_the_bits_of_the_formula(turned):
    x = input((3, 5, 40), "uint8", name="x")
    w = drawn((24, 40) if turned else (40, 24), "int8", -127, 127)
    sw = (RNG.random(24).astype(F) + F(0.1)) / F(100)
    right = ops.dequantize(w, sw.reshape(-1, 1) if turned else sw)
    rows = ops.reshape(real(x, 0.02, 100, "uint8"), (15, 40))
    y = ops.reshape(ops.matmul(rows, right, transpose_b=turned), (3, 5, 24))
    y = y + ops.dequantize(np.arange(24, dtype=np.int32) * 50, F(0.02) * sw)
    array = drawn(x.shape)
    got, left = compiled(back(y, 0.03, 7, "int8"), array, inputs=(x,))
    total = (array.astype(np.int64) - 100) @ (w.T if turned else w).astype(np.int64) + np.arange(24) * 50
    assert np.array_equal(got, rounded(total, F(0.02) * sw / F(0.03), 7, "int8"))
    assert not left


def test_a_product_of_two_values_has_the_bits_of_the_formula():
    a, b = input((2, 9, 16), "uint8", name="a"), input((2, 16, 11), "uint8", name="b")
    y = ops.batch_matmul(real(a, 0.02, 100, "uint8"), real(b, 0.01, 30, "uint8"))
    arrays = drawn(a.shape), drawn(b.shape)
    got, left = compiled(back(y, 0.03, 7, "uint8"), *arrays, inputs=(a, b))
    total = (arrays[0].astype(np.int64) - 100) @ (arrays[1].astype(np.int64) - 30)
    assert np.array_equal(got, rounded(total, F(0.02) * F(0.01) / F(0.03), 7, "uint8"))
    assert not left


def test_a_bias_of_floats_is_added_behind_the_scale():
    x = input((4, 32), "uint8", name="x")
    w, bias = drawn((8, 32), "int8", -127, 127), RNG.standard_normal(8).astype(F)
    y = ops.dense(real(x, 0.02, 3, "uint8"), ops.dequantize(w, F(0.01)), bias)
    array = drawn(x.shape)
    got, left = compiled(back(y, 0.04, 9, "uint8"), array, inputs=(x,))
    total = (array.astype(np.int64) - 3) @ w.T.astype(np.int64)
    assert np.array_equal(got, rounded(total, F(0.02) * F(0.01) / F(0.04), 9, "uint8", bias / F(0.04)))
    assert not left


def test_a_product_that_nobody_quantises_is_one_of_integers_all_the_same():
    x = input((4, 32), "uint8", name="x")
    w = drawn((8, 32), "int8", -127, 127)
    array = drawn(x.shape)
    y = ops.dense(real(x, 0.02, 3, "uint8"), ops.dequantize(w, F(0.01)))
    graph = optimize(Graph((x,), (y,), "m"))
    assert next(n for n in graph.applies if n.op_name == "dense").dtype.is_int
    total = (array.astype(np.int64) - 3) @ w.T.astype(np.int64)
    assert np.array_equal(at.compile_model(y)(array), total.astype(F) * (F(0.02) * F(0.01)))


# -- between products --------------------------------------------------------------------------------------


def two(shape=(2, 6, 5, 4)):
    a, b = input(shape, "uint8", name="a"), input(shape, "int8", name="b")
    return (
        (a, b),
        (drawn(shape), drawn(shape, "int8")),
        (real(a, 0.02, 100, "uint8"), real(b, 0.03, -7, "int8")),
    )


@pytest.mark.parametrize("op", ["add", "subtract", "multiply"])
def test_two_values_have_the_bits_of_the_formula(op):
    inputs, arrays, (a, b) = two()
    got, left = compiled(back(ops.relu(getattr(ops, op)(a, b)), 0.04, 9, "uint8"), *arrays, inputs=inputs)
    p, q = arrays[0].astype(np.int64) - 100, arrays[1].astype(np.int64) + 7
    sign = F(-1 if op == "subtract" else 1)
    if op == "multiply":
        want = rounded(p * q, F(0.02) * F(0.03) / F(0.04), 9, "uint8")
    else:
        want = rounded(p, F(0.02) / F(0.04), 9, "uint8", q.astype(F) * (sign * F(0.03) / F(0.04)))
    assert np.array_equal(got, np.maximum(want, 9))
    assert left == []


@pytest.mark.parametrize("product_first", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_a_byte_that_one_sum_alone_reads_stays_a_number(product_first, alone):
    """The shortcut of a residual block. alone: nothing else reads the product's byte."""
    x, b = input((4, 32), "uint8", name="x"), input((4, 8), "uint8", name="b")
    w, arrays = drawn((8, 32), "int8", -127, 127), (drawn((4, 32)), drawn((4, 8)))
    byte = back(ops.dense(real(x, 0.02, 3, "uint8"), ops.dequantize(w, F(0.01))), 0.3, 100, "uint8")
    parts = [real(byte, 0.3, 100, "uint8"), real(b, 0.05, 7, "uint8")]
    y = back(ops.add(*(parts if product_first else parts[::-1])), 0.4, 9, "uint8")
    graph = Graph((x, b), (y,) if alone else (y, byte), "m")
    assert any(n.op == "requantize" and n.attr("centred") for n in optimize(graph).applies) == alone
    got = at.compile_model(graph, target="llvm -threads=1")(*arrays)
    total = (arrays[0].astype(np.int64) - 3) @ w.T.astype(np.int64)
    inner = rounded(total, F(0.02) * F(0.01) / F(0.3), 100, "uint8").astype(np.int64) - 100
    shift = (arrays[1].astype(np.int64) - 7).astype(F) * (F(0.05) / F(0.4))
    want = rounded(inner, F(0.3) / F(0.4), 9, "uint8", shift)
    assert np.array_equal(got if alone else got[0], want)
    assert len({*want.ravel()}) > 8


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_averages_have_the_bits_of_the_formula(include, padding):
    x = input((1, 5, 8, 7), "uint8", name="x")
    pool = ops.avg_pool2d(real(x, 0.02, 50, "uint8"), 3, 2, padding, count_include_pad=include)
    array = drawn(x.shape)
    got, left = compiled(back(pool, 0.03, 5, "uint8"), array, inputs=(x,))
    ones, whole = np.ones((1, 1, 3, 3), np.int64), array.astype(np.int64) - 50
    inside = convolved(np.ones((1, 1, 8, 7), np.int64), ones, 0, 0, 2, padding, 1)
    total = convolved(whole, np.ones((5, 1, 3, 3), np.int64), 0, 0, 2, padding, 5)
    counts = np.full_like(inside, 9) if include else inside
    assert np.array_equal(got, rounded(total, np.asarray(F(0.02) / counts, F) / F(0.03), 5, "uint8"))
    assert not left


def test_the_mean_of_an_image_has_the_bits_of_the_formula():
    x = input((2, 5, 8, 7), "int8", name="x")
    array = drawn(x.shape, "int8")
    mean = ops.mean(real(x, 0.02, 3, "int8"), axis=(2, 3), keepdims=True)
    got, left = compiled(back(mean, 0.01, 5, "int8"), array, inputs=(x,))
    total = (array.astype(np.int64) - 3).sum((2, 3), keepdims=True)
    assert np.array_equal(got, rounded(total, F(F(0.02) / 56) / F(0.01), 5, "int8"))
    assert not left


def test_what_moves_bytes_moves_bytes():
    x = input((2, 6, 8, 8), "uint8", name="x")
    y = ops.max_pool2d(real(x, 0.02, 50, "uint8"), 2)
    y = ops.pad(ops.slice(y, (1,), (5,), axes=(1,)), ((0, 0), (0, 0), (1, 1), (0, 0)))
    y = ops.transpose(ops.take(y, np.array([0, 0, 1, 1]), axis=3), (0, 2, 1, 3))
    y = ops.reshape(ops.relu(y), (2, 6, 16))
    got, left = compiled(back(y, 0.02, 50, "uint8"), array := drawn(x.shape), inputs=(x,))
    z = array.reshape(2, 6, 4, 2, 4, 2).max((3, 5))[:, 1:5]
    z = np.pad(z, ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=50)[..., [0, 0, 1, 1]].transpose(
        0, 2, 1, 3
    )
    assert np.array_equal(got, np.maximum(z, 50).reshape(2, 6, 16))
    assert not left


def test_parts_of_a_concat_get_its_scale():
    inputs, arrays, (a, b) = two()
    got, left = compiled(back(ops.concat(a, b, axis=1), 0.02, 100, "uint8"), *arrays, inputs=inputs)
    second = rounded(arrays[1].astype(np.int64) + 7, F(0.03) / F(0.02), 100, "uint8")
    assert np.array_equal(got, np.concatenate([arrays[0], second], 1))
    assert not left


def test_a_value_that_is_dequantised_and_quantised_alike_is_itself():
    x = input((4, 32), "int8", name="x")
    graph = in_integers(Graph((x,), (ops.relu(x) + back(real(x, 0.3, 5, "int8"), 0.3, 5, "int8"),), "m"))
    assert [n.op_name for n in graph.applies] == ["relu", "add"]


# -- the meaning in floats ---------------------------------------------------------------------------------


class Net:
    """Draws quantised networks: convolutions, sums, pools and views between bytes."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def quantised(self, y):
        """y between bytes whose range holds most of it."""
        spread = 1.0
        if self.rng.random() < 0.5:
            return real(back(y, spread / 127, 128, "uint8"), spread / 127, 128, "uint8")
        return real(back(y, spread / 100, -3, "int8"), spread / 100, -3, "int8")

    def convolution(self, x):
        ci = x.shape[1]
        depthwise = self.rng.random() < 0.3
        co, k = (ci if depthwise else int(self.rng.integers(3, 20))), int(self.rng.choice([1, 3]))
        w = self.rng.integers(-127, 128, (co, 1 if depthwise else ci, k, k)).astype(np.int8)
        scale = ((self.rng.random(co) + 0.5) / 127 / np.sqrt(w[0].size)).astype(F)
        y = ops.conv2d(
            x,
            ops.dequantize(w, scale.reshape(-1, 1, 1, 1)),
            (self.rng.standard_normal(co) / 4).astype(F),
            padding=k // 2,
            groups=ci if depthwise else 1,
        )
        return ops.relu(y) if self.rng.random() < 0.5 else y

    def graph(self):
        x = input((1, 4, 6, 5), name="x")
        y = self.quantised(x)
        for _ in range(int(self.rng.integers(2, 5))):
            match int(self.rng.integers(5)):
                case 0 | 1:
                    y = self.quantised(self.convolution(y))
                case 2:
                    y = self.quantised(y + self.quantised(ops.sigmoid(y)))
                case 3:
                    y = self.quantised(ops.avg_pool2d(y, 3, 1, 1))
                case 4:
                    y = self.quantised(ops.concat(y, ops.max_pool2d(y, 3, 1, 1), axis=1))
        return Graph((x,), (y,), "net")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(4)
def test_drawn_networks_mean_what_their_floats_mean(seed):
    """Compiled, exactly what the passes leave; against the file's floats at most a step on few elements."""
    graph = Net(seed).graph()
    x = np.random.default_rng(seed).standard_normal(graph.inputs[0].shape).astype(F)
    form = optimize(graph)
    assert any(n.op_name == "requantize" for n in form.applies)
    exact = evaluate(form, x)[0]
    assert np.array_equal(at.compile_model(graph, target="llvm -threads=1")(x), exact)
    step, off = 1 / 100, np.abs(exact - evaluate(graph, x)[0])
    assert off.max() < 1.01 * step * 4  # each layer may pass on the one before's step
    assert (off > 1e-6).mean() < 0.02


def test_each_layer_is_within_a_step_of_its_floats():
    """≤ 1 step on ≤ 0.1 % of a layer's elements."""
    wrong = count = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = input((1, 16, 24, 24), "uint8", name="x")
        w = rng.integers(-127, 128, (32, 16, 3, 3)).astype(np.int8)
        sw = ((rng.random(32) + 0.5) / 2000).astype(F)
        y = ops.conv2d(real(x, 0.02, 100, "uint8"), ops.dequantize(w, sw.reshape(-1, 1, 1, 1)), padding=1)
        graph = Graph((x,), (back(y, 0.011, 128, "uint8"),), "m")
        array = rng.integers(0, 256, x.shape).astype(np.uint8)
        off = np.abs(evaluate(in_integers(graph), array)[0].astype(int) - evaluate(graph, array)[0])
        assert off.max() <= 1
        wrong, count = wrong + int((off > 0).sum()), count + off.size
    assert wrong <= 1e-3 * count


# -- what stays in floats ----------------------------------------------------------------------------------


def explained(y, *inputs):
    return Graph(inputs, (y,), "m").explain().in_float


def test_explain_says_what_stays_in_float_and_why():
    x, f, s = input((4, 32), "uint8"), input((4, 32)), input((), name="s")
    q, w = real(x, 0.02, 3, "uint8"), drawn((8, 32), "int8")
    said = {
        "its data are not quantised": ops.dense(f, ops.dequantize(w, F(0.1))),
        "its weights are not quantised": ops.dense(q, w.astype(F)),
        "its data are quantised by a scale that is known only when the model runs": ops.dense(
            ops.dequantize(x, s), ops.dequantize(w, F(0.1))
        ),
        "its weights are quantised with zero points that vary": ops.dense(
            q, ops.dequantize(w, F(0.1), np.arange(8, dtype=np.int8).reshape(8, 1))
        ),
        "the scale of its weights varies along what is summed": ops.dense(
            q, ops.dequantize(w, np.linspace(0.1, 0.2, 32, dtype=F))
        ),
        "softmax has no form in integers": back(ops.softmax(q), 0.004, 0, "uint8"),
    }
    for why, y in said.items():
        inputs = tuple(i for i in (x, f, s) if i in Graph((x, f, s), (y,)).nodes)
        (line,) = explained(y, *inputs)
        assert line.endswith(": " + why)
    assert "── in float although quantised\nsoftmax 4x32: softmax has" in str(
        Graph((x,), (y,), "m").explain()
    )


def test_sums_that_may_not_fit_stay_in_float():
    x = input((1, 70_000), "uint8")
    w = ops.dequantize(np.full((1, 70_000), -128, np.int8), F(0.1))
    (line,) = explained(ops.dense(real(x, 0.02, 0, "uint8"), w), x)
    assert line.endswith("its sums may not fit 32 bits")


# -- what is not a scale--------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize(("op", "dtype"), [("quantize", F), ("dequantize", "uint8"), ("requantize", "int32")])
def test_a_number_that_is_no_scale_is_named(op, dtype, scale):
    x = input((2, 3), dtype)
    law = "positive and finite" if op == "quantize" else "finite and not 0"
    for given in (scale, np.array([0.5, scale, 1], F)):
        if scale < 0 and op != "quantize":
            getattr(ops, op)(x, given)
            continue
        with pytest.raises(GraphError, match=rf"^{op}: a scale is {scale}; scales are {law}\.$"):
            getattr(ops, op)(x, given)
    getattr(ops, op)(x, input((), F, name="s"))  # known to the run alone


# -- what must not become integers ---------------------------------------------------------------------------


def same(y, *arrays, inputs):
    """The graph has the same meaning, whether it computes in integers or not."""
    graph = Graph(inputs, (y,), "m")
    np.testing.assert_array_equal(evaluate(in_integers(graph), *arrays)[0], evaluate(graph, *arrays)[0])


def test_sums_that_leave_32_bits_stay_in_floats():
    q, big = input((4,), "int32", name="q"), np.full(4, 2**30, np.int32)
    scale = F(2.0**-26)
    same(back(ops.dequantize(q, scale) + ops.dequantize(big, scale), 1.0, 0, "uint8"),
         np.full(4, 2**31 - 1, np.int32), inputs=(q,))  # fmt: skip
    x = input((2, 8), "uint8", name="x")
    w = ops.dequantize(np.ones((4, 8), np.int8), scale)
    twice = ops.dense(real(x, 1.0, 0, "uint8"), w) + ops.dequantize(big, scale) + ops.dequantize(big, scale)
    same(back(twice, 1.0, 0, "uint8"), drawn((2, 8)), inputs=(x,))


def test_a_bias_may_stand_in_front():
    x = input((2, 8), "uint8", name="x")
    w = ops.dequantize(drawn((4, 8), "int8", -127, 127), F(0.01))
    bias = ops.dequantize(np.arange(4, dtype=np.int32), F(0.02) * F(0.01))
    y = back(bias + ops.dense(real(x, 0.02, 3, "uint8"), w), 0.05, 7, "uint8")
    assert not compiled(y, drawn((2, 8)), inputs=(x,))[1]


def test_parts_of_other_scales_are_joined_in_floats():
    a, b = (input((1, 3, 2, 2), "uint8", name=n) for n in "ab")
    scales = np.array([0.1, 0.2, 0.3], F).reshape(3, 1, 1)
    y = ops.concat(ops.dequantize(a, F(0.1)), ops.dequantize(b, scales), axis=1)
    same(y, drawn(a.shape), drawn(b.shape), inputs=(a, b))


@pytest.mark.parametrize("zero", [np.uint8(200), np.int32(200)])
def test_a_zero_point_that_the_bytes_do_not_hold(zero):
    q = input((2, 8), "int8", name="q")
    w = ops.dequantize(drawn((4, 8), "int8"), F(0.01))
    x = ops.dequantize(q, F(0.1), zero)
    same(ops.dense(x, w), drawn((2, 8), "int8"), inputs=(q,))
    same(ops.relu(x), drawn((2, 8), "int8"), inputs=(q,))


def test_not_a_number_under_an_activation():
    x = input((3,), name="x")
    same(back(ops.relu(x), 0.1, 9, "uint8"), np.array([np.nan, -1, 2], F), inputs=(x,))
