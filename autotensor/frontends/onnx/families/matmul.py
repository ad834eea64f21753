"""Products of matrices: MatMul, Gemm, Einsum."""

from __future__ import annotations

import math
import string
from functools import partial

from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, widened
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


@converts("MatMul")
def matmul(c: Call) -> Value:
    return product(c[0], c[1])


def product(a: GraphNode, b: GraphNode, zeros: tuple[int, int] | None = None) -> GraphNode:
    """NumPy's matmul: vectors are rows on the left and columns on the right. zeros: the zero points if the
    operands are bytes."""
    return widened(partial(_product, zeros=zeros), a, b)


def _product(a: GraphNode, b: GraphNode, zeros: tuple[int, int] | None) -> GraphNode:
    row, column = a.ndim == 1, b.ndim == 1
    left = ops.reshape(a, shape=(1, *a.shape)) if row else a
    right = ops.reshape(b, shape=(*b.shape, 1)) if column else b
    y = _matrices(left, right, zeros)
    if not (row or column):
        return y
    shape = (*y.shape[:-2], *(() if row else y.shape[-2:-1]), *(() if column else y.shape[-1:]))
    return ops.reshape(y, shape=shape)


def _matrices(a: GraphNode, b: GraphNode, zeros: tuple[int, int] | None) -> GraphNode:
    if a.ndim == b.ndim == 2:
        return ops.matmul(a, b, zeros=zeros)
    if b.ndim == 2:  # one matrix for all rows
        rows = ops.reshape(a, shape=(math.prod(a.shape[:-1]), a.shape[-1]))
        return ops.reshape(ops.matmul(rows, b, zeros=zeros), shape=(*a.shape[:-1], b.shape[-1]))
    return ops.batch_matmul(a, b, zeros=zeros)


@converts("Gemm")
def gemm(c: Call) -> Value:
    a, b, bias = c[0], c[1], c.get(2)
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    turn_a, turn_b = c.flag("transA"), c.flag("transB")
    if a.ndim != 2 or b.ndim != 2:
        raise c.malformed(f"operands of shapes {a.shape} and {b.shape} are not matrices.")
    if not turn_a and turn_b and alpha == 1.0:
        y = ops.dense(a, b, bias) if bias is not None and bias.shape == b.shape[:1] and beta == 1.0 else None
        if y is not None:
            return y
        y = ops.dense(a, b)
    else:
        y = ops.matmul(a, b, transpose_a=turn_a, transpose_b=turn_b)
    y = _scaled(y, alpha)
    if bias is None or beta == 0.0:
        return y
    return y + _scaled(bias, beta)


def _scaled(x: GraphNode, by: float) -> GraphNode:
    if by == 1.0:
        return x
    if x.dtype.is_int:
        return as_type(as_type(x, "float64") * by, x.dtype)
    return x * by


@converts("Einsum")
def einsum(c: Call) -> Value:
    equation = c.attr("equation").replace(" ", "")
    return ops.einsum(*c.tensors, equation=written_out(c, equation))


def written_out(c: Call, equation: str) -> str:
    """The equation with letters in place of its ellipses, and with a result if it had none.

    `...ij,jk` of ranks 3 and 2 becomes `Aij,jk->Aik`.
    """
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(c.tensors):
        raise c.malformed(f"equation {equation!r} does not fit {len(c.tensors)} operands.")
    free = [letter for letter in string.ascii_letters[::-1] if letter not in equation]
    ranks = [x.ndim - len(t.replace("...", "")) for t, x in zip(terms, c.tensors, strict=True) if "..." in t]
    shared = "".join(free[: max(ranks, default=0)])
    out = []
    for term, x in zip(terms, c.tensors, strict=True):
        count = x.ndim - len(term.replace("...", ""))
        if any(x.shape[n] == 1 for n in range(term.find("..."), term.find("...") + count)) and len(ranks) > 1:
            raise c.unsupported("an ellipsis that broadcasts an extent of 1.")
        out.append(term.replace("...", shared[len(shared) - count :]))
    if not arrow:
        letters = "".join(out)
        result = ("..." if ranks else "") + "".join(
            sorted({x for x in letters if letters.count(x) == 1 and x not in shared})
        )
    return f"{','.join(out)}->{result.replace('...', shared)}"
