"""Decoders of Llama's shape, with the names of transformers' LlamaForCausalLM: some words behind a cache.

    input_ids: int64[batch, tokens], position: int64[1],
    cache: float32[layers, 2, batch, groups, capacity, depth]
        ──▶ logits: float32[batch, tokens, words], entry: float32[layers, 2, batch, groups, tokens, depth]

    x ─▶ rms norm ─▶ attention ─▶ dense ─▶ + x ─▶ rms norm ─▶ silu(gate) * up ─▶ down ─▶ +      one layer

A prompt goes through a graph of many tokens, chunk by chunk; generation through one of a single token. The
cache belongs to the caller, who writes each entry at its position (`remember`). Its places from `position`
on are not looked at, whatever they hold. Queries of one group share a row of keys and values.

Source: Touvron et al., 2023; rotary embeddings in halves, as transformers' weights have them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.transformer import heads_of, rows_of, token_input, token_numbers
from autotensor.models.weights import Array, Naming, Weights, WeightSource, load_weights

CAPACITY = 256
HIDDEN = np.float32(-1e30)  # a score that no exp survives
NAMES = Naming("transformers'", prefix="model.", unused=("rotary_emb.", ".rotary_emb.inv_freq"))


@dataclass(frozen=True, slots=True)
class LlamaSize:
    """How large a decoder is, and the constants of its layers."""

    layers: int
    hidden: int
    heads: int
    groups: int  # of heads that share keys and values
    inner: int  # width between the two halves of a layer's perceptron
    vocabulary: int
    eps: float = 1e-6
    theta: float = 10_000.0  # the longest wave of the rotary embedding
    tied: bool = False  # the output layer is the embedding of the words
    biases: bool = False  # of queries, keys and values, as Qwen2 has them

    def __post_init__(self) -> None:
        if self.heads % self.groups or self.hidden % (2 * self.heads):
            raise InputError(
                f"llama: hidden={self.hidden}, heads={self.heads} and groups={self.groups} do not fit.",
                fix="heads is a multiple of groups, hidden of 2 * heads.",
            )

    @property
    def depth(self) -> int:
        return self.hidden // self.heads


SMALL = LlamaSize(layers=24, hidden=1024, heads=16, groups=8, inner=2816, vocabulary=32_000)


def size_of(config: Mapping[str, Any]) -> LlamaSize:
    """The size that a Hugging Face config.json says. Raises InputError for what the graph would not keep."""
    kind = config.get("model_type")
    if kind not in ("llama", "qwen2"):
        raise InputError(f"llama: a config of model_type {kind!r}.", fix="Known: llama, qwen2.")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise InputError(f"llama: scaled rotary embeddings ({rope}) are not known.", fix="Known: default.")
    for name, wanted in (("hidden_act", "silu"), ("use_sliding_window", False), ("mlp_bias", False)):
        if config.get(name, wanted) != wanted:
            raise InputError(f"llama: {name} is {config[name]!r}; only {wanted!r} is known.")
    if config.get("attention_bias", False):
        raise InputError("llama: attention_bias puts one on the output, too, which is not known.")
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    if config.get("head_dim") not in (None, hidden // heads):
        raise InputError(f"llama: head_dim is {config['head_dim']}, hidden / heads is {hidden // heads}.")
    return LlamaSize(
        layers=config["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        groups=config.get("num_key_value_heads") or heads,
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        eps=config.get("rms_norm_eps", 1e-6),
        theta=float(rope.get("rope_theta", config.get("rope_theta") or 10_000.0)),
        tied=config.get("tie_word_embeddings", False),
        biases=kind == "qwen2",
    )


def load(folder: str | Path) -> tuple[LlamaSize, dict[str, Array]]:
    """Size and weights in a Hugging Face folder: config.json, and safetensors in one file or several.

    Raises InputError for a file that is missing or damaged, and as `size_of`.
    """
    path = Path(folder) / "config.json"
    try:
        size = size_of(json.loads(path.read_text()))
    except OSError as error:
        raise InputError(f"llama: {str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"llama: {str(path)!r} is not JSON: {error}.") from error
    except KeyError as error:
        raise InputError(f"llama: {str(path)!r} lacks {error}.") from error
    return size, load_weights(folder)


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = 1,
    capacity: int = CAPACITY,
    size: LlamaSize = SMALL,
    ids: str = "int64",
) -> Graph:
    """The graph. weights: `embed_tokens.weight` [words, hidden], …; None draws them from the seed.

    position + tokens is at most capacity, for which the rotary embedding has angles.
    """
    if not 1 <= tokens <= capacity:
        raise InputError(f"llama: tokens={tokens} must be 1 … {capacity}, the capacity.")
    unused = (*NAMES.unused, *(("lm_head.",) if size.tied else ()))
    w = WeightSource("llama", weights, seed, Naming(NAMES.source, NAMES.prefix, unused))
    words = token_input("input_ids", batch, tokens, ids)
    position = input((1,), "int64", "position")
    cache = input(cache_shape(batch, capacity, size), "float32", "cache")
    angles = _angles(position, tokens, capacity, size)
    embedding = w("embed_tokens.weight", size.vocabulary, size.hidden)
    x = ops.reshape(ops.take(embedding, words), (batch * tokens, size.hidden))
    entries: list[GraphNode] = []
    for n in range(size.layers):
        at = f"layers.{n}"
        seen, entry = _attention(
            _norm(x, w, f"{at}.input_layernorm", size), w, at, cache, n, position, angles, size
        )
        entries.append(entry)
        x = x + seen
        y = _norm(x, w, f"{at}.post_attention_layernorm", size)
        gate, up = (
            ops.dense(y, w(f"{at}.mlp.{p}_proj.weight", size.inner, size.hidden)) for p in ("gate", "up")
        )
        down = w(f"{at}.mlp.down_proj.weight", size.hidden, size.inner)
        x = x + ops.dense(gate * ops.sigmoid(gate) * up, down)
    head = embedding if size.tied else w("lm_head.weight", size.vocabulary, size.hidden)
    logits = ops.dense(_norm(x, w, "norm", size), head)
    shaped = ops.reshape(logits, (batch, tokens, size.vocabulary))
    return w.graph((words, position, cache), (shaped, ops.concat(*entries, axis=0)), ("logits", "entry"))


def _norm(x: GraphNode, w: WeightSource, name: str, size: LlamaSize) -> GraphNode:
    return ops.rms_norm(x, w(f"{name}.weight", size.hidden), axis=-1, eps=size.eps)


def _attention(
    x: GraphNode,
    w: WeightSource,
    at: str,
    cache: GraphNode,
    layer: int,
    position: GraphNode,
    angles: tuple[GraphNode, GraphNode],
    size: LlamaSize,
) -> tuple[GraphNode, GraphNode]:
    """What the rows x [batch * tokens, hidden] see, of their shape, and the layer's entry for the cache."""
    batch = cache.shape[2]

    def part(letter: str, heads: int) -> GraphNode:
        name = f"{at}.self_attn.{letter}_proj"
        y = ops.dense(x, w(f"{name}.weight", heads * size.depth, size.hidden))
        return heads_of(y + w(f"{name}.bias", heads * size.depth) if size.biases else y, batch, heads)

    q, k = _turned(part("q", size.heads), angles), _turned(part("k", size.groups), angles)
    v = part("v", size.groups)
    keys, values = (
        ops.reshape(ops.slice(cache, (layer, n), (layer + 1, n + 1)), cache.shape[2:]) for n in range(2)
    )
    seen = rows_of(_attend(q, k, v, keys, values, position))
    entry = ops.concat(*(ops.reshape(new, (1, 1, *new.shape)) for new in (k, v)), axis=1)
    return ops.dense(seen, w(f"{at}.self_attn.o_proj.weight", size.hidden, size.hidden)), entry


