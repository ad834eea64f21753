"""Neural collaborative filtering (He et al., 2017), NeuMF at the size of MovieLens-20M.

user, item: int64[batch] ──▶ score: float32[batch, 1]

user ─▶ 64 ┐ product ─────────────────────────────────────┐
item ─▶ 64 ┘                                              ├─▶ dense ──▶ score (a logit)
user ─▶ 128 ┐ side by side ─▶ dense 256 ─▶ 128 ─▶ 64 ┘
item ─▶ 128 ┘
"""

from __future__ import annotations

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import linear
from autotensor.models.weights import Array, Naming, Weights, WeightSource

USERS, ITEMS, FACTORS = 138_493, 26_744, 64
LAYERS = (256, 256, 128, 64)
NAMES = Naming("those of NVIDIA's NCF example")


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    users: int = USERS,
    items: int = ITEMS,
) -> Graph:
    """The graph. weights: `mf_user_embed.weight`, …, `final.bias`; if None, they are drawn from the seed."""
    w = WeightSource("ncf", weights, seed, NAMES)
    user, item = (input((batch,), "int64", name) for name in ("user", "item"))

    def embedded(kind: str, width: int) -> tuple[GraphNode, GraphNode]:
        first = ops.take(w(f"{kind}_user_embed.weight", users, width), user)
        return first, ops.take(w(f"{kind}_item_embed.weight", items, width), item)

    a, b = embedded("mf", FACTORS)
    y: GraphNode = ops.concat(*embedded("mlp", LAYERS[0] // 2), axis=1)
    for n, width in enumerate(LAYERS[1:]):
        y = ops.relu(linear(y, w, f"mlp.{n}", width))
    score = linear(ops.concat(a * b, y, axis=1), w, "final", 1)
    return w.graph((user, item), (score,), ("score",))


def inputs(
    rng: np.random.Generator, batch: int = 1, users: int = USERS, items: int = ITEMS
) -> dict[str, Array]:
    """Random pairs."""
    return {"user": rng.integers(0, users, batch), "item": rng.integers(0, items, batch)}
