"""The graphs of several sample numbers side by side: their equal nodes, and numbers that do not follow.

    relu(slice(x, 8))    at n = 16:  x [16], slice [8], relu [8]
                         at n = 13:  x [13], slice [8], relu [8]        ──▶ (x, x, x), (slice, …), (relu, …)
                         at n = 5:   x [5],  slice [5], relu [5]            the others predict [8]: refused

The samples lie near the greatest extents, so they do not show special cases of small extents. For example,
min(n, 8) is 8 at all samples, but less at small n. Kernels would then read beyond tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode

Alike = tuple[GraphNode, ...]  # the same node of each graph


def side_by_side(graphs: Sequence[Graph]) -> list[Alike] | None:
    """The nodes of all graphs, producers first; None if the graphs do not consist of the same operators."""
    done: dict[Alike, None] = {}
    stack: list[tuple[Alike, bool]] = [(a, False) for a in zip(*(g.outputs for g in graphs), strict=True)]
    while stack:
        alike, ready = stack.pop()
        if alike in done:
            continue
        if ready or not isinstance(alike[0], Apply):
            if not _are_alike(alike):
                return None
            done[alike] = None
            continue
        if not _are_alike(alike):
            return None
        stack.append((alike, True))
        inputs = (n.inputs for n in alike if isinstance(n, Apply))
        stack.extend((x, False) for x in zip(*inputs, strict=True))
    return list(done)


def _are_alike(alike: Alike) -> bool:
    first = alike[0]
    if any(type(n) is not type(first) or n.dtype != first.dtype or n.ndim != first.ndim for n in alike):
        return False
    return not isinstance(first, Apply) or all(
        isinstance(n, Apply)
        and (n.op_name, n.output, len(n.inputs)) == (first.op_name, first.output, len(first.inputs))
        for n in alike
    )


def numbers_of(node: GraphNode) -> tuple[object, ...]:
    """The node's extents, the values of its attributes, and its value if it is one number."""
    attributes = (node.op_name, node.attrs) if isinstance(node, Apply) else ()
    value = (node.array.item(),) if isinstance(node, Constant) and node.array.size == 1 else ()
    return (*node.shape, *_leaves(attributes), *value)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for x in value:
            yield from _leaves(x)
    else:
        yield value


def is_beginning(part: Array, whole: Array) -> bool:
    """Whether two constants agree as far as both reach."""
    if part is whole:  # as weights are
        return True
    corner = tuple(slice(0, min(n, m)) for n, m in zip(part.shape, whole.shape, strict=True))
    return np.array_equal(part[corner], whole[corner], equal_nan=part.dtype.kind in "fc")


__all__ = ["Alike", "is_beginning", "numbers_of", "side_by_side"]
