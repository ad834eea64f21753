"""GPT-2 for one more word: what came before is in a cache of keys and values.

    input_ids: int64[batch, 1], position: int64[1], cache: float32[layers, 2, batch, heads, capacity, depth]
        ──▶ logits: float32[batch, 1, words], entry: float32[layers, 2, batch, heads, 1, depth]

The cache belongs to the caller, which writes each entry at its position (`remember`); the model reads it
where it is and copies nothing of it. Places from `position` on are not looked at, whatever they hold.
Weights are those of `gpt2`.
"""

from __future__ import annotations

import math

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.gpt2 import EPS, NAMES, SMALL, layer
from autotensor.models.transformer import Size, norm, token_input, token_numbers
from autotensor.models.weights import Array, Weights, WeightSource

CAPACITY = 256
HIDDEN = np.float32(-1e30)  # a score that no exp survives


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    capacity: int = CAPACITY,
    size: Size = SMALL,
    ids: str = "int64",
) -> Graph:
    """The graph. weights: as of `gpt2.build`. capacity: words that the cache has room for."""
    size.check("gpt2_decode", capacity)
    w = WeightSource("gpt2_decode", weights, seed, NAMES)
    words = token_input("input_ids", batch, 1, ids)
    position = input((1,), "int64", "position")
    cache = input(cache_shape(batch, capacity, size), "float32", "cache")
    before = ops.less(constant(np.arange(capacity)), position)  # [capacity]: which places are filled
    embedding = w("wte.weight", size.vocabulary, size.hidden)
    places = w("wpe.weight", size.positions, size.hidden)
    x = ops.take(embedding, words) + ops.take(places, position)  # [batch, 1, hidden]
    x = ops.reshape(x, (batch, size.hidden))
    entries: list[GraphNode] = []
    for n in range(size.layers):
        keys, values = _part(cache, n)

        def attend(
            q: GraphNode, k: GraphNode, v: GraphNode, keys: GraphNode = keys, values: GraphNode = values
        ) -> GraphNode:
            entries.append(ops.concat(*(ops.reshape(part, (1, 1, *part.shape)) for part in (k, v)), axis=1))
            return _attend(q, k, v, keys, values, before)

        x = layer(x, w, f"h.{n}", batch, size.heads, attend)
    logits = ops.reshape(ops.dense(norm(x, w, "ln_f", EPS), embedding), (batch, 1, size.vocabulary))
    entry = ops.concat(*entries, axis=0)
    return w.graph((words, position, cache), (logits, entry), ("logits", "entry"))


def _attend(
    q: GraphNode, k: GraphNode, v: GraphNode, keys: GraphNode, values: GraphNode, before: GraphNode
) -> GraphNode:
    """Attention over the cache and the word itself, joined at the scores: the cache stays where it is."""
    capacity = keys.shape[2]
    q = q * (1 / math.sqrt(q.shape[-1]))
    scores = ops.batch_matmul(q, keys, transpose_b=True)  # [batch, heads, 1, capacity]
    old = ops.where(before, scores, HIDDEN)
    own = ops.sum(q * k, axis=-1, keepdims=True)  # [batch, heads, 1, 1]
    shares = ops.softmax(ops.concat(old, own, axis=-1))
    past = ops.slice(shares, (0,), (capacity,), axes=(-1,))
    mine = ops.slice(shares, (capacity,), (capacity + 1,), axes=(-1,))
    # An empty place may hold anything; 0 * NaN would be seen.
    filled = ops.where(ops.reshape(before, (capacity, 1)), values, np.float32(0))
    return ops.batch_matmul(past, filled) + mine * v


def _part(cache: GraphNode, layer: int) -> tuple[GraphNode, GraphNode]:
    """Keys and values of one layer: [batch, heads, capacity, depth] each."""
    shape = cache.shape[2:]
    keys, values = (ops.reshape(ops.slice(cache, (layer, n), (layer + 1, n + 1)), shape) for n in range(2))
    return keys, values


def cache_shape(batch: int = 1, capacity: int = CAPACITY, size: Size = SMALL) -> tuple[int, ...]:
    return size.layers, 2, batch, size.heads, capacity, size.hidden // size.heads


def remember(cache: Array, entry: Array, position: int) -> None:
    """Writes a word's entry into the cache, in place. Raises InputError when the cache is full."""
    if not 0 <= position < cache.shape[4]:
        raise InputError(
            f"gpt2_decode: position {position} is outside the cache, which holds {cache.shape[4]}."
        )
    cache[:, :, :, :, position : position + 1] = entry


def inputs(
    rng: np.random.Generator,
    batch: int = 1,
    capacity: int = CAPACITY,
    size: Size = SMALL,
    ids: str = "int64",
) -> dict[str, Array]:
    """A random word behind a cache that is filled but for one place."""
    cache = rng.standard_normal(cache_shape(batch, capacity, size), dtype=np.float32)
    return {
        "input_ids": token_numbers(rng, batch, 1, size.vocabulary, ids),
        "position": np.array([capacity - 1]),
        "cache": cache,
    }
