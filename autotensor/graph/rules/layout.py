"""Layout: NCHW models compute in NHWC inside; what people pass in and get out keeps its layout.

    x[N,C,H,W] ─▶ transpose ─▶ conv NHWC ─▶ add ─▶ relu ─▶ pool NHWC ─▶ … ─▶ global pool ─▶ reshape ─▶ dense

One walk, producers first. Every value is kept in one of two forms, as written or with channels last; each
operator says which form it wants and in which it answers, and the other form is made at most once. So
transposes stand only where a chain of channels-last operators begins or ends: around user te functions, and
at the edges of the model. Vectors along channels, W = H = 1 and C = 1 need none: there a transpose is a
reshape. Weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.graph.function import TeFunction
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rewriting import Uses, rewrite_graph
from autotensor.graph.rules.canonical import canonicalize, reshape, transpose, transposition
from autotensor.graph.rules.constants import fold_constants
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import Kind

TO_LAST = (0, 2, 3, 1)  # NCHW ──▶ NHWC
TO_FIRST = (0, 3, 1, 2)  # NHWC ──▶ NCHW
PLACE = {0: 0, 1: 3, 2: 1, 3: 2}  # where an axis of NCHW stands in NHWC


class Forms:
    """Values of the old graph in the new one: as written, with channels last, or both."""

    def __init__(self) -> None:
        self._written: dict[GraphNode, GraphNode] = {}
        self._last: dict[GraphNode, GraphNode] = {}
        self._made_last: set[GraphNode] = set()

    def written(self, node: GraphNode) -> GraphNode:
        if node not in self._written:
            self._written[node] = transpose(self._last[node], TO_FIRST)
        return self._written[node]

    def last(self, node: GraphNode) -> GraphNode:
        """The value, of four axes, with channels last."""
        if node not in self._last:
            self._last[node] = transpose(self._written[node], TO_LAST)
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
    """The graph with NCHW operators and what lies between them in NHWC."""
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
    first = node.inputs[0]
    if node.has_attr("layout") and node.attr("layout") == "NCHW" and len(first.shape) == 4:
        return node.given((forms.last(first), *(forms.written(x) for x in node.inputs[1:])), layout="NHWC")
    if len(node.shape) != 4 or not any(forms.is_last(x) for x in node.inputs):
        return None
    if node.op in BY_AXES:
        if any(len(x.shape) != 4 for x in node.inputs[:1]):
            return None
        changed = BY_AXES[node.op](node)
        if changed is None:
            return None
        whole = node.inputs if node.op == "concat" else node.inputs[:1]
        rest = node.inputs[len(whole) :]
        return node.given([*(forms.last(x) for x in whole), *(forms.written(x) for x in rest)], **changed)
    if node.kind is Kind.ELEMENTWISE and not node.has_attr("axis"):
        return node.given(_operand(x, forms) for x in node.inputs)
    return None


def _function(node: Apply, fn: TeFunction, forms: Forms) -> GraphNode | None:
    """A user's function: a pointwise one has no layout; others keep the one that they are written for."""
    if len(node.shape) != 4 or not fn.pointwise or not any(forms.is_last(x) for x in node.inputs):
        return None
    inputs = [_operand(x, forms) for x in node.inputs]
    shape = tuple(node.shape[a] for a in TO_LAST)
    return apply(TeFunction.trace(lambda *t: fn.over(t, shape), [x.type for x in inputs], fn.name), inputs)


def _reduced(node: Apply, forms: Forms) -> GraphNode | None:
    """A reduction of a channels-last value to a result as written: mean over h and w gives [N, C]."""
    if node.op not in REDUCTIONS or not forms.is_last(node.inputs[0]) or node.attr("keepdims"):
        return None
    over = node.attr("axis")
    if over is None:
        return None if node.op in NUMBERING else node.given((forms.last(node.inputs[0]),))
    gone = {a % 4 for a in (over if isinstance(over, tuple) else (over,))}
    left = [PLACE[a] for a in range(4) if a not in gone]
    if left != sorted(left):
        return None
    return node.given((forms.last(node.inputs[0]),), axis=_places(over))


def _operand(node: GraphNode, forms: Forms) -> GraphNode:
    """An elementwise operand with channels last; ones of lower rank get their missing axes first."""
    if len(node.shape) == 4:
        return forms.last(node)
    written = forms.written(node)
    full = reshape(written, (*(1,) * (4 - len(node.shape)), *node.shape))
    return transpose(full, TO_LAST) if node.shape else written


# -- operators that name axes: their attributes for channels last, None when they cannot be moved --------


def _axis(node: Apply) -> dict[str, Any]:
    return {"axis": PLACE[node.attr("axis") % 4]}


def _axes(node: Apply) -> dict[str, Any] | None:
    """Reductions that keep the rank."""
    axis = node.attr("axis")
    if not node.attr("keepdims") or (axis is None and node.op in NUMBERING):
        return None
    return {} if axis is None else {"axis": _places(axis)}


def _places(axis: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return tuple(sorted(PLACE[a % 4] for a in axis)) if isinstance(axis, tuple) else PLACE[axis % 4]


def _pads(node: Apply) -> dict[str, Any]:
    return {"pads": tuple(node.attr("pads")[a] for a in TO_LAST)}


def _slice(node: Apply) -> dict[str, Any]:
    count = len(node.attr("begin"))
    axes = node.attr("axes") or tuple(range(count))
    return {"axes": tuple(PLACE[a % 4] for a in axes)}


NUMBERING = frozenset({"argmax", "argmin"})  # over all axes they number elements in the order as written
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod"}) | NUMBERING

BY_AXES: dict[str | TeFunction, Callable[[Apply], dict[str, Any] | None]] = {
    "batch_norm": _axis,
    "group_norm": _axis,
    "softmax": _axis,
    "log_softmax": _axis,
    "concat": _axis,
    "pad": _pads,
    "slice": _slice,
    **dict.fromkeys(REDUCTIONS, _axes),
}


# -- afterwards: flattening ------------------------------------------------------------------------------


@rule(Apply)
def flattened_weights(node: Apply, uses: Uses) -> GraphNode | None:
    """dense(reshape(transpose(x, to NCHW)), w) ──▶ dense(reshape(x), w with its columns in NHWC order)"""
    match node:
        case Apply("dense", (Apply("reshape", (Apply("transpose", (x,)) as turned,)), Constant() as w)):
            pass
        case _:
            return None
    if (
        len(x.shape) != 4
        or transposition(turned) != TO_FIRST
        or node.inputs[0].shape != (x.shape[0], w.shape[1])
    ):
        return None
    _, c, h, width = turned.shape
    columns = w.array.reshape(-1, c, h, width).transpose(0, 2, 3, 1).reshape(w.shape)  # [n, h*w*c]
    return node.given((reshape(x, node.inputs[0].shape), constant(np.ascontiguousarray(columns), w.name)))


AFTER = Rules(flattened_weights)
