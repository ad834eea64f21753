"""Systems of equations: triangular systems of any size; others by elimination, with each step in the graph.

    inverse of a unit lower triangle in log2(n) steps: the inverses of two blocks give that of both together

        | A    |-1     | A'        |
        | C  B |    =  | -B'CA' B' |

    LU with partial pivoting, Cholesky: a step for each row

(Golub and Van Loan, Matrix Computations, 3.4 and 4.2; Higham, Accuracy and Stability, 14.2.)

A matrix without an inverse gives inf or nan, because data are not checked. torch raises an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.matmul import matmul
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.frontends.values import as_type, cut
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant

MOST_ROWS = 16  # most rows of a matrix for an elimination, because each row costs a few kernels


@converts("aten._linalg_check_errors.default", known=True)
def check_errors(info: GraphNode, name: str, *, is_matrix: bool) -> None:
    """Does nothing: autotensor does not check data, and torch itself checks constants."""


# -- triangles -------------------------------------------------------------------------------------------


@converts("aten.linalg_solve_triangular.default", known=True)
def solve_triangular(
    a: GraphNode, b: GraphNode, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """x of a @ x = b, or x @ a = b; the other triangle of `a` is not read."""
    if not left:
        turned = solve_triangular(_turned(a), _turned(b), upper=not upper, unitriangular=unitriangular)
        return _turned(turned)
    if not unitriangular:
        d = ops.sum(ops.where(_eye(a), a, _zero(a)), axis=(-1,), keepdims=True)
        a, b = a / d, b / d
    inverse = _inverse_of_unit_lower(_turned(a) if upper else a)
    return matmul(_turned(inverse) if upper else inverse, b)


@converts("aten.triangular_solve.default", known=True)
def triangular_solve(
    b: GraphNode, a: GraphNode, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    if transpose:
        a, upper = _turned(a), not upper
    return (
        solve_triangular(a, b, upper=upper, unitriangular=unitriangular),
        Missing("the copied coefficients of triangular_solve"),
    )


def _inverse_of_unit_lower(a: GraphNode) -> GraphNode:
    """The inverse of a unit lower triangle. Elements above the diagonal, or on it, are not read."""
    n = a.shape[-1]
    rows, columns = np.arange(n)[:, None], np.arange(n)
    inverse: GraphNode = constant(np.eye(n, dtype=a.dtype.numpy))
    size = 1
    while size < n:
        below = (rows // size == columns // size + 1) & (rows // (2 * size) == columns // (2 * size))
        c = ops.where(constant(below), a, _zero(a))
        inverse = inverse - (c if size == 1 else matmul(matmul(inverse, c), inverse))
        size *= 2
    return inverse


# -- LU --------------------------------------------------------------------------------------------------


@converts("aten.linalg_lu_factor_ex.default", known=True)
def lu_factor(a: GraphNode, *, pivot: bool = True, check_errors: bool = False) -> Any:
    lu, swaps = _lu(a, pivot)
    return lu, _pivots(swaps, a), _info(lu)


@converts("aten.linalg_lu_solve.default", known=True)
def lu_solve(
    lu: GraphNode, pivots: GraphNode, b: GraphNode, *, left: bool = True, adjoint: bool = False
) -> Any:
    """pivots: [..., n], for each row the index (from 1) of the row with which it was swapped."""
    n = lu.shape[-1]
    _check_size(n)
    at = ops.unsqueeze(as_type(pivots, "int64") - 1, axes=(-1,))
    swaps = [_part(at, -2, k) for k in range(n)]
    if not left:
        return _turned(_solved(lu, swaps, _turned(b), not adjoint))
    return _solved(lu, swaps, b, adjoint)


@converts("aten._linalg_solve_ex.default", known=True)
def solve(a: GraphNode, b: GraphNode, *, left: bool = True, check_errors: bool = False) -> Any:
    """x of a @ x = b, or x @ a = b. b: a matrix, or a vector, for each matrix of a."""
    is_vector = b.ndim == 1 or b.shape == a.shape[:-1]
    columns = ops.unsqueeze(b, axes=(-1,)) if is_vector else b
    lu, swaps = _lu(a)
    if left or is_vector:
        x = _solved(lu, swaps, columns)
    else:
        x = _turned(_solved(lu, swaps, _turned(columns), adjoint=True))
    x = ops.squeeze(x, axes=(-1,)) if is_vector else x
    return x, lu, _pivots(swaps, a), _info(lu)


@converts("aten.linalg_inv_ex.default", known=True)
def inverse(a: GraphNode, *, check_errors: bool = False) -> Any:
    lu, swaps = _lu(a)
    return _solved(lu, swaps, constant(np.eye(a.shape[-1], dtype=a.dtype.numpy))), _info(lu)


@converts("aten._linalg_det.default", known=True)
def determinant(a: GraphNode) -> Any:
    lu, swaps = _lu(a)
    found = _sign_of(swaps, a) * ops.prod(_diagonal(lu), axis=(-1,))
    return found, lu, _pivots(swaps, a)


@converts("aten._linalg_slogdet.default", known=True)
def log_determinant(a: GraphNode) -> Any:
    lu, swaps = _lu(a)
    d = _diagonal(lu)
    sign = _sign_of(swaps, a) * ops.prod(ops.sign(d), axis=(-1,))
    return sign, ops.sum(ops.log(ops.abs(d)), axis=(-1,)), lu, _pivots(swaps, a)


def _lu(a: GraphNode, pivot: bool = True) -> tuple[GraphNode, list[GraphNode]]:
    """A matrix with L below the diagonal and U on and above it. Then for each row the index [..., 1, 1] of
    the row with which it was swapped."""
    m, n = a.shape[-2:]
    _check_size(min(m, n))
    rows, columns = np.arange(m)[:, None], np.arange(n)
    swaps = []
    for k in range(min(m, n)):
        column = ops.abs(_part(a, -1, k))
        candidates = ops.where(constant(rows >= k), column, constant(-1, dtype=a.dtype))
        first = as_type(ops.argmax(candidates, axis=-2, keepdims=True), "int64")
        swaps.append(first if pivot else first * 0 + k)
        a = _swapped(a, k, swaps[k])
        top = _part(a, -2, k)
        head, left = _part(top, -1, k), _part(a, -1, k)
        factor = ops.where(ops.equal(head, _zero(a)), left, left / head)
        rest = ops.where(constant(columns == k), factor, a - factor * top)
        a = ops.where(constant((rows > k) & (columns >= k)), rest, a)
    return a, swaps


def _solved(lu: GraphNode, swaps: list[GraphNode], b: GraphNode, adjoint: bool = False) -> Any:
    """The solution for the factored matrix, or (adjoint) for the transposed one."""
    if adjoint:
        inner = solve_triangular(_turned(lu), b, upper=False)
        b = solve_triangular(_turned(lu), inner, upper=True, unitriangular=True)
        for k in reversed(range(len(swaps))):
            b = _swapped(b, k, swaps[k])
        return b
    for k, p in enumerate(swaps):
        b = _swapped(b, k, p)
    return solve_triangular(lu, solve_triangular(lu, b, upper=False, unitriangular=True), upper=True)


def _swapped(a: GraphNode, k: int, p: GraphNode) -> Any:
    """a with rows k and p swapped; p: [..., 1, 1]."""
    rows = np.arange(a.shape[-2])[:, None]
    is_p = ops.equal(constant(rows), p)
    row_p = ops.sum(ops.where(is_p, a, _zero(a)), axis=(-2,), keepdims=True)
    return ops.where(constant(rows == k), row_p, ops.where(is_p, _part(a, -2, k), a))


def _pivots(swaps: list[GraphNode], a: GraphNode) -> Any:
    if not swaps:
        return constant(np.zeros((*a.shape[:-2], 0), np.int32))
    rows = ops.concat(*(ops.squeeze(p, axes=(-1,)) for p in swaps), axis=-1)
    return as_type(rows + 1, "int32")


def _info(a: GraphNode) -> Any:
    """LAPACK's info: the first row (from 1) whose diagonal element is 0 or not a number; 0 if there is no
    such row."""
    d = _diagonal(a)
    fails = as_type(ops.logical_or(ops.equal(d, _zero(a)), ops.isnan(d)), "int32")
    first = as_type(ops.argmax(fails, axis=-1), "int32") + 1
    return first * ops.max(fails, axis=(-1,))


def _sign_of(swaps: list[GraphNode], a: GraphNode) -> Any:
    """1 or -1, the sign of the permutation: [...]."""
    sign: GraphNode = constant(1, dtype=a.dtype)
    for k, p in enumerate(swaps):
        stays = ops.equal(ops.squeeze(p, axes=(-2, -1)), constant(np.array(k)))
        sign = ops.where(stays, sign, ops.neg(sign))
    return sign


# -- Cholesky --------------------------------------------------------------------------------------------


@converts("aten.linalg_cholesky_ex.default", known=True)
def cholesky_ex(a: GraphNode, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = cholesky(a, upper)
    return factor, _info(factor)


@converts("aten.cholesky.default", known=True)
def cholesky(a: GraphNode, upper: bool = False) -> Any:
    """The Cholesky factor. Only one triangle of a is read."""
    n = a.shape[-1]
    _check_size(n)
    a = _turned(a) if upper else a
    rows = np.arange(n)[:, None]
    columns = []
    for k in range(n):
        column = ops.where(constant(rows >= k), _part(a, -1, k), _zero(a))
        column = column / ops.sqrt(_part(column, -2, k))
        columns.append(column)
        a = a - column * _turned(column)
    found = ops.concat(*columns, axis=-1) if columns else a
    return _turned(found) if upper else found


@converts("aten.cholesky_solve.default", known=True)
def cholesky_solve(b: GraphNode, factor: GraphNode, upper: bool = False) -> Any:
    first = solve_triangular(_turned(factor) if upper else factor, b, upper=False)
    return solve_triangular(factor if upper else _turned(factor), first, upper=True)


@converts("aten.cholesky_inverse.default", known=True)
def cholesky_inverse(factor: GraphNode, upper: bool = False) -> Any:
    return cholesky_solve(constant(np.eye(factor.shape[-1], dtype=factor.dtype.numpy)), factor, upper)


# -- parts -----------------------------------------------------------------------------------------------


def _check_size(n: int) -> None:
    if n > MOST_ROWS:
        raise Unsupported(
            f"this matrix has {n} rows; matrices of up to {MOST_ROWS} rows can be factored.",
            fix="Do it outside and pass its results in, or compile the model in parts.",
        )


def _turned(a: GraphNode) -> Any:
    rank = a.ndim
    return ops.transpose(a, axes=(*range(rank - 2), rank - 1, rank - 2))


def _part(a: GraphNode, axis: int, k: int) -> Any:
    """Row or column k, as a matrix."""
    return cut(a, axis, k, k + 1)


def _diagonal(a: GraphNode) -> Any:
    return ops.sum(ops.where(_eye(a), a, _zero(a)), axis=(-1,))


def _eye(a: GraphNode) -> GraphNode:
    return constant(np.eye(*a.shape[-2:], dtype=bool))


def _zero(a: GraphNode) -> GraphNode:
    return constant(0, dtype=a.dtype)
