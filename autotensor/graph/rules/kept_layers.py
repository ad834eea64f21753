"""Layers that stay in float32 under 16-bit numerics, chosen by the names of their weights.

kept_layers(graph, ("head", "blocks.*.attn"))      the products named head.weight, blocks.0.attn.qkv.bias, …

A layer is a product with constant weights, or a table. It is identified by the names that its weight and its
bias have in the source of the model. A pattern is such a name, or the first part of a name up to a dot; `*`,
`?` and `[…]` match characters, as in file names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from autotensor.base.errors import GraphError
from autotensor.base.registry import suggest
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode
from autotensor.graph.weights import CONVOLUTIONS, is_weight
from autotensor.operators import Kind

SHOWN = 12  # most names in a message


def multiplies(reader: Apply, c: GraphNode) -> bool:
    """Whether the reader is a product with this weight, or looks up rows in it."""
    filters = reader.op in (*CONVOLUTIONS, "conv2d_transpose")
    of_convolution = filters and reader.inputs[1] is c and reader.inputs.count(c) == 1
    return is_table(reader, c) or is_weight(reader, c) or of_convolution


def is_table(reader: Apply, c: GraphNode) -> bool:
    """Whether the reader looks up rows in this constant."""
    return reader.op == "take" and reader.inputs[0] is c and reader.inputs.count(c) == 1


def kept_layers(graph: Graph, patterns: Collection[str]) -> frozenset[Apply]:
    """The layers that match some pattern."""
    if not patterns:
        return frozenset()
    return frozenset(n for n in graph.applies if any(_means(p, names_of(graph, n)) for p in patterns))


def refuse_unknown(graph: Graph, patterns: Collection[str]) -> None:
    """Raises GraphError for a pattern that matches no layer."""
    layers = [names for n in graph.applies if (names := names_of(graph, n))]
    for p in patterns:
        if not any(_means(p, names) for names in layers):
            known = tuple(names[0] for names in layers)
            near = suggest(p, known) if len(known) > SHOWN else f"Layers: {', '.join(known) or 'none'}."
            raise GraphError(
                f"keep-float32: {p!r} is the name of no layer of model {graph.name!r}.", fix=near
            )


def names_of(graph: Graph, node: Apply) -> tuple[str, ...]:
    """The names of a layer; none for other operators."""
    weights = [x for x in node.inputs if isinstance(x, Constant) and multiplies(node, x)]
    if not weights:
        return ()
    return tuple(c.name for c in (*weights, *_biases(graph, node)) if c.name)


def _biases(graph: Graph, node: Apply) -> Iterator[Constant]:
    """Constants that are added to the layer's result, by the layer itself or by its only reader."""
    yield from (x for x in node.inputs[2:] if isinstance(x, Constant))
    at: GraphNode = node
    while len(readers := graph.consumers[at]) == 1:
        (reader,) = readers
        if reader.op == "add":
            yield from (x for x in reader.inputs if isinstance(x, Constant))
        if reader.kind is not Kind.VIEW:
            return
        at = reader


def _means(pattern: str, names: Collection[str]) -> bool:
    return any(fnmatchcase(name, p) for name in names for p in (pattern, f"{pattern}.*"))
