"""A mixture of experts: a router sends each token to two of eight feed-forward networks.

    x: float32[tokens, 768] ──▶ y: float32[tokens, 768], load: float32[8]  (tokens of each expert)

    router:  shares = softmax(x @ R)       a token's two greatest shares, scaled to sum to 1, are its gates
    expert:  y_e = gelu(x_e @ W1_e + b1_e) @ W2_e + b2_e
    y[t] = sum of gate · y_e[t] over the experts of t

Each expert has room for `capacity` tokens and takes the tokens with the greatest gates; the other tokens do
without this expert, as in GShard. With room for all tokens, no token is left out. Shapes may not depend on
data, but the expert of a block of a few tokens may (MegaBlocks, Gale et al., 2022). So the graph has the
greatest number of blocks that can be needed, and an expert's last block is filled up with tokens of strength
0.

    experts   0 0 0 1 1 1 1 2 2 3 …      load 11, 16, 7, 4, … in blocks of 4
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, constant, input, ops
from autotensor.graph.ir import Graph, GraphNode
from autotensor.models.weights import Array, Naming, Weights, WeightSource
from autotensor.operators.operator_helpers import stage

TOKENS, HIDDEN, WIDER, EXPERTS, CHOSEN = 128, 768, 4, 8, 2
ROOM = 2.0  # capacity, relative to an expert's share with perfect balance
BLOCK = 4  # tokens of a block; each expert wastes half a block on average
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

    capacity: the number of tokens for which an expert has room; None means twice its share with perfect
    balance.
    """
    w = WeightSource("moe", weights, seed, NAMES)
    n = batch * tokens
    room = min(n, math.ceil(ROOM * n * CHOSEN / EXPERTS) if capacity is None else capacity)
    x = input((n, hidden), name="x")
    gates = _gates(ops.softmax(ops.dense(x, w("router.weight", EXPERTS, hidden))))  # [n, experts]
    load = ops.sum(ops.cast(ops.greater(gates, 0.0), dtype="float32"), axis=0)
    by_expert = ops.transpose(gates, (1, 0))
    taken = ops.top_positions(by_expert, count=room, axis=1)  # [experts, room]: positions of tokens
    strength = ops.gather_elements(by_expert, taken, axis=1)  # 0 means empty room
    kept = ops.minimum(load, np.float32(room))
    blocks = constant(np.arange((min(n * CHOSEN, room * EXPERTS) + EXPERTS * (BLOCK - 1)) // BLOCK))
    first = call(_first_blocks, kept, constant(np.arange(EXPERTS)), name="first_blocks")
    expert = call(_expert_of, first, blocks, name="expert_of")  # [blocks]
    places, strengths = call(_slots, expert, first, blocks, taken, strength, name="slots")  # [blocks, 4]
    y = _experts(ops.take(x, places), expert, w)  # [blocks, 4, hidden]
    slots = BLOCK * blocks.shape[0]
    held = (ops.reshape(v, (slots,)) for v in (places, strengths))
    back = call(_to_tokens, *held, constant(np.arange(n)), name="to_tokens")  # [n, slots]
    out = ops.matmul(back, ops.reshape(y, (slots, hidden)))
    return w.graph((x,), (out, load), ("y", "load"))


def _gates(shares: GraphNode) -> GraphNode:
    """The shares of the chosen experts, scaled to sum to 1; 0 for the other experts."""
    order = ops.top_positions(shares, count=CHOSEN, axis=1)  # [n, 2]
    chosen = call(_is_among, order, constant(np.arange(EXPERTS)), name="is_among")
    kept = ops.where(chosen, shares, np.float32(0))
    return ops.divide(kept, ops.sum(kept, axis=1, keepdims=True))


def _is_among(order: te.Tensor, numbers: te.Tensor) -> te.Tensor:
    """Whether number e is in row i of `order`."""
    return stage(
        (order.shape[0], numbers.shape[0]),
        lambda i, e: te.any(*(order[i, k].equal(numbers[e]) for k in range(order.shape[1]))),
        "is_among",
    )


def _first_blocks(kept: te.Tensor, numbers: te.Tensor) -> te.Tensor:
    """For each expert, the number of blocks that earlier experts fill. kept: the tokens of each expert."""
    f = te.reduce_axis(kept.shape[0], "f")

    def body(e: Any) -> Any:
        filled = te.cast("int64", te.ceil(kept[f] * (1 / BLOCK)))
        return te.sum(te.select(numbers[f] < numbers[e], filled, te.const(0, "int64")), axis=f)

    return stage(kept.shape, body, "first_blocks")


def _expert_of(first: te.Tensor, blocks: te.Tensor) -> te.Tensor:
    """Each block's expert: the last expert whose first block is not after this block."""
    e = te.reduce_axis(first.shape[0] - 1, "e")

    def body(b: Any) -> Any:
        one, none = (te.const(v, "int64") for v in (1, 0))
        return te.sum(te.select(first[e + 1] <= blocks[b], one, none), axis=e)

    return stage(blocks.shape, body, "expert_of")


def _slots(
    expert: te.Tensor, first: te.Tensor, blocks: te.Tensor, taken: te.Tensor, strength: te.Tensor
) -> tuple[te.Tensor, te.Tensor]:
    """The token of each place of a block, and its strength, which is 0 if the expert has no more tokens."""
    room = te.const(taken.shape[1], "int64")
    shape = (blocks.shape[0], BLOCK)

    def rank(b: Any, r: Any) -> Any:
        return (blocks[b] - first[expert[b]]) * BLOCK + r

    def inside(b: Any, r: Any) -> Any:
        return te.minimum(rank(b, r), room - 1)

    places = te.compute(shape, lambda b, r: taken[expert[b], inside(b, r)], name="places")

    def share(b: Any, r: Any) -> Any:
        return te.select(rank(b, r) < room, strength[expert[b], inside(b, r)], te.const(0.0, "float32"))

    return places, te.compute(shape, share, name="strengths")


def _to_tokens(places: te.Tensor, strengths: te.Tensor, numbers: te.Tensor) -> te.Tensor:
    """The strength of slot s if it holds token t, else 0."""

    def body(t: Any, s: Any) -> Any:
        return te.select(places[s].equal(numbers[t]), strengths[s], te.const(0.0, "float32"))

    return stage((numbers.shape[0], places.shape[0]), body, "to_tokens")


def _experts(x: GraphNode, expert: GraphNode, w: WeightSource) -> GraphNode:
    """x: [blocks, 4, hidden]. Each block goes through the network of its expert."""

    def dense(x: GraphNode, n: int, outputs: int) -> GraphNode:
        weight = w(f"experts.w{n}", EXPERTS, x.shape[2], outputs)
        bias = w(f"experts.bias{n}", EXPERTS, outputs)
        result: GraphNode = call(_dense, x, weight, bias, expert, name="expert")
        return result

    hidden = x.shape[2]
    return dense(ops.gelu(dense(x, 1, WIDER * hidden)), 2, hidden)


def _dense(x: te.Tensor, w: te.Tensor, bias: te.Tensor, expert: te.Tensor) -> te.Tensor:
    """y[b] = x[b] @ w[expert[b]] + bias[expert[b]]"""
    k = te.reduce_axis(w.shape[1], "k")
    shape = (*x.shape[:2], w.shape[2])
    y = te.compute(shape, lambda b, r, j: te.sum(x[b, r, k] * w[expert[b], k, j], axis=k), name="product")
    return stage(shape, lambda b, r, j: y[b, r, j] + bias[expert[b], j], "expert")


def inputs(
    rng: np.random.Generator, batch: int = 1, tokens: int = TOKENS, hidden: int = HIDDEN
) -> dict[str, Array]:
    """Random tokens."""
    return {"x": rng.standard_normal((batch * tokens, hidden), dtype=np.float32)}
