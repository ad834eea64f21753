"""A translator of recurrent layers with attention, after GNMT (Wu et al., 2016) in the form of GNMT v2.

    source ──▶ embedding ──▶ LSTM both ways ─▶ LSTM ─▶ LSTM ─▶ LSTM ──▶ keys
    target ──▶ embedding ──▶ LSTM ─▶ attention over the keys ─▶ LSTM ×3 ──▶ dense ──▶ logits of the next words

The later layers have shortcuts; each of the decoder's last three reads beside its input what the attention
saw. Attention is Bahdanau's: weights = softmax(v · tanh(q + k)).
`target` is what has been translated so far: the words of all its places are predicted at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import dense, named, weighted, weighted_shapes
from autotensor.models.recurrent import (
    both_ways,
    both_ways_shapes,
    by_time,
    embedded,
    layer_shapes,
    recurrent,
)
from autotensor.models.weights import Array, Naming, Weights, checked

WORDS, HIDDEN, LAYERS, TOKENS = 32_320, 1024, 4, 24
NAMES = Naming("this model's own; torch's for the layers")


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = TOKENS,
    vocabulary: int = WORDS,
    hidden: int = HIDDEN,
) -> Graph:
    """The graph. weights: `embedding.weight`, `encoder.weight_ih_l0`, …, `classifier.bias`."""
    w = checked("gnmt", weights, shapes(vocabulary, hidden), seed, NAMES)
    source, target = (input((batch, tokens), "int64", name) for name in ("source", "target"))
    words = named(w, "embedding.weight")
    y = both_ways("lstm", embedded(source, words), w, "encoder")
    y = recurrent("lstm", y, w, "encoder", 1)
    for layer in range(2, LAYERS):
        y = y + recurrent("lstm", y, w, "encoder", layer)
    keys = by_time(y)  # [batch, tokens, hidden]
    z = recurrent("lstm", embedded(target, words), w, "decoder", 0)
    seen = by_time(_attention(by_time(z), keys, w))  # [tokens, batch, hidden]
    for layer in range(1, LAYERS):
        after = recurrent("lstm", ops.concat(z, seen, axis=2), w, "decoder", layer)
        z = after + z if layer > 1 else after
    logits = dense(by_time(z), *weighted(w, "classifier"))
    return Graph((source, target), (logits,), "gnmt", ("logits",))


def _attention(queries: GraphNode, keys: GraphNode, w: Weights) -> GraphNode:
    """[batch, n, hidden] and [batch, m, hidden] ──▶ means of the keys [batch, n, hidden]."""
    q, k = dense(queries, named(w, "attention.query")), dense(keys, named(w, "attention.key"))
    scores = call(_fit, q, k, ops.reshape(named(w, "attention.value"), (-1,)), name="fit")
    result: GraphNode = ops.batch_matmul(ops.softmax(scores), keys)
    return result


def _fit(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """sum_c v[c] * tanh(q[b, i, c] + k[b, j, c])"""
    (batch, n, width), m = q.shape, k.shape[1]
    c = te.reduce_axis(width, "c")

    def score(b: Any, i: Any, j: Any) -> Any:
        return te.sum(v[c] * te.tanh(q[b, i, c] + k[b, j, c]), axis=c)

    result: te.Tensor = te.compute((batch, n, m), score, name="fit")
    return result


def shapes(vocabulary: int = WORDS, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    found: dict[str, tuple[int, ...]] = {"embedding.weight": (vocabulary, hidden)}
    found |= both_ways_shapes("lstm", "encoder", 0, hidden, hidden)
    for layer in range(1, LAYERS):
        found |= layer_shapes("lstm", "encoder", layer, 2 * hidden if layer == 1 else hidden, hidden)
    for layer in range(LAYERS):
        found |= layer_shapes("lstm", "decoder", layer, 2 * hidden if layer else hidden, hidden)
    found |= {"attention.query": (hidden, hidden), "attention.key": (hidden, hidden)}
    found |= {"attention.value": (1, hidden)}
    return found | weighted_shapes("classifier", vocabulary, hidden)


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, vocabulary: int = WORDS
) -> dict[str, Array]:
    """Random words in both languages."""
    return {name: rng.integers(0, vocabulary, (batch, tokens)) for name in ("source", "target")}
