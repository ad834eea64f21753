"""Recurrent layers with torch's names, for the LSTM and GRU models.

    LSTM:  gates i, f, g, o = x_t @ Wᵀ + h @ Uᵀ (+ biases)     c = σ(f)·c + σ(i)·tanh(g)    h = σ(o)·tanh(c)
    GRU:   r, z from sums of both parts                        n = tanh(x_n + r·h_n)        h = (1-z)·n + z·h

Sequences are [steps, batch, width]. The products with all inputs are one product. A step is a product with h
and one kernel for the rest (`lstm_cell`, `gru_cell`), which is the same for all steps, so it is tuned once. A
long sequence is one kernel, a loop over its steps (`graph/steps.py`), whose code does not grow with the
steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, constant, ops
from autotensor.graph.function import TeFunction
from autotensor.graph.ir import GraphNode
from autotensor.graph.steps import over_steps
from autotensor.models.parts import dense
from autotensor.models.weights import WeightSource
from autotensor.operators import TensorType
from autotensor.operators.operator_helpers import stage

GATES = {"lstm": 4, "gru": 3}


def recurrent(
    kind: str, x: GraphNode, w: WeightSource, at: str, hidden: int, layer: int = 0, reverse: bool = False
) -> GraphNode:
    """One direction of one layer from zero states: [steps, batch, k] ──▶ [steps, batch, hidden].

    The weights have torch's names: `{at}.weight_ih_l0`, …
    """
    wide, end = GATES[kind] * hidden, f"_l{layer}{'_reverse' if reverse else ''}"
    into = dense(x, w(f"{at}.weight_ih{end}", wide, x.shape[2]), w(f"{at}.bias_ih{end}", wide))
    u, b_h = w(f"{at}.weight_hh{end}", wide, hidden), w(f"{at}.bias_hh{end}", wide)

    def step(h: GraphNode, *rest: GraphNode) -> tuple[GraphNode, ...]:
        *cell, mine = rest
        theirs = ops.dense(h, u, b_h)
        if kind == "gru":
            return (call(_traced(gru_cell, mine.type, theirs.type, h.type), mine, theirs, h),)
        c, h = call(_traced(lstm_cell, mine.type, theirs.type, *(c.type for c in cell)), mine, theirs, *cell)
        return h, c

    states = [constant(np.zeros((x.shape[1], hidden), np.float32))] * (2 if kind == "lstm" else 1)
    return over_steps(step, states, [into], reverse)[0][0]


def both_ways(kind: str, x: GraphNode, w: WeightSource, at: str, hidden: int, layer: int = 0) -> GraphNode:
    """Both directions of one layer: [steps, batch, k] ──▶ [steps, batch, 2*hidden]."""
    ways = [recurrent(kind, x, w, at, hidden, layer, reverse) for reverse in (False, True)]
    return ops.concat(*ways, axis=2)


def embedded(words: GraphNode, table: GraphNode) -> GraphNode:
    """words: [batch, steps], table: [vocabulary, width] ──▶ [steps, batch, width]."""
    return by_time(ops.take(table, words))


def by_time(x: GraphNode) -> GraphNode:
    """[batch, steps, …] ──▶ [steps, batch, …], and back."""
    return ops.transpose(x, (1, 0, *range(2, x.ndim)))


@lru_cache
def _traced(cell: Callable[..., Any], *types: TensorType) -> TeFunction:
    """A cell is traced once for all steps, layers and directions."""
    return TeFunction.trace(cell, types)


# -- cells -------------------------------------------------------------------------------------------------


def lstm_cell(x: te.Tensor, h: te.Tensor, c: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """x, h: both parts of the gates [batch, 4*hidden], c: [batch, hidden] ──▶ the next c and h."""
    n = c.shape[1]

    def gate(k: int, i: Any, j: Any) -> Any:
        return x[i, j + k * n] + h[i, j + k * n] if k else x[i, j] + h[i, j]

    def state(i: Any, j: Any) -> Any:
        kept = te.sigmoid(gate(1, i, j)) * c[i, j]
        return kept + te.sigmoid(gate(0, i, j)) * te.tanh(gate(2, i, j))

    after = te.compute(c.shape, state, name="state")
    out = te.compute(c.shape, lambda i, j: te.sigmoid(gate(3, i, j)) * te.tanh(after[i, j]), name="hidden")
    return after, out


def gru_cell(x: te.Tensor, u: te.Tensor, h: te.Tensor) -> te.Tensor:
    """x, u: both parts of the gates [batch, 3*hidden], h: [batch, hidden] ──▶ the next h."""
    n = h.shape[1]

    def value(i: Any, j: Any) -> Any:
        reset = te.sigmoid(x[i, j] + u[i, j])
        keep = te.sigmoid(x[i, j + n] + u[i, j + n])
        new = te.tanh(x[i, j + 2 * n] + reset * u[i, j + 2 * n])
        return (1.0 - keep) * new + keep * h[i, j]

    return stage(h.shape, value, "hidden")
