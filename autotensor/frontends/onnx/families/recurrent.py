"""RNN, GRU, LSTM, forwards and backwards.

    x: [steps, batch, input]   w: [directions, gates*hidden, input]   r: [directions, gates*hidden, hidden]
    ──▶ y: [steps, directions, batch, hidden], and the last states [directions, batch, hidden]

The products of all steps with w are one matrix product before the loop. With layout 1 the batch is the first
axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from autotensor.frontends.onnx.families.elementwise import ACTIVATIONS
from autotensor.frontends.onnx.families.shape import stacked
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, pieces, row
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode
from autotensor.graph.steps import over_steps

Activation = Callable[[GraphNode], GraphNode]


@dataclass(frozen=True, slots=True)
class Direction:
    """Operands of one direction."""

    gates: GraphNode  # x times w plus w's bias: [steps, batch, gates*hidden]
    r: GraphNode  # [gates*hidden, hidden]
    times_r: Activation  # a state ▶ its product with r
    w_bias: GraphNode  # [gates*hidden]
    r_bias: GraphNode
    h: GraphNode  # [batch, hidden]
    c: GraphNode
    peephole: tuple[GraphNode, ...]  # of LSTM: i, o, f, each [hidden]
    activations: tuple[Activation, ...]
    hidden: int
    call: Call


# one step: (direction, gates of the step, h, c) ▶ (h, c)
Step = Callable[[Direction, GraphNode, GraphNode, GraphNode], tuple[GraphNode, GraphNode]]
# (node, index of the operand with the weights, direction, rows, bias) ▶ the product of the rows and the
# weights
Product = Callable[[Call, int, int, GraphNode, GraphNode | None], GraphNode]


def _dense(c: Call, n: int, d: int, rows: GraphNode, bias: GraphNode | None) -> GraphNode:
    return ops.dense(rows, row(c[n], 0, d), bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """A kind of recurrent layer."""

    step: Step
    gates: int
    activations: tuple[str, ...]  # the defaults, if the node names none
    keeps: bool = False  # whether there is a second state
    product: Product = _dense
    turned: bool = False  # weights are [directions, input, gates*hidden]


def _lstm(d: Direction, gates: GraphNode, h: GraphNode, c: GraphNode) -> tuple[GraphNode, GraphNode]:
    f, g, out = d.activations
    i_, o_, f_, c_ = pieces(gates + d.times_r(h) + d.r_bias, 1, (d.hidden,) * 4)
    if d.peephole:
        i_, f_ = i_ + d.peephole[0] * c, f_ + d.peephole[2] * c
    keep = f(_clipped(d, f_)) if not d.call.attr("input_forget", 0) else 1.0 - f(_clipped(d, i_))
    c = keep * c + f(_clipped(d, i_)) * g(_clipped(d, c_))
    if d.peephole:
        o_ = o_ + d.peephole[1] * c
    return f(_clipped(d, o_)) * out(c), c


def _gru(d: Direction, gates: GraphNode, h: GraphNode, c: GraphNode) -> tuple[GraphNode, GraphNode]:
    f, g = d.activations
    n = d.hidden
    z_x, r_x, h_x = pieces(gates, 1, (n,) * 3)
    rows, (z_b, r_b, h_b) = pieces(d.r, 0, (n,) * 3), pieces(d.r_bias, 0, (n,) * 3)
    z = f(_clipped(d, z_x + ops.dense(h, rows[0]) + z_b))
    r = f(_clipped(d, r_x + ops.dense(h, rows[1]) + r_b))
    if d.call.attr("linear_before_reset", 0):
        new = g(_clipped(d, h_x + r * (ops.dense(h, rows[2]) + h_b)))
    else:
        new = g(_clipped(d, h_x + ops.dense(r * h, rows[2]) + h_b))
    return (1.0 - z) * new + z * h, c


def _rnn(d: Direction, gates: GraphNode, h: GraphNode, c: GraphNode) -> tuple[GraphNode, GraphNode]:
    return d.activations[0](_clipped(d, gates + d.times_r(h) + d.r_bias)), c


def _clipped(d: Direction, x: GraphNode) -> GraphNode:
    limit = d.call.attr("clip", None)
    return x if not limit else ops.clip(x, min=-limit, max=limit)


# -- activations -----------------------------------------------------------------------------------------

KNOWN = {n: ACTIVATIONS[n] for n in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign")} | {
    "Affine": lambda x, alpha=1.0, beta=0.0: x * alpha + beta,
    "ScaledTanh": lambda x, alpha=1.0, beta=1.0: ops.tanh(x * beta) * alpha,
    **{n: ACTIVATIONS[n] for n in ("LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu")},
}
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")
WITH_ALPHA = (*WITH_BETA, "LeakyRelu", "ThresholdedRelu", "Elu")


def _activations(c: Call, layer: Layer, directions: int) -> list[tuple[Activation, ...]]:
    """The activations of each direction. Alphas and betas go, in order, to the activations that have them."""
    each = len(layer.activations)
    names = list(c.attr("activations", layer.activations * directions))
    alphas, betas = list(c.attr("activation_alpha", ())), list(c.attr("activation_beta", ()))
    if len(names) != each * directions:
        raise c.malformed(f"{len(names)} activations are given, expected {each * directions}.")
    found = []
    for given in names:
        name = next((k for k in KNOWN if k.lower() == given.lower()), None)
        if name is None:
            raise c.unsupported(f"activation {given!r}.")
        numbers = {"alpha": alphas.pop(0)} if name in WITH_ALPHA and alphas else {}
        numbers |= {"beta": betas.pop(0)} if name in WITH_BETA and betas else {}
        found.append(partial(KNOWN[name], **numbers))
    return [tuple(found[d * each : (d + 1) * each]) for d in range(directions)]


# -- the walk --------------------------------------------------------------------------------------------


def recurrent(layer: Layer) -> Callable[[Call], Value]:
    """The converter of such layers."""
    gates = layer.gates

    def convert(c: Call) -> Value:
        if (layout := c.attr("layout", 0)) not in (0, 1):
            raise c.malformed(f"layout {layout} is neither 0 nor 1.")
        by_batch = bool(layout)
        x = ops.transpose(c[0], axes=(1, 0, 2)) if by_batch else c[0]
        w, r = c[1], c[2]
        steps, batch = x.shape[:2]
        count, hidden, columns = w.shape[0], r.shape[2 - layer.turned], w.shape[1 + layer.turned]
        mode, said = c.attr("direction", "forward"), c.attr("hidden_size", hidden)
        if mode not in ("forward", "reverse", "bidirectional") or said != hidden:
            raise c.malformed(
                f"direction {mode!r} and hidden_size {said}; the weights r {r.shape} have {hidden} states."
            )
        if count != (2 if mode == "bidirectional" else 1) or columns != gates * hidden:
            raise c.malformed(f"weights of shapes {w.shape} and {r.shape} do not fit direction {mode!r}.")
        lengths, known = c.get(4), c.known(4)
        if known is not None and ((known < 0) | (known > steps)).any():
            raise c.malformed(f"sequences of {known.min()} to {known.max()} steps; there are {steps}.")
        activations = _activations(c, layer, count)
        ys, hs, cs = [], [], []
        for d in range(count):
            back = mode == "reverse" or d == 1
            start = _start(c, layer, d, (batch, hidden), by_batch)
            found = _direction(c, layer, x, *start, d=d, activations=activations[d])
            y, h, state = _walk(layer, found, lengths, back)
            ys.append(y)
            hs.append(h)
            cs.append(state)
        y = stacked(ys, 1)  # [steps, directions, batch, hidden]
        last = [stacked(vs, 0) for vs in (hs, cs)]
        if by_batch:
            y = ops.transpose(y, axes=(2, 0, 1, 3))
            last = [ops.transpose(v, axes=(1, 0, 2)) for v in last]
        return [y, *last]

    return convert


def _direction(
    c: Call,
    layer: Layer,
    x: GraphNode,
    h: GraphNode,
    cell: GraphNode,
    *,
    d: int,
    activations: tuple[Activation, ...],
) -> Direction:
    """The operands of direction d for x [steps, batch, input] and the initial states h and cell."""
    steps, batch, depth = x.shape
    hidden = h.shape[1]
    width = layer.gates * hidden
    zeros = constant(np.zeros(width, x.dtype.numpy))

    bias = c.get(3)
    w_bias, r_bias = (zeros, zeros) if bias is None else pieces(row(bias, 0, d), 0, (width, width))
    rows = layer.product(c, 1, d, ops.reshape(x, shape=(steps * batch, depth)), w_bias)
    parts = ops.reshape(rows, shape=(steps, batch, width))
    holes = c.get(7) if layer.keeps else None
    peephole = () if holes is None else pieces(row(holes, 0, d), 0, (hidden,) * 3)
    return Direction(
        parts,
        row(c[2], 0, d),
        lambda states: layer.product(c, 2, d, states, None),
        w_bias,
        r_bias,
        h,
        cell,
        tuple(peephole),
        activations,
        hidden,
        c,
    )


def _start(
    c: Call, layer: Layer, d: int, shape: tuple[int, int], by_batch: bool
) -> tuple[GraphNode, GraphNode]:
    """The states [batch, hidden] in which direction d starts."""

    def state(n: int) -> GraphNode:
        given = c.get(n) if n == 5 or layer.keeps else None
        if given is None:
            return constant(np.zeros(shape, c[0].dtype.numpy))
        return row(ops.transpose(given, axes=(1, 0, 2)) if by_batch else given, 0, d)

    return state(5), state(6)


def _walk(
    layer: Layer, d: Direction, lengths: GraphNode | None, back: bool
) -> tuple[GraphNode, GraphNode, GraphNode]:
    """All outputs [steps, batch, hidden] and the last states. Shorter sequences stop early; their later
    outputs are 0."""
    steps, batch, _ = d.gates.shape
    keeps = layer.keeps

    def one(h: GraphNode, *rest: GraphNode) -> tuple[GraphNode, ...]:
        cell, gates = (rest[0] if keeps else d.c), rest[keeps]
        new = layer.step(d, gates, h, cell)[: 1 + keeps]
        if lengths is None:
            return new
        return tuple(ops.where(rest[-1], n, old) for n, old in zip(new, (h, cell), strict=False))

    sequences = [d.gates]
    if lengths is not None:
        numbers = constant(np.arange(steps).reshape(steps, 1))
        runs = ops.greater(ops.reshape(as_type(lengths, "int64"), shape=(1, batch)), numbers)
        sequences.append(ops.reshape(runs, shape=(steps, batch, 1)))
    states = [d.h, d.c][: 1 + keeps]
    (y, *_), (h, *cell) = over_steps(one, states, sequences, back)
    if lengths is not None:
        y = ops.where(sequences[1], y, constant(0, dtype=y.dtype))
    return y, h, cell[0] if keeps else d.c


LSTM = Layer(_lstm, 4, ("Sigmoid", "Tanh", "Tanh"), keeps=True)

converts("LSTM")(recurrent(LSTM))
converts("GRU")(recurrent(Layer(_gru, 3, ("Sigmoid", "Tanh"))))
converts("RNN")(recurrent(Layer(_rnn, 1, ("Tanh",))))
