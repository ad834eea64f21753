"""Operators of com.microsoft against onnxruntime, which defines them: each node alone, in its forms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from making import floats, model, node
from onnx import TensorProto

import autotensor as at
from autotensor.frontends.errors import Unsupported

pytestmark = pytest.mark.onnx
onnxruntime = pytest.importorskip("onnxruntime")
DOMAIN = "com.microsoft"
KINDS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}
RNG = np.random.default_rng(5)


def ints(*values, kind=np.int32):
    return np.array(values, kind)


def angles(places: int, half: int) -> list[np.ndarray]:
    turns = np.arange(places)[:, None] * 0.7 ** np.arange(half)[None]
    return [np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)]


def one(op: str, arrays: list, outputs: int = 1, domain: str = DOMAIN, **attrs) -> tuple:
    """A model of one node, and its inputs; None is an operand that is left out."""
    names = [f"x{n}" if a is not None else "" for n, a in enumerate(arrays)]
    given = {n: np.asarray(a) for n, a in zip(names, arrays, strict=True) if n}
    results = [f"y{n}" for n in range(outputs)]
    m = model(
        [node(op, names, results, domain=domain, **attrs)],
        {n: a.shape for n, a in given.items()},
        results,
        types={n: KINDS[str(a.dtype)] for n, a in given.items()},
        opset=17,
        domains=(DOMAIN,),
    )
    return m, given


def by_onnxruntime(m: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    del_types(m)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(m.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, dict(given))


def del_types(m: onnx.ModelProto) -> None:
    """onnxruntime itself determines the results' shapes and types."""
    for o in m.graph.output:
        o.ClearField("type")


