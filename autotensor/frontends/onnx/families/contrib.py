"""Operators of com.microsoft that onnxruntime's optimiser writes into files. It fuses them from ONNX's own
operators.

    optimised.onnx: SkipLayerNormalization, FusedMatMul, Attention, …  ──▶  the operators that they replace

Source: onnxruntime, docs/ContribOperators.md, and the results of its CPU kernels. A node with further
operands, attributes or results is refused, because nothing else checks them: the installed onnx has no schema
of these operators. A converter writes a norm or attention as simple operators, and the graph's own rules
recognise them. Operators on quantised numbers are in `contrib_quantized.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np

from autotensor.frontends.attention_heads import repeated, together, turned
from autotensor.frontends.onnx.families.attention import by_heads
from autotensor.frontends.onnx.families.elementwise import ACTIVATIONS
from autotensor.frontends.onnx.families.matmul import gemm, product
from autotensor.frontends.onnx.families.shape import stacked
from autotensor.frontends.onnx.families.windows import convolved
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import Converter, converts
from autotensor.frontends.values import as_type, pieces, row, widened
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

DOMAIN = "com.microsoft"
MASKED = -10000.0  # onnxruntime adds this where a mask is 0, unless the node gives another number
CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def fused(
    *names: str, operands: int, results: int = 1, attrs: Collection[str] = (), domain: str = DOMAIN
) -> Callable[[Converter], Converter]:
    """Registers a converter. operands, results: the most that it reads and makes. attrs: the attributes that
    it reads."""

    def register(fn: Converter) -> Converter:
        def checked(c: Call) -> Value:
            if unknown := [a for a in c.attrs if a not in attrs]:
                raise c.unsupported(f"its attribute {unknown[0]!r} is not supported.")
            for n in range(operands, len(c.inputs)):
                if c.value(n) is not None:
                    raise c.unsupported(f"its operand {n} is not supported.")
            for n in range(results, c.outputs):
                if c.wants(n):
                    raise c.unsupported(f"its result {c.node.output[n]!r} is not supported.")
            return fn(c)

        converts(*names, domain=domain)(checked)
        return fn

    return register


# -- elementwise -----------------------------------------------------------------------------------------


@fused("Gelu", "BiasGelu", operands=2)
def gelu(c: Call) -> Value:
    return ops.gelu(_plus(c[0], c.get(1)))


@fused("FastGelu", operands=2)
def fast_gelu(c: Call) -> Value:
    return ops.gelu(_plus(c[0], c.get(1)), approximate="tanh")


@fused("QuickGelu", operands=1, attrs=("alpha",))
def quick_gelu(c: Call) -> Value:
    return c[0] * ops.sigmoid(c[0] * c.attr("alpha", 1.702))


@fused("BiasAdd", operands=3)
def bias_add(c: Call) -> Value:
    return c[0] + c[1] + c[2]


def _plus(x: GraphNode, bias: GraphNode | None) -> GraphNode:
    return x if bias is None else x + bias


# -- products and convolutions ---------------------------------------------------------------------------


@fused("FusedMatMul", operands=2, attrs=("alpha", "transA", "transB", "transBatchA", "transBatchB"))
@fused("TransposeMatMul", operands=2, attrs=("alpha", "transA", "transB"))
def fused_matmul(c: Call) -> Value:
    a = _turned(c[0], c.flag("transA"), c.flag("transBatchA"))
    b = _turned(c[1], c.flag("transB"), c.flag("transBatchB"))
    alpha = c.attr("alpha", 1.0)
    y = product(a, b)
    return y if alpha == 1.0 else y * alpha


def _turned(x: GraphNode, last_two: bool, batch: bool) -> GraphNode:
    """Swaps the last two axes if `last_two`. Before that, `batch` moves the first axis in front of the last
    one."""
    rank = x.ndim
    if rank < 2:
        return x  # a vector has no axes to swap
    order = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
    if last_two:
        order[-2:] = order[-1], order[-2]
    return x if order == list(range(rank)) else ops.transpose(x, axes=tuple(order))


@fused(
    "FusedGemm",
    operands=3,
    attrs=(
        *("alpha", "beta", "transA", "transB"),
        *("activation", "activation_alpha", "activation_beta", "activation_gamma"),
    ),
)
def fused_gemm(c: Call) -> Value:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return _activated(c, gemm(c), [c.attrs[n] for n in names if n in c.attrs])


@fused("FusedConv", operands=4, attrs=(*CONV, "activation", "activation_params"))
def fused_conv(c: Call) -> Value:
    y = convolved(c, c[0], c[1], c.get(2))
    return _activated(c, _plus(y, c.get(3)), c.attr("activation_params", ()))


@fused("NhwcConv", operands=3, attrs=CONV)
@fused("NhwcFusedConv", operands=4, attrs=(*CONV, "activation", "activation_params"))
def nhwc_conv(c: Call) -> Value:
    """Channels are last in x, in the added tensor and in the result; the weights are as in Conv."""
    rank = c.rank
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    y = convolved(c, ops.transpose(c[0], axes=first), c[1], c.get(2))
    y = ops.transpose(y, axes=last)
    return _activated(c, _plus(y, c.get(3)), c.attr("activation_params", ()))


def _activated(c: Call, x: GraphNode, numbers: Collection[float]) -> GraphNode:
    """Applies the activation at the end of a fused node; `numbers` are the activation's parameters."""
    name, given = c.attr("activation", ""), tuple(numbers)
    most = {"LeakyRelu": 1, "Elu": 1, "ThresholdedRelu": 1, "HardSigmoid": 2, "Clip": 2}
    if len(given) > most.get(name, 0):
        raise c.unsupported(f"its activation {name!r} with the parameters {given}.")
    match name:
        case "":
            return x
        case "Relu" | "Tanh" | "Sigmoid" | "Softplus" | "LeakyRelu":
            return ACTIVATIONS[name](x, *given)
        case "HardSigmoid" if len(given) in (0, 2):
            return ACTIVATIONS[name](x, *given)
        case "Clip" if len(given) == 2:
            return ops.clip(x, *given)
    raise c.unsupported(f"its activation {name!r} with the parameters {given}.")