def _attend(
    q: GraphNode, k: GraphNode, v: GraphNode, keys: GraphNode, values: GraphNode, position: GraphNode
) -> GraphNode:
    """Attention over the cache and the new words, joined at the scores: the cache stays where it is."""
    batch, heads, tokens, depth = q.shape
    groups, capacity = keys.shape[1:3]
    each = heads // groups
    before = ops.less(constant(np.arange(capacity)), position)  # [capacity]: which places are filled
    past = constant(np.tile(np.tri(tokens, dtype=bool), (each, 1)))  # [each * tokens, tokens]
    rows = ops.reshape(q * (1 / math.sqrt(depth)), (batch, groups, each * tokens, depth))
    old = ops.where(before, ops.batch_matmul(rows, keys, transpose_b=True), HIDDEN)
    new = ops.where(past, ops.batch_matmul(rows, k, transpose_b=True), HIDDEN)
    shares = ops.softmax(ops.concat(old, new, axis=-1))
    theirs = ops.slice(shares, (0,), (capacity,), axes=(-1,))
    ours = ops.slice(shares, (capacity,), (capacity + tokens,), axes=(-1,))
    # What an empty place holds may be anything; 0 * NaN would be seen.
    filled = ops.where(ops.reshape(before, (capacity, 1)), values, np.float32(0))
    return ops.reshape(ops.batch_matmul(theirs, filled) + ops.batch_matmul(ours, v), q.shape)


def _angles(position: GraphNode, tokens: int, capacity: int, size: LlamaSize) -> tuple[GraphNode, GraphNode]:
    """Cosines and sines of the new words' places: [tokens, depth / 2] each."""
    waves = size.theta ** -(np.arange(0, size.depth, 2) / size.depth)
    table = np.arange(capacity)[:, None] * waves
    places = position + constant(np.arange(tokens))
    cos, sin = (ops.take(constant(f(table).astype(np.float32)), places) for f in (np.cos, np.sin))
    return cos, sin


def _turned(x: GraphNode, angles: tuple[GraphNode, GraphNode]) -> GraphNode:
    """Each pair (c, c + depth / 2) of x [batch, heads, tokens, depth], turned by the angle of its place."""
    cos, sin = angles
    half = x.shape[-1] // 2
    a, b = ops.slice(x, (0,), (half,), axes=(-1,)), ops.slice(x, (half,), (2 * half,), axes=(-1,))
    return ops.concat(a * cos - b * sin, b * cos + a * sin, axis=-1)


def cache_shape(batch: int = 1, capacity: int = CAPACITY, size: LlamaSize = SMALL) -> tuple[int, ...]:
    return size.layers, 2, batch, size.groups, capacity, size.depth


def remember(cache: Array, entry: Array, position: int) -> None:
    """Writes the words' entry into the cache, in place. Raises InputError where the cache has no room."""
    end = position + entry.shape[4]
    if position < 0 or end > cache.shape[4]:
        raise InputError(
            f"llama: positions {position} … {end - 1} are outside the cache, which holds {cache.shape[4]}."
        )
    cache[:, :, :, :, position:end] = entry


def inputs(
    rng: np.random.Generator,
    batch: int = 1,
    tokens: int = 1,
    capacity: int = CAPACITY,
    size: LlamaSize = SMALL,
    ids: str = "int64",
) -> dict[str, Array]:
    """Random words behind a cache that has just room for them."""
    return {
        "input_ids": token_numbers(rng, batch, tokens, size.vocabulary, ids),
        "position": np.array([capacity - tokens]),
        "cache": rng.standard_normal(cache_shape(batch, capacity, size), dtype=np.float32),
    }
