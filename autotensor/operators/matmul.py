"""Matrix products: dense (torch's Linear), dense with weights of 4 or 8 bits, matmul, batch_matmul.

dense[i, j] = sum_k x[i, k] * w[j, k]  (+ bias[j])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    Zeros,
    broadcast_shape,
    factor_arrays,
    multiplied,
    padded,
    product,
    require,
    require_factors,
    require_rank,
    stage,
)
from autotensor.te import Tensor
from autotensor.te.math import saturated

Array = np.ndarray[Any, Any]


def _dense_reference(
    x: Array, w: Array, bias: Array | None = None, zeros: Zeros = None, sums: str = ""
) -> Array:
    x, w = factor_arrays(x, w, zeros, sums)
    y = product(x, w.T)
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
        Case(((4, 34), (17, 34)), {"sums": "float32"}, ("bfloat16", "bfloat16")),
    ),
)
def dense(x: Tensor, w: Tensor, bias: Tensor | None = None, zeros: Zeros = None, sums: str = "") -> Tensor:
    """x: [m, k], w: [n, k], bias: [n] ──▶ [m, n].

    zeros: the zero points of x and w, which must then be bytes; their products are summed in int32.
    sums: a float type that can hold the values of x and w. Products are computed and summed in this type, and
    the result has this type.
    """
    require_rank("dense", "x", x, 2, "[m, k]")
    require_rank("dense", "w", w, 2, "[n, k]")
    (m, depth), n = x.shape, w.shape[0]
    require(
        w.shape[1] == depth,
        f"dense: x of shape {x.shape} and w of shape {w.shape} disagree on k ({depth} and {w.shape[1]}).",
        "w is [n, k], as in torch's Linear.",
    )
    require_factors("dense", x, w, zeros, sums)
    k = te.reduce_axis(depth, "k")
    y = stage((m, n), lambda i, j: te.sum(multiplied(x[i, k], w[j, k], zeros, sums), axis=k), "dense")
    return y if bias is None else add_bias("dense", y, bias)


def add_bias(op: str, y: Tensor, bias: Tensor) -> Tensor:
    """y + bias along the last axis, as a separate stage."""
    n = y.shape[-1]
    require(bias.shape == (n,), f"{op}: bias has shape {bias.shape}, expected ({n},).")
    return stage(y.shape, lambda *i: y[i] + bias[i[-1]], "bias")


def _unpacked(w: Array, bits: int) -> Array:
    """The integers in bytes: [n, groups, bytes] ──▶ [n, groups, elements of a group]."""
    every = [w >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(every, axis=-1).reshape(*w.shape[:2], -1)


def _dense_nbits_reference(
    x: Array, w: Array, scale: Array, zero: Array | None = None, bits: int = 4, rounded: int = 0
) -> Array:
    (n, groups), q = w.shape[:2], _unpacked(w, bits).astype(x.dtype)
    weights = (q - (1 << bits - 1 if zero is None else zero[..., None])) * scale[..., None].astype(x.dtype)
    whole = np.pad(x, ((0, 0), (0, groups * q.shape[2] - x.shape[1]))).reshape(len(x), groups, -1)
    if rounded:
        most, peak = (1 << rounded - 1) - 1, np.abs(whole).max(axis=2, keepdims=True)
        whole = np.rint(whole * (most / np.where(peak == 0, 1, peak))) * (peak / most)
    y: Array = whole.reshape(len(x), -1) @ weights.reshape(n, -1).T
    return y


@operator(
    "dense_nbits",
    kind=Kind.ANCHOR,
    reference=_dense_nbits_reference,
    constants=(1, 2, 3),
    stored=(2, 3),
    cases=(
        Case(((1, 64), (33, 2, 16), (33, 2)), dtypes=("float32", "uint8", "float32"), low=-9, high=9),
        Case(((3, 96), (16, 3, 32), (16, 3)), {"bits": 8}, ("float32", "uint8", "float32"), -5, 5),
        Case(((2, 27), (5, 2, 8), (5, 2), (5, 2)), {}, ("float32", "uint8", "float32", "uint8"), 0, 15),
        Case(((5, 3), (1, 1, 2), (1, 1), (1, 1)), {}, ("float32", "uint8", "float32", "float32"), 0, 15),
        Case(((1, 64), (33, 2, 16), (33, 2)), {"rounded": 8}, ("float32", "uint8", "float32"), -9, 9),
        Case(
            ((3, 90), (9, 3, 32), (9, 3), (9, 3)),
            {"bits": 8, "rounded": 16},
            ("float32", "uint8", "float32", "uint8"),
            -5,
            5,
        ),
    ),
)
def dense_nbits(
    x: Tensor, w: Tensor, scale: Tensor, zero: Tensor | None = None, bits: int = 4, rounded: int = 0
) -> Tensor:
    """A dense layer with weights of 4 or 8 bits; the weights of one group of a row share a scale.

    x: [m, k], w: [n, groups, bytes] uint8, scale, zero: [n, groups] ──▶ [m, n]. The low half of a byte is the
    weight with the smaller k. x may end inside the last group. The default of zero is 2^(bits - 1). rounded:
    the bits of the integers to which x is rounded by groups, 8 or 16; 0 leaves x as it is. docs/numerics.md
    has the formula and its roundings.
    """
    require_rank("dense_nbits", "x", x, 2, "[m, k]")
    require_rank("dense_nbits", "w", w, 3, "[n, groups, bytes]")
    require(bits in (4, 8), f"dense_nbits: weights of {bits} bits.", "Known: 4 and 8.")
    require(rounded in (0, 8, 16), f"dense_nbits: x rounded to {rounded} bits.", "Known: 0, 8 and 16.")
    (m, depth), (n, groups, length) = x.shape, w.shape
    require(
        str(w.dtype) == "uint8" and x.dtype.is_float,
        f"dense_nbits: x is {x.dtype} and w {w.dtype}, expected floats and uint8.",
    )
    each = 8 // bits
    size = each * length  # elements of a group
    require(
        (groups - 1) * size < depth <= groups * size,
        f"dense_nbits: w of {groups} groups of {size} does not fit x of shape {x.shape}.",
    )
    for name, of in (("scale", scale), ("zero", zero)):
        shape = (n, groups) if of is None else of.shape
        require(shape == (n, groups), f"dense_nbits: {name} has shape {shape}, expected {(n, groups)}.")
    require(
        size << bits + rounded - 1 <= 1 << 31,
        f"dense_nbits: sums over groups of {size} are more than 32 bits hold.",
        "Take smaller groups, or rounded=8.",
    )
    t = str(x.dtype)
    x = padded(x, ((0, 0), (0, groups * size - depth)), 0.0)
    whole, step = _rounded(x, groups, size, rounded) if rounded else (x, None)
    k, g = te.reduce_axis(size, "k"), te.reduce_axis(groups, "g")
    v, e = te.reduce_axis(length, "v"), te.reduce_axis(each, "e")
    kind = "int32" if rounded else t

    def term(i: Any, g: Any, k: Any) -> Any:
        return whole[i, g, k].astype(kind) if rounded else whole[i, g * size + k]

    def part(i: Any, j: Any, g: Any) -> Any:
        q = w[j, g, v].astype("int32")
        if each > 1:
            q = q >> (e * bits).astype("int32") & (1 << bits) - 1
        inner = v * each + e if each > 1 else v
        over = [v, e] if each > 1 else [v]
        return te.sum(q.astype(kind) * term(i, g, inner), axis=over)

    sums = stage((m, groups), lambda i, g: te.sum(term(i, g, k), axis=k), "sums")
    parts = stage((m, n, groups), part, "parts")

    def centred(i: Any, j: Any) -> Any:
        if zero is not None:
            return parts[i, j, g].astype(t) - zero[j, g].astype(t) * sums[i, g].astype(t)
        return (parts[i, j, g] - te.const(1 << bits - 1, kind) * sums[i, g]).astype(t)

    def total(i: Any, j: Any) -> Any:
        value = centred(i, j) if step is None else step[i, g] * centred(i, j)
        return te.sum(scale[j, g].astype(t) * value, axis=g)

    return stage((m, n), total, "dense_nbits")


def _rounded(x: Tensor, groups: int, size: int, bits: int) -> tuple[Tensor, Tensor]:
    """Rows [m, groups * size] as integers [m, groups, size], and the value [m, groups] of an integer 1."""
    most, k = float((1 << bits - 1) - 1), te.reduce_axis(size, "k")
    peak = stage((x.shape[0], groups), lambda i, g: te.max(te.abs(x[i, g * size + k]), axis=k), "peak")

    def nearest(i: Any, g: Any, k: Any) -> Any:  # 0 * inf is NaN, which becomes the integer 0
        value = te.call("round", x[i, g * size + k] * (te.const(most, x.dtype) / peak[i, g]))
        return saturated(value, dtype_of(f"int{bits}"))

    whole = stage((x.shape[0], groups, size), nearest, "whole")
    return whole, stage(peak.shape, lambda i, g: peak[i, g] / te.const(most, x.dtype), "step")


def _matmul_reference(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, zeros: Zeros = None
) -> Array:
    a, b = factor_arrays(a, b, zeros)
    left = np.swapaxes(a, -1, -2) if transpose_a else a
    right = np.swapaxes(b, -1, -2) if transpose_b else b
    return product(left, right)


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
    """a: [m, k] ([k, m] if transposed), b: [k, n] ([n, k]) ──▶ [m, n]. zeros: as for `dense`."""
    require_factors("matmul", a, b, zeros)
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
    """a: […, m, k], b: […, k, n] ──▶ […, m, n]; the leading axes broadcast. zeros: as for `dense`."""
    require_factors("batch_matmul", a, b, zeros)
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
