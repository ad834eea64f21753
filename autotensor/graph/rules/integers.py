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
from dataclasses import dataclass
from math import prod

import numpy as np

from autotensor.base.dtype import DType, float32, int32
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.graph_rewriting import Uses, rewrite_graph
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, apply, constant
from autotensor.graph.rules.affine import channel_axis
from autotensor.graph.rules.canonical import canonicalize, reshape, transpose, transposition
from autotensor.graph.rules.quantised.product_views import as_they_lie, views_behind
from autotensor.graph.rules.quantised.whole_numbers import in_whole_numbers, sums_in_32_bits
from autotensor.graph.weights import CONVOLUTIONS
from autotensor.ir.rewrite import Rules, rule
from autotensor.operators import Kind
from autotensor.operators.window import windows_of

PRODUCTS = ("matmul", "batch_matmul")
# operators whose results are elements of the first operand
MOVING = ("slice", "take", "pad", "broadcast_to", "max_pool2d", "max")
SAME = 1e-6  # relative: scales that differ by less are equal; files compute s * t in two ways
ONE = np.ones((), np.float32)
# limits of scales: the product of two scales, and a quotient, keep all their bits in float32
SMALLEST, GREATEST = 1e-18, 1e18
FURTHEST = 2**31 - 1  # the greatest signed number of 32 bits
LARGEST = 2**30  # the greatest sum allowed, so that a sum plus a bias fits into 32 bits


# -- the values of nodes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Real:
    """(q - zero) * scale."""

    q: GraphNode
    scale: Array  # float32, positive; broadcasts against q
    zero: int

    @property
    def is_byte(self) -> bool:
        return self.q.dtype.is_byte

    @property
    def is_plain(self) -> bool:
        """Whether all elements have the same scale."""
        return self.scale.size == 1

    def times(self, scale: Array) -> Array:
        return np.asarray(self.scale * scale, np.float32)

    def whole(self) -> GraphNode:
        """q - zero, in 32 bits."""
        wide = self.q if self.q.dtype == int32 else apply("cast", (self.q,), {"dtype": "int32"})
        return wide if self.zero == 0 else apply("subtract", (wide, constant(self.zero, dtype=int32)))

    def node(self) -> GraphNode:
        zero = () if self.zero == 0 else (constant(self.zero, dtype=self.q.dtype),)
        return apply("dequantize", (self.q, constant(self.scale), *zero))


@dataclass(frozen=True, slots=True)
class Small:
    """How a `quantize` rounds: with one scale and one zero point."""

    y: GraphNode  # the node that it reads
    scale: Array  # float32, one element
    zero: int
    dtype: str

    def on(self, y: GraphNode) -> GraphNode:
        """The node that rounds another value in the same way."""
        zero = constant(np.array(self.zero, self.dtype))
        return apply("quantize", (y, constant(self.scale), zero), {"dtype": self.dtype})

    def sums(
        self, total: GraphNode, scale: Array, shift: GraphNode | None = None, **of_shift: float
    ) -> GraphNode:
        """Sums of integers, rounded in the same way.

        scale: the value of an integer 1. of_shift: attributes of a shift that consists of integers.
        """
        ratio = np.asarray(scale / self.scale, np.float32)
        inputs = (total, constant(ratio), *(() if shift is None else (shift,)))
        return apply("requantize", inputs, {"zero": self.zero, "dtype": self.dtype, **of_shift})

    def number(self, x: float) -> int:
        """One number, rounded in the same way."""
        limits = np.iinfo(self.dtype)
        q = np.rint(np.float32(x) / self.scale) + np.float32(self.zero)
        return int(np.clip(q, limits.min, limits.max))


def real(node: GraphNode) -> Real | None:
    """The integers, scale and zero point of a `dequantize` with a constant scale; None for other nodes."""
    match node:
        case Apply("dequantize", (q, Constant() as scale, *zero)) if node.dtype == float32:
            known, at = _usable(scale), _same(zero)
            fits = at is not None and q.dtype.bits <= 32 and _holds(q.dtype, at)
            if known is not None and at is not None and fits and q.shape == node.shape:
                return Real(q, known, at)
    return None


def small(node: GraphNode) -> Small | None:
    match node:
        case Apply("quantize", (y, Constant() as scale, *zero)) if y.dtype == float32:
            known, at = _usable(scale), _same(zero)
            fits = at is not None and _holds(node.dtype, at)
            if known is not None and at is not None and fits and known.size == 1 and y.shape == node.shape:
                return Small(y, known, at, str(node.attr("dtype")))
    return None


def _usable(scale: Constant) -> Array | None:
    """A scale as float32; None if products with it may lose more than their last bit."""
    if not scale.dtype.is_float:
        return None
    s = scale.array.astype(np.float32)
    good = (s >= SMALLEST) & (s <= GREATEST)
    if not s.size or not bool(good.all()):
        return None
    return s.reshape(()) if s.size == 1 else s


def _same(zero: Sequence[GraphNode]) -> int | None:
    """The zero point if it is one constant number for all elements; 0 if there is none; otherwise None."""
    if not zero:
        return 0
    z = zero[0]
    if not isinstance(z, Constant) or z.array.size == 0 or not z.dtype.is_int:
        return None
    first = z.array.reshape(-1)[0]
    return int(first) if bool((z.array == first).all()) else None


def _holds(dtype: DType, zero: int) -> bool:
    """Whether the type can hold this zero point."""
    if not dtype.is_int:
        return False
    limits = np.iinfo(dtype.numpy)
    return int(limits.min) <= zero <= int(limits.max)