# -- norms -----------------------------------------------------------------------------------------------


@fused(
    "SimplifiedLayerNormalization", operands=2, results=2, attrs=("axis", "epsilon", "stash_type"), domain=""
)
@fused("SimplifiedLayerNormalization", operands=2, results=2, attrs=("axis", "epsilon", "stash_type"))
def simplified_layer_norm(c: Call) -> Value:
    """x / sqrt(mean(x²) + eps) * scale; the second result is the factor."""
    axis, eps = c.axis(-1), c.attr("epsilon", 1e-5)
    return [_rms(c, c[0], c[1], axis, eps), *([_inverse_root(c[0], axis, eps)] if c.wants(1) else [])]


@fused("SkipSimplifiedLayerNormalization", operands=4, results=4, attrs=("epsilon",))
def skip_simplified_layer_norm(c: Call) -> Value:
    total, eps = _plus(c[0] + c[1], c.get(3)), c.attr("epsilon", 1e-12)
    return _with_sum(c, _rms(c, total, c[2], c.rank - 1, eps), total)


@fused("SkipLayerNormalization", operands=5, results=4, attrs=("epsilon",))
def skip_layer_norm(c: Call) -> Value:
    total, eps = _plus(c[0] + c[1], c.get(4)), c.attr("epsilon", 1e-12)
    return _with_sum(c, _layer_norm(total, c[2], c.get(3), eps), total)


def _with_sum(c: Call, y: GraphNode, total: GraphNode) -> list[GraphNode]:
    """The node's results: the norm, two results that only training reads, and the sum."""
    if c.wants(1) or c.wants(2):
        raise c.unsupported("the mean and inverse deviation as results.")
    return [y, y, y, total] if c.wants(3) else [y]


def _layer_norm(x: GraphNode, gamma: GraphNode, beta: GraphNode | None, eps: float) -> GraphNode:
    shift = constant(np.zeros(gamma.shape, gamma.dtype.numpy)) if beta is None else beta
    return widened(partial(ops.layer_norm, axis=-1, eps=eps), x, gamma, shift)


def _rms(c: Call, x: GraphNode, scale: GraphNode, axis: int, eps: float) -> GraphNode:
    if scale.shape != x.shape[axis:]:
        raise c.unsupported(f"a scale of shape {scale.shape} for x {x.shape} from axis {axis} on.")
    return widened(partial(ops.rms_norm, axis=axis, eps=eps), x, scale)


