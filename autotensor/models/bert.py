"""BERT (Devlin et al., 2018), with the names of transformers' BertModel; the pooler is left out.

input_ids, token_type_ids: int64[batch, tokens] ──▶ last_hidden_state: float32[batch, tokens, 768]

x ─▶ attention ─▶ dense ─▶ + x ─▶ norm ─▶ dense ─▶ gelu ─▶ dense ─▶ + ─▶ norm        one of 12 layers
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import linear
from autotensor.models.transformer import Size, heads_of, norm, positions, rows_of, token_input, token_numbers
from autotensor.models.weights import Array, Naming, Weights, WeightSource

BASE = Size(layers=12, hidden=768, heads=12, vocabulary=30522, positions=512)
TOKENS, KINDS, WIDER = 128, 2, 4
EPS = 1e-12
NAMES = Naming(
    "transformers'", prefix="bert.", unused=("pooler.", "cls.", "classifier.", "embeddings.position_ids")
)


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = TOKENS,
    size: Size = BASE,
    ids: str = "int64",
    padded: bool = False,
) -> Graph:
    """The graph. weights: `embeddings.word_embeddings.weight`, …; if None, they are drawn from the seed.

    ids: the type of the token numbers. padded: adds a third input attention_mask, which is 0 at padding.
    """
    size.check("bert_base", tokens)
    w = WeightSource("bert_base", weights, seed, NAMES)
    given = [token_input(n, batch, tokens, ids) for n in ("input_ids", "token_type_ids")]
    words, kinds = given
    x = ops.take(w("embeddings.word_embeddings.weight", size.vocabulary, size.hidden), words)
    x = x + ops.take(w("embeddings.token_type_embeddings.weight", KINDS, size.hidden), kinds)
    x = x + positions(w, "embeddings.position_embeddings.weight", size, tokens)  # [batch, tokens, hidden]
    x = norm(ops.reshape(x, (batch * tokens, size.hidden)), w, "embeddings.LayerNorm", EPS)
    mask = None
    if padded:
        given.append(token_input("attention_mask", batch, tokens, ids))
        mask = ops.reshape(ops.cast(given[-1], dtype="bool"), (batch, 1, 1, tokens))
    for n in range(size.layers):
        x = _layer(x, f"encoder.layer.{n}", w, batch, size.heads, mask)
    y = ops.reshape(x, (batch, tokens, size.hidden))
    return w.graph(tuple(given), (y,), ("last_hidden_state",))


def _layer(
    x: GraphNode, at: str, w: WeightSource, batch: int, heads: int, mask: GraphNode | None
) -> GraphNode:
    hidden = x.shape[1]

    def dense(x: GraphNode, name: str, outputs: int = hidden) -> GraphNode:
        return linear(x, w, f"{at}.{name}", outputs)

    parts = ("query", "key", "value")
    q, k, v = (heads_of(dense(x, f"attention.self.{p}"), batch, heads) for p in parts)
    seen = dense(rows_of(ops.attention(q, k, v, mask)), "attention.output.dense")
    x = norm(x + seen, w, f"{at}.attention.output.LayerNorm", EPS)
    y = dense(ops.gelu(dense(x, "intermediate.dense", hidden * WIDER)), "output.dense")
    return norm(x + y, w, f"{at}.output.LayerNorm", EPS)


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, size: Size = BASE, ids: str = "int64"
) -> dict[str, Array]:
    """Random tokens; the second half of the tokens belongs to the second sentence."""
    kinds = np.broadcast_to((np.arange(tokens) >= tokens // 2).astype(ids), (batch, tokens)).copy()
    words = token_numbers(rng, batch, tokens, size.vocabulary, ids)
    return {"input_ids": words, "token_type_ids": kinds}
