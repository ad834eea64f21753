"""Attention of decoders with a cache of keys and values, which belongs to the caller.

    cache: float32[layers, 2, batch, groups, capacity, depth], position: int64[1]
    entry: float32[layers, 2, batch, groups, tokens, depth]        of the new words, from `position` on

The model reads the cache in place and copies nothing of it; the caller writes each entry at its position
(`remember`). The model does not read the cache from `position` on, so these elements may hold anything.
"""

from __future__ import annotations

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode
from autotensor.models.weights import Array

CAPACITY = 256
MANY = 16  # number of rows of queries that fills a vector


def attend(
    q: GraphNode, k: GraphNode, v: GraphNode, cache: GraphNode, layer: int, position: GraphNode
) -> GraphNode:
    """The attention of new words to the cache and to one another: [batch, heads, tokens, depth], like q.

    k, v: [batch, groups, tokens, depth]; the heads of one group share k and v.
    """
    batch, heads, tokens, depth = q.shape
    groups = cache.shape[3]
    keys, values = (
        ops.reshape(ops.slice(cache, (layer, n), (layer + 1, n + 1)), cache.shape[2:]) for n in range(2)
    )
    rows = ops.reshape(q, (batch, groups, heads // groups * tokens, depth))
    # a few rows wait for keys and values, which are therefore read in place
    behind = ops.cached_attention if rows.shape[2] < MANY else _many
    return ops.reshape(behind(rows, k, v, keys, values, position), q.shape)


def _many(
    rows: GraphNode, k: GraphNode, v: GraphNode, keys: GraphNode, values: GraphNode, position: GraphNode
) -> GraphNode:
    """Attention for many rows of queries: old and new keys and values side by side, in float32."""
    tokens, capacity = k.shape[2], keys.shape[2]
    filled = ops.less(constant(np.arange(capacity)), position)
    past = constant(np.tile(np.tri(tokens, dtype=bool), (rows.shape[2] // tokens, 1)))
    old = ops.broadcast_to(ops.reshape(filled, (1, capacity)), (rows.shape[2], capacity))
    # An empty place may hold anything, and 0 * NaN would be NaN.
    column = ops.reshape(filled, (capacity, 1))
    there = (ops.where(column, ops.cast(x, dtype="float32"), np.float32(0)) for x in (keys, values))
    joined = (ops.concat(x, new, axis=2) for x, new in zip(there, (k, v), strict=True))
    return ops.attention(rows, *joined, ops.concat(old, past, axis=1))


def entry_of(k: GraphNode, v: GraphNode) -> GraphNode:
    """A layer's part of the entry: [1, 2, batch, groups, tokens, depth]."""
    return ops.concat(*(ops.reshape(new, (1, 1, *new.shape)) for new in (k, v)), axis=1)


def remember(cache: Array, entry: Array, position: int) -> None:
    """Writes the words' entry into the cache, in place. Raises InputError if the cache has no room."""
    end = position + entry.shape[4]
    if position < 0 or end > cache.shape[4]:
        raise InputError(
            f"positions {position} … {end - 1} are outside the cache, which holds {cache.shape[4]}."
        )
    cache[:, :, :, :, position:end] = entry
