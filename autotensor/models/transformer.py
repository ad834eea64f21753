"""The common part of BERT and GPT-2: token embeddings, heads of attention, layer norms.

Activations are rows: float32[batch * tokens, hidden], one row for every token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autotensor.base.errors import InputError
from autotensor.graph.build import constant, input, ops
from autotensor.graph.ir import Constant, GraphNode, Input
from autotensor.models.parts import weighted
from autotensor.models.weights import Array, WeightSource


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a transformer."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    positions: int

    def check(self, model: str, tokens: int) -> None:
        """Raises InputError for sizes that do not fit together."""
        if self.hidden % self.heads:
            raise InputError(f"{model}: hidden={self.hidden} must be a multiple of heads={self.heads}.")
        if not 1 <= tokens <= self.positions:
            raise InputError(f"{model}: tokens={tokens} must be 1 … {self.positions}, its positions.")


def token_input(name: str, batch: int, tokens: int, dtype: str) -> Input:
    """An input of token numbers, int64 or int32."""
    if dtype not in ("int64", "int32"):
        raise InputError(f"token numbers are int64 or int32, not {dtype!r}.")
    return input((batch, tokens), dtype, name)


def positions(w: WeightSource, name: str, size: Size, tokens: int) -> Constant:
    """The embeddings of the positions 0 … tokens - 1: [tokens, hidden]."""
    table = w(name, size.positions, size.hidden)
    return constant(np.ascontiguousarray(table.array[:tokens]), name)


def norm(x: GraphNode, w: WeightSource, name: str, eps: float) -> GraphNode:
    """Layer norm of every row."""
    return ops.layer_norm(x, *weighted(w, name, x.shape[1]), eps=eps)


def thirds(x: GraphNode, batch: int, heads: int) -> Iterator[GraphNode]:
    """Rows [batch * tokens, 3 * hidden] as queries, keys and values.

    Each of the three is [batch, heads, tokens, hidden / heads].
    """
    hidden = x.shape[1] // 3
    for n in range(3):
        yield heads_of(ops.slice(x, (n * hidden,), ((n + 1) * hidden,), axes=(1,)), batch, heads)


def heads_of(x: GraphNode, batch: int, heads: int) -> GraphNode:
    """Rows [batch * tokens, hidden] as [batch, heads, tokens, hidden / heads]."""
    rows, hidden = x.shape
    parts = ops.reshape(x, (batch, rows // batch, heads, hidden // heads))
    return ops.transpose(parts, (0, 2, 1, 3))


def rows_of(x: GraphNode) -> GraphNode:
    """[batch, heads, tokens, depth] as rows [batch * tokens, heads * depth]."""
    batch, heads, tokens, depth = x.shape
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch * tokens, heads * depth))


def token_numbers(rng: np.random.Generator, batch: int, tokens: int, vocabulary: int, dtype: str) -> Array:
    return rng.integers(0, vocabulary, (batch, tokens)).astype(dtype)
