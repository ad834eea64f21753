"""GPT-2 (Radford et al., 2019): the prefill of a prompt, with the names of transformers' GPT2LMHeadModel.

    input_ids: int64[batch, tokens] ──▶ logits: float32[batch, tokens, 50257]

    x ─▶ norm ─▶ causal attention ─▶ dense ─▶ + x ─▶ norm ─▶ dense ─▶ gelu ─▶ dense ─▶ +      one of 12 layers

Dense weights are [inputs, outputs], as OpenAI stored them; the output layer is the embedding of the words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from autotensor.graph.build import ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.transformer import Size, norm, positions, rows_of, thirds, token_input, token_numbers
from autotensor.models.weights import Array, Naming, Weights, WeightSource

SMALL = Size(layers=12, hidden=768, heads=12, vocabulary=50257, positions=1024)
TOKENS, WIDER = 128, 4
EPS = 1e-5
NAMES = Naming("transformers'", prefix="transformer.", unused=("lm_head.", ".attn.bias", ".attn.masked_bias"))


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = TOKENS,
    size: Size = SMALL,
    ids: str = "int64",
) -> Graph:
    """The graph. weights: `wte.weight` [50257, 768], …; if None, they are drawn from the seed."""
    size.check("gpt2", tokens)
    w = WeightSource("gpt2", weights, seed, NAMES)
    words = token_input("input_ids", batch, tokens, ids)
    embedding = w("wte.weight", size.vocabulary, size.hidden)
    x = ops.take(embedding, words) + positions(w, "wpe.weight", size, tokens)  # [batch, tokens, hidden]
    x = ops.reshape(x, (batch * tokens, size.hidden))
    for n in range(size.layers):
        x = layer(x, w, f"h.{n}", batch, size.heads, partial(ops.attention, causal=True))
    logits = ops.dense(norm(x, w, "ln_f", EPS), embedding)
    y = ops.reshape(logits, (batch, tokens, size.vocabulary))
    return w.graph((words,), (y,), ("logits",))


def layer(
    x: GraphNode, w: WeightSource, at: str, batch: int, heads: int, attend: Callable[..., GraphNode]
) -> GraphNode:
    """attend: queries, keys and values [batch, heads, tokens, depth] ──▶ a result of the same shape."""

    def dense(x: GraphNode, name: str, outputs: int) -> GraphNode:
        weight, bias = w(f"{at}.{name}.weight", x.shape[1], outputs), w(f"{at}.{name}.bias", outputs)
        return ops.matmul(x, weight) + bias

    hidden = x.shape[1]
    all_three = dense(norm(x, w, f"{at}.ln_1", EPS), "attn.c_attn", 3 * hidden)
    x = x + dense(rows_of(attend(*thirds(all_three, batch, heads))), "attn.c_proj", hidden)
    y = ops.gelu(dense(norm(x, w, f"{at}.ln_2", EPS), "mlp.c_fc", hidden * WIDER), approximate="tanh")
    result: GraphNode = x + dense(y, "mlp.c_proj", hidden)
    return result


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, size: Size = SMALL, ids: str = "int64"
) -> dict[str, Array]:
    """A prompt of random words."""
    return {"input_ids": token_numbers(rng, batch, tokens, size.vocabulary, ids)}
