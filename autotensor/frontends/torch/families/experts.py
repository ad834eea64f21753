"""Mixtures of experts: rows are sorted by expert, and each group is multiplied by its expert's matrix.

    y[i] = x[i] @ weight[expert of row i]        offsets[e]: the first row after those of expert e

The transformers package computes experts in this way: by `torch.nn.functional.grouped_mm`, or by its own
operator where torch.compile does not accept `grouped_mm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import call, ops
from autotensor.graph.ir import GraphNode, constant


@converts("aten._grouped_mm.default")
def grouped(
    x: GraphNode,
    weight: GraphNode,
    offsets: GraphNode | None = None,
    bias: GraphNode | None = None,
    out_dtype: Any = None,
) -> Any:
    """x: [rows, k], weight: [experts, k, n] ──▶ [rows, n]. Rows after the last group are unspecified."""
    if x.ndim != 2 or weight.ndim != 3 or offsets is None or bias is not None:
        raise Unsupported("grouped products are for rows [rows, k] and matrices [experts, k, n] only.")
    rows = constant(np.arange(x.shape[0], dtype=np.int64)[:, None])
    ends = ops.reshape(as_type(offsets, "int64"), shape=(1, -1))
    before = ops.sum(as_type(ops.less_equal(ends, rows), "int64"), axis=(1,))
    expert = ops.minimum(before, constant(np.asarray(weight.shape[0] - 1)))
    return call(_grouped, x, weight, expert, name="grouped")


@converts("transformers.grouped_mm_fallback.default")
def grouped_fallback(x: GraphNode, weight: GraphNode, offs: GraphNode) -> Any:
    return grouped(x, weight, offs)


def _grouped(x: Any, weight: Any, expert: Any) -> Any:
    rows, depth = x.shape
    k = te.reduce_axis(depth, name="k")
    return te.compute(
        (rows, weight.shape[2]),
        lambda i, j: te.sum(x[i, k] * weight[expert[i], k, j], axis=k),
        name="grouped",
        axis_names=("i", "j"),
    )
