"""Scaled dot-product attention, as torch's function and as the kernels that it chooses on the CPU."""

from __future__ import annotations

from typing import Any

from autotensor.frontends.heads import repeated
from autotensor.frontends.torch.registry import Missing, Unsupported, converts
from autotensor.frontends.torch.types import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


@converts("aten.scaled_dot_product_attention.default")
def attention(
    q: GraphNode,
    k: GraphNode,
    v: GraphNode,
    attn_mask: GraphNode | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """q: [..., heads, queries, depth]; what is in front is the batch.

    With grouped heads each key is repeated for its queries.
    """
    if dropout_p:
        raise Unsupported("dropout is random in training mode.", fix="Call .eval() on the module.")
    lead = q.shape[:-3]
    q, k, v = (_of_rank_4(x) for x in (q, k, v))
    if enable_gqa and k.shape[1] != q.shape[1]:
        k, v = (repeated(x, q.shape[1]) for x in (k, v))
    mask = () if attn_mask is None else (_mask(attn_mask, q, lead),)
    y = ops.attention(q, k, v, *mask, causal=is_causal, scale=None if scale is None else float(scale))
    return ops.reshape(y, shape=(*lead, *y.shape[1:])) if len(lead) != 1 else y


def _of_rank_4(x: GraphNode) -> GraphNode:
    if len(x.shape) == 4:
        return x
    if len(x.shape) < 3:
        raise Unsupported("attention of tensors without heads is not supported.", fix="Add an axis for them.")
    result: GraphNode = ops.reshape(x, shape=(-1, *x.shape[-3:]))
    return result


def _mask(mask: GraphNode, q: GraphNode, lead: tuple[int, ...]) -> GraphNode:
    rank = len(mask.shape)
    if rank > 4 or (len(lead) != 1 and rank > 3):
        raise Unsupported(f"an attention mask with {rank} axes is not supported here.")
    return mask if mask.dtype.is_bool else as_type(mask, q.dtype)


@converts("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    q: GraphNode,
    k: GraphNode,
    v: GraphNode,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: GraphNode | None = None,
    scale: float | None = None,
) -> Any:
    y = attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=True)
    return y, Missing("the logarithm of attention's sums")
