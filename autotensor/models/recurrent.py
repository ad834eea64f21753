"""Recurrent layers with torch's names: what the LSTM and GRU models share.

    LSTM:  gates i, f, g, o = x_t @ Wᵀ + h @ Uᵀ (+ biases)     c = σ(f)·c + σ(i)·tanh(g)    h = σ(o)·tanh(c)
    GRU:   r, z from sums of both parts                        n = tanh(x_n + r·h_n)        h = (1-z)·n + z·h

Sequences are [steps, batch, width]. The products with all inputs are one; a step is a product with h and one
kernel for the rest (`lstm_cell`, `gru_cell`), which is the same for all steps and so tuned once. A long
sequence is one kernel, a loop over its steps (`te.scan`): its code does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotensor import te
from autotensor.graph.build import call, constant, ops
from autotensor.graph.ir import GraphNode
from autotensor.models.parts import dense
from autotensor.models.weights import WeightSource
from autotensor.operators.operator_helpers import stage

GATES = {"lstm": 4, "gru": 3}
MOST_WRITTEN_OUT = 64  # steps that are kernels of their own, which all threads share; more are a loop
JOINED = 8  # steps that one kernel puts beside one another


def recurrent(
    kind: str, x: GraphNode, w: WeightSource, at: str, hidden: int, layer: int = 0, reverse: bool = False
) -> GraphNode:
    """One direction of one layer from zero states: [steps, batch, k] ──▶ [steps, batch, hidden].

    Its weights have torch's names: `{at}.weight_ih_l0`, …
    """
    wide, end = GATES[kind] * hidden, f"_l{layer}{'_reverse' if reverse else ''}"
    into = dense(x, w(f"{at}.weight_ih{end}", wide, x.shape[2]), w(f"{at}.bias_ih{end}", wide))
    u, b_h = w(f"{at}.weight_hh{end}", wide, hidden), w(f"{at}.bias_hh{end}", wide)
    steps, batch, _ = x.shape
    if steps > MOST_WRITTEN_OUT:
        result: GraphNode = call(LOOPS[kind, reverse], into, u, b_h)
        return result
    h: GraphNode = constant(np.zeros((batch, hidden), np.float32))
    c = h
    seen: list[GraphNode] = []
    for t in reversed(range(steps)) if reverse else range(steps):
        mine = at_step(into, t)
        theirs = ops.dense(h, u, b_h)
        if kind == "lstm":
            c, h = call(lstm_cell, mine, theirs, c)
        else:
            h = call(gru_cell, mine, theirs, h)
        seen.append(h)
    return in_sequence(seen[::-1] if reverse else seen)


def both_ways(kind: str, x: GraphNode, w: WeightSource, at: str, hidden: int, layer: int = 0) -> GraphNode:
    """Both directions of one layer: [steps, batch, k] ──▶ [steps, batch, 2*hidden]."""
    ways = [recurrent(kind, x, w, at, hidden, layer, reverse) for reverse in (False, True)]
    return ops.concat(*ways, axis=2)


def embedded(words: GraphNode, table: GraphNode) -> GraphNode:
    """words: [batch, steps], table: [vocabulary, width] ──▶ [steps, batch, width]."""
    return by_time(ops.take(table, words))


def at_step(x: GraphNode, t: int) -> GraphNode:
    """x[t]."""
    return ops.reshape(ops.slice(x, (t,), (t + 1,)), x.shape[1:])


def in_sequence(steps: Sequence[GraphNode]) -> GraphNode:
    """[batch, width] of every step as [steps, batch, width]; a few at a time, each a case of a kernel."""
    parts: list[Any] = [ops.reshape(s, (1, *s.shape)) for s in steps]
    while len(parts) > 1:
        groups = [parts[n : n + JOINED] for n in range(0, len(parts), JOINED)]
        parts = [ops.concat(*g, axis=0) if len(g) > 1 else g[0] for g in groups]
    result: GraphNode = parts[0]
    return result


def by_time(x: GraphNode) -> GraphNode:
    """[batch, steps, …] ──▶ [steps, batch, …], and back."""
    return ops.transpose(x, (1, 0, *range(2, x.ndim)))


# -- a loop over steps -------------------------------------------------------------------------------------


def _looped(cell: Cell, states: int, reverse: bool, x: te.Tensor, u: te.Tensor, bias: te.Tensor) -> te.Tensor:
    """All steps from zero states: x [steps, batch, gates*hidden], u [gates*hidden, hidden], bias
    [gates*hidden] ──▶ [steps, batch, hidden]."""
    steps, batch, wide = x.shape
    hidden = u.shape[1]
    shape = (steps, batch, hidden)

    def at(t: Any) -> Any:
        return steps - 1 - t if reverse else t

    before = [te.placeholder(shape, name=f"before{n}") for n in range(states)]
    k = te.reduce_axis(hidden, name="k")
    sums = te.compute(
        (steps, batch, wide), lambda t, b, j: te.sum(before[0][t - 1, b, k] * u[j, k], axis=k), name="sums"
    )

    def theirs(t: Any, b: Any, j: Any) -> Any:
        return sums[t, b, j] + bias[j]

    later = cell(lambda t, b, j: x[at(t), b, j], theirs, before, shape, "")
    zeros = [_Zeros() for _ in before]
    first = cell(lambda t, b, j: x[at(t), b, j], lambda t, b, j: bias[j], zeros, (1, *shape[1:]), "_first")
    found: te.Tensor = te.scan(first, later, before, name="states")[0]
    if not reverse:
        return found
    turned: te.Tensor = te.compute(shape, lambda t, b, j: found[at(t), b, j], name="hidden")
    return turned


class _Zeros:
    """States before the first step."""

    def __getitem__(self, index: Any) -> Any:
        return te.const(0.0, "float32")


def _lstm_states(x: Any, u: Any, before: Sequence[Any], shape: Any, name: str) -> list[te.Tensor]:
    """The next h and c. x, u: both parts of the gates, functions of step, batch and column."""
    n = shape[2]

    def gate(q: int, t: Any, b: Any, j: Any) -> Any:
        return x(t, b, j + q * n) + u(t, b, j + q * n)

    def state(t: Any, b: Any, j: Any) -> Any:
        kept = te.sigmoid(gate(1, t, b, j)) * before[1][t - 1, b, j]
        return kept + te.sigmoid(gate(0, t, b, j)) * te.tanh(gate(2, t, b, j))

    c = te.compute(shape, state, name=f"c{name}")
    h = te.compute(shape, lambda t, b, j: te.sigmoid(gate(3, t, b, j)) * te.tanh(c[t, b, j]), name=f"h{name}")
    return [h, c]


def _gru_states(x: Any, u: Any, before: Sequence[Any], shape: Any, name: str) -> list[te.Tensor]:
    n = shape[2]

    def state(t: Any, b: Any, j: Any) -> Any:
        reset = te.sigmoid(x(t, b, j) + u(t, b, j))
        keep = te.sigmoid(x(t, b, j + n) + u(t, b, j + n))
        new = te.tanh(x(t, b, j + 2 * n) + reset * u(t, b, j + 2 * n))
        return (1.0 - keep) * new + keep * before[0][t - 1, b, j]

    return [te.compute(shape, state, name=f"h{name}")]


Cell = Callable[[Any, Any, Sequence[Any], Any, str], list[te.Tensor]]
LOOPS: dict[tuple[str, bool], Callable[..., te.Tensor]] = {
    (kind, reverse): partial(_looped, cell, states, reverse)
    for kind, cell, states in (("lstm", _lstm_states, 2), ("gru", _gru_states, 1))
    for reverse in (False, True)
}


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
