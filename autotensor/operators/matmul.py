"""Matrix products: dense (torch's Linear), matmul, batch_matmul.

dense[i, j] = sum_k x[i, k] * w[j, k]  (+ bias[j])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    Zeros,
    broadcast_shape,
    centred_arrays,
    multiplied,
    require,
    require_bytes,
    require_rank,
    stage,
)
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _dense_reference(x: Array, w: Array, bias: Array | None = None, zeros: Zeros = None) -> Array:
    x, w = centred_arrays(x, w, zeros)
    y: Array = np.einsum("mk,nk->mn", x, w)
    return y if bias is None else y + bias


@operator(
    "dense",
    kind=Kind.ANCHOR,
    reference=_dense_reference,
    constants=(1, 2),
    cases=(
        Case(((7, 17), (33, 17))),
        Case(((1, 16), (10, 16), (10,))),
        Case(((5, 1), (1, 1), (1,))),
        Case(((4, 7), (3, 7), (3,)), dtypes=("int32",) * 3, low=-9, high=9),
        Case(((4, 7), (3, 7)), {"zeros": (128, 3)}, ("uint8", "int8"), 0, 120),
    ),
)
def dense(x: Tensor, w: Tensor, bias: Tensor | None = None, zeros: Zeros = None) -> Tensor:
    """x: [m, k], w: [n, k], bias: [n] ──▶ [m, n]. zeros: zero points of x and w, bytes summed in int32."""
    require_rank("dense", "x", x, 2, "[m, k]")
    require_rank("dense", "w", w, 2, "[n, k]")
    (m, depth), n = x.shape, w.shape[0]
    require(
        w.shape[1] == depth,
        f"dense: x of shape {x.shape} and w of shape {w.shape} disagree on k ({depth} and {w.shape[1]}).",
        "w is [n, k], as in torch's Linear.",
    )
    require_bytes("dense", x, w, zeros)
    k = te.reduce_axis(depth, "k")
    y = stage((m, n), lambda i, j: te.sum(multiplied(x[i, k], w[j, k], zeros), axis=k), "dense")
    return y if bias is None else add_bias("dense", y, bias)


def add_bias(op: str, y: Tensor, bias: Tensor) -> Tensor:
    """y + bias along the last axis, as a stage of its own."""
    n = y.shape[-1]
    require(bias.shape == (n,), f"{op}: bias has shape {bias.shape}, expected ({n},).")
    return stage(y.shape, lambda *i: y[i] + bias[i[-1]], "bias")


def _matmul_reference(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, zeros: Zeros = None
) -> Array:
    a, b = centred_arrays(a, b, zeros)
    left = np.swapaxes(a, -1, -2) if transpose_a else a
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    return np.asarray(np.matmul(left, right))


def _check_product(
    op: str, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool
) -> tuple[int, int, int]:
    """(m, n, k) of the last two axes."""
    m, ka = a.shape[-2:][:: -1 if transpose_a else 1]
    kb, n = b.shape[-2:][:: -1 if transpose_b else 1]
    require(
        ka == kb,
        f"{op}: a of shape {a.shape}{' (transposed)' * transpose_a} and b of shape {b.shape}"
        f"{' (transposed)' * transpose_b} disagree on k ({ka} and {kb}).",
    )
    return m, n, ka


@operator(
    "matmul",
    kind=Kind.ANCHOR,
    reference=_matmul_reference,
    cases=(
        Case(((7, 17), (17, 33))),
        Case(((17, 7), (17, 3)), {"transpose_a": True}),
        Case(((1, 16), (5, 16)), {"transpose_b": True}),
        Case(((3, 1), (2, 3)), {"transpose_a": True, "transpose_b": True}),
        Case(((5, 7), (7, 3)), {"zeros": (1, 0)}, ("uint8", "uint8"), 0, 250),
    ),
)
def matmul(
    a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, zeros: Zeros = None
) -> Tensor:
    """a: [m, k] ([k, m] when transposed), b: [k, n] ([n, k]) ──▶ [m, n]. zeros: as of `dense`."""
    require_bytes("matmul", a, b, zeros)
    require_rank("matmul", "a", a, 2, "[m, k]")
    require_rank("matmul", "b", b, 2, "[k, n]")
    m, n, depth = _check_product("matmul", a, b, transpose_a, transpose_b)
    k = te.reduce_axis(depth, "k")

    def body(i: Any, j: Any) -> Any:
        left = a[k, i] if transpose_a else a[i, k]
        return te.sum(multiplied(left, b[j, k] if transpose_b else b[k, j], zeros), axis=k)

    return stage((m, n), body, "matmul")


@operator(
    "batch_matmul",
    kind=Kind.ANCHOR,
    reference=_matmul_reference,
    cases=(
        Case(((3, 7, 17), (3, 17, 5))),
        Case(((2, 3, 7, 4), (2, 3, 9, 4)), {"transpose_b": True}),
        Case(((2, 1, 4, 7), (3, 4, 1)), {"transpose_a": True}),
        Case(((5, 7), (2, 7, 3))),
        Case(((2, 3, 7), (2, 5, 7)), {"transpose_b": True, "zeros": (1, -2)}, ("int8", "int8"), -90, 90),
    ),
)
def batch_matmul(
    a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False, zeros: Zeros = None
) -> Tensor:
    """a: […, m, k], b: […, k, n] ──▶ […, m, n]; the leading axes broadcast. zeros: as of `dense`."""
    require_bytes("batch_matmul", a, b, zeros)
    for name, t in (("a", a), ("b", b)):
        require(t.ndim >= 2, f"batch_matmul: {name} has shape {t.shape}, expected at least 2 axes.")
    m, n, depth = _check_product("batch_matmul", a, b, transpose_a, transpose_b)
    batch = broadcast_shape("batch_matmul", a.shape[:-2], b.shape[:-2])
    k = te.reduce_axis(depth, "k")

    def body(*at: Any) -> Any:
        *outer, i, j = at
        left = (k, i) if transpose_a else (i, k)
        right = (j, k) if transpose_b else (k, j)
        return te.sum(multiplied(_load(a, outer, left), _load(b, outer, right), zeros), axis=k)

    return stage((*batch, m, n), body, "batch_matmul", (*(f"b{d}" for d in range(len(batch))), "i", "j"))


def _load(x: Tensor, outer: list[Any], matrix: tuple[Any, Any]) -> Any:
    lead = outer[len(outer) - (x.ndim - 2) :]
    return x[tuple(0 if n == 1 else v for v, n in zip(lead, x.shape, strict=False)) + matrix]
