"""The memory of a value: its own bytes, all bytes of another value, or a block of them.

    gates = dense(x, w)   [35, 1, 2600]      bytes of its own, written by a kernel
    reshape(gates)        [35, 2600]         a view: the same bytes
    slice(gates, 3, 4)    [1, 1, 2600]       a window: gates + 3 * 10400 bytes, no kernel and no task

Recurrent layers that are unrolled in time have a window for every step. Models that cut a wide product into
parts have windows, too.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from math import prod

from autotensor.graph.ir import Apply, GraphNode, Input
from autotensor.operators import Kind
from autotensor.operators.shape import slice_ranges


@dataclass(frozen=True, slots=True)
class Window:
    """A block of a value's bytes."""

    of: GraphNode  # the value that has bytes of its own
    offset: int  # in bytes


def storage(node: GraphNode) -> GraphNode:
    """The value that owns a node's bytes: the node itself, or the value below its views."""
    while isinstance(node, Apply) and node.kind is Kind.VIEW:
        node = node.inputs[0]
    return node


def window(node: GraphNode) -> Window | None:
    """The place of a slice that is one block of a kernel's result or of an argument; None for other nodes.

    A slice of a constant has no such place, because it is folded into another constant. A slice of an
    argument without floats has no such place either, because indices are checked over the whole argument.
    """
    if not isinstance(node, Apply) or node.op != "slice":
        return None
    (x,) = node.inputs
    of, shape = storage(x), x.shape
    asked = (node.attr(name) for name in ("begin", "end", "stride", "axes"))
    ranges = slice_ranges(shape, *asked)
    first = next((a for a, r in enumerate(ranges) if len(r) != 1), len(ranges))
    whole = all(len(r) == n for r, n in zip(ranges[first + 1 :], shape[first + 1 :], strict=True))
    given = isinstance(of, Input) and of.dtype.is_float
    if not whole or 0 in node.shape or not (isinstance(of, Apply) or given):
        return None
    if any(r.step != 1 and len(r) > 1 for r in ranges):
        return None
    begin = sum(r.start * prod(shape[a + 1 :]) for a, r in enumerate(ranges))
    offset = begin * node.dtype.bytes
    outer = window(of)
    return Window(of, offset) if outer is None else Window(outer.of, outer.offset + offset)


def place(node: GraphNode, made: Container[GraphNode]) -> Window:
    """The memory of a value that a kernel reads. made: the kernels' results, slices among them."""
    found = None if node in made else window(node)
    return found or Window(node, 0)
