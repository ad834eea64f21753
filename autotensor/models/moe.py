"""A mixture of experts: a router sends each token to two of eight feed-forward networks.

    x: float32[tokens, 768] ──▶ y: float32[tokens, 768], load: float32[8]  (tokens of each expert)

    router:  shares = softmax(x @ R)       a token's two greatest, made to sum to 1, are its gates
    expert:  y_e = gelu(x_e @ W1_e + b1_e) @ W2_e + b2_e
    y[t] = sum of gate · y_e[t] over the experts of t

Shapes may not depend on data, so each expert has room for `capacity` tokens and takes those with the greatest
gates; the others do without it, as in GShard. With room for all tokens none is left out. Empty room is
computed and weighs nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.parts import named
from autotensor.models.weights import Array, Naming, Weights, checked

TOKENS, HIDDEN, WIDER, EXPERTS, CHOSEN = 128, 768, 4, 8, 2
ROOM = 2.0  # capacity over that of a perfect balance
NAMES = Naming("this model's own")


def build(
    batch: int = 1,
    weights: Weights | None = None,
    seed: int = 0,
    *,
    tokens: int = TOKENS,
    hidden: int = HIDDEN,
    capacity: int | None = None,
) -> Graph:
    """The graph. weights: `router.weight` [8, hidden], `experts.w1` [8, hidden, 4*hidden], …

    capacity: tokens that an expert has room for; None is twice what a perfect balance gives it.
    """
    w = checked("moe", weights, shapes(hidden), seed, NAMES)
    n = batch * tokens
    room = min(n, math.ceil(ROOM * n * CHOSEN / EXPERTS) if capacity is None else capacity)
    x = input((n, hidden), name="x")
    gates = _gates(ops.softmax(ops.dense(x, named(w, "router.weight"))))  # [n, experts]
    load = ops.sum(ops.cast(ops.greater(gates, 0.0), dtype="float32"), axis=0)
    by_expert = ops.transpose(gates, (1, 0))
    taken = ops.top_positions(by_expert, count=room, axis=1)  # [experts, room]: which tokens
    strength = ops.gather_elements(by_expert, taken, axis=1)  # 0: empty room
    y = _experts(ops.take(x, taken), w)  # [experts, room, hidden]
    places, strengths = (ops.reshape(v, (EXPERTS * room,)) for v in (taken, strength))
    numbers = constant(np.arange(n))
    back = call(_to_tokens, places, strengths, numbers, name="to_tokens")  # [n, experts * room]
    out = ops.matmul(back, ops.reshape(y, (EXPERTS * room, hidden)))
    return Graph((x,), (out, load), "moe", ("y", "load"))


def _gates(shares: GraphNode) -> GraphNode:
    """The shares of the chosen, made to sum to 1; 0 for the others."""
    order = ops.top_positions(shares, count=CHOSEN, axis=1)  # [n, 2]
    chosen = call(_is_among, order, constant(np.arange(EXPERTS)), name="is_among")
    kept = ops.where(chosen, shares, np.float32(0))
    result: GraphNode = ops.divide(kept, ops.sum(kept, axis=1, keepdims=True))
    return result


def _is_among(order: te.Tensor, numbers: te.Tensor) -> te.Tensor:
    """Whether number e is in row i."""
    result: te.Tensor = te.compute(
        (order.shape[0], numbers.shape[0]),
        lambda i, e: te.any(*(order[i, k].equal(numbers[e]) for k in range(order.shape[1]))),
        name="is_among",
    )
    return result


def _to_tokens(places: te.Tensor, strengths: te.Tensor, numbers: te.Tensor) -> te.Tensor:
    """The strength of slot s where it holds token t, else 0."""

    def body(t: Any, s: Any) -> Any:
        return te.select(places[s].equal(numbers[t]), strengths[s], te.const(0.0, "float32"))

    result: te.Tensor = te.compute((numbers.shape[0], places.shape[0]), body, name="to_tokens")
    return result


def _experts(x: GraphNode, w: Weights) -> GraphNode:
    """x: [experts, room, hidden], each through its own network."""

    def dense(x: GraphNode, n: int) -> GraphNode:
        weight, bias = (named(w, f"experts.{part}{n}") for part in ("w", "bias"))
        result: GraphNode = ops.batch_matmul(x, weight) + ops.reshape(bias, (EXPERTS, 1, -1))
        return result

    return dense(ops.gelu(dense(x, 1)), 2)


def shapes(hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """Every weight's shape, by name."""
    wide = WIDER * hidden
    return {
        "router.weight": (EXPERTS, hidden),
        "experts.w1": (EXPERTS, hidden, wide),
        "experts.bias1": (EXPERTS, wide),
        "experts.w2": (EXPERTS, wide, hidden),
        "experts.bias2": (EXPERTS, hidden),
    }


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, hidden: int = HIDDEN
) -> dict[str, Array]:
    """Random tokens."""
    return {"x": rng.standard_normal((batch * tokens, hidden), dtype=np.float32)}
