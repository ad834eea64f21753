"""GPT-2 for one more word: the earlier words are in a cache of keys and values.

    input_ids: int64[batch, 1], position: int64[1], cache: float32[layers, 2, batch, heads, capacity, depth]
        ──▶ logits: float32[batch, 1, words], entry: float32[layers, 2, batch, heads, 1, depth]

The cache belongs to the caller (`cached_attention`). The weights are those of `gpt2`.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.cached_attention import CAPACITY, attend, entry_of, remember
from autotensor.models.gpt2 import EPS, NAMES, SMALL, layer
from autotensor.models.transformer import Size, norm, token_input, token_numbers
from autotensor.models.weights import Array, Weights, WeightSource

__all__ = ["CAPACITY", "build", "cache_shape", "inputs", "remember"]


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    capacity: int = CAPACITY,
    size: Size = SMALL,
    ids: str = "int64",
) -> Graph:
    """The graph. weights: as for `gpt2.build`. capacity: the number of words that fit into the cache."""
    size.check("gpt2_decode", capacity)
    w = WeightSource("gpt2_decode", weights, seed, NAMES)
    words = token_input("input_ids", batch, 1, ids)
    position = input((1,), "int64", "position")
    cache = input(cache_shape(batch, capacity, size), "float32", "cache")
    embedding = w("wte.weight", size.vocabulary, size.hidden)
    places = w("wpe.weight", size.positions, size.hidden)
    x = ops.take(embedding, words) + ops.take(places, position)  # [batch, 1, hidden]
    x = ops.reshape(x, (batch, size.hidden))
    entries: list[GraphNode] = []
    for n in range(size.layers):

        def attended(q: GraphNode, k: GraphNode, v: GraphNode, n: int = n) -> GraphNode:
            entries.append(entry_of(k, v))
            return attend(q, k, v, cache, n, position)

        x = layer(x, w, f"h.{n}", batch, size.heads, attended)
    logits = ops.reshape(ops.dense(norm(x, w, "ln_f", EPS), embedding), (batch, 1, size.vocabulary))
    entry = ops.concat(*entries, axis=0)
    return w.graph((words, position, cache), (logits, entry), ("logits", "entry"))


def cache_shape(batch: int = 1, capacity: int = CAPACITY, size: Size = SMALL) -> tuple[int, ...]:
    return size.layers, 2, batch, size.heads, capacity, size.hidden // size.heads


def inputs(
    rng: np.random.Generator,
    batch: int = 1,
    capacity: int = CAPACITY,
    size: Size = SMALL,
    ids: str = "int64",
) -> dict[str, Array]:
    """A random word, and a cache with only one place left."""
    cache = rng.standard_normal(cache_shape(batch, capacity, size), dtype=np.float32)
    return {
        "input_ids": token_numbers(rng, batch, 1, size.vocabulary, ids),
        "position": np.array([capacity - 1]),
        "cache": cache,
    }
