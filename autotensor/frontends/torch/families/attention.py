"""Scaled dot-product attention: torch's function, and the operators that it calls on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.frontends.attention_heads import repeated
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.reduce import any_of
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import Array, Constant, GraphNode, constant


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
    """q: [..., heads, queries, depth]; any axes in front are the batch.

    Leading axes broadcast: one key may serve all heads. With grouped heads, each key serves several queries.
    """
    if dropout_p:
        raise Unsupported("dropout is random in training mode.", fix="Call .eval() on the module.")
    grouped = enable_gqa and k.shape[-3] != q.shape[-3]
    own = 3 if grouped else 2  # how many last axes do not broadcast
    lead = np.broadcast_shapes(*(x.shape[:-own] for x in (q, k, v)))
    q, k, v = (_of_rank_4(_spread(x, lead, own)) for x in (q, k, v))
    if grouped:
        lead = (*lead, q.shape[1])
        k, v = (repeated(x, q.shape[1]) for x in (k, v))
    mask = () if attn_mask is None else (_mask(attn_mask, q, lead),)
    y = ops.attention(q, k, v, *mask, causal=is_causal, scale=None if scale is None else float(scale))
    for m in mask:
        y = _of_seeing(y, m)
    return ops.reshape(y, shape=(*lead, *y.shape[2:])) if len(lead) != 2 else y


def _spread(x: GraphNode, lead: tuple[int, ...], own: int) -> GraphNode:
    """x broadcast to the leading axes `lead`; its last axes stay."""
    wanted = (*lead, *x.shape[-own:])
    return x if x.shape == wanted else ops.broadcast_to(x, shape=wanted)


def _of_rank_4(x: GraphNode) -> GraphNode:
    if x.ndim == 4:
        return x
    shape = (1,) * (4 - x.ndim) + x.shape if x.ndim < 4 else (-1, *x.shape[-3:])
    return ops.reshape(x, shape=shape)


def _mask(mask: GraphNode, q: GraphNode, lead: tuple[int, ...]) -> GraphNode:
    """The mask, with as many axes as q has (four at most)."""
    if len(lead) > 2 and mask.ndim > 3:
        mask = _of_rank_4(_spread(mask, lead, 2))
    return mask if mask.dtype.is_bool else as_type(mask, q.dtype)


def _of_seeing(y: GraphNode, mask: GraphNode) -> GraphNode:
    """y, with 0 for queries from which the mask hides every key, as in torch's softmax."""
    if isinstance(mask, Constant) and _seeing(mask.data.array).all():
        return y
    seeing = mask if mask.dtype.is_bool else ops.greater(mask, constant(mask.dtype.numpy.type("-inf")))
    some = any_of(seeing, (-1,), keepdim=True)
    return ops.where(some, y, constant(0, dtype=y.dtype))


def _seeing(mask: Array) -> Array:
    """Which queries see a key."""
    return np.asarray((mask if mask.dtype == bool else mask > -np.inf).any(-1))


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
