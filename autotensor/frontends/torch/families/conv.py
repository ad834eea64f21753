"""Convolutions. Weights keep torch's layout: [Cout, Cin/groups, …].

The weights of transposed convolutions are [Cin, Cout/groups, …].
"""

from __future__ import annotations

from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import Ints, per_axis
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.transposed_convolution import transposed_convolution
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


@converts("aten.convolution.default")
def convolution(
    x: GraphNode,
    w: GraphNode,
    bias: GraphNode | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Any:
    """x: [n, c, spatial…], or without n."""
    rank = w.ndim - 2
    if x.ndim == rank + 1:
        one = ops.unsqueeze(x, axes=(0,))
        y = convolution(one, w, bias, stride, padding, dilation, transposed, output_padding, groups)
        return ops.squeeze(y, axes=(0,))
    if rank not in (1, 2, 3):
        raise Unsupported(f"convolutions over {rank} axes are not supported.")
    stride, padding, dilation = (per_axis(v, rank) for v in (stride, padding, dilation))
    if transposed:
        return transposed_convolution(
            *(x, w, bias),
            stride=stride,
            padding=[(p, p) for p in padding],
            dilation=dilation,
            output_padding=per_axis(output_padding, rank),
            groups=groups,
        )
    each = {"stride": stride, "padding": padding, "dilation": dilation}
    return getattr(ops, f"conv{rank}d")(x, w, bias, groups=groups, **each)
