"""Recurrent layers: whole layers as torch exports them, and one direction of an LSTM as in oneDNN.

    LSTM:  gates = x_t @ Wᵀ + h @ Uᵀ + b       i, f, g, o in this order, each [batch, hidden]
           c = sigmoid(f)*c + sigmoid(i)*tanh(g)      h = sigmoid(o)*tanh(c), times a matrix with proj_size
    GRU:   r, z = sigmoid(sums of both parts)         h = (1-z)*tanh(n_x + r*n_h) + z*h
    RNN:   h = tanh(sum of both parts), or relu

One product covers the inputs of all steps. `torch.compile` decomposes GRU and RNN step by step before they
arrive here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.shape import select, slice_, stack
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode
from autotensor.graph.steps import over_steps

LSTM = 2  # oneDNN's number of this kind of layer


@converts("aten.mkldnn_rnn_layer.default")
def rnn_layer(
    x: GraphNode,
    w: GraphNode,
    u: GraphNode,
    b: GraphNode,
    more: GraphNode,
    h: GraphNode,
    c: GraphNode,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden: int,
    layers: int,
    biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> Any:
    """x: [time, batch, k], w: [4*hidden, k], u: [4*hidden, hidden], h and c: [1, batch, hidden]."""
    if mode != LSTM or train or batch_sizes:
        raise Unsupported("this recurrent layer is not supported.", fix="Give it dense inputs, in eval mode.")
    state = h.shape
    before = [ops.reshape(v, shape=state[1:]) for v in (h, c)]
    y, after = _direction(_lstm, x, before, w, u, [b, more] if biases else [], reverse)
    last = (ops.reshape(v, shape=state) for v in after)
    return y, *last, Missing("the workspace of a recurrent layer")


# -- whole layers ------------------------------------------------------------------------------------------

# (the inputs' part of the sums, the state's part, states) ▶ the next states
Cell = Callable[..., tuple[GraphNode, ...]]


def _lstm(x: GraphNode, u: GraphNode, h: GraphNode, c: GraphNode) -> tuple[GraphNode, ...]:
    i, f, g, o = _gates(ops.add(u, x), 4)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


def _gru(x: GraphNode, u: GraphNode, h: GraphNode) -> tuple[GraphNode, ...]:
    (r_x, z_x, n_x), (r_u, z_u, n_u) = _gates(x, 3), _gates(u, 3)
    z = ops.sigmoid(z_x + z_u)
    new = ops.tanh(n_x + ops.sigmoid(r_x + r_u) * n_u)
    return ((1.0 - z) * new + z * h,)


def _gates(x: GraphNode, count: int) -> list[GraphNode]:
    hidden = x.shape[1] // count
    return [slice_(x, 1, n * hidden, (n + 1) * hidden) for n in range(count)]


def _layers(
    cell: Cell,
    x: GraphNode,
    states: Sequence[GraphNode],
    weights: Sequence[GraphNode],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[GraphNode, ...]:
    """The outputs of the last layer, and the last states of all layers, each [layers*directions, batch,
    hidden].

    x: [time, batch, k]. states: of the same shape as the last states. weights: w, u and, with `biases`, their
    two biases, for each direction of each layer; last, for a projected state, the matrix of the projection.
    """
    if train and dropout:
        raise Unsupported("dropout between recurrent layers draws numbers.", fix="Call it in eval mode.")
    x = ops.transpose(x, axes=(1, 0, 2)) if batch_first else x
    ways = 1 + bidirectional
    each = len(weights) // (layers * ways)
    own = 4 if biases else 2
    last: list[tuple[GraphNode, ...]] = []
    for layer in range(layers):
        seen = []
        for way in range(ways):
            n = layer * ways + way
            w, u, *bias = weights[n * each : n * each + own]
            before = [select(s, 0, n) for s in states]
            whole = _projected(cell, weights[n * each + own]) if each > own else cell
            y, after = _direction(whole, x, before, w, u, bias, reverse=way == 1)
            seen.append(y)
            last.append(after)
        x = ops.concat(*seen, axis=2) if ways > 1 else seen[0]
    x = ops.transpose(x, axes=(1, 0, 2)) if batch_first else x
    return x, *(stack(s, 0) for s in zip(*last, strict=True))


def _projected(cell: Cell, projection: GraphNode) -> Cell:
    """The cell, with a state of fewer elements. projection: [state, hidden]."""

    def step(*given: GraphNode) -> tuple[GraphNode, ...]:
        h, *rest = cell(*given)
        return ops.dense(h, projection), *rest

    return step


def _direction(
    cell: Cell,
    x: GraphNode,
    states: Sequence[GraphNode],
    w: GraphNode,
    u: GraphNode,
    bias: Sequence[GraphNode],
    reverse: bool,
) -> tuple[GraphNode, tuple[GraphNode, ...]]:
    steps, batch, width = x.shape
    into = ops.dense(ops.reshape(x, shape=(steps * batch, width)), w, *bias[:1])
    into = ops.reshape(into, shape=(steps, batch, w.shape[0]))

    def step(h: GraphNode, *rest: GraphNode) -> tuple[GraphNode, ...]:
        *more, mine = rest
        return cell(mine, ops.dense(h, u, *bias[1:]), h, *more)

    (y, *_), after = over_steps(step, states, [into], reverse)
    return y, after


@converts("aten.lstm.input")
def lstm(x: GraphNode, states: Sequence[GraphNode], *given: Any) -> Any:
    return _layers(_lstm, x, states, *given)


@converts("aten.gru.input")
def gru(x: GraphNode, state: GraphNode, *given: Any) -> Any:
    return _layers(_gru, x, [state], *given)


@converts("aten.rnn_tanh.input")
def rnn_tanh(x: GraphNode, state: GraphNode, *given: Any) -> Any:
    return _layers(lambda x, u, h: (ops.tanh(x + u),), x, [state], *given)


@converts("aten.rnn_relu.input")
def rnn_relu(x: GraphNode, state: GraphNode, *given: Any) -> Any:
    return _layers(lambda x, u, h: (ops.relu(x + u),), x, [state], *given)
