"""Recognises attention that is written out in single operators, as exporters write it.

    softmax(q @ kᵀ * scale + mask) @ v                     ──▶  attention(q, k, v, mask, scale)
    softmax(where(allowed, q @ kᵀ * scale, hidden)) @ v    ──▶  attention(q, k, v, allowed, scale, hidden)

The factor may be before or after the product, or on both sides. The mask may be added, chosen with `where`,
or both. Views may lie between the operators. Hidden keys keep the score that the mask gives them, so that a
query whose keys are all hidden gets the same result. A constant mask that hides exactly the future becomes
`causal` if no score can be as low as the number that the mask gives to hidden keys. Scores or weights with
another reader stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import canonicalize, reshape, transpose
from autotensor.graph.rules.scalar_constants import is_wide_float, scaled, uniform
from autotensor.ir.rewrite import Rules, rule

PRODUCTS = ("matmul", "batch_matmul")
NO_SCORE_IS_LOWER = -1e38  # a third of float32's range; exporters hide with its lowest number or with -inf
SCALES = (1e-12, 1e12)  # other factors could overflow or vanish before or after the product
# relative difference up to which a factor counts as 1 / sqrt(depth), whose constants are rounded
USUAL = 3e-7
# most factors, masks and views between product and softmax; searching both sides of n sums costs 2^n
DEEPEST = 12


@dataclass(frozen=True, slots=True)
class _Mask:
    """One masking of scores s."""

    add: GraphNode | None = None  # s + add
    allowed: GraphNode | None = None  # where(allowed, s, hidden)
    hidden: float = 0.0


@dataclass(frozen=True, slots=True)
class _Scores:
    """(q @ kᵀ) * scale, then the masks in their order."""

    product: Apply
    lead: tuple[int, ...]  # extents of all axes but queries and keys, in the shape to which the masks apply
    scale: float = 1.0
    masks: tuple[_Mask, ...] = ()


@rule(Apply)
def attention(node: Apply, uses: Uses) -> GraphNode | None:
    """softmax(scores) @ v ──▶ attention(q, k, v)"""
    if node.op not in PRODUCTS or node.attr("transpose_a") or not is_wide_float(node):
        return None
    weights = _below_views(node.inputs[0], uses)
    guarded = _guarded(weights, uses)
    softmax, reads = guarded or (weights, 1)
    if not isinstance(softmax, Apply) or softmax.op != "softmax" or (guarded is None and uses[softmax] != 1):
        return None
    if softmax.attr("axis") % softmax.ndim != softmax.ndim - 1:
        return None
    scores = _scores(softmax.inputs[0], uses, reads=reads)
    return None if scores is None else _attention(node, scores, is_guarded=guarded is not None)


def _guarded(node: GraphNode, uses: Uses) -> tuple[GraphNode, int] | None:
    """A softmax p after which queries without visible keys get the weights 0, and how many readers its scores
    s have in this form.

    where(isnan(p), 0, p)                            as torch's exporter to ONNX writes it
    where(not any(s != -inf), 0, p = softmax(s))     as torch.export decomposes it
    A result that is NaN because of its operands is NaN in the replacement, too.
    """
    match node:
        case Apply("where", (test, zero, Apply("softmax", (s,)) as p)) if (
            uses[node] == 1 and uses[test] == 1 and uniform(zero) == 0 and node.shape == p.shape
        ):
            match test:
                case Apply("isnan", (q,)) if q is p and uses[p] == 2:
                    return p, 1
                case Apply("logical_not", (any_,)) if uses[p] == 1 and _sees(any_, s):
                    return p, 2
    return None


def _sees(node: GraphNode, s: GraphNode) -> bool:
    """Whether the node says, for each row of scores, whether some score is not -inf."""
    match _uncast(node):
        case Apply("max", (flags,)) as top if top.attr("keepdims") and top.attr("axis") in (
            (-1,),
            -1,
            (s.ndim - 1,),
            s.ndim - 1,
        ):
            match _uncast(flags):
                case Apply("logical_not", (Apply("equal", (t, low)),)):
                    return t is s and uniform(low) == -math.inf
    return False


def _uncast(node: GraphNode) -> GraphNode:
    while isinstance(node, Apply) and node.op == "cast":
        node = node.inputs[0]
    return node


def _below_views(node: GraphNode, uses: Uses) -> GraphNode:
    """The value below reshapes that leave the last two axes as they are."""
    while isinstance(node, Apply) and node.op == "reshape" and uses[node] == 1:
        x = node.inputs[0]
        if x.ndim < 2 or x.shape[-2:] != node.shape[-2:]:
            break
        node = x
    return node


# -- scores --------------------------------------------------------------------------------------------------


def _scores(node: GraphNode, uses: Uses, depth: int = 0, reads: int = 1) -> _Scores | None:
    """The operations on a product of queries and keys, if each intermediate value has only this reader."""
    if not isinstance(node, Apply) or uses[node] != reads or depth > DEEPEST or node.ndim < 2:
        return None
    if node.op in PRODUCTS:
        return _Scores(node, node.shape[:-2])
    part = scaled(node)
    if part is not None:
        below = _scores(part[1], uses, depth + 1)
        return None if below is None or below.masks else replace(below, scale=below.scale * part[0])
    view = _below_views(node, uses)
    if view is not node:
        below = _scores(view, uses, depth + 1)
        # else the shape already has batch and heads
        moved = below is not None and not below.masks and len(below.lead) != 2
        return replace(below, lead=node.shape[:-2]) if below is not None and moved else below
    for mask, x in _maskings(node):
        below = _scores(x, uses, depth + 1)
        if below is None or prod(below.lead) != prod(node.shape[:-2]):
            continue
        if not below.masks:
            below = replace(below, lead=node.shape[:-2])
        if below.lead == node.shape[:-2]:
            return replace(below, masks=(*below.masks, mask))
    return None


def _maskings(node: Apply) -> Iterator[tuple[_Mask, GraphNode]]:
    """Every way to see the node as a masking of scores of its own shape."""
    match node:
        case Apply("add", (a, b)):
            pairs = [(_added(b), a), (_added(a), b)]
        case Apply("subtract", (a, b)):
            pairs = [(_Mask(add=apply("neg", (b,))), a)]
        case Apply("where", (allowed, a, b)) if allowed.dtype.is_bool:
            pairs = []
            if (low := uniform(b)) is not None:
                pairs.append((_Mask(allowed=allowed, hidden=low), a))
            if (low := uniform(a)) is not None:
                pairs.append((_Mask(allowed=_not(allowed), hidden=low), b))
        case _:
            return
    yield from ((mask, x) for mask, x in pairs if x.shape == node.shape)


def _added(m: GraphNode) -> _Mask:
    """s + where(allowed, 0, low) is where(allowed, s, low) if s is too small to change low."""
    match m:
        case Apply("where", (allowed, a, b)) if allowed.dtype.is_bool and allowed.shape == m.shape:
            for seen, low, where in ((a, b, allowed), (b, a, _not(allowed))):
                number = uniform(low)
                if uniform(seen) == 0 and number is not None and number <= NO_SCORE_IS_LOWER:
                    return _Mask(allowed=where, hidden=number)
    return _Mask(add=m)


def _not(flags: GraphNode) -> GraphNode:
    return constant(~flags.array) if isinstance(flags, Constant) else apply("logical_not", (flags,))


# -- masks ---------------------------------------------------------------------------------------------------


def _attributes(scores: _Scores) -> tuple[tuple[GraphNode, ...], dict[str, object]] | None:
    """The mask operand, if there is one, and the attributes that have the effect of the masks; else None."""
    queries, keys = scores.product.shape[-2:]
    dtype = scores.product.dtype
    match scores.masks:
        case ():
            return (), {}
        case (_Mask(add=Constant() as m),) if _hides_the_future(m.array == 0, m.array, queries, keys):
            return (), {"causal": True}
        case (_Mask(add=GraphNode() as m),):
            return ((m,), {}) if m.dtype == dtype else None
        case (_Mask(allowed=Constant() as allowed, hidden=h),) if _hides_the_future(
            allowed.array, np.asarray(h), queries, keys
        ):
            return (), {"causal": True}
        case (_Mask(allowed=GraphNode() as allowed, hidden=h),):
            return (allowed,), {"hidden": h}
    total: GraphNode = constant(0, dtype=dtype)
    for mask in scores.masks:
        if mask.add is not None:
            if mask.add.dtype != dtype:
                return None
            total = apply("add", (total, mask.add))
        elif mask.allowed is not None:
            if mask.hidden > NO_SCORE_IS_LOWER:
                return None
            # adding a number this low hides the score, as `where` does
            total = apply("where", (mask.allowed, total, constant(mask.hidden, dtype=dtype)))
    return (total,), {}


def _hides_the_future(allowed: Array, low: Array, queries: int, keys: int) -> bool:
    """Whether query i sees exactly the keys 0 … i, and all others get less than any score."""
    if allowed.shape[-2:] != (queries, keys) or prod(allowed.shape[:-2]) != 1:
        return False
    seen = np.tri(queries, keys, dtype=bool)
    lows = np.broadcast_to(low, allowed.shape)[~allowed]
    return bool((allowed.reshape(queries, keys) == seen).all()) and bool((lows <= NO_SCORE_IS_LOWER).all())


# -- the operator --------------------------------------------------------------------------------------------


def _attention(node: Apply, scores: _Scores, *, is_guarded: bool) -> GraphNode | None:
    """node: softmax(scores) @ v; is_guarded: queries without visible keys get 0."""
    product = scores.product
    a, b = product.inputs
    q = _turned(a) if product.attr("transpose_a") else a  # […, queries, depth]
    k = b if product.attr("transpose_b") else _turned(b)  # […, keys, depth]
    v = _turned(node.inputs[1]) if node.attr("transpose_b") else node.inputs[1]  # […, keys, width]
    if any(x.shape[:-2] != product.shape[:-2] for x in (q, k)):
        return None
    if any(x.shape[:-2] != node.shape[:-2] for x in (node.inputs[0], v)):
        return None  # broadcast operands would have to be copied
    lead = _two(scores.lead, bool(scores.masks))
    found = _attributes(scores)
    (by_q, q), (by_k, k) = _unscaled(q), _unscaled(k)
    scale = scores.scale * by_q * by_k
    if lead is None or found is None or not all(_is_usable(s) for s in (scores.scale, by_q, by_k, scale)):
        return None
    usual = math.isclose(scale, 1 / math.sqrt(q.shape[-1]), rel_tol=USUAL)
    operands = [reshape(x, (*lead, *x.shape[-2:])) for x in (q, k, v)]
    masks, attrs = found
    y: GraphNode = apply("attention", (*operands, *masks), {**attrs, "scale": None if usual else scale})
    if is_guarded and masks and attrs.get("hidden", -math.inf) == -math.inf:
        y = apply("where", (_sees_something(masks[0]), y, constant(0, dtype=y.dtype)))
    return reshape(y, node.shape)


def _sees_something(mask: GraphNode) -> GraphNode:
    """Which queries see any key; the mask may have a single value for all keys."""
    flags = mask if mask.dtype.is_bool else apply("greater", (mask, constant(-math.inf, dtype=mask.dtype)))
    count = apply("sum", (apply("cast", (flags,), {"dtype": "int32"}),), {"axis": -1, "keepdims": True})
    return apply("greater", (count, constant(0, dtype=count.dtype)))


def _two(lead: tuple[int, ...], is_masked: bool) -> tuple[int, int] | None:
    """Batch and heads. More than two axes cannot be joined if a mask broadcasts over some of them."""
    if len(lead) > 2:
        return None if is_masked else (prod(lead[:-1]), lead[-1])
    batch, heads = (1,) * (2 - len(lead)) + lead
    return batch, heads


def _is_usable(scale: float) -> bool:
    return SCALES[0] < abs(scale) < SCALES[1]


def _turned(x: GraphNode) -> GraphNode:
    """x with its last two axes exchanged."""
    rank = x.ndim
    return transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _unscaled(x: GraphNode, depth: int = 0) -> tuple[float, GraphNode]:
    """(c, y) with x = c * y; the factor may lie below views and transposes. c is 1 if there is no factor."""
    part = scaled(x)
    if part is not None and depth < DEEPEST:
        number, y = _unscaled(part[1], depth + 1)
        return number * part[0], y
    if isinstance(x, Apply) and x.op in ("reshape", "transpose") and depth < DEEPEST:
        number, y = _unscaled(x.inputs[0], depth + 1)
        if number != 1:
            return number, x.given((y,))
    return 1.0, x


FROM_PARTS = Rules(attention)


def recognise_attention(graph: Graph) -> Graph:
    return canonicalize(rewrite_graph(graph, FROM_PARTS, name="attention from parts"))
