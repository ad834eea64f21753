"""Products of matrices."""

from __future__ import annotations

from math import prod
from typing import Any

from autotensor.frontends.torch.families.elementwise import add, mul
from autotensor.frontends.torch.registry import converts
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


@converts("aten.linear.default")
def linear(x: GraphNode, w: GraphNode, bias: GraphNode | None = None) -> Any:
    """x: [..., k], w: [n, k] (or [k]) ──▶ [..., n]."""
    if w.ndim == 1:
        return matmul(x, w) if bias is None else add(matmul(x, w), bias)
    rows = ops.reshape(x, shape=(prod(x.shape[:-1]), x.shape[-1]))
    y = ops.dense(rows, w) if bias is None else ops.dense(rows, w, bias)
    return ops.reshape(y, shape=(*x.shape[:-1], w.shape[0]))


mm, bmm = converts("aten.mm.default")(ops.matmul), converts("aten.bmm.default")(ops.batch_matmul)


@converts("aten.addmm.default", "aten.baddbmm.default")
def addmm(c: GraphNode, a: GraphNode, b: GraphNode, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * c + alpha * (a @ b)."""
    y = mm(a, b) if a.ndim == 2 else bmm(a, b)
    y = y if alpha == 1 else mul(y, alpha)
    return y if beta == 0 else add(y, c if beta == 1 else mul(c, beta))


@converts("aten.matmul.default", "aten.mv.default", "aten.dot.default")
def matmul(a: GraphNode, b: GraphNode) -> Any:
    """NumPy's product: vectors are rows on the left and columns on the right, leading axes broadcast."""
    left = ops.unsqueeze(a, axes=(0,)) if a.ndim == 1 else a
    right = ops.unsqueeze(b, axes=(1,)) if b.ndim == 1 else b
    if right.ndim == 2:
        rows = left if left.ndim == 2 else ops.reshape(left, shape=(-1, left.shape[-1]))
        y = ops.reshape(ops.matmul(rows, right), shape=(*left.shape[:-1], right.shape[-1]))
    else:
        y = ops.batch_matmul(left, right)
    drop = ([-2] if a.ndim == 1 else []) + ([-1] if b.ndim == 1 else [])
    return ops.squeeze(y, axes=tuple(drop)) if drop else y
