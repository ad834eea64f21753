"""Layers of `nn.TransformerEncoder` and `nn.MultiheadAttention`. In eval mode torch runs each layer as a
single operator; the converters split it into simple operators.

Source: aten/src/ATen/native/transformers/transformer.cpp and attention.cpp.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

from autotensor.frontends.attention_heads import apart, together, turned
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.attention import attention
from autotensor.frontends.torch.families.matmul import linear
from autotensor.frontends.torch.families.norm import layer_norm
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.frontends.values import pieces
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant

ATTENTION, PADDING = 0, 1  # kinds of masks: [queries, keys] and [batch, keys]; other masks have all four axes


@converts("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    x: GraphNode,
    wide: int,
    heads: int,
    qkv_weight: GraphNode,
    qkv_bias: GraphNode,
    projection: GraphNode,
    projection_bias: GraphNode,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_1: GraphNode,
    norm_1_bias: GraphNode,
    norm_2: GraphNode,
    norm_2_bias: GraphNode,
    first: GraphNode,
    first_bias: GraphNode,
    second: GraphNode,
    second_bias: GraphNode,
    mask: GraphNode | None = None,
    mask_type: int | None = None,
) -> Any:
    """x: [batch, n, wide]. Norms come before both halves of the layer, or after their sums."""

    def attend(y: GraphNode) -> Any:
        q, k, v = (apart(x, heads) for x in pieces(linear(y, qkv_weight, qkv_bias), 2, (wide,) * 3))
        seen = _seen(mask, mask_type)
        return linear(together(attention(q, k, v, seen)), projection, projection_bias)

    def feed(y: GraphNode) -> Any:
        inner = linear(y, first, first_bias)
        return linear(ops.gelu(inner) if use_gelu else ops.relu(inner), second, second_bias)

    def norm(y: GraphNode, weight: GraphNode, bias: GraphNode) -> Any:
        return layer_norm(y, (wide,), weight, bias, eps)

    if norm_first:
        y = x + attend(norm(x, norm_1, norm_1_bias))
        return y + feed(norm(y, norm_2, norm_2_bias))
    y = norm(x + attend(x), norm_1, norm_1_bias)
    return norm(y + feed(y), norm_2, norm_2_bias)


@converts("aten._native_multi_head_attention.default")
def native_attention(
    query: GraphNode,
    key: GraphNode,
    value: GraphNode,
    wide: int,
    heads: int,
    qkv_weight: GraphNode,
    qkv_bias: GraphNode,
    projection: GraphNode,
    projection_bias: GraphNode,
    mask: GraphNode | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """Inputs: [batch, n, wide]. Returns the result and the weights: those of each head, or their mean over
    heads."""
    rows = zip((query, key, value), *(pieces(w, 0, (wide,) * 3) for w in (qkv_weight, qkv_bias)), strict=True)
    q, k, v = (apart(linear(*each), heads) for each in rows)
    seen = _seen(mask, mask_type)
    result = linear(together(attention(q, k, v, seen)), projection, projection_bias)
    if not need_weights:
        return result, Missing("the weights of attention")
    scores = ops.batch_matmul(q / sqrt(q.shape[-1]), turned(k))
    if seen is not None:
        scores = ops.where(seen, scores, constant(scores.dtype.numpy.type("-inf")))
    weights = ops.softmax(scores, axis=-1)
    return result, ops.mean(weights, axis=(1,)) if average_attn_weights else weights


def _seen(mask: GraphNode | None, kind: int | None) -> Any:
    """The keys that attention may read. torch's kernel takes every number but 0 for "hidden"."""
    if mask is None:
        return None
    hidden = mask if mask.dtype.is_bool else ops.not_equal(mask, constant(mask.dtype.numpy.type(0)))
    seen = ops.logical_not(hidden)
    if mask.ndim == 4:
        return seen
    if kind == PADDING:
        return ops.reshape(seen, shape=(mask.shape[0], 1, 1, mask.shape[1]))
    if mask.ndim == 2:
        return ops.reshape(seen, shape=(1, 1, *mask.shape))
    raise Unsupported(f"an attention mask with {mask.ndim} axes is not supported here.")
