"""A translator of recurrent layers with attention, after GNMT (Wu et al., 2016) in the form of GNMT v2.

    source ──▶ embedding ──▶ LSTM both ways ─▶ LSTM ─▶ LSTM ─▶ LSTM ──▶ keys
    target ──▶ embedding ──▶ LSTM ─▶ attention over the keys ─▶ LSTM ×3 ──▶ dense ──▶ logits of the next words

The later layers have shortcuts. Each of the decoder's last three layers reads the attention's result in
addition to its input. Attention is Bahdanau's: weights = softmax(v · tanh(q + k)). `target` is the
translation so far: the next words for all its positions are predicted at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import dense, weighted
from autotensor.models.recurrent import both_ways, by_time, embedded, recurrent
from autotensor.models.weights import Array, Naming, Weights, WeightSource
from autotensor.operators.operator_helpers import stage

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
    w = WeightSource("gnmt", weights, seed, NAMES)
    source, target = (input((batch, tokens), "int64", name) for name in ("source", "target"))
    words = w("embedding.weight", vocabulary, hidden)
    y = both_ways("lstm", embedded(source, words), w, "encoder", hidden)
    y = recurrent("lstm", y, w, "encoder", hidden, 1)
    for layer in range(2, LAYERS):
        y = y + recurrent("lstm", y, w, "encoder", hidden, layer)
    keys = by_time(y)  # [batch, tokens, hidden]
    z = recurrent("lstm", embedded(target, words), w, "decoder", hidden)
    seen = by_time(_attention(by_time(z), keys, w))  # [tokens, batch, hidden]
    for layer in range(1, LAYERS):
        after = recurrent("lstm", ops.concat(z, seen, axis=2), w, "decoder", hidden, layer)
        z = after + z if layer > 1 else after
    logits = dense(by_time(z), *weighted(w, "classifier", vocabulary, hidden))
    return w.graph((source, target), (logits,), ("logits",))


def _attention(queries: GraphNode, keys: GraphNode, w: WeightSource) -> GraphNode:
    """[batch, n, hidden] and [batch, m, hidden] ──▶ weighted means of the keys [batch, n, hidden]."""
    hidden = keys.shape[2]
    q = dense(queries, w("attention.query", hidden, hidden))
    k = dense(keys, w("attention.key", hidden, hidden))
    scores = call(_fit, q, k, ops.reshape(w("attention.value", 1, hidden), (-1,)), name="fit")
    return ops.batch_matmul(ops.softmax(scores), keys)


def _fit(q: te.Tensor, k: te.Tensor, v: te.Tensor) -> te.Tensor:
    """sum_c v[c] * tanh(q[b, i, c] + k[b, j, c])"""
    (batch, n, width), m = q.shape, k.shape[1]
    c = te.reduce_axis(width, "c")

    def score(b: Any, i: Any, j: Any) -> Any:
        return te.sum(v[c] * te.tanh(q[b, i, c] + k[b, j, c]), axis=c)

    return stage((batch, n, m), score, "fit")


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, vocabulary: int = WORDS
) -> dict[str, Array]:
    """Random words in both languages."""
    return {name: rng.integers(0, vocabulary, (batch, tokens)) for name in ("source", "target")}
