"""Computes quantised graphs in integers, although files write them in floats.

    quantize(relu(conv2d(dequantize(x), dequantize(w)) + b))

        ──▶   requantize(conv2d(x, w, zeros=…) + b)            one kernel: bytes in, sums in int32, bytes out

Each rule moves one `dequantize` one operator down, or one `quantize` one operator up. Where two meet, they
become one `requantize`, or nothing:

    conv2d(dequantize(x, s), dequantize(w, t))  ──▶  dequantize(conv2d(x, w, zeros=…), s * t)
    dequantize(x, s) + dequantize(b, s)         ──▶  dequantize(x + b, s)               for sums of one scale
    transpose(dequantize(x))                    ──▶  dequantize(transpose(x))           if only bytes move
    mean(dequantize(x, s))                      ──▶  dequantize(sum(x), s / count)
    quantize(clip(y))                           ──▶  clip(quantize(y))                  limits become bytes
    quantize(dequantize(x, s), t)               ──▶  requantize(x, s / t)               just x if s = t
    quantize(dequantize(a, s) + dequantize(b, t), u)
                                                ──▶  requantize(a, s / u, shift=b, shift_scale=t / u)

So integers reach as far as there are rules, whichever operators a file has between `dequantize` and
`quantize`. The scales of the new nodes are products and quotients of float32, computed in the order shown
above. docs/numerics.md says how far results may differ from the floats; `left_in_float` lists the operators
that stay in floats, and why. Source: Jacob et al., "Quantization and Training of Neural Networks for
Efficient Integer-Arithmetic-Only Inference" (CVPR 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from autotensor.base.dtype import int32
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.canonical import canonicalize, reshape, transpose, transposition
from autotensor.graph.rules.quantised.integer_products import (
    FURTHEST,
    LARGEST,
    is_product,
    largest,
    scale_of_results,
    why_no_product,
)
from autotensor.graph.rules.quantised.product_views import as_they_lie, views_behind
from autotensor.graph.rules.quantised.scaled_integers import Real, real, small
from autotensor.graph.rules.quantised.whole_numbers import in_whole_numbers, sums_in_32_bits
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import Kind
from autotensor.operators.window import windows_of

# operators whose results are elements of the first operand
MOVING = ("slice", "take", "pad", "broadcast_to", "max_pool2d", "max")
# relative difference up to which scales count as equal, because files compute s * t in two ways
SAME = 1e-6


# -- operators that only move elements ---------------------------------------------------------------------


@rule(Apply)
def scales(node: Apply, uses: Uses) -> GraphNode | None:
    """Computes scales while compiling, and constant weights whose elements only move."""
    if (
        node.op == "dequantize"
        or not node.inputs
        or prod(node.shape) > sum(prod(x.shape) for x in node.inputs)
    ):
        return None
    arrays = [x.array for x in node.inputs if isinstance(x, Constant)]
    return constant(evaluate_node(node, arrays)) if len(arrays) == len(node.inputs) else None


@rule(Apply)
def moved(node: Apply, uses: Uses) -> GraphNode | None:
    """transpose(dequantize(x)) ──▶ dequantize(transpose(x)); views and maxima of windows in the same way"""
    if not node.inputs or node.results > 1:
        return None
    r = real(node.inputs[0])
    if r is None:
        return None
    if node.op == "reshape":
        scale = _reshaped(r, node.shape)
        return None if scale is None else Real(reshape(r.q, node.shape), scale, r.zero).node()
    if node.op == "transpose" and r.is_byte:
        axes = transposition(node)
        scale = r.scale if r.is_plain else np.ascontiguousarray(r.aligned.transpose(axes))
        return Real(transpose(r.q, axes), scale, r.zero).node()
    if node.op not in MOVING or not r.is_plain or not r.is_byte:
        return None
    attrs = {}
    if node.op == "pad":
        if node.attr("value") != 0:
            return None
        attrs = {"value": r.zero}
    return Real(node.given((r.q, *node.inputs[1:]), **attrs), r.scale, r.zero).node()


def _reshaped(r: Real, shape: Sequence[int]) -> Array | None:
    """The scale for a view of another shape; None if the scale would vary within an axis of the view."""
    if r.is_plain:
        return r.scale
    if r.scale.shape == r.q.shape or r.scale.size == prod(shape):
        return r.scale.reshape(tuple(shape))
    columns = r.scale.size
    last = r.scale.shape[-1] == columns == r.q.shape[-1]
    return r.scale.reshape(-1) if last and shape and shape[-1] == columns else None


@rule(Apply)
def joined(node: Apply, uses: Uses) -> GraphNode | None:
    """concat(dequantize(a), dequantize(b)) ──▶ dequantize(concat(a, b)), if scale and zero point are equal"""
    if node.op != "concat":
        return None
    parts = [real(x) for x in node.inputs]
    first = parts[0]
    if first is None or not first.is_plain or not first.is_byte:
        return None
    for p in parts:
        if p is None or not p.is_plain or (p.q.dtype, p.zero) != (first.q.dtype, first.zero):
            return None
        if p.scale.item() != first.scale.item():
            return None
    return Real(node.given(p.q for p in parts if p is not None), first.scale, first.zero).node()


@rule(Apply)
def positive(node: Apply, uses: Uses) -> GraphNode | None:
    """relu(dequantize(x)) ──▶ dequantize(max(x, zero))"""
    match node:
        case Apply("relu", (x,)):
            r = real(x)
            if r is not None:
                return Real(apply("clip", (r.q,), {"min": r.zero}), r.scale, r.zero).node()
    return None


# -- products ----------------------------------------------------------------------------------------------


@rule(Apply)
def product(node: Apply, uses: Uses) -> GraphNode | None:
    """conv2d(dequantize(x, s), dequantize(w, t)) ──▶ dequantize(conv2d(x, w, zeros=…), s * t)"""
    if not is_product(node) or why_no_product(node):
        return None
    x, w = (real(i) for i in node.inputs)
    scale = None if w is None else scale_of_results(node, w)
    if x is None or w is None or scale is None:
        return None
    return Real(node.given((x.q, w.q), zeros=(x.zero, w.zero)), x.times(scale), 0).node()


# -- sums ----------------------------------------------------------------------------------------------------


@rule(Apply)
def bias(node: Apply, uses: Uses) -> GraphNode | None:
    """dequantize(x, s) + dequantize(b, s) ──▶ dequantize(x + b, s), for sums in 32 bits"""
    if node.op != "add":
        return None
    a, b = (real(x) for x in node.inputs)
    if a is None or b is None or a.zero or b.zero or {a.q.dtype, b.q.dtype} != {int32}:
        return None
    if isinstance(a.q, Constant):
        a, b = b, a
    if a.q.shape != node.shape or not isinstance(b.q, Constant) or largest(a.q) + largest(b.q) > FURTHEST:
        return None
    if not np.allclose(a.scale, b.scale, rtol=SAME, atol=0):
        return None
    return Real(apply("add", (a.q, b.q)), a.scale, 0).node()


@rule(Apply)
def mean(node: Apply, uses: Uses) -> GraphNode | None:
    """mean(dequantize(x, s)) ──▶ dequantize(sum(x) - count * zero, s / count); pooling in the same way"""
    if node.op not in ("mean", "avg_pool2d", "global_avg_pool2d"):
        return None
    r = real(node.inputs[0])
    if r is None or not r.is_plain or not r.is_byte:
        return None
    if node.op == "mean":
        counts = np.array(prod(r.q.shape) // max(prod(node.shape), 1))
        inside = counts
        total = apply("sum", (r.q,), {**dict(node.attrs), "dtype": "int32"})
    elif node.op == "global_avg_pool2d":
        layout = str(node.attr("layout"))
        extents = tuple(r.q.shape[layout.index(a)] for a in "HW")
        counts = inside = np.array(prod(extents))
        total = apply("sum_pool2d", (r.q,), {"kernel": extents, "stride": 1, "layout": layout})
    else:
        inside, counts = _elements(node)
        attrs = {k: v for k, v in node.attrs if k != "count_include_pad"}
        total = apply("sum_pool2d", (r.q,), attrs)
    if r.furthest * int(inside.max(initial=0)) > LARGEST:
        return None
    if r.zero:
        total = apply("subtract", (total, constant((inside * r.zero).astype(np.int32))))
    return Real(total, np.asarray(r.scale / counts, np.float32), 0).node()


def _elements(node: Apply) -> tuple[Array, Array]:
    """For each window, its number of elements of x, and its divisor; both broadcast to the result."""
    layout, x = str(node.attr("layout")), node.inputs[0]
    extents = [x.shape[layout.index(a)] for a in "HW"]
    stride = node.attr("kernel") if node.attr("stride") is None else node.attr("stride")
    windows = windows_of(
        "avg_pool2d", extents, node.attr("kernel"), stride, node.attr("padding"), 1, node.attr("ceil_mode")
    )
    found = []
    for include in (False, node.attr("count_include_pad")):
        h, w = (np.array([v.inside(i, include) for i in range(v.out)]) for v in windows)
        full = np.outer(h, w)
        spread = full.reshape([full.shape["HW".index(a)] if a in "HW" else 1 for a in layout])
        found.append(full.reshape(-1)[0] if bool((full == full[0, 0]).all()) else spread)
    inside, counted = found
    return np.asarray(inside), np.asarray(counted)


# -- to bytes ------------------------------------------------------------------------------------------------


@rule(Apply)
def clipped(node: Apply, uses: Uses) -> GraphNode | None:
    """quantize(clip(y)) ──▶ clip(quantize(y)): rounding keeps the order of numbers. y must not be NaN."""
    q = small(node)
    if q is None or not isinstance(q.y, Apply):
        return None
    found = _ends(q.y)
    if found is None:
        return None
    y, low, high = found
    if not _is_number(y):
        return None
    limits = np.iinfo(q.dtype)
    least, most = (None if end is None else q.number(end) for end in (low, high))
    ends = {}
    if least is not None and least > limits.min:
        ends["min"] = least
    if most is not None and most < limits.max:
        ends["max"] = most
    made = q.on(y)
    return apply("clip", (made,), ends) if ends else made


def _is_number(y: GraphNode) -> bool:
    """Whether no element can be NaN, which a clip and `quantize` treat differently.

    Integers times scales, and sums and products of a few of them, are far from infinity.
    """
    match y:
        case Constant():
            return bool(np.isfinite(y.array).all())
        case Apply("dequantize"):
            return real(y) is not None
        case Apply("add" | "subtract" | "multiply", (a, b)):
            return all(real(x) is not None or (isinstance(x, Constant) and _is_number(x)) for x in (a, b))
        case Apply("reshape" | "transpose" | "concat", parts):
            return all(_is_number(x) for x in parts)
    return False


def _ends(y: Apply) -> tuple[GraphNode, float | None, float | None] | None:
    """The input of a clip and its limits; None for other operators."""
    match y:
        case Apply("relu", (x,)):
            return x, 0.0, None
        case Apply("relu6", (x,)):
            return x, 0.0, 6.0
        case Apply("clip", (x,)):
            ends: tuple[GraphNode, float | None, float | None] = x, y.attr("min"), y.attr("max")
        case Apply("maximum" | "minimum", (x, Constant() as c)) if c.array.size == 1 and x.shape == y.shape:
            end = float(c.array.reshape(-1)[0])
            ends = (x, end, None) if y.op == "maximum" else (x, None, end)
        case _:
            return None
    return None if any(e is not None and np.isnan(e) for e in ends[1:]) else ends


@rule(Apply)
def rounded_before(node: Apply, uses: Uses) -> GraphNode | None:
    """quantize(transpose(y)) ──▶ transpose(quantize(y)); views too; quantize(concat(…)) part by part"""
    q = small(node)
    if q is None:
        return None
    match q.y:
        case Apply("reshape" | "transpose", (x,)) as view if uses[view] == 1:
            return view.given((q.on(x),))
        case Apply("concat", parts) as view if uses[view] == 1 and all(real(p) is not None for p in parts):
            return view.given(q.on(p) for p in parts)
    return None


@rule(Apply)
def rescaled(node: Apply, uses: Uses) -> GraphNode | None:
    """quantize(dequantize(x, s), t) ──▶ requantize(x, s / t), or x"""
    q = small(node)
    r = real(q.y) if q is not None else None
    if q is None or r is None:
        return None
    if str(r.q.dtype) == q.dtype and r.zero == q.zero and r.is_plain and r.scale.item() == q.scale.item():
        return r.q
    return q.sums(r.whole(), r.scale)


@rule(Apply)
def sum_of_two(node: Apply, uses: Uses) -> GraphNode | None:
    """quantize(dequantize(a, s) + dequantize(b, t), u) ──▶ requantize(a, s / u, b, shift_scale=t / u)"""
    q = small(node)
    if q is None:
        return None
    match q.y:
        case Apply("add" | "subtract" as op, (left, right)):
            pass
        case _:
            return None
    a, b = real(left), real(right)
    if op == "add" and (a is None or left.shape != node.shape):
        a, b, left, right = b, a, right, left
    if a is None or a.q.shape != node.shape:
        return None
    sign = np.float32(1 if op == "add" else -1)
    if isinstance(right, Constant):
        shift: GraphNode = constant((sign * right.array.astype(np.float32) / q.scale).astype(np.float32))
    elif b is not None:
        ratio = np.asarray(sign * b.scale / q.scale, np.float32)
        if ratio.size == 1 and b.q.dtype.bits <= 16:  # kernels pass bytes instead of floats
            of_shift = {"shift_scale": float(ratio), "shift_zero": b.zero}
            return q.sums(a.whole(), a.scale, b.q, **of_shift)
        zero = () if b.zero == 0 else (constant(b.zero, dtype=b.q.dtype),)
        shift = apply("dequantize", (b.q, constant(ratio), *zero))
    else:
        return None
    return q.sums(a.whole(), a.scale, shift)


@rule(Apply)
def product_of_two(node: Apply, uses: Uses) -> GraphNode | None:
    """quantize(dequantize(a, s) * dequantize(b, t), u) ──▶ requantize(a * b, s * t / u)"""
    q = small(node)
    if q is None:
        return None
    match q.y:
        case Apply("multiply", (left, right)):
            a, b = real(left), real(right)
        case _:
            return None
    if a is None or b is None or not (a.is_byte and b.is_byte and a.is_plain and b.is_plain):
        return None
    total = apply("multiply", (a.whole(), b.whole()))
    return q.sums(total, a.times(b.scale))


INTEGERS = Rules(
    scales,
    moved,
    joined,
    positive,
    product,
    bias,
    mean,
    clipped,
    rounded_before,
    rescaled,
    sum_of_two,
    product_of_two,
)


def in_integers(graph: Graph) -> Graph:
    """The graph with integers between its quantised tensors, wherever rules exist."""
    if not any(n.op == "dequantize" for n in graph.applies):
        return graph
    made = views_behind(canonicalize(rewrite_graph(graph, INTEGERS, name="in integers")))
    return sums_in_32_bits(in_whole_numbers(as_they_lie(canonicalize(made))))


# -- operators that stay in floats -------------------------------------------------------------------------


def left_in_float(graph: Graph) -> Iterator[tuple[Apply, str]]:
    """The operators that still compute in floats from quantised values after the pass, with the reasons."""
    for node in graph.applies:
        if node.op in ("quantize", "dequantize", "requantize") or not any(map(_is_quantised, node.inputs)):
            continue
        if is_product(node):
            yield node, why_no_product(node)
        elif node.kind is Kind.ELEMENTWISE:
            yield node, "its result is not quantised, or its operands are not all"
        else:
            yield node, f"{node.op_name} has no form in integers"


def _is_quantised(x: GraphNode) -> bool:
    return isinstance(x, Apply) and x.op == "dequantize"
