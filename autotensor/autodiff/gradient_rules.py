"""Gradients written by hand, for operators whose gradient can use the forward result, or is itself an
operator of the library.

These gradients are checked against finite differences, as derived gradients are. For all other operators the
te bodies are differentiated (`body_gradients.py`), which mostly gives the same computation.
"""

from __future__ import annotations

from functools import partial
from math import prod

from autotensor import te
from autotensor.autodiff.gradient_table import Rule, gradient
from autotensor.graph.build import call, ops
from autotensor.graph.ir import Apply, GraphNode
from autotensor.graph.rules.canonical import reshape, transpose, transposition
from autotensor.ir.expr import Expr
from autotensor.operators.norm import mean_and_scale
from autotensor.operators.operator_helpers import fold, kept, stage
from autotensor.te import Tensor

# -- elementwise ---------------------------------------------------------------------------------------------


# operator → adjoint of its operand, from the result y and its adjoint g
ELEMENTWISE: dict[str, Rule] = {
    "identity": lambda y, g, k: g,
    "neg": lambda y, g, k: -1.0 * g,
    "sigmoid": lambda y, g, k: g * (y * (1.0 - y)),
    "tanh": lambda y, g, k: g * (1.0 - y * y),
    "exp": lambda y, g, k: g * y,
    "sqrt": lambda y, g, k: g * 0.5 / y,
}
for _name, _rule in ELEMENTWISE.items():
    gradient(_name)(_rule)


