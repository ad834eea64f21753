"""`flex_attention`: attention with a program that changes each score.

    score = score_mod(q[b, h, i] @ k[b, h, j] * scale, b, h, i, j)        -inf where not mask_mod(b, h, i, j)

Torch traces both programs for single numbers. Elementwise operators and tensor indexing also work on arrays
that broadcast. So the programs run on arrays of shape [batch, 1, 1, 1], [1, heads, 1, 1] and so on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from autotensor.frontends.attention_heads import repeated, turned
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.importer import import_part
from autotensor.frontends.torch.registry import Missing, converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant

# Operators that work on arrays that broadcast, in addition to those that torch calls pointwise: indexing, and
# operators that copy or create values.
_ALSO = frozenset(
    """aten.index.Tensor aten._unsafe_index.Tensor aten._to_copy.default aten.clone.default aten.full.default
    aten.scalar_tensor.default aten.new_ones.default aten.new_zeros.default aten.new_full.default
    aten.ones.default aten.zeros.default aten.lift_fresh_copy.default aten.detach.default""".split()  # noqa: SIM905
)


@converts("flex_attention")
def flex_attention(
    q: GraphNode,
    k: GraphNode,
    v: GraphNode,
    score_mod: Any,
    block_mask: Sequence[Any],
    scale: float,
    options: Any,
    score_more: Sequence[Any] = (),
    mask_more: Sequence[Any] = (),
) -> Any:
    """q: [batch, heads, m, d], k: [batch, heads or fewer, n, d], v: [.., n, e] ──▶ [batch, heads, m, e], and
    log2 of each query's sum of exp(score). `mask_mod` is the last element of `block_mask`; its other elements
    only repeat the mask in blocks, so they are not read. Queries from which every key is hidden give 0."""
    batch, heads, m, _ = q.shape
    k, v = (repeated(x, heads, batch) for x in (k, v))
    shape = (batch, heads, m, k.shape[2])
    wide = q if q.dtype.bits >= 32 else as_type(q, "float32")
    keys = as_type(turned(k), wide.dtype)
    scores = ops.multiply(ops.batch_matmul(wide, keys), constant(np.asarray(scale, wide.dtype.numpy)))
    places = [
        constant(np.arange(extent, dtype=np.int32).reshape([-1 if a == axis else 1 for a in range(4)]))
        for axis, extent in enumerate(shape)
    ]
    scores = ops.broadcast_to(_lifted(score_mod, [scores, *places, *score_more]), shape=shape)
    seen = ops.broadcast_to(_lifted(block_mask[-1], [*places, *mask_more]), shape=shape)
    nothing, none = (constant(np.asarray(x, scores.dtype.numpy)) for x in (-math.inf, 0))
    scores = ops.where(seen, scores, nothing)
    most = ops.max(scores, axis=(3,), keepdims=True)
    blind = ops.equal(most, -math.inf)
    shares = ops.where(blind, none, ops.softmax(ops.where(blind, none, scores), axis=3))
    y = ops.batch_matmul(as_type(shares, v.dtype), v)
    total = ops.sum(ops.exp(scores - ops.where(blind, none, most)), axis=(3,), keepdims=True)
    size = ops.where(blind, nothing, (most + ops.log(total)) * (1 / math.log(2)))
    return y, ops.squeeze(size, axes=(3,)), Missing("flex_attention's largest score")


def _lifted(part: torch.fx.GraphModule, arguments: Sequence[Any]) -> Any:
    """The results of a program for single numbers, run on arrays that broadcast."""
    lifted = copy.deepcopy(part)
    given = iter(arguments)
    shapes: dict[torch.fx.Node, Any] = {}
    for node in lifted.graph.nodes:
        if node.op == "placeholder":
            value = next(given)
            kind = node.meta["val"].dtype if "val" in node.meta else getattr(torch, str(value.dtype))
            shapes[node] = torch.empty(value.shape, dtype=kind, device="meta")
        elif node.op == "get_attr":
            shapes[node] = getattr(lifted, node.target).to("meta")
        elif node.op == "call_function":
            _check_pointwise(node)
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), shapes.__getitem__)
            shapes[node] = node.target(
                *args, **{**kwargs, **({"device": "meta"} if "device" in kwargs else {})}
            )
        else:
            continue
        node.meta["val"] = shapes[node]
    (result,) = import_part(lifted, arguments)
    return result


def _check_pointwise(node: torch.fx.Node) -> None:
    made = node.meta.get("val")
    tags = getattr(node.target, "tags", ())
    single = not isinstance(made, torch.Tensor) or made.dim() == 0
    if not single or (torch.Tag.pointwise not in tags and str(node.target) not in _ALSO):
        raise Unsupported(
            f"a score or mask of flex_attention is computed by {node.target}, which is not elementwise.",
            fix="Compute it outside, and read it at the places.",
        )
