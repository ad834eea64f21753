"""Gradients through loops that ran: their turns are differentiated, the last turn first.

    v0 ──body──▶ v1 ──body──▶ v2 = result         forward: the values at the beginning of every turn are kept
    a0 ◀─slope── a1 ◀─slope── a2 = dy/dresult     backward: each turn's body is differentiated at its values

In the graph after a loop, the loop's results are leaves. So a derivative is made in three parts. The first
part goes back to these leaves, the second part goes through the loop with arrays, and the third part goes
from the loop's initial values back to earlier loops. A value that a body reads from outside gets the sum over
all turns. One program serves all turns of one shape. It computes the turn's forward pass again, so that a
turn needs memory only for the loop's variables.
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

if TYPE_CHECKING:  # flow_to_graph imports this module
    from autotensor.flow.flow_to_graph import Lowering


@dataclass(frozen=True, slots=True, eq=False)
class LoopRun:
    """A loop and its values in one run."""

    loop: Loop
    initial: tuple[GraphNode, ...]  # its variables' initial values, then outer values that it reads
    outer: dict[Node, Array]  # outer node that condition or body reads → its value
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
    """The adjoints of a loop's initial values (only of floats), from the adjoints of its results."""
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
    """The array as a leaf of a run, not as a constant: programs are kept for types, not for values."""
    leaf = graph_input(np.shape(array), str(array.dtype), "adjoint")
    lowering.arrays[leaf] = np.asarray(array)  # a sum of arrays of rank 0 is a scalar
    return leaf


def _node(lowering: Lowering, node: Node) -> GraphNode:
    found = lowering.of[node]
    assert isinstance(found, GraphNode)
    return found