def _inverse_root(x: GraphNode, axis: int, eps: float) -> GraphNode:
    wide = as_type(x, "float32") if x.dtype.is_half else x
    over = tuple(range(axis, x.ndim))
    return ops.rsqrt(ops.mean(wide * wide, axis=over, keepdims=True) + eps)


@fused("EmbedLayerNormalization", operands=9, results=3, attrs=("epsilon", "mask_index_type"))
def embed_layer_norm(c: Call) -> Value:
    """The normalised sum of three rows: the token's, its position's and its segment's. The second result is
    the number of tokens that the mask shows."""
    return embedded(c, [c.get(n) for n in range(2, 7)], c.get(7), c.get(8))


def embedded(
    c: Call, tables: Sequence[GraphNode | None], mask: GraphNode | None, places: GraphNode | None
) -> list[GraphNode]:
    """The results of EmbedLayerNormalization. tables: words, positions, segments, gamma and beta. Operands 0
    and 1 are the tokens and their segments."""
    words, of_places, segments, gamma, beta = tables
    tokens = c[0]
    batch, length = tokens.shape
    if places is None:
        places = constant(np.arange(length, dtype=np.int32)[None])
    total = ops.take(words, tokens, axis=0) + ops.take(of_places, places, axis=0)
    if c.get(1) is not None:
        total = total + ops.take(segments, c[1], axis=0)
    assert gamma is not None
    y = _layer_norm(total, gamma, beta, c.attr("epsilon", 1e-12))
    if mask is None:
        shown: GraphNode = constant(np.zeros(batch, np.int32))
    else:
        seen = as_type(ops.equal(mask, constant(1, dtype=mask.dtype)), "int32")
        shown = as_type(ops.sum(seen, axis=1), "int32")
    return [y, shown, total]


# -- attention -------------------------------------------------------------------------------------------


@fused(
    "Attention",
    operands=6,
    results=2,
    attrs=(
        "num_heads",
        "unidirectional",
        "qkv_hidden_sizes",
        "scale",
        "mask_filter_value",
        "past_present_share_buffer",
        "do_rotary",
    ),
)
def attention(c: Call) -> Value:
    """x is [batch, tokens, width], the weights [width, q + k + v], past and present [2, batch, heads, …]."""
    return attended(c, lambda: product(c[0], c[1]), c.get(3), c.get(4), c.get(5))


