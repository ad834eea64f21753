"""Rotary embeddings: pairs of channels of a head are rotated by the angle of their token.

    out[…, c]        = x[…, c] * cos - x[…, c + half] * sin
    out[…, c + half] = x[…, c + half] * cos + x[…, c] * sin             c < half, cos and sin at [token, c]

Channels are in halves, as in transformers' weights. Source: Su et al., "RoFormer" (2021).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import require, require_rank, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _reference(x: Array, cos: Array, sin: Array) -> Array:
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@operator(
    "rotary",
    kind=Kind.REDUCTION,
    reference=_reference,
    cases=(
        Case(((1, 2, 3, 32), (3, 16), (3, 16))),
        Case(((2, 3, 1, 6), (1, 3), (1, 3))),
        Case(((5, 66), (5, 33), (5, 33)), low=-3, high=3),
    ),
)
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: […, tokens, depth], cos, sin: [tokens, depth / 2] ──▶ […, tokens, depth]."""
    op = "rotary"
    require(x.ndim >= 2 and x.dtype.is_float, f"{op}: x is {x.dtype} of shape {x.shape}, expected floats.")
    tokens, depth = x.shape[-2:]
    half = depth // 2
    for name, table in (("cos", cos), ("sin", sin)):
        require_rank(op, name, table, 2, "[tokens, depth / 2]")
        require(
            depth % 2 == 0 and table.shape == (tokens, half),
            f"{op}: {name} has shape {table.shape}, x {x.shape}; expected {(tokens, half)}.",
        )

    def turned(*i: Any) -> Any:
        *outer, n, c = i
        other = x[(*outer, n, (c + half) % depth)]
        return x[i] * cos[n, c % half] + te.select(c < half, -other, other) * sin[n, c % half]

    return stage(x.shape, turned, op)
