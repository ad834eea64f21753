"""GPT-2 (Radford et al., 2019): the prefill of a prompt, with the names of transformers' GPT2LMHeadModel.

    input_ids: int64[batch, tokens] ──▶ logits: float32[batch, tokens, 50257]

    x ─▶ norm ─▶ causal attention ─▶ dense ─▶ + x ─▶ norm ─▶ dense ─▶ gelu ─▶ dense ─▶ +      one of 12 layers

Dense weights are [inputs, outputs], as OpenAI wrote them; the output layer is the embedding of the words.
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import named, weighted
from autotensor.models.transformer import Size, heads_of, norm, positions, rows_of, token_input, token_numbers
from autotensor.models.weights import Array, Naming, Weights, checked

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
    """The graph. weights: `wte.weight` [50257, 768], …; None draws them from the seed."""
    size.check("gpt2", tokens)
    w = checked("gpt2", weights, shapes(size), seed, NAMES)
    words = token_input("input_ids", batch, tokens, ids)
    embedding = named(w, "wte.weight")
    x = ops.take(embedding, words) + positions(w, "wpe.weight", tokens)  # [batch, tokens, hidden]
    x = ops.reshape(x, (batch * tokens, size.hidden))
    for n in range(size.layers):
        x = _layer(x, f"h.{n}", w, batch, size.heads)
    logits = ops.dense(norm(x, w, "ln_f", EPS), embedding)
    y = ops.reshape(logits, (batch, tokens, size.vocabulary))
    return Graph((words,), (y,), "gpt2", ("logits",))


def _layer(x: GraphNode, at: str, w: Weights, batch: int, heads: int) -> GraphNode:
    def dense(x: GraphNode, name: str) -> GraphNode:
        weight, bias = weighted(w, f"{at}.{name}")
        result: GraphNode = ops.matmul(x, weight) + bias
        return result

    hidden = x.shape[1]
    all_three = dense(norm(x, w, f"{at}.ln_1", EPS), "attn.c_attn")  # [rows, 3 * hidden]
    parts = (ops.slice(all_three, (n * hidden,), ((n + 1) * hidden,), axes=(1,)) for n in range(3))
    q, k, v = (heads_of(p, batch, heads) for p in parts)
    x = x + dense(rows_of(ops.attention(q, k, v, causal=True)), "attn.c_proj")
    y = ops.gelu(dense(norm(x, w, f"{at}.ln_2", EPS), "mlp.c_fc"), approximate="tanh")
    result: GraphNode = x + dense(y, "mlp.c_proj")
    return result


def shapes(size: Size = SMALL) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name, in transformers' order."""
    d = size.hidden
    found: dict[str, tuple[int, ...]] = {
        "wte.weight": (size.vocabulary, d),
        "wpe.weight": (size.positions, d),
    }
    for n in range(size.layers):
        sizes = {
            "ln_1": (d,),
            "attn.c_attn": (d, 3 * d),
            "attn.c_proj": (d, d),
            "ln_2": (d,),
            "mlp.c_fc": (d, d * WIDER),
            "mlp.c_proj": (d * WIDER, d),
        }
        for name, shape in sizes.items():
            found[f"h.{n}.{name}.weight"], found[f"h.{n}.{name}.bias"] = shape, shape[-1:]
    return found | {"ln_f.weight": (d,), "ln_f.bias": (d,)}


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, size: Size = SMALL, ids: str = "int64"
) -> dict[str, Array]:
    """A prompt of random words."""
    return {"input_ids": token_numbers(rng, batch, tokens, size.vocabulary, ids)}
