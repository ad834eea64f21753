"""Gradients of convolutions, written by hand in forms that have good schedules.

    dx[n, h, w, ci]       conv2d_transpose(g, w)
    dw[kh, kw, ci, c]   = sum_{n, h, w} x[n, h*sh + kh*dh, w*sw + kw*dw, ci] * g[n, h, w, c]
    db[c]               = sum_{n, h, w} g[n, h, w, c]

The gradient of the weights is summed with channels last, so that vectors run along the channels. The small
result is then transposed to the weights' own order [c, ci, kh, kw]. Other cases (groups, dilation, one or
three dimensions) are derived from the operator's body.
"""

from __future__ import annotations

from typing import Any

from autotensor import te
from autotensor.autodiff.body_gradients import differentiate
from autotensor.autodiff.gradient_rules import over_all_but
from autotensor.autodiff.gradient_table import gradient
from autotensor.graph.build import call, ops
from autotensor.graph.ir import Apply, GraphNode
from autotensor.ir.expr import Expr
from autotensor.operators.operator_helpers import by_layout, paddings, per_axis, stage
from autotensor.operators.window import reader, spatial_of, windows_of
from autotensor.te import Tensor


@gradient("conv1d", "conv2d", "conv3d")
def _conv(node: Apply, g: GraphNode, k: int) -> GraphNode | None:
    if k == 2:
        return over_all_but(g, node.attr("layout").index("C"))
    if k == 1 and node.attr("groups") == 1:
        return _weights(node, g)
    if k == 0 and node.op == "conv2d" and per_axis("conv2d", "dilation", node.attr("dilation"), 2) == (1, 1):
        return _input(node, g)
    return differentiate(node, g, [k]).get(k)


def _input(node: Apply, g: GraphNode) -> GraphNode:
    """conv2d_transpose(g, w): every row of g adds its multiple of the kernel."""
    x, w = node.inputs[:2]
    layout = node.attr("layout")
    strides = per_axis("conv2d", "stride", node.attr("stride"), 2)
    befores, afters = zip(*paddings("conv2d", node.attr("padding"), 2), strict=True)
    # The number of rows of x that no window reaches; it is less than the stride.
    spare = tuple(
        x.shape[at] - ((g.shape[at] - 1) * s - before - after + kernel)
        for at, s, before, after, kernel in zip(
            (layout.index("H"), layout.index("W")), strides, befores, afters, w.shape[2:], strict=True
        )
    )
    return ops.conv2d_transpose(
        g,
        w,
        stride=strides,
        padding=(*befores, *afters),
        output_padding=spare,
        groups=node.attr("groups"),
        layout=layout,
    )


def _weights(node: Apply, g: GraphNode) -> GraphNode:
    """The sums over all images and positions, transposed to the order of the weights."""
    x, w = node.inputs[:2]
    rank, axes = w.ndim - 2, node.attr("layout").lower()
    spatial = spatial_of(axes)
    stride, padding, dilation = (node.attr(name) for name in ("stride", "padding", "dilation"))
    extents = [x.shape[axes.index(a)] for a in spatial]
    windows = windows_of(node.op_name, extents, w.shape[2:], stride, padding, dilation, False)

    def d_weights(x: Tensor, g: Tensor) -> Tensor:
        read = reader(x, 0, axes, windows)
        n = te.reduce_axis(x.shape[0], "n")
        at = [te.reduce_axis(g.shape[axes.index(a)], a) for a in spatial]

        def body(*i: Expr) -> Any:
            *ks, ci, c = i
            _, element = read({"n": n, "c": ci, **dict(zip(spatial, at, strict=True))}, ks)
            return te.sum(element * g[by_layout(axes, spatial, (n, c), at)], axis=[n, *at])

        names = (*(f"k{a}" for a in spatial), "ci", "c")
        return stage((*w.shape[2:], w.shape[1], w.shape[0]), body, "d_weights", names)

    turned = call(d_weights, x, g)
    return ops.transpose(turned, axes=(rank + 1, rank, *range(rank)))
