"""Attention with a cache of keys and values: new words look at the cache and at one another.

    old[r, j]  = sum_c q[r, c] * keys[j, c]                    j < position: the filled places
    own[r, n]  = sum_c q[r, c] * k[n, c]                       n <= token of r
    top[r]     = max of both;  weights = exp(scale * (scores - top))
    out[r, c]  = (sum_j weights[r, j] * values[j, c] + sum_n weights[r, n] * v[n, c]) / sum of weights

The cache is read in place: old and new words are joined only in the maximum and in the sums. A place that is
not filled may hold anything: a select leaves out its terms, and sums end before it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import require, require_rank, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _reference(
    q: Array, k: Array, v: Array, keys: Array, values: Array, position: Array, scale: float | None = None
) -> Array:
    """Group by group, over the filled places and the new words, in float64."""
    filled, tokens = int(position[0]), k.shape[2]
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    y = np.empty_like(q)
    for at in np.ndindex(*q.shape[:2]):
        seen = np.concatenate([keys[at][:filled], k[at]]).astype(np.float64)
        mixed = np.concatenate([values[at][:filled], v[at]]).astype(np.float64)
        token = np.arange(q.shape[2])[:, None] % tokens
        scores = np.where(np.arange(len(seen)) <= filled + token, q[at] @ seen.T * factor, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        y[at] = e / e.sum(-1, keepdims=True) @ mixed
    return y


_TYPES = ("float32",) * 5 + ("int64",)


@operator(
    "cached_attention",
    kind=Kind.OPAQUE,
    reference=_reference,
    stored=(3, 4),
    cases=(
        Case(((1, 2, 2, 16), *((1, 2, 1, 16),) * 2, *((1, 2, 9, 16),) * 2, (1,)), {}, _TYPES, 0, 7),
        Case(((2, 1, 6, 4), *((2, 1, 3, 4),) * 2, *((2, 1, 5, 4),) * 2, (1,)), {"scale": 0.3}, _TYPES, 0, 3),
        Case(((1, 1, 1, 3), *((1, 1, 1, 3),) * 2, *((1, 1, 1, 3),) * 2, (1,)), {}, _TYPES, 0, 1),
        Case(
            ((1, 2, 4, 20), *((1, 2, 1, 20),) * 2, *((1, 2, 40, 20),) * 2, (1,)),
            {},
            ("float32",) * 3 + ("float16",) * 2 + ("int64",),
            0,
            9,
        ),
    ),
)
def cached_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    scale: float | None = None,
) -> Tensor:
    """q: [batch, groups, rows, depth], k, v: [batch, groups, tokens, depth], keys, values: [batch, groups,
    capacity, depth], position: [1], an integer ──▶ [batch, groups, rows, depth].

    Rows are the queries of all heads of a group, with the tokens of a head side by side: row r belongs to
    token r % tokens. Places of the cache from `position` on are not filled. If scale is None, it is
    1 / sqrt(depth). Keys and values of the cache may have another float type than the other arguments, to
    which they are converted.
    """
    _check(q, k, v, keys, values, position, scale)
    (batch, groups, rows, depth), tokens, capacity = q.shape, k.shape[2], keys.shape[2]
    every, t = (batch, groups, rows), q.dtype
    # loops can end at this value only if it has bounds
    end = te.minimum(te.maximum(position[0].astype("int64"), 0), capacity)

    def is_filled(j: Any) -> Any:
        return j.astype("int64") < end

    def is_past(n: Any, r: Any) -> Any:
        return n <= r % tokens

    old, own = _scores(q, keys, "old"), _scores(q, k, "own")
    j, n = te.reduce_axis(capacity, "j"), te.reduce_axis(tokens, "n")
    # a row sees its own word, so the maximum is finite
    low, zero, factor = (
        te.const(n, t) for n in (-math.inf, 0, 1 / math.sqrt(depth) if scale is None else scale)
    )
    tops = (
        stage(
            every, lambda b, g, r: te.max(te.select(is_filled(j), old[b, g, r, j], low), axis=j), "top_old"
        ),
        stage(
            every, lambda b, g, r: te.max(te.select(is_past(n, r), own[b, g, r, n], low), axis=n), "top_own"
        ),
    )
    top = stage(every, lambda *i: te.maximum(tops[0][i], tops[1][i]), "top")

    def weights(of: Tensor, name: str) -> Tensor:
        return stage(
            of.shape, lambda b, g, r, j: te.exp((of[b, g, r, j] - top[b, g, r]) * factor), f"{name}_weights"
        )

    w_old, w_own = weights(old, "old"), weights(own, "own")
    sums = (
        stage(
            every, lambda b, g, r: te.sum(te.select(is_filled(j), w_old[b, g, r, j], zero), axis=j), "sum_old"
        ),
        stage(
            every,
            lambda b, g, r: te.sum(te.select(is_past(n, r), w_own[b, g, r, n], zero), axis=n),
            "sum_own",
        ),
    )

    def of_cache(b: Any, g: Any, r: Any, c: Any) -> Any:
        term = w_old[b, g, r, j] * values[b, g, j, c].astype(t)
        return te.sum(te.select(is_filled(j), term, zero), axis=j)

    def of_words(b: Any, g: Any, r: Any, c: Any) -> Any:
        return te.sum(te.select(is_past(n, r), w_own[b, g, r, n], zero) * v[b, g, n, c], axis=n)

    mixed = stage(q.shape, of_cache, "mixed_old"), stage(q.shape, of_words, "mixed_own")

    def shared(b: Any, g: Any, r: Any, c: Any) -> Any:
        return (mixed[0][b, g, r, c] + mixed[1][b, g, r, c]) / (sums[0][b, g, r] + sums[1][b, g, r])

    return stage(q.shape, shared, "cached_attention")


def _check(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, position: Tensor, scale: float | None
) -> None:
    op = "cached_attention"
    for name, x in (("q", q), ("k", k), ("v", v), ("keys", keys), ("values", values)):
        require_rank(op, name, x, 4, "[batch, groups, …, depth]")
        require(x.dtype.is_float, f"{op}: {name} is {x.dtype}, expected floats.")
    batch, groups, rows, depth = q.shape
    tokens = k.shape[2]
    fit = all(x.shape[:2] == (batch, groups) and x.shape[3] == depth for x in (k, v, keys, values))
    require(
        fit and k.shape == v.shape and keys.shape == values.shape and tokens > 0 and rows % tokens == 0,
        f"{op}: q {q.shape}, k {k.shape}, v {v.shape}, keys {keys.shape} and values {values.shape} do not "
        "fit together.",
        "Batch, groups and depth are the same for all; the rows of q are a multiple of the tokens.",
    )
    require(
        position.shape == (1,) and position.dtype.is_int,
        f"{op}: position is {position.dtype} of shape {position.shape}, expected a whole number, [1].",
    )
    require(scale is None or scale > 0, f"{op}: scale is {scale}, expected a number above 0.")


def _scores(q: Tensor, seen: Tensor, name: str) -> Tensor:
    """The products of all rows with all keys, in the type of q."""
    c = te.reduce_axis(q.shape[3], "c")

    def product(b: Any, g: Any, r: Any, j: Any) -> Any:
        return te.sum(q[b, g, r, c] * seen[b, g, j, c].astype(q.dtype), axis=c)

    return stage((*q.shape[:3], seen.shape[2]), product, name)