@gradient("relu")
def _relu(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """Uses the result, so that the input need not be kept."""
    return call(d_relu, node, g)  # type: ignore[no-any-return]


def d_relu(y: Tensor, g: Tensor) -> Tensor:
    return stage(y.shape, lambda *i: te.select(y[i] > 0, g[i], te.const(0, g.dtype)), "d_relu")


@gradient("cast")
def _cast(node: Apply, g: GraphNode, k: int) -> GraphNode:
    return ops.cast(g, dtype=str(node.inputs[k].dtype))


@gradient("add")
def _add(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    return unbroadcast(g, node.inputs[k])


@gradient("subtract")
def _subtract(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    return unbroadcast(g if k == 0 else -1.0 * g, node.inputs[k])


@gradient("multiply")
def _multiply(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    return unbroadcast(g * node.inputs[1 - k], node.inputs[k])


@gradient("divide")
def _divide(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    over = g / node.inputs[1]
    return unbroadcast(over if k == 0 else -1.0 * over * node, node.inputs[k])


@gradient("bias_add")
def _bias_add(node: Apply, g: GraphNode, k: int) -> GraphNode:
    return g if k == 0 else over_all_but(g, node.attr("axis"))


def unbroadcast(g: GraphNode, x: GraphNode) -> GraphNode:
    """`g` summed to the shape of x and cast to the type of x; x was broadcast to the shape of `g`."""
    lead = g.ndim - x.ndim
    axes = (
        *range(lead),
        *(lead + a for a, n in enumerate(x.shape) if n == 1 and g.shape[lead + a] != 1),
    )
    total = reshape(ops.sum(g, axis=axes), x.shape) if axes else reshape(g, x.shape)
    return total if total.dtype == x.dtype else ops.cast(total, dtype=str(x.dtype))


def over_all_but(g: GraphNode, axis: int) -> GraphNode:
    """Sums over every axis but one."""
    at = axis % g.ndim
    axes = tuple(a for a in range(g.ndim) if a != at)
    return ops.sum(g, axis=axes) if axes else g


# -- products ------------------------------------------------------------------------------------------------


@gradient("dense")
def _dense(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """y = x wᵀ + b:  dx = g w,  dw = gᵀ x,  db = sums of g's columns"""
    x, w = node.inputs[:2]
    match k:
        case 0:
            return ops.matmul(g, w)
        case 1:
            return ops.matmul(g, x, transpose_a=True)
    return ops.sum(g, axis=0)


@gradient("matmul", "batch_matmul")
def _matmul(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """y = a b:  da = g bᵀ,  db = aᵀ g; transposed operands likewise."""
    a, b = node.inputs
    ta, tb = node.attr("transpose_a"), node.attr("transpose_b")
    product = ops.matmul if node.op == "matmul" else ops.batch_matmul
    if k == 0:
        made = product(b, g, transpose_a=tb, transpose_b=True) if ta else product(g, b, transpose_b=not tb)
    else:
        made = product(g, a, transpose_a=True, transpose_b=ta) if tb else product(a, g, transpose_a=not ta)
    return unbroadcast(made, node.inputs[k])


# -- softmax and norms ---------------------------------------------------------------------------------------


@gradient("softmax")
def _softmax(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """dx = y * (g - sum of g*y)"""
    over = (node.attr("axis") % node.ndim,)

    def d_softmax(y: Tensor, g: Tensor) -> Tensor:
        product = stage(y.shape, lambda *i: y[i] * g[i], "product")
        total = fold(te.sum, product, over, "total")
        return stage(y.shape, lambda *i: product[i] - y[i] * total[kept(i, over)], "d_softmax")

    return call(d_softmax, node, g)  # type: ignore[no-any-return]


@gradient("log_softmax")
def _log_softmax(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """dx = g - exp(y) * sum of g"""
    over = (node.attr("axis") % node.ndim,)

    def d_log_softmax(y: Tensor, g: Tensor) -> Tensor:
        total = fold(te.sum, g, over, "total")
        return stage(y.shape, lambda *i: g[i] - te.exp(y[i]) * total[kept(i, over)], "d_log_softmax")

    return call(d_log_softmax, node, g)  # type: ignore[no-any-return]


@gradient("layer_norm")
def _layer_norm(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """With x̂ = (x - mean) * scale and h = g*gamma:  dx = scale * (h - mean(h) - x̂ * mean(h*x̂))

    gamma and beta get sums of g*x̂ and of g over the rows.
    """
    x, gamma = node.inputs[:2]
    first, eps = node.attr("axis") % x.ndim, node.attr("eps")
    rows = tuple(range(first))
    if k == 2:
        return ops.sum(g, axis=rows) if rows else g
    xh = call(lambda x: _normed(x, first, eps)[0], x, name="normed")
    if k == 1:
        return ops.sum(g * xh, axis=rows) if rows else g * xh
    scale = call(lambda x: _normed(x, first, eps)[1], x, name="norm_scale")

    def d_layer_norm(g: Tensor, gamma: Tensor, xh: Tensor, scale: Tensor) -> Tensor:
        over, count = tuple(range(first, g.ndim)), prod(g.shape[first:])
        h = stage(g.shape, lambda *i: g[i] * gamma[i[first:]], "h")
        hx = stage(g.shape, lambda *i: h[i] * xh[i], "hx")
        mean = fold(te.sum, h, over, "mean")
        along = fold(te.sum, hx, over, "along")

        def body(*i: Expr) -> Expr:
            row = kept(i, over)
            return scale[row] * (h[i] - mean[row] / count - xh[i] * (along[row] / count))

        return stage(g.shape, body, "d_layer_norm")

    return call(d_layer_norm, g, gamma, xh, scale)  # type: ignore[no-any-return]


def _normed(x: Tensor, first: int, eps: float) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps) over the axes from `first` on, and 1 / sqrt(var + eps)."""
    mean, scale = mean_and_scale(x, first, eps)
    return stage(x.shape, lambda *i: (x[i] - mean[i[:first]]) * scale[i[:first]], "normed"), scale


# -- moving elements -----------------------------------------------------------------------------------------


@gradient("reshape", "flatten", "squeeze", "unsqueeze")
def _view(node: Apply, g: GraphNode, k: int) -> GraphNode:
    return reshape(g, node.inputs[0].shape)


@gradient("transpose")
def _transpose(node: Apply, g: GraphNode, k: int) -> GraphNode:
    order = transposition(node)
    return transpose(g, tuple(order.index(a) for a in range(len(order))))


@gradient("broadcast_to")
def _broadcast_to(node: Apply, g: GraphNode, k: int) -> GraphNode:
    return unbroadcast(g, node.inputs[0])


@gradient("concat")
def _concat(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """Every part gets its slice of the adjoint."""
    axis = node.attr("axis") % node.ndim
    begin = sum(x.shape[axis] for x in node.inputs[:k])
    x = node.inputs[k]
    if x.shape == g.shape:
        return g
    part = ops.slice(g, begin=(begin,), end=(begin + x.shape[axis],), axes=(axis,))
    return part if part.dtype == x.dtype else ops.cast(part, dtype=str(x.dtype))


@gradient("pad")
def _pad(node: Apply, g: GraphNode, k: int) -> GraphNode:
    """Added borders are cut off; cut borders get zeros."""
    return ops.pad(g, pads=tuple((-b, -a) for b, a in node.attr("pads")))


@gradient("take")
def _take(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    """A row that is taken several times gets the sum of its adjoints; an index outside takes the row at the
    end."""
    x, indices = node.inputs
    axis = node.attr("axis") % x.ndim
    extent = x.shape[axis]
    if isinstance(indices, Apply):
        indices = call(partial(held_inside, extent=extent), indices, name="held_inside")
    return ops.scatter_add(indices, g, extent=extent, axis=axis)


def held_inside(indices: Tensor, extent: int) -> Tensor:
    def body(*i: Expr) -> Expr:
        return te.maximum(te.minimum(te.cast("int64", indices[i]), extent - 1), -extent)

    return stage(indices.shape, body, "held_inside")


@gradient("scatter_add")
def _scatter_add(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    rank = node.ndim
    return ops.take(g, node.inputs[0], axis=node.attr("axis") % rank)
