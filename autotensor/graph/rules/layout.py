"""Layout: NCHW models compute in NHWC inside; their inputs and outputs keep their layout.

NCW and NCDHW become NWC and NDHWC in the same way; below, NCHW means all three.

    x[N,C,H,W] ─▶ transpose ─▶ conv NHWC ─▶ add ─▶ relu ─▶ pool NHWC ─▶ … ─▶ global pool ─▶ reshape ─▶ dense

The pass visits the nodes once, producers first. Every value has one of two forms, as written or with channels
last. Each operator reads one form and writes one form, and the other form of a value is made at most once. So
transposes occur only where a chain of channels-last operators begins or ends: around user te functions, and
at the edges of the model. Vectors along channels, W = H = 1 and C = 1 need no transpose, because a reshape is
enough. Weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.graph.function import TeFunction
from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import canonicalize, reshape, transpose, transposition
from autotensor.graph.rules.constants import fold_constants
from autotensor.ir.rewrite import Rules, rule

LAST = {"NCW": "NWC", "NCHW": "NHWC", "NCDHW": "NDHWC"}
RANKS = (3, 4, 5)


def to_last(rank: int) -> tuple[int, ...]:
    """The transposition that puts channels last.

    >>> to_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The transposition that puts channels back.

    >>> to_first(4)
    (0, 3, 1, 2)
    """
    return (0, rank - 1, *range(1, rank - 1))


def place(axis: int, rank: int) -> int:
    """The position in NHWC of an axis of NCHW.

    >>> [place(a, 4) for a in range(4)]
    [0, 3, 1, 2]
    """
    return to_last(rank).index(axis % rank)


class Forms:
    """Values of the old graph in the new one: as written, with channels last, or both."""

    def __init__(self) -> None:
        self._written: dict[GraphNode, GraphNode] = {}
        self._last: dict[GraphNode, GraphNode] = {}
        self._made_last: set[GraphNode] = set()

    def written(self, node: GraphNode) -> GraphNode:
        if node not in self._written:
            self._written[node] = transpose(self._last[node], to_first(node.ndim))
        return self._written[node]

    def last(self, node: GraphNode) -> GraphNode:
        """The value, of three to five axes, with channels last."""
        if node not in self._last:
            self._last[node] = transpose(self._written[node], to_last(node.ndim))
        return self._last[node]

    def is_last(self, node: GraphNode) -> bool:
        """Whether the value was made with channels last."""
        return node in self._made_last

    def keep_written(self, node: GraphNode, made: GraphNode) -> None:
        self._written[node] = made

    def keep_last(self, node: GraphNode, made: GraphNode) -> None:
        self._last[node] = made
        self._made_last.add(node)


def channels_last(graph: Graph) -> Graph:
    """The graph with NCHW operators, and the operators between them, in NHWC."""
    forms = Forms()
    for node in graph.nodes:
        if not isinstance(node, Apply):
            forms.keep_written(node, node)
            continue
        last = _in_last(node, forms)
        if last is not None:
            forms.keep_last(node, last)
        else:
            written = _reduced(node, forms) or node.given([forms.written(x) for x in node.inputs])
            forms.keep_written(node, written)
    changed = graph.with_outputs(forms.written(o) for o in graph.outputs)
    return rewrite_graph(canonicalize(fold_constants(changed)), AFTER, name="layout")


def _in_last(node: Apply, forms: Forms) -> GraphNode | None:
    """The operator with channels last in inputs and result; None when it must stay as written."""
    if not node.inputs:
        return None
    if isinstance(node.op, TeFunction):
        return _function(node, node.op, forms)
    first, rank = node.inputs[0], node.ndim
    layout = node.attr("layout") if node.has_attr("layout") else ""
    if layout in LAST and first.ndim == len(layout):
        others = (forms.written(x) for x in node.inputs[1:])
        return node.given((forms.last(first), *others), layout=LAST[layout])
    if rank not in RANKS or not any(forms.is_last(x) for x in node.inputs):
        return None
    if node.op in BY_AXES:
        if first.ndim != rank:
            return None
        changed = BY_AXES[node.op](node)
        if changed is None:
            return None
        whole = node.inputs if node.op == "concat" else node.inputs[:1]
        rest = node.inputs[len(whole) :]
        return node.given([*(forms.last(x) for x in whole), *(forms.written(x) for x in rest)], **changed)
    if node.is_elementwise:
        return node.given(
            forms.written(x) if n in node.tables else _operand(x, rank, forms)
            for n, x in enumerate(node.inputs)
        )
    return None


def _function(node: Apply, fn: TeFunction, forms: Forms) -> GraphNode | None:
    """A user's function: a pointwise function has no layout, and others keep the layout of their author."""
    rank = node.ndim
    if rank not in RANKS or not fn.pointwise or not any(forms.is_last(x) for x in node.inputs):
        return None
    inputs = [_operand(x, rank, forms) for x in node.inputs]
    shape = tuple(node.shape[a] for a in to_last(rank))
    return apply(TeFunction.trace(lambda *t: fn.over(t, shape), [x.type for x in inputs], fn.name), inputs)


