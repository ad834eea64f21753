"""Attention of decoders behind a cache of keys and values, which belongs to the caller.

    cache: float32[layers, 2, batch, groups, capacity, depth], position: int64[1]
    entry: float32[layers, 2, batch, groups, tokens, depth]        of the new words, at `position` …

The model reads the cache where it is and copies nothing of it; the caller writes each entry at its position
(`remember`). Places from `position` on are not looked at, whatever they hold.
"""

from __future__ import annotations

import math

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode
from autotensor.models.weights import Array

CAPACITY = 256
HIDDEN = np.float32(-1e30)  # a score that no exp survives


def attend(
    q: GraphNode, k: GraphNode, v: GraphNode, cache: GraphNode, layer: int, position: GraphNode
) -> GraphNode:
    """The attention of new words to the cache and to one another: [batch, heads, tokens, depth], as q.

    k, v: [batch, groups, tokens, depth]; heads of one group share them. Old and new are joined at the scores:
    the cache stays where it is.
    """
    batch, heads, tokens, depth = q.shape
    groups, capacity = cache.shape[3:5]
    each = heads // groups
    keys, values = (
        ops.reshape(ops.slice(cache, (layer, n), (layer + 1, n + 1)), cache.shape[2:]) for n in range(2)
    )
    before = ops.less(constant(np.arange(capacity)), position)  # [capacity]: which places are filled
    rows = ops.reshape(q * (1 / math.sqrt(depth)), (batch, groups, each * tokens, depth))
    old = ops.where(before, ops.batch_matmul(rows, keys, transpose_b=True), HIDDEN)
    shares = ops.softmax(ops.concat(old, _own_scores(rows, k, each), axis=-1))
    theirs = ops.slice(shares, (0,), (capacity,), axes=(-1,))
    ours = ops.slice(shares, (capacity,), (capacity + tokens,), axes=(-1,))
    # An empty place may hold anything; 0 * NaN would be NaN.
    filled = ops.where(ops.reshape(before, (capacity, 1)), values, np.float32(0))
    own = ours * v if tokens == 1 else ops.batch_matmul(ours, v)
    return ops.reshape(ops.batch_matmul(theirs, filled) + own, q.shape)


def _own_scores(rows: GraphNode, k: GraphNode, each: int) -> GraphNode:
    """The scores of the new words for one another: [batch, groups, each * tokens, tokens]; later hidden."""
    tokens = k.shape[2]
    if tokens == 1:
        return ops.sum(rows * k, axis=-1, keepdims=True)
    past = constant(np.tile(np.tri(tokens, dtype=bool), (each, 1)))  # [each * tokens, tokens]
    return ops.where(past, ops.batch_matmul(rows, k, transpose_b=True), HIDDEN)


def entry_of(k: GraphNode, v: GraphNode) -> GraphNode:
    """A layer's part of the entry: [1, 2, batch, groups, tokens, depth]."""
    return ops.concat(*(ops.reshape(new, (1, 1, *new.shape)) for new in (k, v)), axis=1)


def remember(cache: Array, entry: Array, position: int) -> None:
    """Writes the words' entry into the cache, in place. Raises InputError where the cache has no room."""
    end = position + entry.shape[4]
    if position < 0 or end > cache.shape[4]:
        raise InputError(
            f"positions {position} … {end - 1} are outside the cache, which holds {cache.shape[4]}."
        )
    cache[:, :, :, :, position:end] = entry
