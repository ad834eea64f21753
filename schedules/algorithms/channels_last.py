"""A convolution with channels first becomes one with channels innermost, along which dot instructions sum.

    C[o, h, w] = Σ W[o, c, kh, kw] * X[c, h + kh, w + kw]

        ──▶   X.last[h, w, c]  = X[c, h, w]
              C.last[h, w, o]  = Σ W[o, c, kh, kw] * X.last[h + kh, w + kw, c]
              C[o, h, w]       = C.last[h, w, o]

The terms and their order stay the same. The weights need no extra copy, because they are packed in any case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from autotensor.ir.expr import Load
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import StageOp, axes_over, buffer_over

NAME = "channels_last"
T = TypeVar("T")


def channels_last(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The three stages; None if the innermost axis belongs to the weights, or channels are innermost
    already."""
    op = stage.op
    loads = op.loads()
    constants = state.dag.constants
    weights = [load for load in loads if load.buffer.name in constants]
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1 or len(weights) != 1:
        return None
    (weight,) = weights
    data = [x for x in loads if x is not weight and free_vars(x) & {r.var for r in op.reduce_axes}]
    if len(data) != 1 or not op.axes or op.axes[-1].var in free_vars(weight):
        return None
    (x,) = data
    out = next((a for a in op.axes if a.var in free_vars(weight) and a.var not in free_vars(x)), None)
    summed = {r.var for r in op.reduce_axes}
    at = next((n for n, i in enumerate(x.indices) if i in summed and i in weight.indices), None)
    if out is None or at is None or at == len(x.indices) - 1:
        return None
    names = set(state.names)
    axes = axes_over(x.buffer)
    moved = _last(axes, at)
    near = buffer_over(moved, fresh(f"{x.buffer.name}.last", names), x.buffer.dtype)
    copy = StageOp(near.name, moved, (), (Load(x.buffer, tuple(a.var for a in axes)),), None, (near,))
    order = _last(op.axes, op.axes.index(out))
    name = fresh(f"{op.name}.last", names)
    result = buffer_over(order, name, op.buffers[0].dtype)

    def redirected(node: Node) -> Node | None:
        return Load(near, _last(x.indices, at)) if node is x else None

    body = transform(op.bodies[0], redirected)
    final = StageOp(
        op.name, op.axes, (), (Load(result, tuple(a.var for a in order)),), None, op.buffers, op.tag
    )
    return copy, replace(op, name=name, axes=order, bodies=(body,), buffers=(result,)), final


def _last(parts: tuple[T, ...], at: int) -> tuple[T, ...]:
    """The parts, with the part at this position moved to the end."""
    return (*parts[:at], *parts[at + 1 :], parts[at])


ALGORITHMS.add(NAME, Algorithm(NAME, channels_last))
