"""Recognises layer, RMS and group norm that are written out in single operators, as exporters write them.

    d = x - mean(x);  d / sqrt(mean(d²) + eps) * gamma + beta     ──▶  layer_norm(x, gamma, beta)
    x / sqrt(mean(x²) + eps) * gamma                              ──▶  rms_norm(x, gamma)

    reshape(group_norm(reshape(x, (n, groups, rest)))) * gamma[c] + beta[c]   ──▶  group_norm(x, gamma, beta)

Means are over the last axes and keep them. Squares may be powers or products, and the division may be a
division by a root or a product with its inverse. mean(x²) - mean(x)² is not matched: if the mean is large,
this difference cancels, and the operator would give another result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.scalar_constants import is_wide_float, number_of, shifted
from autotensor.ir.rewrite import Rules, rule


@dataclass(frozen=True, slots=True)
class _Root:
    """The x of x / sqrt(mean(x²) + eps), the first axis of the mean, and eps."""

    x: GraphNode
    axis: int
    eps: float
    square: Apply


@rule(Apply)
def norms(node: Apply, uses: Uses) -> GraphNode | None:
    """x / sqrt(mean(x²) + eps) ──▶ rms_norm(x, 1);  with x - mean(x) for x ──▶ layer_norm(x, 1, 0)"""
    root = _divided(node, uses) if node.op in ("multiply", "divide") and is_wide_float(node) else None
    if root is None:
        return None
    shape = root.x.shape[root.axis :]
    ones = constant(np.ones(shape, node.dtype.numpy))
    attrs = {"axis": root.axis - node.ndim, "eps": root.eps}
    match root.x:
        case Apply("subtract", (x, Apply("mean", (y,)) as mean)) as away if (
            y is x and x.shape == away.shape and _trailing(mean) == root.axis and _only_here(away, root, uses)
        ):
            return apply("layer_norm", (x, ones, constant(np.zeros(shape, node.dtype.numpy))), attrs)
    return apply("rms_norm", (root.x, ones), attrs)


def _only_here(away: Apply, root: _Root, uses: Uses) -> bool:
    """Whether only the square and the division read the differences. If there are other readers, the
    differences are computed anyway."""
    return uses[away] <= 1 + sum(i is away for i in root.square.inputs)


def _divided(node: Apply, uses: Uses) -> _Root | None:
    """x and its root mean square, if the node is the division of both."""
    match node:
        case Apply("divide", (x, Apply("sqrt", (inner,)) as root)) if uses[root] == 1:
            return _root(x, inner, node, uses)
        case Apply("multiply", (x, other)):
            for a, b in ((x, other), (other, x)):
                below = _inverse_of(b, uses)
                if below is not None and (found := _root(a, below, node, uses)) is not None:
                    return found
    return None


def _inverse_of(node: GraphNode, uses: Uses) -> GraphNode | None:
    """v, if the node is 1 / sqrt(v) and has one reader."""
    if uses[node] != 1:
        return None
    match node:
        case Apply("rsqrt", (v,)) | Apply("reciprocal", (Apply("sqrt", (v,)),)):
            return v
        case Apply("divide", (Constant() as one, Apply("sqrt", (v,)))) if number_of(one) == 1.0:
            return v
        case Apply("power", (v, Constant() as exponent)) if number_of(exponent) == -0.5:
            return v
    return None


def _root(x: GraphNode, inner: GraphNode, node: Apply, uses: Uses) -> _Root | None:
    """inner: mean(x²) + eps. If it had another reader, such as a backward pass, the mean would be computed
    twice."""
    moved = shifted(inner)
    if moved is None or moved[0] < 0 or x.shape != node.shape or uses[inner] != 1:
        return None
    match moved[1]:
        case Apply("mean", (Apply() as square,)) as mean if uses[mean] == 1 and _is_square(square, x):
            axis = _trailing(mean)
            return None if axis is None else _Root(x, axis, moved[0], square)
    return None


def _is_square(node: Apply, x: GraphNode) -> bool:
    match node:
        case Apply("multiply", (a, b)):
            return a is x and b is x
        case Apply("power", (a, exponent)):
            return a is x and node.shape == x.shape and number_of(exponent) == 2.0
    return False


def _trailing(mean: Apply) -> int | None:
    """The first axis of a mean over the last axes that keeps them; None for other means."""
    rank = len(mean.inputs[0].shape)
    given: Any = mean.attr("axis")
    axes = range(rank) if given is None else (given,) if isinstance(given, int) else given
    over = sorted(int(a) % rank for a in axes)
    if not over or not mean.attr("keepdims") or over != list(range(over[0], rank)):
        return None
    return over[0]


@rule(Apply)
def gain(node: Apply, uses: Uses) -> GraphNode | None:
    """layer_norm(x, 1, 0) * gamma ──▶ layer_norm(x, gamma, 0), and rms_norm likewise"""
    match node:
        case Apply("multiply", (Apply("layer_norm" | "rms_norm") as n, g)):
            pass
        case Apply("multiply", (g, Apply("layer_norm" | "rms_norm") as n)):
            pass
        case _:
            return None
    if uses[n] != 1 or n.shape != node.shape or number_of(n.inputs[1]) != 1.0:
        return None
    if n.op == "layer_norm" and number_of(n.inputs[2]) != 0.0:
        return None
    gamma = _of_shape(g, n.inputs[1].shape, node.ndim)
    return None if gamma is None else n.given((n.inputs[0], gamma, *n.inputs[2:]))


@rule(Apply)
def bias(node: Apply, uses: Uses) -> GraphNode | None:
    """layer_norm(x, gamma, 0) + beta ──▶ layer_norm(x, gamma, beta)"""
    match node:
        case Apply("add", (Apply("layer_norm") as n, b)) | Apply("add", (b, Apply("layer_norm") as n)):
            pass
        case _:
            return None
    if uses[n] != 1 or n.shape != node.shape or number_of(n.inputs[2]) != 0.0:
        return None
    beta = _of_shape(b, n.inputs[2].shape, node.ndim)
    return None if beta is None else n.given((*n.inputs[:2], beta))


def _of_shape(value: GraphNode, shape: tuple[int, ...], rank: int) -> Constant | None:
    """A constant that broadcasts to a tensor of this rank, in the shape of the normalised axes; else None.

    Only a constant counts: a sum with another tensor of this shape is not a norm's bias.
    """
    if not isinstance(value, Constant) or value.ndim > rank:
        return None
    lead = max(value.ndim - len(shape), 0)
    if any(n != 1 for n in value.shape[:lead]):
        return None
    array = np.broadcast_to(value.array.reshape(value.shape[lead:]), shape)
    return constant(array, value.name)


@rule(Apply)
def group(node: Apply, uses: Uses) -> GraphNode | None:
    """reshape(group_norm(reshape(x, (n, groups, rest)), g, b), as x) ──▶ group_norm(x, g and b of its group)

    Exporters write torch's group norms in this way, and then scale their channels (`group_affine`).
    """
    match node:
        case Apply(
            "reshape",
            (Apply("group_norm", (Apply("reshape", (x,)) as rows, Constant() as g, Constant() as b)) as n,),
        ) if uses[n] == 1 and node.shape == x.shape and _is_first(n):
            pass
        case _:
            return None
    groups = int(n.attr("groups"))
    if x.ndim < 2 or rows.shape[:2] != (x.shape[0], groups) or x.shape[1] % groups:
        return None
    each = x.shape[1] // groups
    spread = [constant(np.repeat(v.array, each), v.name) for v in (g, b)]
    return n.given((x, *spread))


def _is_first(n: Apply) -> bool:
    """Whether the channels of a group norm are its axis 1."""
    return int(n.attr("axis")) % n.ndim == 1


@rule(Apply)
def group_affine(node: Apply, uses: Uses) -> GraphNode | None:
    """group_norm(x, g, b) * c[channels] ──▶ group_norm(x, g * c, b * c)
    group_norm(x, g, b) + c[channels] ──▶ group_norm(x, g, b + c)
    """
    if node.op not in ("multiply", "add"):
        return None
    for y, other in (node.inputs, node.inputs[::-1]):
        match y, other:
            case (Apply("group_norm", (x, Constant() as g, Constant() as b)) as n, Constant()) if (
                uses[n] == 1 and n.shape == node.shape and _is_first(n)
            ):
                pass
            case _:
                continue
        rank = n.ndim
        whole = (1,) * (rank - other.ndim) + other.shape
        if all(m == 1 for a, m in enumerate(whole) if a != 1):
            c = np.broadcast_to(other.array.reshape(-1), (n.shape[1],))
            if node.op == "add":
                return n.given((x, g, constant(b.array + c, b.name)))
            return n.given((x, *(constant(v.array * c, v.name) for v in (g, b))))
    return None


NORMS = Rules(norms, gain, bias, group, group_affine)


def recognise_norms(graph: Graph) -> Graph:
    return rewrite_graph(graph, NORMS, name="norms from parts")
