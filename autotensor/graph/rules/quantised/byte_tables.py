"""Replaces a function from a byte to a byte by a table of its 256 values.

    quantize(gelu(dequantize(q)))                                                ──▶  byte_table(q, table)
    quantize(dequantize(q) * dequantize(quantize(sigmoid(dequantize(q)))))       ──▶  byte_table(q, table)

Any elementwise operators may lie between the two bytes, with numbers as other operands. The table holds the
results of the operators' NumPy references for every byte. If the function maps every byte to itself, no
operator is left. Functions of a few instructions (a clip, another scale) stay: the kernel that makes the byte
computes them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import reshape
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import OPERATORS, Kind
from autotensor.operators.quantized import BYTES

MOST = 32  # most operators between two bytes
STEPS = 4  # most operators in a row that compute a number from numbers
ROUNDING = ("quantize", "requantize")
# operators that need only a few instructions each
FEW = (
    *(*ROUNDING, "dequantize", "cast", "clip", "relu", "relu6", "neg", "identity"),
    *("add", "subtract", "multiply", "maximum", "minimum"),
)


@dataclass(frozen=True, slots=True)
class Function:
    """The bytes of which a node is a function, and the operators between, in no order."""

    of: frozenset[GraphNode]
    by: frozenset[Apply]


def byte_tables(graph: Graph) -> Graph:
    """The graph with tables in place of functions of one byte."""
    if not any(n.op == "quantize" for n in graph.applies):
        return graph
    return rewrite_graph(graph, Rules(byte_table), name="tables of bytes")


@rule(Apply)
def byte_table(node: Apply, uses: Uses) -> GraphNode | None:
    """quantize(f(dequantize(q))) ──▶ byte_table(q, f of every byte); q where f gives every byte back"""
    if node.op not in ROUNDING or not node.dtype.is_byte:
        return None
    found = _of_one_byte(node)
    if found is None:
        return None
    (q,) = found.of
    every = np.arange(BYTES, dtype=np.uint8).view(q.dtype.numpy)
    with np.errstate(all="ignore"):  # as a kernel does
        table = _evaluated(node, {q: every})
    if q.dtype == node.dtype and np.array_equal(table, every):
        return reshape(q, node.shape)
    if not _is_worth_it(found):
        return None
    return reshape(apply("byte_table", (q, constant(table))), node.shape)


def _of_one_byte(node: Apply) -> Function | None:
    """The node as a function of the nearest single byte; None if there is no such byte."""
    found = _nearest(node)
    if found is None or len(found.of) == 1:
        return found
    order = _order(node)
    while len(found.of) > 1 and found.of <= order.keys():
        # the other bytes do not depend on it, so its inputs may replace it
        last = max(found.of, key=order.__getitem__)
        more = _nearest(last) if isinstance(last, Apply) else None
        if more is None or len(found.by | more.by) > MOST:
            return None
        found = Function((found.of - {last}) | more.of, found.by | more.by)
    return found if len(found.of) == 1 else None


def _order(node: Apply) -> dict[GraphNode, int]:
    """Positions of the nodes from which `node` is computed by plain operators, producers first."""
    around: list[GraphNode] = [node]
    known: set[GraphNode] = {node}
    for x in around:  # the loop extends the list
        if isinstance(x, Apply) and _is_plain(x) and len(around) < 4 * MOST:
            around += (new := [y for y in dict.fromkeys(x.inputs) if y not in known])
            known.update(new)
    order: dict[GraphNode, int] = {}
    waiting: list[tuple[GraphNode, bool]] = [(node, False)]
    while waiting:
        x, is_left = waiting.pop()
        if is_left:
            order.setdefault(x, len(order))
        elif x in known:
            known.remove(x)
            waiting.append((x, True))
            waiting += [(y, False) for y in x.inputs] if isinstance(x, Apply) and _is_plain(x) else []
    return order


def _nearest(node: Apply) -> Function | None:
    """The node as a function of the nearest bytes before it; None if it depends on something else."""
    by: set[Apply] = set()
    of: set[GraphNode] = set()
    waiting: list[GraphNode] = [node]
    while waiting:
        x = waiting.pop()
        if x in by or x in of or _is_number(x):
            continue
        if x is not node and x.dtype.is_byte:
            of.add(x)
        elif isinstance(x, Apply) and _is_plain(x) and len(by) < MOST:
            by.add(x)
            waiting += [y for n, y in enumerate(x.inputs) if n not in x.tables]
        else:
            return None
    return Function(frozenset(of), frozenset(by)) if of else None


def _is_number(x: GraphNode, most: int = STEPS) -> bool:
    """Whether a node is a known number, or is computed from known numbers."""
    if isinstance(x, Constant):
        return x.array.size == 1
    single = isinstance(x, Apply) and most > 0 and _is_plain(x) and prod(x.shape) == 1
    return single and isinstance(x, Apply) and all(_is_number(y, most - 1) for y in x.inputs)


def _is_plain(node: Apply) -> bool:
    """Whether the node applies one function to the elements in each place; a view counts, too."""
    if not isinstance(node.op, str) or node.results > 1:
        return False
    if node.kind is Kind.VIEW:
        return True
    whole = all(
        isinstance(x, Constant) if n in node.tables else x.shape == node.shape or prod(x.shape) == 1
        for n, x in enumerate(node.inputs)
    )
    return whole and node.is_elementwise


def _is_worth_it(f: Function) -> bool:
    """Whether the operators take more instructions than a look-up, even as part of another kernel."""
    return any(n.op not in FEW for n in f.by) or sum(n.op in ROUNDING for n in f.by) > 1


def _evaluated(node: GraphNode, known: dict[GraphNode, Array]) -> Array:
    """The values of a node, where `known` holds those of the byte."""
    if node not in known:
        if isinstance(node, Constant):
            known[node] = node.array.reshape(()) if node.array.size == 1 else node.array
        elif isinstance(node, Apply) and node.kind is Kind.VIEW:
            known[node] = _evaluated(node.inputs[0], known)
        else:
            assert isinstance(node, Apply)
            assert isinstance(node.op, str)
            inputs = [_evaluated(x, known) for x in node.inputs]
            value = np.asarray(OPERATORS.get(node.op).reference(*inputs, **dict(node.attrs)))
            known[node] = (value.reshape(()) if value.size == 1 else value).astype(
                node.dtype.numpy, copy=False
            )
    return known[node]