# -- operators that only move elements ---------------------------------------------------------------------


@rule(Apply)
def scales(node: Apply, uses: Uses) -> GraphNode | None:
    """Computes constants now that are scales, or weights whose elements only move."""
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
        full = r.scale.reshape((1,) * (r.q.ndim - r.scale.ndim) + r.scale.shape)
        scale = r.scale if r.is_plain else np.ascontiguousarray(full.transpose(axes))
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
    scale = None if w is None else _of_results(node, w)
    if x is None or w is None or scale is None:
        return None
    return Real(node.given((x.q, w.q), zeros=(x.zero, w.zero)), x.times(scale), 0).node()


def is_product(node: Apply) -> bool:
    return (node.op in CONVOLUTIONS or node.op in PRODUCTS or node.op == "dense") and len(node.inputs) == 2


def why_no_product(node: Apply) -> str:
    """Why a product of floats does not become a product of integers; "" if it does."""
    x, w = (real(i) for i in node.inputs)
    if x is None or w is None:
        which = "data are" if x is None else "weights are"
        return f"its {which} {_what_it_is(node.inputs[0 if x is None else 1])}"
    if not x.is_byte or not w.is_byte:
        return f"its operands are {x.q.dtype} and {w.q.dtype}, not bytes"
    if not x.is_plain:
        return "the scale of its data varies along what is summed or among rows"
    if _of_results(node, w) is None:
        return "the scale of its weights varies along what is summed"
    if largest_sum(node, x, w) > LARGEST:
        return "its sums may not fit 32 bits"
    return ""


def _what_it_is(x: GraphNode) -> str:
    match x:
        case Apply("dequantize", (_, scale, *_)) if not isinstance(scale, Constant):
            return "quantised by a scale that is known only when the model runs"
        case Apply("dequantize", (_, Constant(), *zero)) if _same(zero) is None:
            return "quantised with zero points that vary"
        case Apply("dequantize"):
            return "quantised by scales that float32 does not hold well, or in another type"
    return "not quantised"


def _of_results(node: Apply, w: Real) -> Array | None:
    """The weights' scale, shaped to broadcast to the result; None if it varies along a summed axis."""
    if w.is_plain:
        return w.scale
    rank, axes = node.ndim, w.q.ndim
    full = w.scale.reshape((1,) * (axes - w.scale.ndim) + w.scale.shape)
    channels = channel_axis(node)
    own, out = _own_axis(node, w), rank - 1 if channels is None else channels
    if any(n != 1 and a != own for a, n in enumerate(full.shape)):
        return None
    return full.reshape(tuple(-1 if a == out else 1 for a in range(rank))[out:])


def largest_sum(node: Apply, x: Real, w: Real) -> int:
    """A number that the absolute value of the product's sums does not exceed."""
    own = _own_axis(node, w)
    if isinstance(w.q, Constant):
        sizes = np.abs(w.q.array.astype(np.int64) - w.zero)
        first = w.q.ndim - 2 if node.op in PRODUCTS else 0  # earlier axes number other matrices
        over = tuple(a for a in range(first, w.q.ndim) if a != own)
        return _furthest(x) * int(sizes.sum(axis=over).max(initial=0))
    depth = w.q.shape[-2 if own == w.q.ndim - 1 else -1] if node.op in PRODUCTS else prod(w.q.shape[1:])
    return _furthest(x) * _furthest(w) * depth


def _most(q: GraphNode) -> int:
    """A number that the absolute value of the elements does not exceed."""
    match q:
        case Constant():
            return int(np.abs(q.array.astype(np.int64)).max(initial=0))
        case Apply("reshape" | "transpose", (x,)):
            return _most(x)
        case Apply("add", (x, y)):
            return _most(x) + _most(y)
        case Apply(_, (x, w)) if is_product(q) and q.attr("zeros") is not None:
            x_zero, w_zero = q.attr("zeros")
            return largest_sum(q, Real(x, ONE, x_zero), Real(w, ONE, w_zero))
    return FURTHEST + 1


def _own_axis(node: Apply, w: Real) -> int:
    """The axis of the weights that is also an axis of the result: channels or columns."""
    if node.op in PRODUCTS:
        return w.q.ndim - (2 if node.attr("transpose_b") else 1)
    return 0


def _furthest(r: Real) -> int:
    limits = np.iinfo(r.q.dtype.numpy)
    return max(abs(int(limits.min) - r.zero), abs(int(limits.max) - r.zero))


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
    if a.q.shape != node.shape or not isinstance(b.q, Constant) or _most(a.q) + _most(b.q) > FURTHEST:
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
    if _furthest(r) * int(inside.max(initial=0)) > LARGEST:
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
    match q.y if q is not None else None:
        case Apply("reshape" | "transpose", (x,)) as view if uses[view] == 1:
            assert q is not None
            return view.given((q.on(x),))
        case Apply("concat", parts) as view if uses[view] == 1 and all(real(p) is not None for p in parts):
            assert q is not None
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
    match q.y if q is not None else None:
        case Apply("add" | "subtract" as op, (left, right)):
            pass
        case _:
            return None
    assert q is not None
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
    match q.y if q is not None else None:
        case Apply("multiply", (left, right)):
            a, b = real(left), real(right)
        case _:
            return None
    if q is None or a is None or b is None or not (a.is_byte and b.is_byte and a.is_plain and b.is_plain):
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
