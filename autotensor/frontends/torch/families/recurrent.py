"""LSTM layers as torch's CPU library has them: one direction of one layer.

    gates = x_t @ Wᵀ + h @ Uᵀ + b          i, f, g, o in this order, each [batch, hidden]
    c = sigmoid(f)*c + sigmoid(i)*tanh(g)      h = sigmoid(o)*tanh(c)

The products with the inputs of all steps are one. What torch unrolls itself (GRU, RNN) never comes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.shape import slice_
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode
from autotensor.graph.steps import over_steps

LSTM = 2  # the library's number


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
    (steps, batch, width), state = x.shape, h.shape
    h, c = (ops.reshape(v, shape=(batch, hidden)) for v in (h, c))
    into = ops.dense(ops.reshape(x, shape=(steps * batch, width)), w)
    into = ops.add(into, ops.add(b, more)) if biases else into
    into = ops.reshape(into, shape=(steps, batch, 4 * hidden))

    def step(h: GraphNode, c: GraphNode, x: GraphNode) -> tuple[GraphNode, GraphNode]:
        gates = ops.add(ops.dense(h, u), x)
        i, f, g, o = (slice_(gates, 1, n * hidden, (n + 1) * hidden) for n in range(4))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        return ops.sigmoid(o) * ops.tanh(c), c

    (y, _), (h, c) = over_steps(step, [h, c], [into], reverse)
    last = (ops.reshape(v, shape=state) for v in (h, c))
    return y, *last, Missing("the workspace of a recurrent layer")
