"""Gives the different forms that frontends write one form, and removes operators that do nothing.

flatten, squeeze, unsqueeze, reshape   ──▶  reshape(shape), one in a row
conv2d(x, w, bias), bias_add           ──▶  add(…, bias shaped to broadcast)
transpose(transpose(x))                ──▶  one transpose, or none; a reshape when only extents of 1 move
transpose(reshape(transpose(x)))       ──▶  the same, where tokens become an image or an image becomes tokens
conv2d(pad(x))                         ──▶  conv2d with padding
add(constant, x)                       ──▶  add(x, constant)
matmul(x, constant)                    ──▶  dense(x, constant transposed)
add(reshape(dense(x)), bias)           ──▶  reshape(add(dense(x), bias))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import Kind

COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
IDEMPOTENT = frozenset({"relu", "relu6", "abs", "floor", "ceil", "round"})
NOTHING = frozenset({"identity", "dropout"})  # at inference
JOINED = 64  # most tensors of one concat
# attribute of a view that keeps two equal computations apart; without it they would be one
RECOMPUTED = "recomputed"


def reshape(x: GraphNode, shape: Iterable[int]) -> GraphNode:
    """x in another shape, or x itself if it already has this shape."""
    wanted = tuple(shape)
    return x if x.shape == wanted else apply("reshape", (x,), {"shape": wanted})


def transpose(x: GraphNode, axes: Sequence[int]) -> GraphNode:
    """x with its axis axes[n] as axis n. If only extents of 1 move, the result is a reshape, or x itself."""
    if tuple(axes) == tuple(range(len(axes))):
        return x
    long = [a for a in axes if x.shape[a] != 1]
    if long == sorted(long):
        return reshape(x, (x.shape[a] for a in axes))
    return apply("transpose", (x,), {"axes": tuple(axes)})


def transposition(node: Apply) -> tuple[int, ...]:
    """The axes of a transpose, all of them, counted from the front."""
    rank = node.ndim
    axes = node.attr("axes") or tuple(reversed(range(rank)))
    return tuple(a % rank for a in axes)


@rule(Apply)
def nothing(node: Apply, uses: Uses) -> GraphNode | None:
    """identity(x) ──▶ x;  cast(x) to its own type ──▶ x;  relu(relu(x)) ──▶ relu(x)"""
    match node:
        case Apply(op, (x, *_)) if op in NOTHING or (op == "cast" and x.type == node.type):
            return x
        case Apply(op, (Apply(inner) as x,)) if op == inner and op in IDEMPOTENT:
            return x
        case Apply("concat", (x,)):
            return x
        case Apply("pad", (x,)) if x.shape == node.shape and not any(map(any, node.attr("pads"))):
            return x
    return None


@rule(Apply)
def one_view(node: Apply, uses: Uses) -> GraphNode | None:
    """Views become reshapes; reshape(reshape(x)) ──▶ reshape(x);  to its own shape ──▶ x"""
    if node.kind is not Kind.VIEW or node.op == RECOMPUTED:
        return None
    x = node.inputs[0]
    while isinstance(x, Apply) and x.kind is Kind.VIEW and x.op != RECOMPUTED:
        x = x.inputs[0]
    return reshape(x, node.shape)


@rule(Apply)
def many_at_once(node: Apply, uses: Uses) -> GraphNode | None:
    """concat of hundreds ──▶ concat of concats, because a kernel can have only so many arguments"""
    if node.op != "concat" or len(node.inputs) <= JOINED:
        return None
    groups = (node.inputs[n : n + JOINED] for n in range(0, len(node.inputs), JOINED))
    return node.given(node.given(g) for g in groups)


@rule(Apply)
def transposes(node: Apply, uses: Uses) -> GraphNode | None:
    """transpose(transpose(x, p), q) ──▶ transpose(x, p∘q)"""
    match node:
        case Apply("transpose", (Apply("transpose", (x,)) as inner,)):
            first = transposition(inner)
            return transpose(x, [first[a] for a in transposition(node)])
        case Apply("transpose", (x,)):
            return transpose(x, transposition(node))
    return None


@rule(Apply)
def transposes_around_view(node: Apply, uses: Uses) -> GraphNode | None:
    """transpose(reshape(transpose(x)))  ──▶  reshape(transpose(reshape(x))), or reshape(x)

    [n, hw, c] ─▶ [n, c, hw] ─▶ [n, c, h, w] ─▶ [n, h, w, c] moves no elements. The new transpose has no more
    axes than the old ones.
    """
    match node:
        case Apply("transpose", (Apply("reshape", (Apply("transpose", (x,)) as first,)) as view,)):
            pass
        case _:
            return None
    parts = common_parts(first.shape, view.shape)
    if parts is None:
        return None
    sizes, of_first, of_view = parts
    axes = transposition(first)
    before = [n for a in range(len(axes)) for n in of_first[axes.index(a)]]
    after = [n for a in transposition(node) for n in of_view[a]]
    runs = _runs(before, after)
    order = sorted(range(len(runs)), key=lambda r: before.index(runs[r][0]))
    if len(runs) > 1 and (len(runs) > max(x.ndim, node.ndim) or uses[view] != 1 or uses[first] != 1):
        return None
    apart = reshape(x, (prod(sizes[n] for n in runs[r]) for r in order))
    return reshape(transpose(apart, [order.index(r) for r in range(len(runs))]), node.shape)


def common_parts(
    a: Sequence[int], b: Sequence[int]
) -> tuple[list[int], list[list[int]], list[list[int]]] | None:
    """The extents whose products are the axes of both shapes, in order, and for each axis its extents.

    None if the axes overlap only in part.

    >>> common_parts((2, 12), (2, 3, 4))
    ([2, 3, 4], [[0], [1, 2]], [[0], [1], [2]])
    >>> common_parts((4, 6), (6, 4)) is None
    True
    """
    sizes: list[int] = []
    owners: tuple[list[list[int]], list[list[int]]] = ([[] for _ in a], [[] for _ in b])
    left, right = list(a), list(b)
    i = j = 0
    while True:
        while i < len(left) and left[i] == 1:
            i += 1
        while j < len(right) and right[j] == 1:
            j += 1
        if i == len(left) or j == len(right):
            return (sizes, *owners) if (i, j) == (len(left), len(right)) else None
        size = min(left[i], right[j])
        if size == 0 or left[i] % size or right[j] % size:
            return None
        owners[0][i].append(len(sizes))
        owners[1][j].append(len(sizes))
        sizes.append(size)
        left[i] //= size
        right[j] //= size


def _runs(before: Sequence[int], after: Sequence[int]) -> list[list[int]]:
    """The numbers of `after`, split between neighbours that do not follow each other in `before`."""
    follows = dict(pairwise(before))
    runs: list[list[int]] = []
    for n in after:
        if runs and follows.get(runs[-1][-1]) == n:
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


@rule(Apply)
def biases(node: Apply, uses: Uses) -> GraphNode | None:
    """conv2d(x, w, b) ──▶ add(conv2d(x, w), b);  bias_add(x, b) ──▶ add(x, b)"""
    match node:
        case Apply("conv2d" | "conv1d" | "conv3d" | "conv2d_transpose", (x, w, bias)):
            y, axis = node.given((x, w)), str(node.attr("layout")).index("C")
        case Apply("dense", (x, w, bias)):
            y, axis = node.given((x, w)), 1
        case Apply("bias_add", (y, bias)):
            axis = node.attr("axis") % y.ndim
        case _:
            return None
    trailing = y.ndim - axis - 1
    return apply("add", (y, reshape(bias, (bias.shape[0], *(1,) * trailing))))


@rule(Apply)
def constants_last(node: Apply, uses: Uses) -> GraphNode | None:
    """add(c, x) ──▶ add(x, c)"""
    match node:
        case Apply(op, (Constant() as c, x)) if op in COMMUTATIVE and not isinstance(x, Constant):
            return node.given((x, c))
    return None


@rule(Apply)
def product_with_constant(node: Apply, uses: Uses) -> GraphNode | None:
    """matmul(x, c) ──▶ dense(x, cᵀ);  batch_matmul(x[…, m, k], c[k, n]) ──▶ the same over all rows at once"""
    match node:
        case Apply("matmul" | "batch_matmul", (x, Constant() as c)):
            pass
        case _:
            return None
    if node.attr("transpose_a") or (x.dtype != c.dtype and node.attr("zeros") is None):
        return None
    matrix = _one_matrix(c.array)
    if matrix is None or node.shape[:-1] != x.shape[:-1]:
        return None
    weights = matrix if node.attr("transpose_b") else np.ascontiguousarray(matrix.T)
    rows = reshape(x, (prod(x.shape[:-1]), x.shape[-1]))
    y = apply("dense", (rows, constant(weights, c.name)), {"zeros": node.attr("zeros")})
    return reshape(y, node.shape)


def _one_matrix(stack: Array) -> Array | None:
    """The matrix, if all matrices of a stack […, k, n] are equal as after a broadcast; None otherwise."""
    if stack.ndim < 2 or stack.size == 0:
        return None
    matrices = stack.reshape(-1, *stack.shape[-2:])
    first: Array = matrices[0]
    return first if all(np.array_equal(m, first) for m in matrices[1:]) else None


@rule(Apply)
def bias_below_view(node: Apply, uses: Uses) -> GraphNode | None:
    """add(reshape(dense(x)), b) ──▶ reshape(add(dense(x), b))        if b has one number for each column"""
    match node:
        case Apply("add", (Apply("reshape", (Apply("dense") as y,)) as view, Constant() as b)):
            columns = y.shape[1]
        case _:
            return None
    if uses[view] != 1 or uses[y] != 1 or view.shape[-1:] != (columns,) or node.shape != view.shape:
        return None
    if b.array.size != 1 and (b.array.size != columns or b.shape[-1] != columns):
        return None
    return reshape(apply("add", (y, constant(b.array.reshape(-1), b.name))), node.shape)


@rule(Apply)
def padding_into_conv(node: Apply, uses: Uses) -> GraphNode | None:
    """conv2d(pad(x, zeros)) ──▶ conv2d(x) with more padding"""
    match node:
        case Apply("conv2d", (Apply("pad", (x,)) as padded, *rest)):
            pass
        case _:
            return None
    if padded.attr("value") != (node.attr("zeros") or (0, 0))[0]:
        return None
    layout = str(node.attr("layout"))
    pads = dict(zip(layout, padded.attr("pads"), strict=True))
    if any(pads["N"]) or any(pads["C"]) or min(*pads["H"], *pads["W"]) < 0:
        return None
    top, left, bottom, right = four(node.attr("padding"))
    total = (top + pads["H"][0], left + pads["W"][0], bottom + pads["H"][1], right + pads["W"][1])
    return node.given((x, *rest), padding=simplest(total))


def four(padding: int | tuple[int, ...]) -> tuple[int, ...]:
    """Padding as (top, left, bottom, right)."""
    given = (padding, padding) if isinstance(padding, int) else padding
    return given * 2 if len(given) == 2 else given


def simplest(padding: tuple[int, ...]) -> int | tuple[int, ...]:
    """(1, 1, 1, 1) ──▶ 1;  (1, 2, 1, 2) ──▶ (1, 2)"""
    if len(set(padding)) == 1:
        return padding[0]
    return padding[:2] if padding[:2] == padding[2:] else padding


@rule(Apply)
def regular_window(node: Apply, uses: Uses) -> GraphNode | None:
    """stride=(1, 1) ──▶ stride=1, padding=(1, 1) ──▶ padding=1, so that equal work looks equal."""
    changed: dict[str, object] = {}
    for name, value in node.attrs:
        if (
            name in ("stride", "dilation", "kernel", "padding")
            and isinstance(value, tuple)
            and node.op in WINDOWED
        ):
            short = (
                simplest(four(value)) if name == "padding" else value[0] if len(set(value)) == 1 else value
            )
            changed |= {name: short} if short != value else {}
    return node.given(node.inputs, **changed) if changed else None


WINDOWED = frozenset({"conv2d", "conv2d_transpose", "max_pool2d", "avg_pool2d"})

CANONICAL = Rules(
    nothing,
    one_view,
    many_at_once,
    transposes,
    transposes_around_view,
    biases,
    constants_last,
    product_with_constant,
    bias_below_view,
    padding_into_conv,
    regular_window,
)


def canonicalize(graph: Graph) -> Graph:
    return rewrite_graph(graph, CANONICAL, name="canonicalize")