def attended(
    c: Call,
    columns: Callable[[], GraphNode],
    mask: GraphNode | None,
    past: GraphNode | None,
    bias: GraphNode | None = None,
) -> list[GraphNode]:
    """The results of Attention. columns: computes the product of operands 0 and 1, x and the weights. Operand
    2 is added to this product."""
    if c.attr("past_present_share_buffer", 0) or c.attr("do_rotary", 0):
        raise c.unsupported("a shared buffer of past keys, and rotary embedding inside.")
    weights, heads = c[1], c.whole("num_heads")
    sizes = tuple(c.attr("qkv_hidden_sizes", ())) or (weights.shape[-1] // 3,) * 3
    if weights.ndim != 2 or len(sizes) != 3 or sum(sizes) != weights.shape[1]:
        raise c.malformed(f"weights {weights.shape} do not hold queries, keys and values of {sizes} columns.")
    joint = _plus(columns(), c.get(2))
    q, k, v = (by_heads(c, part, heads) for part in pieces(joint, -1, sizes))
    if past is not None:
        k, v = (ops.concat(row(past, 0, n), new, axis=2) for n, new in enumerate((k, v)))
    y = _attend(c, q, k, v, _masks(c, mask, q, k), bias)
    present = [stacked((k, v), 0)] if c.wants(1) else []
    return [together(y), *present]


@fused(
    "MultiHeadAttention",
    operands=8,
    results=3,
    attrs=("num_heads", "unidirectional", "scale", "mask_filter_value"),
)
def multi_head_attention(c: Call) -> Value:
    """q, k and v are [batch, tokens, width]. Keys and values may also be [batch, heads, tokens, depth]."""
    heads = c.whole("num_heads")
    query, key, value = c[0], c.get(1), c.get(2)
    if key is None or value is None or query.ndim != 3:
        raise c.unsupported("queries, keys and values that are packed into one tensor.")
    q = by_heads(c, query, heads)
    k, v = (t if t.ndim == 4 else by_heads(c, t, heads) for t in (key, value))
    if (bias := c.get(3)) is not None:
        widths = tuple(heads * t.shape[3] for t in (q, k, v))
        if bias.shape != (sum(widths),):
            raise c.malformed(f"a bias of shape {bias.shape} for {widths} columns.")
        parts = pieces(bias, -1, widths)
        given = [True, *(key.ndim != 4,) * 2]  # keys that are split into heads already include the bias
        q, k, v = (
            t + ops.reshape(b, shape=(heads, 1, t.shape[3])) if own else t
            for t, b, own in zip((q, k, v), parts, given, strict=True)
        )
    if c.get(6) is not None:
        k, v = (ops.concat(c[6 + n], new, axis=2) for n, new in enumerate((k, v)))
    y = _attend(c, q, k, v, _masks(c, c.get(4), q, k), c.get(5))
    return [together(y), k, v]


@fused(
    "RotaryEmbedding",
    operands=4,
    attrs=("interleaved", "num_heads", "rotary_embedding_dim", "scale", "is_packed_batching"),
)
def rotary_embedding(c: Call) -> Value:
    """x is [batch, tokens, width] or [batch, heads, tokens, depth]. Each token is rotated by the angles of
    its position."""
    if c.attr("is_packed_batching", 0) or c.attr("scale", 1.0) != 1.0:
        raise c.unsupported("packed batches, and scaled places.")
    x, cos, sin = c[0], c[2], c[3]
    part = c.whole("rotary_embedding_dim", 0)
    is_flat = x.ndim == 3
    heads = c.whole("num_heads", 0) or (x.shape[-1] // (2 * cos.shape[1]) if not part else 0)
    if is_flat and heads < 1:
        raise c.malformed("num_heads is missing.")
    y = _rotated(by_heads(c, x, heads) if is_flat else x, c[1], cos, sin, part, c.flag("interleaved"))
    return together(y) if is_flat else y


def _rotated(
    x: GraphNode, places: GraphNode, cos: GraphNode, sin: GraphNode, part: int, interleaved: bool
) -> GraphNode:
    """x is [batch, heads, tokens, depth]. places: the first position [1], or all positions [batch, tokens].
    cos and sin are [positions, half]."""
    batch, heads, tokens, depth = x.shape
    width = part or depth
    if places.shape == (1,):
        places = ops.reshape(places, shape=(1, 1)) + constant(np.arange(tokens)[None], dtype=places.dtype)
    angles = [ops.unsqueeze(ops.take(t, places, axis=0), axes=(1,)) for t in (cos, sin)]  # [b, 1, n, half]
    moving, *rest = [x] if width == depth else pieces(x, 3, (width, depth - width))
    if interleaved:
        pairs = ops.reshape(moving, shape=(batch, heads, tokens, width // 2, 2))
        a, b = (row(pairs, 4, n) for n in (0, 1))
    else:
        a, b = pieces(moving, 3, (width // 2,) * 2)
    real, imaginary = a * angles[0] - b * angles[1], b * angles[0] + a * angles[1]
    if interleaved:
        y = ops.reshape(stacked((real, imaginary), 4), shape=moving.shape)
    else:
        y = ops.concat(real, imaginary, axis=3)
    return ops.concat(y, *rest, axis=3) if rest else y


@fused(
    "GroupQueryAttention",
    operands=9,
    results=3,
    attrs=(
        "num_heads",
        "kv_num_heads",
        "scale",
        "do_rotary",
        "rotary_interleaved",
        "local_window_size",
        "softcap",
        "smooth_softmax",
        "qk_output",
        "causal",
        "k_quant_type",
        "v_quant_type",
        "kv_cache_bit_width",
    ),
)
def group_query_attention(c: Call) -> Value:
    """Causal attention of grouped heads after past tokens. The number of visible keys is a run-time value."""
    if c.attr("local_window_size", -1) != -1 or c.attr("softcap", 0.0) or c.attr("smooth_softmax", 0):
        raise c.unsupported("local windows, soft caps and smooth softmax.")
    if c.attr("qk_output", 0) or not c.attr("causal", 1) or c.attr("kv_cache_bit_width", 0):
        raise c.unsupported("scores as results, sight of the future, and quantised keys.")
    if {c.attr("k_quant_type", "NONE"), c.attr("v_quant_type", "NONE")} != {"NONE"}:
        raise c.unsupported("quantised keys.")
    heads, kv_heads = c.whole("num_heads"), c.whole("kv_num_heads")
    if c.get(1) is None:
        depth = c[0].shape[2] // (heads + 2 * kv_heads)
        parts = pieces(c[0], -1, (heads * depth, kv_heads * depth, kv_heads * depth))
    else:
        parts = [c[0], c[1], c[2]]
    q, k, v = (by_heads(c, t, n) for t, n in zip(parts, (heads, kv_heads, kv_heads), strict=True))
    tokens, past = q.shape[2], 0 if c.get(3) is None else c[3].shape[2]
    seen, total = set(c.ints(5)), int(c.scalar(6))
    if seen != {total - 1} or total != past + tokens:
        raise c.unsupported(
            f"{past} past keys and {tokens} new ones, of which {sorted(n + 1 for n in seen)} are seen: "
            "all are to be."
        )
    if c.attr("do_rotary", 0):
        places = constant(np.full((1,), past, np.int64))
        interleaved = c.flag("rotary_interleaved")
        part = 2 * c[7].shape[1]
        q, k = (_rotated(t, places, c[7], c[8], part, interleaved) for t in (q, k))
    if past:
        k, v = (ops.concat(c[3 + n], new, axis=2) for n, new in enumerate((k, v)))
    keys, values = (repeated(t, heads) for t in (k, v))
    masks = [_past_only(tokens, total, -np.inf)] if tokens > 1 else []
    y = _attend(c, q, keys, values, masks, None)
    return [together(y), k, v]


def _attend(
    c: Call, q: GraphNode, k: GraphNode, v: GraphNode, masks: list[GraphNode], bias: GraphNode | None
) -> GraphNode:
    """[batch, heads, tokens, depth]: softmax(q kᵀ * scale + masks) v, which `recognise_attention` finds."""

    def attend(q: GraphNode, k: GraphNode, v: GraphNode) -> GraphNode:
        scale = c.attr("scale", 0.0) or 1 / math.sqrt(q.shape[3])
        scores = product(q, turned(k)) * scale
        for m in (*masks, *(() if bias is None else (bias,))):
            scores = scores + as_type(m, scores.dtype)
        return product(ops.softmax(scores, axis=-1), v)

    return widened(attend, q, k, v)


def _masks(c: Call, mask: GraphNode | None, q: GraphNode, k: GraphNode) -> list[GraphNode]:
    """The masks to add to the scores [batch, heads, queries, keys]: the node's mask, and one that hides the
    future."""
    (batch, _, tokens, _), keys = q.shape, k.shape[2]
    found = []
    if mask is not None:
        zero, low = (
            constant(np.zeros((), np.float32)),
            constant(np.float32(c.attr("mask_filter_value", MASKED))),
        )
        if mask.shape == (batch,):  # the mask is the number of visible keys
            places = constant(np.arange(keys, dtype=mask.dtype.numpy)[None])
            shown = ops.less(places, ops.reshape(mask, shape=(batch, 1)))
        elif mask.shape in ((batch, keys), (batch, tokens, keys)):
            shown = ops.greater(mask, constant(0, dtype=mask.dtype))
        else:
            raise c.unsupported(
                f"a mask of shape {mask.shape}; [batch], [batch, keys], [batch, queries, keys]."
            )
        axes = (1, 2) if shown.ndim == 2 else (1,)
        found.append(ops.where(ops.unsqueeze(shown, axes=axes), zero, low))
    if c.attr("unidirectional", 0):
        found.append(_past_only(tokens, keys, -np.inf))
    return found


def _past_only(tokens: int, keys: int, low: float) -> GraphNode:
    """[queries, keys]: 0 for a query's own token and all tokens before it, else `low`. The queries are the
    last of the tokens that have keys."""
    return constant(np.where(np.tri(tokens, keys, keys - tokens, dtype=bool), 0, low).astype(np.float32))