def _reduced(node: Apply, forms: Forms) -> GraphNode | None:
    """A reduction of a channels-last value to a result as written: the mean over h and w gives [N, C]."""
    if node.op not in REDUCTIONS or not forms.is_last(node.inputs[0]) or node.attr("keepdims"):
        return None
    over = node.attr("axis")
    if over is None:
        return None if node.op in NUMBERING else node.given((forms.last(node.inputs[0]),))
    rank = len(node.inputs[0].shape)
    gone = {a % rank for a in (over if isinstance(over, tuple) else (over,))}
    left = [place(a, rank) for a in range(rank) if a not in gone]
    if left != sorted(left):
        return None
    return node.given((forms.last(node.inputs[0]),), axis=_places(over, rank))


def _operand(node: GraphNode, rank: int, forms: Forms) -> GraphNode:
    """An elementwise operand with channels last; an operand of lower rank gets its missing axes first."""
    if node.ndim == rank:
        return forms.last(node)
    written = forms.written(node)
    full = reshape(written, (*(1,) * (rank - node.ndim), *node.shape))
    return transpose(full, to_last(rank)) if node.shape else written


# -- operators that name axes: their attributes for channels last, or None if they must stay as written --


def _axis(node: Apply) -> dict[str, Any]:
    return {"axis": place(node.attr("axis"), node.ndim)}


def _axes(node: Apply) -> dict[str, Any] | None:
    """Reductions that keep the rank."""
    axis = node.attr("axis")
    if not node.attr("keepdims") or (axis is None and node.op in NUMBERING):
        return None
    return {} if axis is None else {"axis": _places(axis, node.ndim)}


def _places(axis: int | tuple[int, ...], rank: int) -> int | tuple[int, ...]:
    return tuple(sorted(place(a, rank) for a in axis)) if isinstance(axis, tuple) else place(axis, rank)


def _pads(node: Apply) -> dict[str, Any]:
    return {"pads": tuple(node.attr("pads")[a] for a in to_last(node.ndim))}


def _slice(node: Apply) -> dict[str, Any]:
    count = len(node.attr("begin"))
    axes = node.attr("axes") or tuple(range(count))
    return {"axes": tuple(place(a, node.ndim) for a in axes)}


NUMBERING = frozenset({"argmax", "argmin"})  # over all axes, they count elements in the order as written
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod"}) | NUMBERING

BY_AXES: dict[str | TeFunction, Callable[[Apply], dict[str, Any] | None]] = {
    "batch_norm": _axis,
    "group_norm": _axis,
    "softmax": _axis,
    "log_softmax": _axis,
    "concat": _axis,
    "pad": _pads,
    "slice": _slice,
    "take": lambda node: _axis(node) if node.inputs[1].ndim == 1 else None,
    **dict.fromkeys(REDUCTIONS, _axes),
}


# -- after the pass: flattening --------------------------------------------------------------------------


@rule(Apply)
def flattened_weights(node: Apply, uses: Uses) -> GraphNode | None:
    """dense(reshape(transpose(x, to NCHW)), w) ──▶ dense(reshape(x), w with its columns in NHWC order)"""
    match node:
        case Apply("dense", (Apply("reshape", (Apply("transpose", (x,)) as turned,)), Constant() as w)):
            pass
        case _:
            return None
    rank = x.ndim
    if (
        rank not in RANKS
        or transposition(turned) != to_first(rank)
        or node.inputs[0].shape != (x.shape[0], w.shape[1])
    ):
        return None
    per_map = w.array.reshape(-1, *turned.shape[1:])
    columns = per_map.transpose(to_last(rank)).reshape(w.shape)  # [n, h*w*c]
    return node.given((reshape(x, node.inputs[0].shape), constant(np.ascontiguousarray(columns), w.name)))


AFTER = Rules(flattened_weights)
