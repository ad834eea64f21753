"""Neural collaborative filtering (He et al., 2017), NeuMF at the size of MovieLens-20M.

user, item: int64[batch] ──▶ score: float32[batch, 1]

user ─▶ 64 ┐ product ─────────────────────────────────────┐
item ─▶ 64 ┘                                              ├─▶ dense ──▶ score (a logit)
user ─▶ 128 ┐ beside one another ─▶ dense 256 ─▶ 128 ─▶ 64 ┘
item ─▶ 128 ┘
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import named, weighted, weighted_shapes
from autotensor.models.weights import Array, Naming, Weights, checked

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
    """The graph. weights: `mf_user_embed.weight`, …, `final.bias`; None draws them from the seed."""
    w = checked("ncf", weights, shapes(users, items), seed, NAMES)
    user, item = (input((batch,), "int64", name) for name in ("user", "item"))

    def embedded(kind: str) -> tuple[GraphNode, GraphNode]:
        tables = (named(w, f"{kind}_{who}_embed.weight") for who in ("user", "item"))
        first, second = (ops.take(t, ids) for t, ids in zip(tables, (user, item), strict=True))
        return first, second

    a, b = embedded("mf")
    y: GraphNode = ops.concat(*embedded("mlp"), axis=1)
    for n in range(len(LAYERS) - 1):
        y = ops.relu(ops.dense(y, *weighted(w, f"mlp.{n}")))
    score = ops.dense(ops.concat(a * b, y, axis=1), *weighted(w, "final"))
    return Graph((user, item), (score,), "ncf", ("score",))


def shapes(users: int = USERS, items: int = ITEMS) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    found: dict[str, tuple[int, ...]] = {}
    for who, count in (("user", users), ("item", items)):
        found[f"mf_{who}_embed.weight"] = (count, FACTORS)
        found[f"mlp_{who}_embed.weight"] = (count, LAYERS[0] // 2)
    for n, (depth, width) in enumerate(pairwise(LAYERS)):
        found |= weighted_shapes(f"mlp.{n}", width, depth)
    return found | weighted_shapes("final", 1, FACTORS + LAYERS[-1])


def inputs(
    rng: np.random.Generator, batch: int = 1, users: int = USERS, items: int = ITEMS
) -> dict[str, Array]:
    """Random pairs."""
    return {"user": rng.integers(0, users, batch), "item": rng.integers(0, items, batch)}