X, ROW = floats(2, 5, 8), floats(8, seed=3)
BIAS = floats(24, seed=4)
QKV = [floats(2, n, 8, seed=n) for n in (5, 7, 7)]
HEADS = [floats(2, 2, n, 4, seed=n) for n in (3, 3)]
LENGTHS = ints(3, 5)
MASK = ints(*[[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
SEEN = (RNG.random((2, 5, 5)) < 0.7).astype(np.int32)
SEEN[:, :, 0] = 1
WEIGHTS = floats(8, 24, seed=6)
IMAGE, KERNEL = floats(1, 4, 6, 6), floats(3, 4, 3, 3, seed=2)
TOKENS = RNG.integers(0, 9, (2, 5)).astype(np.int32)
TABLES = [floats(n, 8, seed=n) for n in (9, 6, 2)]

CASES = {
    "Gelu": ("Gelu", [X]),
    "BiasGelu": ("BiasGelu", [X, ROW]),
    "FastGelu": ("FastGelu", [X]),
    "FastGelu, bias": ("FastGelu", [X, ROW]),
    "QuickGelu": ("QuickGelu", [X]),
    "QuickGelu, alpha": ("QuickGelu", [X], {"alpha": 1.0}),
    "FusedMatMul": ("FusedMatMul", [X, floats(8, 3)], {"alpha": 0.5}),
    "FusedMatMul, turned": ("FusedMatMul", [floats(2, 8, 5), floats(2, 3, 8)], {"transA": 1, "transB": 1}),
    "FusedMatMul, batch": (
        "FusedMatMul",
        [floats(5, 2, 3, 8), floats(8, 2, 3, 4)],
        {"transBatchA": 1, "transBatchB": 1},
    ),
    "FusedMatMul, batch turned": (
        "FusedMatMul",
        [floats(8, 2, 5), floats(4, 2, 8)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1, "alpha": 2.0},
    ),
    "TransposeMatMul": ("TransposeMatMul", [floats(8, 5), floats(8, 3)], {"transA": 1, "alpha": 0.3}),
    "FusedGemm": ("FusedGemm", [floats(5, 8), floats(8, 3), floats(3)], {"activation": "Relu"}),
    "FusedGemm, leaky": (
        "FusedGemm",
        [floats(5, 8), floats(3, 8), floats(3)],
        {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    "FusedConv": ("FusedConv", [IMAGE, KERNEL, floats(3)], {"activation": "Relu", "pads": [1] * 4}),
    "FusedConv, sum": (
        "FusedConv",
        [IMAGE, KERNEL, floats(3), floats(1, 3, 4, 4, seed=8)],
        {"activation": "LeakyRelu", "activation_params": [0.3]},
    ),
    "FusedConv, clip": (
        "FusedConv",
        [IMAGE, KERNEL],
        {"activation": "Clip", "activation_params": [-0.5, 1.0]},
    ),
    "FusedConv, hard": (
        "FusedConv",
        [IMAGE, KERNEL],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4], "strides": [2, 1]},
    ),
    "SimplifiedLayerNormalization": (
        "SimplifiedLayerNormalization",
        [X, ROW],
        {"domain": "", "epsilon": 1e-3},
    ),
    "SkipLayerNormalization": ("SkipLayerNormalization", [X, X[::-1], ROW, ROW + 1], {"epsilon": 1e-3}),
    "SkipLayerNormalization, all": (
        "SkipLayerNormalization",
        [X, floats(1, 5, 8), ROW, None, ROW - 1],
        {"outputs": 4, "unread": (1, 2)},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        [X, X[::-1], ROW, ROW - 1],
        {"outputs": 4, "unread": (1, 2), "epsilon": 1e-5},
    ),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [TOKENS, TOKENS % 2, *TABLES, ROW, ROW + 1, MASK],
        {"outputs": 3, "mask_index_type": 1},
    ),
    "EmbedLayerNormalization, places": (
        "EmbedLayerNormalization",
        [TOKENS, None, *TABLES[:2], None, ROW, ROW + 1, None, TOKENS % 6],
        {"outputs": 2},
    ),
    "Attention": ("Attention", [X, WEIGHTS, BIAS], {"num_heads": 2}),
    "Attention, lengths": ("Attention", [X, WEIGHTS, BIAS, LENGTHS], {"num_heads": 2}),
    "Attention, mask": ("Attention", [X, WEIGHTS, BIAS, MASK], {"num_heads": 4, "scale": 0.3}),
    "Attention, mask of queries": (
        "Attention",
        [X, WEIGHTS, BIAS, SEEN],
        {"num_heads": 2, "mask_filter_value": -3.0},
    ),
    "Attention, past": (
        "Attention",
        [X, WEIGHTS, BIAS, None, floats(2, 2, 2, 3, 4, seed=9)],
        {"num_heads": 2, "unidirectional": 1, "outputs": 2},
    ),
    "Attention, bias": (
        "Attention",
        [X, floats(8, 20), floats(20), None, None, floats(2, 2, 5, 5, seed=1)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]},
    ),
    "MultiHeadAttention": ("MultiHeadAttention", QKV, {"num_heads": 2}),
    "MultiHeadAttention, bias": (
        "MultiHeadAttention",
        [*QKV, BIAS, ints(*[[1] * 7, [1] * 4 + [0] * 3]), floats(1, 2, 5, 7)],
        {"num_heads": 2, "scale": 0.4},
    ),
    "MultiHeadAttention, keys by heads": ("MultiHeadAttention", [QKV[0], *HEADS], {"num_heads": 2}),
    "MultiHeadAttention, past": (
        "MultiHeadAttention",
        [QKV[0], QKV[0] + 1, QKV[0] - 1, BIAS, None, None, *HEADS],
        {"num_heads": 2, "unidirectional": 1, "outputs": 3},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        [X, ints(*[[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]], kind=np.int64), *angles(9, 2)],
        {},
    ),
    "RotaryEmbedding, heads": (
        "RotaryEmbedding",
        [floats(2, 3, 5, 6), ints(2, kind=np.int64), *angles(9, 3)],
        {"interleaved": 1},
    ),
    "RotaryEmbedding, part": (
        "RotaryEmbedding",
        [X, ints(1, kind=np.int64), *angles(9, 1)],
        {"num_heads": 2, "rotary_embedding_dim": 2},
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [floats(2, 5, 32), *(floats(2, 5, 16, seed=n) for n in (1, 2)), None, None, ints(4, 4), ints(5)],
        {"num_heads": 4, "kv_num_heads": 2, "outputs": 3},
    ),
    "GroupQueryAttention, rotary": (
        "GroupQueryAttention",
        [
            *(floats(1, 1, 128), None, None, *(floats(1, 2, 6, 16, seed=n) for n in (1, 2))),
            *(ints(6), ints(7), *angles(9, 8)),
        ],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "outputs": 3},
    ),
    "GroupQueryAttention, prompt": (
        "GroupQueryAttention",
        [floats(1, 5, 128), *[None] * 4, ints(4), ints(5), *angles(9, 8)],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1, "outputs": 3},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name):
    op, arrays, *more = CASES[name]
    attrs = dict(*more)
    unread = attrs.pop("unread", ())
    m, given = one(op, arrays, **attrs)
    for n in reversed(unread):  # results without a name
        m.graph.node[0].output[n] = ""
        del m.graph.output[n]
    wanted = by_onnxruntime(m, given)
    found = at.OnnxModel(m)(**given)
    for f, w in zip(found, wanted, strict=True):
        assert (f.shape, f.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "said"),
    [
        ("Gelu", [X], {"approximate": "tanh"}, "its attribute 'approximate' is not supported"),
        ("QuickGelu", [X, X], {}, "its operand 1 is not supported"),
        ("SkipLayerNormalization", [X, X, ROW], {"outputs": 2}, "the mean and inverse deviation as results"),
        ("FusedConv", [IMAGE, KERNEL], {"activation": "Erf"}, "its activation 'Erf' with the parameters"),
        (
            "Attention",
            [X, WEIGHTS, BIAS, np.ones((2, 1, 9, 9), np.int32)],
            {"num_heads": 2},
            "a mask of shape",
        ),
        ("MultiHeadAttention", [floats(2, 5, 2, 3, 4)], {"num_heads": 2}, "packed into one tensor"),
        ("RotaryEmbedding", [X, ints(1), *angles(9, 2)], {"scale": 2.0}, "packed batches, and scaled places"),
        (
            "GroupQueryAttention",
            [X, X, X, None, None, ints(2, 4), ints(5)],
            {"num_heads": 2, "kv_num_heads": 2},
            r"0 past keys and 5 new ones, of which \[3, 5\] are seen: all are to be",
        ),
        ("QMoE", [X], {}, r"computes with quantised numbers, .* take the model from before"),
        ("Tokenizer", [X], {}, r"is not supported\. It is none of ONNX's own; .* There are converters for"),
    ],
)
def test_what_is_refused(op, arrays, attrs, said):
    m, given = one(op, arrays, **attrs)
    with pytest.raises(Unsupported, match=rf"node 'the_{op}' \(com\.microsoft\.{op}, opset 1\).*{said}"):
        at.OnnxModel(m)(**given)
