"""Attention of opset 23 and newer, converted to autotensor's operator if that computes the same.

    q, k, v [batch, tokens, heads * depth]  or  [batch, heads, tokens, depth]

The other forms (a cache of keys, intermediate results, soft caps, windows, 16-bit floats computed in 32 bits)
are imported by the standard's definition. A query gets zeros if its mask hides all keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotensor.frontends.attention_heads import apart, repeated, together
from autotensor.frontends.onnx.function_definitions import definition
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant

WIDE = ("float32", "float64")  # types in which the definition computes without a conversion
HIDDEN = np.array(-np.inf, np.float32)  # the score where a bool mask is False
PLAIN = ("is_causal", "scale", "q_num_heads", "kv_num_heads", "softcap", "qk_matmul_output_mode")


@converts("Attention", since=23)
def attention(c: Call) -> Value:
    if not _is_plain(c):
        return _by_definition(c)
    q, k, v = (c[n] for n in range(3))
    is_flat = q.ndim == 3
    if is_flat:
        heads, kv_heads = c.whole("q_num_heads"), c.whole("kv_num_heads")
        q, k, v = (by_heads(c, x, n) for x, n in zip((q, k, v), (heads, kv_heads, kv_heads), strict=True))
    k, v = (repeated(x, q.shape[1]) for x in (k, v))
    mask = c.get(3)
    if mask is not None and not _fits(mask, (*q.shape[:3], k.shape[2])):
        return _by_definition(c)
    y = ops.attention(
        *(q, k, v, *(() if mask is None else (mask,))),
        causal=c.flag("is_causal"),
        scale=c.attr("scale", None),
        hidden=float(HIDDEN),
    )
    if mask is not None:
        seeing = _seeing(mask, (q.shape[2], k.shape[2]), c.flag("is_causal"))
        y = ops.where(seeing, y, constant(0, dtype=y.dtype))
    return together(y) if is_flat else y


def _is_plain(c: Call) -> bool:
    """Whether a node has only queries, keys, values and at most a mask, has a single result, and computes in
    the type of its operands."""
    operands = [c.value(n) for n in range(3)]
    if any(not isinstance(x, GraphNode) or str(x.dtype) not in WIDE for x in operands):
        return False
    if any(c.value(n) is not None for n in range(4, len(c.inputs))) or any(c.wants(n) for n in (1, 2, 3)):
        return False
    if not set(c.attrs) <= set(PLAIN):
        return False
    ranks = {x.ndim for x in operands}
    known = ranks == {4} or (ranks == {3} and {"q_num_heads", "kv_num_heads"} <= set(c.attrs))
    return known and len({x.dtype for x in operands}) == 1 and not c.attr("softcap", 0.0)


def _fits(mask: GraphNode, scores: Sequence[int]) -> bool:
    """Whether the mask broadcasts to the scores. The newest opset also accepts a mask for fewer keys."""
    rank = mask.ndim
    extents = zip(mask.shape, scores[4 - rank :], strict=True) if rank <= 4 else ()
    return 2 <= rank <= 4 and all(have in (1, want) for have, want in extents)


def _seeing(mask: GraphNode, scores: tuple[int, int], causal: bool) -> GraphNode:
    """[..., queries, 1]: whether the mask, and with `causal` the order of tokens, leave a query at least one
    key."""
    added = ops.where(mask, constant(np.zeros_like(HIDDEN)), constant(HIDDEN)) if mask.dtype.is_bool else mask
    low = constant(HIDDEN.astype(added.dtype.numpy))
    if causal:
        added = ops.where(constant(np.tri(*scores, dtype=bool)), added, low)
    return ops.greater(ops.max(added, axis=-1, keepdims=True), low)


def by_heads(c: Call, x: GraphNode, heads: int) -> GraphNode:
    """[batch, tokens, heads * depth] ──▶ [batch, heads, tokens, depth]"""
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads:
        raise c.malformed(f"{x.shape}: {x.shape[-1]} columns cannot be divided among {heads} heads.")
    return apart(x, heads)


def _by_definition(c: Call) -> Value:
    found = definition(c, "", c.opset)
    if found is None:
        raise c.unsupported("this form is not supported, and the standard at hand has no definition of it.")
    return list(c.importer.function(found[0], c.inputs, found[1]))
