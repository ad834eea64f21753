"""DiT (Peebles and Xie, 2022): one denoising step of DiT-S/2, with the weight names of its authors' code.

x: float32[batch, 4, 32, 32], t: float32[batch], y: int64[batch] ──▶ noise and variance [batch, 8, 32, 32]

x ─▶ patches 2x2 ─▶ dense ─▶ + places ─▶ 12 blocks ─▶ norm ─▶ dense ─▶ picture
t ─▶ waves ─▶ dense ─▶ silu ─▶ dense ─▶ + class of y = c          an input of every block

block:  x + gate·attention(norm(x)·(1 + scale) + shift), then the same with two dense layers;
        shift, scale and gate are a dense layer of silu(c)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import dense, weighted
from autotensor.models.transformer import rows_of, thirds
from autotensor.models.weights import Array, Naming, Weights, WeightSource

CHANNELS, PATCH, WAVES, CLASSES, WIDER = 4, 2, 256, 1000, 4
EPS = 1e-6
NAMES = Naming("those of DiT")


@dataclass(frozen=True, slots=True)
class DitSize:
    """The size of a DiT."""

    layers: int = 12
    hidden: int = 384
    heads: int = 6
    picture: int = 32  # width of the latent picture, in pixels

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.picture % PATCH:
            raise InputError(
                f"dit: hidden={self.hidden} must be a multiple of heads={self.heads}, and "
                f"picture={self.picture} of {PATCH}."
            )

    @property
    def patches(self) -> int:
        return (self.picture // PATCH) ** 2


SMALL = DitSize()


def build(batch: int = 1, weights: Weights | None = None, seed: int = 0, *, size: DitSize = SMALL) -> Graph:
    """The graph. weights: `x_embedder.proj.weight`, …, `final_layer.linear.bias`.

    If weights is None, the weights are drawn from the seed.
    """
    w = WeightSource("dit", weights, seed, NAMES)
    x = input((batch, CHANNELS, size.picture, size.picture), name="x")
    t, y = input((batch,), name="t"), input((batch,), "int64", "y")
    told = ops.silu(_told(t, y, w, size.hidden))  # [batch, hidden]; every layer reads this through a silu
    z = ops.conv2d(x, *weighted(w, "x_embedder.proj", size.hidden, CHANNELS, PATCH, PATCH), stride=PATCH)
    rows = ops.transpose(ops.reshape(z, (batch, size.hidden, size.patches)), (0, 2, 1))
    rows = rows + w("pos_embed", 1, size.patches, size.hidden)  # [batch, patches, hidden]; fixed in the paper
    for n in range(size.layers):
        rows = _block(rows, told, f"blocks.{n}", w, size.heads)
    shift, scale = _modulation(told, "final_layer", w, 2)
    last = _dense(_told_norm(rows, shift, scale), w, "final_layer.linear", PATCH * PATCH * 2 * CHANNELS)
    return w.graph((x, t, y), (_picture(last, size),), ("noise",))


def _told(t: GraphNode, y: GraphNode, w: WeightSource, hidden: int) -> GraphNode:
    """The time and the class as one vector: [batch, hidden]."""
    half = WAVES // 2
    speeds = np.exp(-math.log(10_000.0) * np.arange(half) / half).astype(np.float32)
    angles = ops.reshape(t, (t.shape[0], 1)) * constant(speeds)
    waves = ops.concat(ops.cos(angles), ops.sin(angles), axis=1)
    time = _dense(ops.silu(_dense(waves, w, "t_embedder.mlp.0", hidden)), w, "t_embedder.mlp.2", hidden)
    classes = w("y_embedder.embedding_table.weight", CLASSES + 1, hidden)
    return time + ops.take(classes, y)


def _block(x: GraphNode, told: GraphNode, at: str, w: WeightSource, heads: int) -> GraphNode:
    batch, patches, hidden = x.shape
    shift1, scale1, gate1, shift2, scale2, gate2 = _modulation(told, at, w, 6)
    all_three = _dense(_told_norm(x, shift1, scale1), w, f"{at}.attn.qkv", 3 * hidden)
    flat = ops.reshape(all_three, (batch * patches, 3 * hidden))
    seen = rows_of(ops.attention(*thirds(flat, batch, heads)))
    x = x + gate1 * _dense(ops.reshape(seen, x.shape), w, f"{at}.attn.proj", hidden)
    y = _dense(_told_norm(x, shift2, scale2), w, f"{at}.mlp.fc1", WIDER * hidden)
    return x + gate2 * _dense(ops.gelu(y, approximate="tanh"), w, f"{at}.mlp.fc2", hidden)


def _modulation(told: GraphNode, at: str, w: WeightSource, count: int) -> tuple[GraphNode, ...]:
    """`count` vectors [batch, 1, hidden] for a block."""
    batch, hidden = told.shape
    all_of_them = _dense(told, w, f"{at}.adaLN_modulation.1", count * hidden)
    parts = (ops.slice(all_of_them, (n * hidden,), ((n + 1) * hidden,), axes=(1,)) for n in range(count))
    return tuple(ops.reshape(p, (batch, 1, hidden)) for p in parts)


def _told_norm(x: GraphNode, shift: GraphNode, scale: GraphNode) -> GraphNode:
    hidden = x.shape[-1]
    plain = ops.layer_norm(x, np.ones(hidden, np.float32), np.zeros(hidden, np.float32), eps=EPS)
    result: GraphNode = plain * (scale + 1.0) + shift
    return result


def _dense(x: GraphNode, w: WeightSource, name: str, outputs: int) -> GraphNode:
    return dense(x, *weighted(w, name, outputs, x.shape[-1]))


def _picture(x: GraphNode, size: DitSize) -> GraphNode:
    """[batch, patches, 2*2*8] ──▶ [batch, 8, picture, picture]"""
    across = size.picture // PATCH
    parts = ops.reshape(x, (x.shape[0], across, across, PATCH, PATCH, 2 * CHANNELS))
    turned = ops.transpose(parts, (0, 5, 1, 3, 2, 4))
    return ops.reshape(turned, (x.shape[0], 2 * CHANNELS, size.picture, size.picture))


def inputs(rng: np.random.Generator, batch: int = 1, size: DitSize = SMALL) -> dict[str, Array]:
    """Noise, at random times, of random classes."""
    return {
        "x": rng.standard_normal((batch, CHANNELS, size.picture, size.picture), dtype=np.float32),
        "t": rng.integers(0, 1000, batch).astype(np.float32),
        "y": rng.integers(0, CLASSES, batch),
    }
