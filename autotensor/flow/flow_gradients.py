"""`gradients`: the backward pass as more nodes of the static graph.

    [dW, db] = flow.gradients(loss, [W, b])

One node is added for each gradient. It becomes the backward operators when shapes are known, and only in runs
that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor.autodiff import gradients as graph_gradients
from autotensor.base.errors import GraphError
from autotensor.flow.node_origin import here
from autotensor.flow.nodes import Node, Operation, as_node
from autotensor.graph.ir import GraphNode


class Gradient(Operation):
    """The gradient of the sum of `ys` by `x`. It has the type and shape of x.

    inputs: ys, then x, then the adjoints of ys, if they are given.
    """

    def __init__(self, ys: Sequence[Node], x: Node, seeds: Sequence[Node]) -> None:
        self.count = len(ys)
        super().__init__(f"gradient_{x.name}", self._lower, (*ys, x, *seeds), x.spec)

    def parts(
        self, nodes: Sequence[GraphNode]
    ) -> tuple[Sequence[GraphNode], GraphNode, Sequence[GraphNode] | None]:
        """The inputs' graph nodes as ys, x, and seeds if there are any."""
        return nodes[: self.count], nodes[self.count], nodes[self.count + 1 :] or None

    def _lower(self, *nodes: GraphNode) -> GraphNode:
        ys, x, seeds = self.parts(nodes)
        return graph_gradients(ys, (x,), seeds)[0]


class Stopped(Operation):
    """Its input, as a leaf, so that differentiation does not go through it."""

    def __init__(self, x: Node) -> None:
        super().__init__("stop_gradient", lambda node: node, (x,), x.spec)


def stop_gradient(x: Any) -> Node:
    """A copy of x that passes no gradient on: differentiation sees it as data."""
    return Stopped(as_node(x))


def _check_loops(of: list[Node], by: list[Node]) -> None:
    """Raises GraphError for a gradient of a gradient that goes through a loop. The inner gradient is made of
    arrays (`loops.py`), so the outer one would lack a part."""
    from autotensor.flow.control import Loop, producers_first

    below = producers_first(of, ends=by)
    for loop in (n for g in below if isinstance(g, Gradient) for n in producers_first([g])):
        if not isinstance(loop, Loop):
            continue
        inside = set(producers_first([loop]))
        if reached := [x for x in by if x in inside]:
            raise GraphError(
                f"{here()}: {reached[0].name} reaches {of[0].name} through the gradient of a while_loop "
                f"({loop.at}), which has no gradient of its own.",
                fix="Write the turns out, or use the imperative style, where loops are Python's.",
            )


def gradients(ys: Any, xs: Any, grad_ys: Any = None) -> list[Node]:
    """One node for each of `xs`: how the sum of all elements of `ys` changes with it.

    grad_ys: adjoints of `ys`, of their shapes; ones when not given.
    Raises GraphError, with the line, for anything but a floating-point node.
    """
    of = list(ys) if isinstance(ys, (list, tuple)) else [ys]
    by = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    for node in (*of, *by):
        if not isinstance(node, Node):
            raise GraphError(f"{here()}: gradients are of nodes by nodes, got {type(node).__name__}.")
        if not node.dtype.is_float:
            raise GraphError(f"{here()}: {node!r} is not floating-point, so it has no gradient.")
    _check_loops(of, by)
    seeds: list[Node] = []
    if grad_ys is not None:
        given = grad_ys if isinstance(grad_ys, (list, tuple)) else [grad_ys]
        seeds = [as_node(g, y.dtype) for g, y in zip(given, of, strict=True)]
    return [Gradient(of, x, seeds) for x in by]
