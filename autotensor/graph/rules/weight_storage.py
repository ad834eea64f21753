"""Keeps weights whose values fit 16 bits in 16 bits; the kernels that load the weights widen them.

    dense(x[rows, k], w: float32[n, k])   ──▶   dense(x, cast(w: bfloat16[n, k]))       one group; few rows
    take(table: float32, ids)             ──▶   cast(take(table: bfloat16, ids))

A product of few rows waits for its weights, so half the bytes take half the time. If many rows share the
weights, the product waits for its multiplications, and the weights stay in float32. For numbers of rows in
between, the choice depends on where the weights come from: L2 is fast enough for three rows.

Weights of files in float16 and bfloat16 have become float32 before the other rules see them. This pass
recognises them by their values, so it does not matter who read the file, or which rules moved the weights
meanwhile. No value changes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autotensor.base.dtype import DType, bfloat16, float16, float32
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.replace_nodes import replaced
from autotensor.graph.rules.kept_layers import is_table, kept_layers, multiplies
from autotensor.graph.weights import is_weight

TYPES = (bfloat16, float16)  # the type that widens faster comes first
# Most rows with which half the bytes pay: wherever the weights come from, and when they come from memory.
# Time of float32 over that of bfloat16: 512 x 512, from L2, with 1 row 1.21, 2 rows 1.03, 4 and 8 rows 1.0,
# 32 rows 0.99; 4096 x 4096 with 1 row 2.5, 4 rows 3.0, 8 rows 1.4, 16 rows 1.3, 32 rows 0.97 (minima; Zen 4,
# 2026-11)
ROWS, FAR_ROWS = 2, 16
# bytes of all such weights together: with this many, no L2 still holds a weight when it is read again
FAR_BYTES = 16 << 20
LEAST_BYTES = 1 << 18  # bytes of weights in float32; smaller weights take no time (chosen, 2026-11)
SAMPLE = 1 << 12  # number of elements that show, for most weights, that they need more bits
LOWER_BITS = (1 << 16) - 1  # the bits that a float32 has and its bfloat16 lacks
CHUNK = 1 << 20  # number of elements that are compared together: as many as fit into a cache


def in_16_bits(graph: Graph) -> Graph:
    """The graph with large weights in 16 bits, if 16 bits hold their values.

    This applies to weights of products of few rows, and to tables.
    """
    large = [c for c in graph.constants if _is_large(c) and c not in graph.outputs]
    for rows in (FAR_ROWS, ROWS):
        waiting = [c for c in large if all(_waits_for(r, c, rows) for r in graph.consumers[c])]
        types = {c: t for c in waiting if (t := narrowest(c.array)) is not None}
        if rows == ROWS or sum(c.array.nbytes for c in types) >= FAR_BYTES:
            break
    if not types:
        return graph
    stored = {c: constant(_in_type(c.array, t), c.name) for c, t in types.items()}
    made: dict[GraphNode, GraphNode] = {}
    for node in graph.nodes:
        made[node] = _widening(node, made, stored) if isinstance(node, Apply) else node
    return graph.with_outputs(made[o] for o in graph.outputs)


def rounded_weights(graph: Graph, kind: DType, keep: tuple[str, ...] = ()) -> Graph:
    """The graph with weights of products, and tables, rounded to a type of 16 bits, but stored as float32.

    A weight stays as it is if it has other readers, or if some value would become infinite. keep: patterns of
    layers whose weights stay.
    """
    kept = kept_layers(graph, keep)
    swap: dict[GraphNode, GraphNode] = {}
    for c in graph.constants:
        readers = graph.consumers[c]
        rounds = all(multiplies(r, c) and r not in kept for r in readers)
        if c.dtype == float32 and c not in graph.outputs and rounds:
            with np.errstate(over="ignore"):
                rounded = c.array.astype(kind.numpy).astype(np.float32)
            if np.array_equal(np.isfinite(rounded), np.isfinite(c.array)):
                swap[c] = constant(rounded, c.name)
    return graph.with_outputs(replaced(graph.outputs, swap))


def narrowest(array: Array) -> DType | None:
    """The type of 16 bits that holds all numbers of a float32 array exactly; None if there is no such type.

    >>> narrowest(np.float32([1.0, 2.0**100])), narrowest(np.float32([0.1]))
    (DType(kind='bfloat', bits=16, lanes=1), None)
    """
    flat = array.reshape(-1)
    return next((t for t in TYPES if _holds(t, flat[:SAMPLE]) and _holds(t, flat)), None)


def _holds(t: DType, numbers: Array) -> bool:
    parts = (numbers[start : start + CHUNK] for start in range(0, numbers.size, CHUNK))
    return all(_holds_part(t, part) for part in parts)


def _holds_part(t: DType, numbers: Array) -> bool:
    bits = numbers.view(np.uint32)
    # takes a sixth of the time of converting there and back
    if t == bfloat16 and not np.isnan(numbers).any():
        return not int(np.bitwise_or.reduce(bits)) & LOWER_BITS
    with np.errstate(over="ignore", invalid="ignore"):
        again = numbers.astype(t.numpy).astype(np.float32)
    return np.array_equal(bits, again.view(np.uint32))


def _in_type(array: Array, t: DType) -> Array:
    made = array.astype(t.numpy)
    made.flags.writeable = False  # the constant keeps this array without a copy
    return made


def _is_large(c: Constant) -> bool:
    return c.dtype == float32 and prod(c.shape) * c.dtype.bytes >= LEAST_BYTES


def _waits_for(reader: Apply, c: Constant, rows: int) -> bool:
    """Whether the reader is a product with this weight and at most `rows` rows, or looks up rows in it."""
    few = is_weight(reader, c) and prod(reader.inputs[0].shape[:-1]) <= rows
    return few or is_table(reader, c)


def _widening(node: Apply, made: dict[GraphNode, GraphNode], stored: dict[Constant, Constant]) -> GraphNode:
    inputs = [stored.get(x, made[x]) if isinstance(x, Constant) else made[x] for x in node.inputs]
    if node.op == "take" and node.inputs[0] in stored:
        return _as_float32(node.given(inputs))
    wide = (_as_float32(x) if old in stored else x for old, x in zip(node.inputs, inputs, strict=True))
    return node.given(wide)


def _as_float32(node: GraphNode) -> GraphNode:
    return apply("cast", (node,), {"dtype": str(float32)})
