"""Attention: every query gets a mean of the values, weighted by how well their keys fit the query.

    scores[j, i]  = sum_c k[j, c] * q[i, c] * scale         (+ mask)
    weights[j, i] = exp(scores[j, i] - max over j)
    out[i, c]     = sum_j weights[j, i] * v[j, c] / sum_j weights[j, i]

Causal attention takes the maximum and both sums only over the keys j <= i. The hidden terms are left out by a
select, so that a schedule need not compute them (lowering/nest/when/skipped_terms.py,
lowering/nest/when/unread_points.py).

Scores are written with keys first. So one vector holds neighbouring queries, maxima and sums over keys need
no sums across a vector, and the second product reads `weights` number by number. The division comes last, so
there is one for every element of the result, and not for every score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor import te
from autotensor.ir.expr import Expr
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import (
    broadcast_load,
    broadcast_shape,
    layout_of,
    require,
    require_rank,
    stage,
)
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
Element = Callable[[Any, Any, Any, Any], Expr]  # (batch, head, token, channel) → the value of the element

LAYOUTS = ("BHND", "BNHD")
# a score so low that its exp is 0; it is finite, so that a query without visible keys gets no NaN
HIDDEN = -1e30


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    width: int  # channels of a value


# -- reference -----------------------------------------------------------------------------------------------


def _reference(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    layout: str = "BHND",
    hidden: float = HIDDEN,
) -> Array:
    """Head by head, in float64; all scores of a head are kept."""
    q, k, v = (x if layout == "BHND" else np.swapaxes(x, 1, 2) for x in (q, k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    heads = q.shape[:2]
    k, v = (np.broadcast_to(x, (*heads, *x.shape[2:])) for x in (k, v))
    masks = None if mask is None else np.broadcast_to(mask, (*heads, q.shape[2], k.shape[2]))
    y = np.empty((*heads, q.shape[2], v.shape[3]), q.dtype)
    for at in np.ndindex(*heads):
        scores = q[at].astype(np.float64) @ k[at].astype(np.float64).T * factor
        if masks is not None:
            scores = np.where(masks[at], scores, hidden) if masks.dtype == bool else scores + masks[at]
        if causal:
            scores = np.where(np.tri(*scores.shape) == 1, scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        y[at] = e / e.sum(-1, keepdims=True) @ v[at].astype(np.float64)
    return np.ascontiguousarray(y if layout == "BHND" else np.swapaxes(y, 1, 2))


def _self_reference(
    qkv: Array,
    mask: Array | None = None,
    causal: bool = False,
    scale: float | None = None,
    hidden: float = HIDDEN,
) -> Array:
    q, k, v = (qkv[:, :, n] for n in range(3))
    return _reference(q, k, v, mask, causal, scale, "BNHD", hidden)


# -- operators -----------------------------------------------------------------------------------------------

LAST: dict[str, Any] = {"layout": "BNHD"}


@operator(
    "attention",
    kind=Kind.OPAQUE,
    reference=_reference,
    cases=(
        Case(((1, 2, 5, 4), (1, 2, 7, 4), (1, 2, 7, 3))),
        Case(((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)), {"causal": True}, low=-3, high=3),
        Case(((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)), {"scale": 0.7}, low=-2, high=2),
        Case(((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 1, 1, 5)), dtypes=("float32",) * 3 + ("bool",)),
        Case(
            ((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)),
            {"hidden": -2.0},
            dtypes=("float32",) * 3 + ("bool",),
        ),
        Case(((1, 33, 2, 17), (1, 33, 2, 17), (1, 33, 2, 17)), {"causal": True, **LAST}),
        Case(((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1))),
    ),
)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    layout: str = "BHND",
    hidden: float = HIDDEN,
) -> Tensor:
    """q: [batch, heads, queries, depth], k: [batch, heads, keys, depth], v: [batch, heads, keys, width]
    ──▶ [batch, heads, queries, width]. With layout BNHD, tokens come before heads, in the result, too.

    mask: broadcasts to [batch, heads, queries, keys]. A bool mask is True where a query may look; a float
    mask is added to the scores. causal: query i sees only the keys 0 … i, whatever the mask says of other
    keys. scale: None means 1 / sqrt(depth). hidden: the score where a bool mask is False. If the mask hides
    all keys of a query, the query gets the mean of the values (of 0 … i if causal), or NaN if hidden is -inf.
    """
    op, axes = "attention", layout_of("attention", layout, LAYOUTS)
    for name, x in (("q", q), ("k", k), ("v", v)):
        require_rank(op, name, x, 4, f"({layout})")
        require(x.dtype.is_float, f"{op}: {name} is {x.dtype}, expected floats.")
    b, h, n, d = (axes.index(a) for a in "bhnd")
    same = all(x.shape[a] == q.shape[a] for x in (k, v) for a in (b, h))
    require(
        same and k.shape[d] == q.shape[d] and k.shape[n] == v.shape[n],
        f"{op}: q {q.shape}, k {k.shape} and v {v.shape} ({layout}) do not fit together.",
        "Batch and heads are the same for all; depth for q and k; tokens for k and v.",
    )
    sizes = _Sizes(q.shape[b], q.shape[h], q.shape[n], k.shape[n], q.shape[d], v.shape[d])

    def element(x: Tensor) -> Element:
        if axes == "bhnd":
            return lambda b, h, n, d: x[b, h, n, d]
        return lambda b, h, n, d: x[b, n, h, d]

    elements = (element(q), element(k), element(v))
    return _attend(op, sizes, elements, q, mask, causal, scale, hidden, tokens_first=axes == "bnhd")


@operator(
    "self_attention",
    kind=Kind.OPAQUE,
    reference=_self_reference,
    cases=(
        Case(((1, 7, 3, 2, 4),), low=-2, high=2),
        Case(((2, 17, 3, 1, 5),), {"causal": True, "scale": 0.5}),
        Case(((2, 4, 3, 2, 3), (2, 1, 1, 4)), dtypes=("float32", "bool")),
    ),
)
def self_attention(
    qkv: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    hidden: float = HIDDEN,
) -> Tensor:
    """Attention among the tokens of one sequence.

    [batch, tokens, 3, heads, depth] ──▶ [batch, tokens, heads, depth]. qkv[:, :, 0] are the queries, 1 the
    keys and 2 the values: one dense layer may compute all three.
    """
    op = "self_attention"
    require_rank(op, "qkv", qkv, 5, "(batch, tokens, 3, heads, depth)")
    require(qkv.dtype.is_float, f"{op}: qkv is {qkv.dtype}, expected floats.")
    batch, tokens, three, heads, depth = qkv.shape
    require(three == 3, f"{op}: qkv has shape {qkv.shape}; its third axis is queries, keys, values.")

    def element(part: int) -> Element:
        return lambda b, h, n, d: qkv[b, n, part, h, d]

    sizes = _Sizes(batch, heads, tokens, tokens, depth, depth)
    elements = (element(0), element(1), element(2))
    return _attend(op, sizes, elements, qkv, mask, causal, scale, hidden, tokens_first=True)


# -- meaning -------------------------------------------------------------------------------------------------


def _attend(
    op: str,
    sizes: _Sizes,
    elements: tuple[Element, Element, Element],
    like: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    hidden: float,
    *,
    tokens_first: bool,
) -> Tensor:
    """The stages at the head of this file. tokens_first: the result is [batch, queries, heads, width]."""
    q, k, v = elements
    batch, heads, queries, keys = sizes.batch, sizes.heads, sizes.queries, sizes.keys
    _check_mask(op, sizes, mask)
    factor = te.const(1 / math.sqrt(sizes.depth) if scale is None else scale, like.dtype)
    c = te.reduce_axis(sizes.depth, "c")
    j1, j2, j3 = (te.reduce_axis(keys, f"j{n}") for n in range(3))

    turned = stage((batch, heads, sizes.depth, queries), lambda b, h, c, i: q(b, h, i, c) * factor, "queries")
    scores = stage(
        (batch, heads, keys, queries),
        lambda b, h, j, i: te.sum(k(b, h, j, c) * turned[b, h, c, i], axis=c),
        "scores",
    )
    if mask is not None:
        raw = scores
        scores = stage(
            raw.shape, lambda b, h, j, i: _masked(raw[b, h, j, i], mask, (b, h, i, j), hidden), "masked"
        )

    def seen(j: Any, i: Expr, value: Expr, otherwise: float) -> Expr:
        return te.select(j <= i, value, te.const(otherwise, like.dtype)) if causal else value

    top = stage(
        (batch, heads, queries),
        lambda b, h, i: te.max(seen(j1, i, scores[b, h, j1, i], -math.inf), axis=j1),
        "top",
    )
    weights = stage(scores.shape, lambda b, h, j, i: te.exp(scores[b, h, j, i] - top[b, h, i]), "weights")
    total = stage(
        (batch, heads, queries),
        lambda b, h, i: te.sum(seen(j2, i, weights[b, h, j2, i], 0), axis=j2),
        "total",
    )
    mixed = stage(
        (batch, heads, queries, sizes.width),
        lambda b, h, i, c: te.sum(seen(j3, i, weights[b, h, j3, i], 0) * v(b, h, j3, c), axis=j3),
        "mixed",
    )
    if tokens_first:
        shape = (batch, queries, heads, sizes.width)
        return stage(shape, lambda b, i, h, c: mixed[b, h, i, c] / total[b, h, i], op)
    return stage(mixed.shape, lambda b, h, i, c: mixed[b, h, i, c] / total[b, h, i], op)


def _check_mask(op: str, sizes: _Sizes, mask: Tensor | None) -> None:
    if mask is None:
        return
    full = (sizes.batch, sizes.heads, sizes.queries, sizes.keys)
    require(
        mask.ndim <= 4 and broadcast_shape(op, mask.shape, full) == full,
        f"{op}: mask of shape {mask.shape} does not broadcast to {full} (batch, heads, queries, keys).",
    )
    require(
        mask.dtype.is_bool or mask.dtype.is_float,
        f"{op}: mask is {mask.dtype}, expected bool (True: may look) or floats (added).",
        "Cast it to bool first.",
    )


def _masked(score: Expr, mask: Tensor, at: tuple[Expr, ...], hidden: float) -> Expr:
    """The score as the mask changes it. at: batch, head, query, key."""
    allowed = broadcast_load(mask, at)
    if mask.dtype.is_bool:
        return te.select(allowed, score, te.const(hidden, score.dtype))
    return score + allowed
