"""Decoders of Llama's shape, with the names of transformers' LlamaForCausalLM: new words after a cache.

    input_ids: int64[batch, tokens], position: int64[1],
    cache: [layers, 2, batch, groups, capacity, depth] of float32, float16 or bfloat16
        ──▶ logits: float32[batch, tokens, words], entry: [layers, 2, batch, groups, tokens, depth], as cache

    x ─▶ rms norm ─▶ attention ─▶ dense ─▶ + x ─▶ rms norm ─▶ silu(gate) * up ─▶ down ─▶ +      one layer

A prompt runs through a graph for many tokens, chunk by chunk; generation runs through a graph for a single
token. The cache belongs to the caller (`cached_attention`). The queries of one group share a row of keys and
values. Matrices may be packed numbers of 4 and 8 bits (`packed_rows`).

Source: Touvron et al., 2023; rotary embeddings in halves, as in transformers' weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Constant, Graph, GraphNode
from autotensor.models import gguf_file
from autotensor.models.cached_attention import CAPACITY, attend, entry_of, remember
from autotensor.models.packed_rows import PackedRows, drawn_rows, rounded_rows, side_by_side
from autotensor.models.transformer import heads_of, rows_of, token_input, token_numbers
from autotensor.models.weights import Array, Naming, Weights, WeightSource, load_weights

__all__ = ["SMALL", "LlamaSize", "build", "cache_shape", "inputs", "load", "remember", "size_of"]
NAMES = Naming("transformers'", prefix="model.", unused=("rotary_emb.", ".rotary_emb.inv_freq"))


@dataclass(frozen=True, slots=True)
class LlamaSize:
    """The size of a decoder, and the constants of its layers."""

    layers: int
    hidden: int
    heads: int
    groups: int  # number of groups of heads that share keys and values
    inner: int  # width between the two halves of a layer's perceptron
    vocabulary: int
    eps: float = 1e-6
    theta: float = 10_000.0  # base of the wavelengths of the rotary embedding
    tied: bool = False  # the output layer is the embedding of the words
    biases: bool = False  # whether queries, keys and values have biases, as in Qwen2

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
    """The size in a Hugging Face config.json.

    Raises InputError for options that the graph does not support.
    """
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


def load(source: str | Path) -> tuple[LlamaSize, dict[str, Any]]:
    """The size and the weights in a Hugging Face folder or in a `.gguf` file.

    The folder has a config.json and safetensors in one file or several. Q4_0 and Q8_0 of a `.gguf` file stay
    packed.

    Raises InputError for a file that is missing or damaged, and as `size_of` does.
    """
    if Path(source).suffix == ".gguf":
        config, weights = gguf_file.read(Path(source))
        return size_of(config), weights
    path = Path(source) / "config.json"
    try:
        size = size_of(json.loads(path.read_text()))
    except OSError as error:
        raise InputError(f"llama: {str(path)!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"llama: {str(path)!r} is not JSON: {error}.") from error
    except KeyError as error:
        raise InputError(f"llama: {str(path)!r} lacks {error}.") from error
    return size, load_weights(source)


@dataclass(frozen=True, slots=True)
class Storage:
    """How matrices are stored: as they are given, or floats rounded to packed numbers of `bits` bits."""

    bits: int = 0  # 4 or 8; with 0, floats stay float32
    group: int = 32
    # bits to which x is rounded where it is multiplied with packed numbers, 8 or 16; 0 means none
    rounded: int = 0

    def matrix(self, w: WeightSource, name: str, rows: int, columns: int) -> PackedRows | Constant:
        given = w.given(name)
        if isinstance(given, PackedRows) and given.shape == (rows, columns):
            w.noted(name, rows, columns)
            return given
        if not self.bits or (w.weights is not None and given is None):  # otherwise the shapes are enough
            return w(name, rows, columns)
        # the floats of the embedding are also looked up
        if w.weights is None and not name.startswith("embed_tokens."):
            w.noted(name, rows, columns)
            return drawn_rows(name, rows, columns, self.bits, self.group, w.seed)
        return rounded_rows(w(name, rows, columns).array, self.bits, self.group, name)


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = 1,
    capacity: int = CAPACITY,
    size: LlamaSize = SMALL,
    ids: str = "int64",
    bits: int = 0,
    group: int = 32,
    rounded: int = 0,
    kept: str = "float32",
) -> Graph:
    """The graph. weights: `embed_tokens.weight` [words, hidden], …; if None, they are drawn from the seed.

    Matrices that are given packed (`PackedRows`) stay packed. bits = 4 or 8 rounds the others to the nearest
    numbers of this many bits, which share a scale by groups of a row. rounded: the bits of the numbers to
    which activations are rounded before products with packed matrices, 8 or 16; 0 leaves activations in
    float32. kept: the type of the cache and of its entries; float16 and bfloat16 take half the bytes.
    position + tokens is at most capacity, because the rotary embedding has angles only up to there.
    """
    if not 1 <= tokens <= capacity:
        raise InputError(f"llama: tokens={tokens} must be 1 … {capacity}, the capacity.")
    unused = (*NAMES.unused, *(("lm_head.",) if size.tied else ()))
    w = WeightSource("llama", weights, seed, Naming(NAMES.source, NAMES.prefix, unused))
    storage = Storage(bits, group, rounded)
    words = token_input("input_ids", batch, tokens, ids)
    position = input((1,), "int64", "position")
    cache = input(cache_shape(batch, capacity, size), kept, "cache")
    angles = _angles(position, tokens, capacity, size)
    embedding = w("embed_tokens.weight", size.vocabulary, size.hidden)
    x = ops.reshape(ops.take(embedding, words), (batch * tokens, size.hidden))
    entries: list[GraphNode] = []
    for n in range(size.layers):
        at = f"layers.{n}"
        y = _norm(x, w, f"{at}.input_layernorm", size)
        seen, entry = _attention(y, w, at, cache, n, position, angles, size, storage)
        entries.append(entry)
        x = x + seen
        y = _norm(x, w, f"{at}.post_attention_layernorm", size)
        inner = {f"{at}.mlp.{part}_proj.weight": size.inner for part in ("gate", "up")}
        gate, up = _products(y, w, inner, storage)
        (down,) = _products(
            gate * ops.sigmoid(gate) * up, w, {f"{at}.mlp.down_proj.weight": size.hidden}, storage
        )
        x = x + down
    head = "embed_tokens.weight" if size.tied else "lm_head.weight"
    (logits,) = _products(_norm(x, w, "norm", size), w, {head: size.vocabulary}, storage)
    shaped = ops.reshape(logits, (batch, tokens, size.vocabulary))
    entry = ops.concat(*entries, axis=0)
    entry = entry if kept == "float32" else ops.cast(entry, dtype=kept)
    return w.graph((words, position, cache), (shaped, entry), ("logits", "entry"))


def _norm(x: GraphNode, w: WeightSource, name: str, size: LlamaSize) -> GraphNode:
    return ops.rms_norm(x, w(f"{name}.weight", size.hidden), axis=-1, eps=size.eps)


def _products(
    x: GraphNode, w: WeightSource, rows: Mapping[str, int], storage: Storage
) -> tuple[GraphNode, ...]:
    """x times several matrices, which are given by name and rows; matrices of one packing are one product."""
    matrices = [storage.matrix(w, name, n, x.shape[1]) for name, n in rows.items()]
    packed = [m for m in matrices if isinstance(m, PackedRows)]
    joined = side_by_side(packed) if len(packed) == len(matrices) > 1 else None
    if joined is None:
        return tuple(_product(x, m, storage) for m in matrices)
    ends = list(accumulate(rows.values()))
    y = _product(x, joined, storage)
    return tuple(
        ops.slice(y, (end - n,), (end,), axes=(1,)) for n, end in zip(rows.values(), ends, strict=True)
    )


def _product(x: GraphNode, matrix: PackedRows | Constant, storage: Storage) -> GraphNode:
    if isinstance(matrix, Constant):
        return ops.dense(x, matrix)
    rounded, bits = storage.rounded, matrix.bits
    return ops.dense_nbits(x, constant(matrix.q), constant(matrix.scale), bits=bits, rounded=rounded)


def _attention(
    x: GraphNode,
    w: WeightSource,
    at: str,
    cache: GraphNode,
    layer: int,
    position: GraphNode,
    angles: tuple[GraphNode, GraphNode],
    size: LlamaSize,
    storage: Storage,
) -> tuple[GraphNode, GraphNode]:
    """The attention of rows x [batch * tokens, hidden], in x's shape, and the layer's part of the cache."""
    batch = cache.shape[2]
    heads = {f"{at}.self_attn.{c}_proj": size.heads if c == "q" else size.groups for c in "qkv"}
    rows = {f"{name}.weight": n * size.depth for name, n in heads.items()}

    def part(y: GraphNode, name: str) -> GraphNode:
        y = y + w(f"{name}.bias", heads[name] * size.depth) if size.biases else y
        return heads_of(y, batch, heads[name])

    q, k, v = (part(y, name) for y, name in zip(_products(x, w, rows, storage), heads, strict=True))
    q, k = (ops.rotary(x, *angles) for x in (q, k))
    seen = rows_of(attend(q, k, v, cache, layer, position))
    (out,) = _products(seen, w, {f"{at}.self_attn.o_proj.weight": size.hidden}, storage)
    return out, entry_of(k, v)


def _angles(position: GraphNode, tokens: int, capacity: int, size: LlamaSize) -> tuple[GraphNode, GraphNode]:
    """Cosines and sines for the positions of the new words: [tokens, depth / 2] each."""
    waves = size.theta ** -(np.arange(0, size.depth, 2) / size.depth)
    table = np.arange(capacity)[:, None] * waves
    places = position + constant(np.arange(tokens))
    cos, sin = (ops.take(constant(f(table).astype(np.float32)), places) for f in (np.cos, np.sin))
    return cos, sin


def cache_shape(batch: int = 1, capacity: int = CAPACITY, size: LlamaSize = SMALL) -> tuple[int, ...]:
    return size.layers, 2, batch, size.groups, capacity, size.depth


def inputs(
    rng: np.random.Generator,
    batch: int = 1,
    tokens: int = 1,
    capacity: int = CAPACITY,
    size: LlamaSize = SMALL,
    ids: str = "int64",
    kept: str = "float32",
) -> dict[str, Array]:
    """Random words, and a cache that has exactly enough room for these words."""
    words = token_numbers(rng, batch, tokens, size.vocabulary, ids)
    cache = rng.standard_normal(cache_shape(batch, capacity, size), dtype=np.float32)
    return {
        "input_ids": words,
        "position": np.array([capacity - tokens]),
        "cache": cache.astype(dtype_of(kept).numpy),
    }
