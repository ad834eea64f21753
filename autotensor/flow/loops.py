"""Gradients through loops that ran: the turns again, last first.

    v0 ──body──▶ v1 ──body──▶ v2 = result         forward: the values at the beginning of every turn are kept
    a0 ◀─slope── a1 ◀─slope── a2 = dy/dresult     backward: each turn's body is differentiated at its values

To the graph behind a loop its results are leaves. So a derivative is made in pieces: by the leaves, then
through the loop by numbers, then by the loop's first values, as far as earlier loops. A value that a body
reads from outside gets the sum over all turns. One program serves all turns of one shape; it computes the
turn's forward pass again, so that memory grows by the loop's variables only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autotensor.autodiff import gradients as graph_gradients
from autotensor.flow.control import Loop
from autotensor.flow.nodes import Array, Node
from autotensor.graph.build import input as graph_input
from autotensor.graph.ir import GraphNode, Input, topological

if TYPE_CHECKING:  # the lowering of a run hands itself over: gradients of its loops are lowered by it
    from autotensor.flow.flow_to_graph import Lowering


@dataclass(frozen=True, slots=True, eq=False)
class LoopRun:
    """A loop as it went in one run."""

    loop: Loop
    initial: tuple[GraphNode, ...]  # of its variables, then of outer values that condition and body read
    outer: dict[Node, Array]  # the values of the latter
    turns: tuple[tuple[Array, ...], ...]  # values of the variables at the beginning of each turn
    results: tuple[Input, ...]


def slopes(
    lowering: Lowering,
    ys: Sequence[GraphNode],
    xs: Sequence[GraphNode],
    seeds: Sequence[GraphNode] | None = None,
) -> list[GraphNode]:
    """The gradient of the sum of all elements of `ys` by each of `xs`, through the loops that ran so far."""
    reached = set(topological(ys))
    leaves = [leaf for run in lowering.loops for leaf in run.results if leaf.dtype.is_float]
    targets = list(dict.fromkeys((*xs, *leaves)))
    total = dict(zip(targets, graph_gradients(ys, targets, seeds), strict=True))
    for run in reversed(lowering.loops):
        below = set(topological(run.initial))
        if reached.isdisjoint(run.results) or below.isdisjoint(targets):
            continue
        begun = [x for x in run.initial if x.dtype.is_float]
        if not begun:
            continue
        adjoints = [_given(lowering, a) for a in _through(lowering, run, total)]
        for x, part in zip(targets, graph_gradients(begun, targets, adjoints), strict=True):
            total[x] = total[x] + part
        reached |= below
    return [total[x] for x in xs]


def _through(lowering: Lowering, run: LoopRun, total: dict[GraphNode, GraphNode]) -> list[Array]:
    """The adjoints of a loop's first values, floats only, from those of its results."""
    carried = [n for n, r in enumerate(run.results) if r.dtype.is_float]
    adjoints = lowering.numbers([total[run.results[n]] for n in carried]) if carried else []
    count = len(carried)
    outer: list[Array] = [np.zeros_like(a) for a in run.outer.values() if a.dtype.kind not in "biu"]
    for values in reversed(run.turns):
        inner = lowering.inside(run.loop, values, run.outer, run.loop.body_order)
        ys = [_node(inner, run.loop.results[n]) for n in carried]
        held = [_node(inner, v) for v in (*run.loop.variables, *run.loop.captured)]
        xs = [x for x in held if x.dtype.is_float]
        made = inner.numbers(slopes(inner, ys, xs, [_given(inner, a) for a in adjoints])) if ys else []
        adjoints = made[:count]
        outer = [a + b for a, b in zip(outer, made[count:], strict=True)] if ys else outer
    return [*adjoints, *outer]


def _given(lowering: Lowering, array: Array) -> GraphNode:
    """A leaf of a run, not a constant: programs are kept for types, not for values."""
    leaf = graph_input(np.shape(array), str(array.dtype), "adjoint")
    lowering.arrays[leaf] = np.asarray(array)  # a sum of arrays of rank 0 is a scalar
    return leaf


def _node(lowering: Lowering, node: Node) -> GraphNode:
    found = lowering.of[node]
    assert isinstance(found, GraphNode)
    return found
