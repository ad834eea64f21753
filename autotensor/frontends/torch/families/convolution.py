"""Convolutions. Weights stay as torch has them: [Cout, Cin/groups, …]; transposed, [Cin, Cout/groups, …]."""

from __future__ import annotations

from typing import Any

from autotensor.frontends.torch.registry import Unsupported, converts
from autotensor.frontends.torch.types import Ints, per_axis
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
    rank = len(w.shape) - 2
    if len(x.shape) == rank + 1:
        one = ops.unsqueeze(x, axes=(0,))
        y = convolution(one, w, bias, stride, padding, dilation, transposed, output_padding, groups)
        return ops.squeeze(y, axes=(0,))
    if rank not in (1, 2, 3):
        raise Unsupported(f"convolutions over {rank} axes are not supported.")
    each = {
        "stride": per_axis(stride, rank),
        "padding": per_axis(padding, rank),
        "dilation": per_axis(dilation, rank),
    }
    biases = () if bias is None else (bias,)
    if transposed:
        return _transposed(rank, x, w, biases, each, per_axis(output_padding, rank), groups)
    return getattr(ops, f"conv{rank}d")(x, w, *biases, groups=groups, **each)


def _transposed(
    rank: int,
    x: GraphNode,
    w: GraphNode,
    biases: tuple[GraphNode, ...],
    each: dict[str, tuple[int, ...]],
    more: tuple[int, ...],
    groups: int,
) -> Any:
    """In one dimension without dilation: a picture of height 1."""
    if rank == 1 and each["dilation"] == (1,):
        across = {"stride": 1, "padding": 0, "dilation": 1}
        flat = {name: (across[name], *along) for name, along in each.items()}
        tall, wide = (ops.unsqueeze(v, axes=(2,)) for v in (x, w))
        y = _transposed(2, tall, wide, biases, flat, (0, *more), groups)
        return ops.squeeze(y, axes=(2,))
    dilation = each.pop("dilation")
    if (
        rank == 2
        and all(d == 1 for d in dilation)
        and all(e < s for e, s in zip(more, each["stride"], strict=True))
    ):
        return ops.conv2d_transpose(x, w, *biases, groups=groups, output_padding=more, **each)
    return transposed_convolution(
        x,
        w,
        biases[0] if biases else None,
        stride=each["stride"],
        padding=[(p, p) for p in each["padding"]],
        dilation=dilation,
        output_padding=more,
        groups=groups,
    )
