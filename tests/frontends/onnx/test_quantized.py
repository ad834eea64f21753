"""Files of quantised operators: they run as integers, like onnxruntime's to a step; bad ones say why."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from making import model, node
from onnx import TensorProto, numpy_helper

import autotensor as at
from autotensor.base.errors import AutotensorError
from autotensor.graph.rules import optimize

RNG = np.random.default_rng(7)
F = np.float32
MICROSOFT = "com.microsoft"
KINDS = {k: getattr(TensorProto, k.upper()) for k in ("uint8", "int8", "int32")} | {
    "float32": TensorProto.FLOAT
}


def bytes_(*shape, dtype="uint8", most=127):
    low = -most if dtype == "int8" else 0
    return RNG.integers(low, (most if dtype == "int8" else 255) + 1, shape).astype(dtype)


def one(op, operands, constants=(), outputs=1, domain="", **attrs):
    """A model of one node whose operands, but for `constants`, are its inputs; and these."""
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(operands)]
    arrays = {n: np.asarray(a) for n, a in zip(names, operands, strict=True) if n}
    inputs = {n: a for n, a in arrays.items() if int(n[1:]) not in constants}
    results = [f"y{n}" for n in range(outputs)]
    m = model(
        [node(op, names, results, domain=domain, **attrs)],
        {n: a.shape for n, a in inputs.items()},
        results,
        {n: a for n, a in arrays.items() if n not in inputs},
        types={n: KINDS[str(a.dtype)] for n, a in inputs.items()},
        opset=17,
        domains=(MICROSOFT,),
    )
    return m, inputs


# -- against onnxruntime -----------------------------------------------------------------------------------

X, XS8 = bytes_(1, 6, 9, 8), bytes_(1, 6, 9, 8, dtype="int8")
A, W = bytes_(5, 32), bytes_(32, 12, dtype="int8", most=63)
S = (RNG.random(12).astype(F) + F(0.2)) / F(40)
Z, ZS8 = np.uint8(120), np.int8(-3)
# of attention: x, weights, bias; their scales, how many tokens of nine are seen
ATTENTION = bytes_(2, 9, 16), bytes_(16, 48, dtype="int8"), RNG.standard_normal(48).astype(F)
SA, MASK = (RNG.random(48).astype(F) + F(0.2)) / F(99), (np.arange(9) < [[9], [5]]).astype(np.int32)
# tokens and segments, tables of them, of places, and a norm's numbers
IDS = RNG.integers(0, 30, (2, 9)).astype(np.int32), RNG.integers(0, 2, (2, 9)).astype(np.int32)
TABLES = tuple(bytes_(*shape) for shape in ((30, 16), (12, 16), (2, 16), (16,), (16,)))
STEPS, POINTS = [F(0.01) * F(n + 1) for n in range(5)], [np.uint8(100 + n) for n in range(5)]
# of a recurrent layer: input, weights for it and for states, bias; the first states; scales, zero points
LINES, STATES = RNG.standard_normal((5, 3, 8)).astype(F), RNG.standard_normal((2, 2, 3, 12)).astype(F)
GATES = bytes_(2, 8, 48), bytes_(2, 12, 48), RNG.standard_normal((2, 96)).astype(F)
SG, ZG = np.array([0.008, 0.01], F), np.array([128, 120], np.uint8)
CASES = [  # operator, operands, which are constants, attributes, steps that it may be off by
    ("QLinearAdd", [X, F(0.02), Z, X[:, ::-1], F(0.03), np.uint8(7), F(0.05), Z], {1, 2, 4, 5, 6, 7}, {}, 1),
    ("QLinearAdd", [XS8, F(0.02), ZS8, XS8[:, :1], F(0.03), ZS8, F(0.05), ZS8], {1, 2, 4, 5, 6, 7}, {}, 1),
    ("QLinearMul", [X, F(0.02), Z, X[:, ::-1], F(0.03), np.uint8(7), F(0.05), Z], {1, 2, 4, 5, 6, 7}, {}, 1),
    ("QLinearSigmoid", [X, F(0.05), Z, F(1 / 256), np.uint8(0)], {1, 2, 3, 4}, {}, 1),
    ("QLinearLeakyRelu", [XS8, F(0.05), ZS8, F(0.04), ZS8], {1, 2, 3, 4}, {"alpha": 0.2}, 1),
    ("QLinearSoftmax", [A, F(0.05), Z, F(1 / 256), np.uint8(0)], {1, 2, 3, 4}, {"axis": -1, "opset": 13}, 1),
    ("QLinearGlobalAveragePool", [X, F(0.05), Z, F(0.02), np.uint8(99)], {1, 2, 3, 4}, {}, 1),
    ("QLinearGlobalAveragePool", [X, F(0.05), Z, F(0.02), Z], {1, 2, 3, 4}, {"channels_last": 1}, 1),
    (
        "QLinearAveragePool",
        [X, F(0.05), Z, F(0.04), np.uint8(99)],
        {1, 2, 3, 4},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        1,
    ),
    (
        "QLinearConcat",
        [F(0.05), Z, X, F(0.05), Z, X, F(0.08), np.uint8(3)],
        {0, 1, 3, 4, 6, 7},
        {"axis": 1},
        1,
    ),
    (
        "QGemm",
        [A, F(0.02), Z, W, S, np.zeros(12, np.int8), np.arange(12, dtype=np.int32) * 99, F(0.3), np.uint8(9)],
        set(range(1, 9)),
        {},
        1,
    ),
    (
        "QGemm",
        [A, F(0.02), Z, W.T.copy(), F(0.01), np.int8(0)],
        set(range(1, 6)),
        {"transB": 1, "alpha": 0.5},
        1e-4,
    ),
    ("MatMulIntegerToFloat", [A, W, F(0.02), S, Z, np.zeros(12, np.int8)], {1, 3, 5}, {}, 1e-4),
    ("DynamicQuantizeMatMul", [(A / F(99) - F(1)), W, S, None, S * 9], {1, 2, 4}, {}, 1e-4),
    ("QAttention", [*ATTENTION[:3], F(0.02), SA, MASK, Z, np.zeros(48, np.int8)], {1, 2, 3, 4, 6, 7},
     {"num_heads": 4}, 1e-4),
    ("QEmbedLayerNormalization", [*IDS, *TABLES, MASK, *STEPS, *POINTS], {*range(2, 7), *range(8, 18)},
     {"outputs": 2}, 1e-4),
    ("DynamicQuantizeLSTM", [LINES, *GATES, None, *STATES, None, SG, ZG, SG, ZG], {1, 2, 3, 8, 9, 10, 11},
     {"hidden_size": 12, "direction": "bidirectional", "outputs": 3}, 1e-5),
]  # fmt: skip


@pytest.mark.onnx
@pytest.mark.parametrize(("op", "operands", "constants", "attrs", "off"), CASES)
def test_operators_of_microsoft_give_what_onnxruntime_gives(op, operands, constants, attrs, off):
    onnxruntime = pytest.importorskip("onnxruntime")
    m, inputs = one(op, operands, constants, domain=MICROSOFT, **attrs)
    mine = at.OnnxModel(m)(**inputs)[0]
    for y in m.graph.output:
        y.ClearField("type")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # with more, a recurrent layer rounds the rows of each by themselves
    theirs = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = theirs.run(None, inputs)[0]
    assert mine.dtype == wanted.dtype
    assert mine.shape == wanted.shape
    assert np.abs(mine.astype(np.float64) - wanted).max() <= off


def shown(q, scale, zero=0):
    """The floats that bytes stand for."""
    return (q.astype(F) - np.asarray(zero, F)) * scale


WHOLE = [shown(*t) for t in zip(TABLES, STEPS, POINTS, strict=True)]
TURNED = [shown(g, SG[:, None, None], ZG[:, None, None]).transpose(0, 2, 1) for g in GATES[:2]]


@pytest.mark.parametrize(
    ("op", "operands", "domain", "off"),
    [
        (
            "Attention",
            [shown(ATTENTION[0], F(0.02), Z), shown(ATTENTION[1], SA), ATTENTION[2], MASK],
            MICROSOFT,
            1e-4,
        ),
        ("EmbedLayerNormalization", [*IDS, *WHOLE, MASK], MICROSOFT, 1e-4),
        ("LSTM", [LINES, *TURNED, GATES[2], None, *STATES], "", 0.02),  # its rows are rounded on the way
    ],
)
def test_parts_of_networks_mean_what_their_floats_mean(op, operands, domain, off):
    (of_bytes,) = [case for case in CASES if case[0].endswith(op) and case[0] != op]
    m, inputs = one(*of_bytes[:3], domain=MICROSOFT, **of_bytes[3])
    mine = at.OnnxModel(m)(**inputs)
    m, inputs = one(op, operands, domain=domain, **of_bytes[3])
    for a, b in zip(mine, at.OnnxModel(m)(**inputs), strict=True):
        assert np.abs(a - b).max() <= off


def test_a_recurrent_layer_without_its_scale_is_named():
    given = [LINES, *GATES, None, *STATES]
    m, _ = one("DynamicQuantizeLSTM", given, {1, 2, 3}, domain=MICROSOFT, direction="bidirectional")
    with pytest.raises(AutotensorError, match=r"DynamicQuantizeLSTM.*the scale of operand 1 is missing"):
        at.from_onnx(m)


# -- as integers -------------------------------------------------------------------------------------------


def written_out():
    """conv, relu, conv, sum, mean, product: as onnxruntime.quantization writes a network with QDQ."""
    nodes, weights, n = [], {}, [0]

    def name():
        n[0] += 1
        return f"v{n[0]}"

    def const(a):
        weights[key := name()] = np.asarray(a)
        return key

    def apply(op, *inputs, **attrs):
        nodes.append(node(op, inputs, [key := name()], name=key, **attrs))
        return key

    def quantised(x, scale, zero):
        q = apply("QuantizeLinear", x, const(F(scale)), const(np.uint8(zero)))
        return apply("DequantizeLinear", q, const(F(scale)), const(np.uint8(zero)))

    def weight(w, axis=0):
        scales = (RNG.random(w.shape[axis]).astype(F) + F(0.2)) / F(4000)
        q, zeros = const(w), const(np.zeros(len(scales), np.int8))
        return apply("DequantizeLinear", q, const(scales), zeros, axis=axis), scales

    def conv(x, scale, co, ci, k):
        w, scales = weight(bytes_(co, ci, k, k, dtype="int8", most=63))
        b = const(RNG.integers(-999, 999, co).astype(np.int32))
        bias = apply("DequantizeLinear", b, const(scales * F(scale)), const(np.zeros(co, np.int32)), axis=0)
        return apply("Conv", x, w, bias, kernel_shape=[k, k], pads=[k // 2] * 4)

    x = quantised("x", 0.02, 128)
    y = quantised(apply("Relu", conv(x, 0.02, 16, 4, 3)), 0.01, 0)
    z = quantised(conv(y, 0.01, 16, 16, 3), 0.01, 100)
    y = quantised(apply("Relu", apply("Add", z, y)), 0.015, 0)
    y = apply("Flatten", quantised(apply("GlobalAveragePool", y), 0.01, 0), axis=1)
    w, _ = weight(bytes_(10, 16, dtype="int8", most=63))
    y = quantised(apply("Gemm", y, w, transB=1), 0.004, 128)
    nodes[-1].output[0] = "y"
    return model(nodes, {"x": (1, 4, 8, 8)}, weights=weights, opset=17)


def test_a_file_with_qdq_has_integers_between_its_ends():
    graph = at.from_onnx(written_out())
    form = optimize(graph)
    ops = [n.op_name for n in form.applies]
    assert [n.dtype.is_int for n in form.applies if n.op_name in ("conv2d", "dense")] == [True] * 3
    assert (ops.count("quantize"), ops.count("dequantize")) == (1, 1)  # the ends; terms of sums are integers
    assert not graph.explain().in_float


@pytest.mark.onnx
def test_a_file_with_qdq_gives_what_onnxruntime_gives():
    onnxruntime = pytest.importorskip("onnxruntime")
    m = written_out()
    x = RNG.standard_normal((1, 4, 8, 8)).astype(F)
    theirs = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.abs(at.OnnxModel(m)(x)[0] - theirs.run(None, {"x": x})[0]).max() <= 0.004 * 1.01


def test_a_product_of_a_range_known_at_run_time_is_one_of_bytes():
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["c"]),
        node("Mul", ["f", "c"], ["y"]),
    ]
    w = bytes_(32, 12, dtype="int8")
    m = model(nodes, {"x": (5, 32)}, weights={"w": w, "wz": np.int8(0), "ws": S}, opset=17)
    (product,) = [n for n in optimize(at.from_onnx(m)).applies if n.op_name == "dense"]
    assert str(product.inputs[0].dtype) == "uint8"
    x = RNG.standard_normal((5, 32)).astype(F)
    low, high = min(x.min(), F(0)), max(x.max(), F(0))
    scale = (high - low) / F(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    q = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64) - int(zero)
    want = (q @ w.astype(np.int64)).astype(F) * (scale * S)
    np.testing.assert_allclose(at.OnnxModel(m)(x)[0], want, rtol=1e-6)


@pytest.mark.parametrize("pads", [0, 1])
def test_a_convolution_of_a_range_known_at_run_time_is_one_of_bytes(pads):
    x, w = bytes_(1, 3, 6, 5), bytes_(4, 3, 3, 3, dtype="int8")
    m, inputs = one("ConvInteger", [x, w, np.uint8(100)], {1}, pads=[pads] * 4)
    (conv,) = [n for n in optimize(at.from_onnx(m)).applies if n.op_name == "conv2d"]
    assert str(conv.inputs[0].dtype) == "uint8"
    padded = np.pad(x.astype(np.int64) - 100, ((0, 0), (0, 0), (pads,) * 2, (pads,) * 2))
    h, v = padded.shape[2] - 2, padded.shape[3] - 2
    want = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + h, j : j + v], w[:, :, i, j].astype(np.int64))
        for i, j in np.ndindex(3, 3)
    )
    assert np.array_equal(at.OnnxModel(m)(**inputs)[0], want)


# -- weights of 4 bits -------------------------------------------------------------------------------------


def in_groups(rows, kind="INT4", k=80, n=12, reader="MatMul"):
    """x times weights [k, n] of 4 bits in groups of 32, with zero points; and the weights."""
    low = -8 if kind == "INT4" else 0
    q, zero = (RNG.integers(low, low + 16, (h, n)) for h in (k, 3))
    scale = (RNG.random((3, n)).astype(F) - F(0.4)) / F(9)  # also negative ones
    scale[1, 2] = 0  # of a group of zeros
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=32),
        node(reader, ["x", "w"] if reader == "MatMul" else ["q"], ["y"]),
    ]
    m = opset21(model(nodes, {"x": (rows, k)}, weights={"s": scale}, opset=21))
    for name, t in (("q", q), ("z", zero)):
        code = getattr(TensorProto, kind)
        m.graph.initializer.append(onnx.helper.make_tensor(name, code, t.shape, t.reshape(-1)))
    group = np.arange(k) // 32
    return m, (q - zero[group]).astype(F) * scale[group]


@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
@pytest.mark.parametrize("rows", [3, 40])
def test_a_product_of_weights_of_4_bits(kind, rows):
    m, w = in_groups(rows, kind)
    ops = [n.op_name for n in optimize(at.from_onnx(m)).applies]
    assert ("dense_nbits" in ops) == (rows < 16)  # few rows wait for their weights
    x = RNG.standard_normal((rows, 80)).astype(F)
    np.testing.assert_allclose(at.OnnxModel(m)(x)[0], x @ w, atol=1e-5)


def test_weights_of_4_bits_in_another_file(tmp_path):
    m, w = in_groups(2)
    onnx.save(m, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="rest")
    x = RNG.standard_normal((2, 80)).astype(F)
    np.testing.assert_allclose(at.OnnxModel(tmp_path / "m.onnx")(x)[0], x @ w, atol=1e-5)


def test_4_bits_that_another_operator_reads_are_refused():
    m, _ = in_groups(3, reader="Abs")
    with pytest.raises(AutotensorError, match=r"tensor 'q': element type INT4 is not supported"):
        at.from_onnx(m)


# -- bad files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf, -1.0])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_a_scale_that_is_none_is_named(op, scale):
    x = np.zeros((2, 3), F) if op == "QuantizeLinear" else bytes_(2, 3)
    m, _ = one(op, [x, np.array([0.5, scale, 1], F)], {1}, axis=1)
    if scale < 0 and op == "DequantizeLinear":  # onnxruntime writes such
        assert np.array_equal(at.OnnxModel(m)(x)[0], shown(x, np.array([0.5, scale, 1], F)))
        return
    law = "positive and finite" if op == "QuantizeLinear" else "finite and not 0"
    with pytest.raises(AutotensorError, match=rf"\({op}.*\): a scale is {scale}; scales are {law}\."):
        at.from_onnx(m)


def test_a_node_without_a_name_is_named_by_its_result():
    m, _ = one("DequantizeLinear", [bytes_(2, 3), np.zeros((), F)], {1})
    m.graph.node[0].ClearField("name")
    with pytest.raises(
        AutotensorError, match=r"node of 'y0' \(DequantizeLinear, opset 17\): a scale is 0\.0"
    ):
        at.from_onnx(m)


def test_other_bad_quantised_nodes_are_named():
    with pytest.raises(AutotensorError, match=r"axis 5 does not exist; there are 2"):
        at.from_onnx(one("QuantizeLinear", [np.zeros((2, 3), F), np.ones(3, F)], {1}, axis=5)[0])
    with pytest.raises(
        AutotensorError, match=r"a scale or zero point of shape \(3,\) does not fit axis 0 of \(2, 3\)"
    ):
        at.from_onnx(one("DequantizeLinear", [bytes_(2, 3), np.ones(3, F)], {1}, axis=0)[0])
    m, _ = one("DequantizeLinear", [bytes_(2, 3), F(1)], {1})
    for d in m.graph.input[0].type.tensor_type.shape.dim:
        d.dim_value = 1 << 30
    with pytest.raises(AutotensorError, match=r"input .x0. of shape \(1073741824, 1073741824\) is too large"):
        at.from_onnx(m)
    with pytest.raises(
        AutotensorError, match=r"it has 4 operands; two, and three for each tensor, are expected"
    ):
        at.from_onnx(
            one("QLinearConcat", [F(1), np.uint8(0), X, F(1)], {0, 1, 3}, domain=MICROSOFT, axis=1)[0]
        )


@pytest.mark.parametrize(
    ("shape", "block", "said"),
    [
        ((4, 1), 4, r"shape \(4, 1\) does not fit blocks of 4 along axis 1 of \(4, 6\), which take \(4, 2\)"),
        ((4, 3), 4, r"shape \(4, 3\) does not fit blocks of 4"),
        ((3, 2), 4, r"shape \(3, 2\) does not fit blocks of 4"),
        ((2,), 4, r"shape \(2,\) does not fit blocks of 4"),
        ((4, 0), 4, r"shape \(4, 0\) does not fit blocks of 4"),
        ((4, 2), -4, r"blocks of -4 elements"),
    ],
)
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_blocks_that_do_not_fit_are_named(op, shape, block, said):
    x = np.zeros((4, 6), F) if op == "QuantizeLinear" else bytes_(4, 6)
    with pytest.raises(AutotensorError, match=said):
        at.from_onnx(opset21(one(op, [x, np.ones(shape, F)], {1}, axis=1, block_size=block)[0]))


@pytest.mark.parametrize("block", [1, 4, 6, 1 << 40])
def test_a_scale_for_each_block(block):
    q = bytes_(4, 6)
    scale = (1 + np.arange(4 * -(-6 // block))).reshape(4, -1).astype(F)
    m, inputs = one("DequantizeLinear", [q, scale], {1}, axis=1, block_size=block)
    (got,) = at.OnnxModel(opset21(m))(**inputs)
    assert np.array_equal(got, q * scale[:, np.arange(6) // block])


def opset21(m):
    """The first with blocks."""
    m.opset_import[0].version = 21
    return m


def test_a_zero_point_that_fits_no_column_is_named():
    m, _ = one("MatMulInteger", [A, W, np.uint8(1), np.ones(5, np.int8)], {1, 2, 3})
    with pytest.raises(AutotensorError, match=r"shape \(5,\) does not fit axis 1 of \(32, 12\)"):
        at.from_onnx(m)


def huge(t):
    """2⁶⁰ elements, of which the file holds four bytes."""
    t.ClearField("int32_data")
    t.ClearField("float_data")
    t.dims[:] = [1 << 60]
    t.raw_data = b"abcd"


@pytest.mark.parametrize("place", [1, 2])
def test_a_scale_or_zero_point_of_too_many_elements_is_named(place):
    m, _ = one("DequantizeLinear", [bytes_(2, 3), F(1), np.uint8(0)], {1, 2})
    huge(m.graph.initializer[place - 1])
    with pytest.raises(AutotensorError, match=rf"tensor 'x{place}' of shape \[{1 << 60}\] is larger than"):
        at.from_onnx(m)


@pytest.mark.parametrize("name", ["INT4", "UINT4", "FLOAT4E2M1", "FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_types_that_no_target_has_are_named(name):
    """As what is dequantised, as a zero point, and as what is asked for."""
    code = getattr(TensorProto, name)
    m, _ = one("DequantizeLinear", [bytes_(2, 3), F(1)], {1})
    m.graph.input[0].type.tensor_type.elem_type = code
    with pytest.raises(AutotensorError, match=rf"input 'x0': element type {name} is not supported\. Known: "):
        at.from_onnx(m)
    x = np.zeros((2, 3), F)
    m, _ = one("QuantizeLinear", [x, F(1), np.uint8(0)], {1, 2})
    m.graph.initializer[1].CopyFrom(onnx.helper.make_tensor("x2", code, (), [0]))
    with pytest.raises(AutotensorError, match=rf"tensor 'x2': element type {name} is not supported\. Kno"):
        at.from_onnx(m)
    m, _ = one("QuantizeLinear", [x, F(1)], {1}, output_dtype=code)
    m.opset_import[0].version = 23
    with pytest.raises(AutotensorError, match=rf"element type {name} is not supported"):
        at.from_onnx(m)


def test_a_scale_that_is_damaged_in_the_file_is_named():
    m = written_out()
    for t in m.graph.initializer:
        if numpy_helper.to_array(t).shape == () and t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(np.array(np.nan, F), t.name))
            break
    with pytest.raises(AutotensorError, match="a scale is nan"):
        at.from_onnx(onnx.load_model_from_string(m.SerializeToString()))


@pytest.mark.parametrize("weights", [(8, 3), (2, 8, 3)])
def test_a_vector_whose_zero_point_a_run_brings(weights):
    a, w = np.arange(8, dtype=np.uint8), RNG.integers(-9, 9, weights).astype(np.int8)
    want = np.matmul(a.astype(np.int32) - 5, w.astype(np.int32))
    m, inputs = one("MatMulInteger", [a, w, np.uint8(5)], {1})
    (got,) = at.OnnxModel(m)(**inputs)
    assert got.shape == want.shape
    assert np.array_equal(got, want)
