"""Names of groups, for people: `conv2d 3x3/2 56x56x128->128 +add+relu`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotensor.graph.ir import Apply


def group_name(chain: Sequence[Apply]) -> str:
    """The head's operator and sizes, then the epilogue's operators."""
    head, rest = chain[0], "".join(f"+{n.op_name}" for n in chain[1:] if n.results == 1)
    return f"{_head(head)}{' ' if rest else ''}{rest}"


def _head(node: Apply) -> str:
    x = node.inputs[0].shape if node.inputs else ()
    match node.op:
        case "conv1d" | "conv2d" | "conv3d" | "conv2d_transpose":
            return _conv(node)
        case "dense":
            rows = "" if x[0] == 1 else f"{x[0]}x"
            return f"dense {rows}{x[1]}->{node.shape[1]}"
        case "matmul" | "batch_matmul":
            return f"{node.op_name} {_by(x)} {_by(node.inputs[1].shape)}"
        case _:
            return f"{node.op_name} {_by(x[1:] if len(x) == 4 and x[0] == 1 else x)}"


def _conv(node: Apply) -> str:
    layout = str(node.attr("layout"))
    size = dict(zip(layout, node.inputs[0].shape, strict=True))
    places = [a for a in layout if a not in "NC"]
    outputs = node.shape[layout.index("C")]
    stride, groups = node.attr("stride"), node.attr("groups")
    step = max(stride) if isinstance(stride, tuple) else stride
    parts = [
        f"{node.op_name} {_by(node.inputs[1].shape[2:])}" + (f"/{step}" if step != 1 else ""),
        ("" if size["N"] == 1 else f"{size['N']}x")
        + f"{_by([size[a] for a in places])}x{size['C']}->{outputs}",
        *([f"groups={groups}"] if groups != 1 else []),
    ]
    return " ".join(parts)


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or str(prod(shape))
