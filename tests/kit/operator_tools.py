"""Sample cases of all operators, and the allowed difference from an operator's reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.operators import OPERATORS, Operator
from autotensor.te import Tensor, placeholder
from autotensor.te.dag import ComputeDAG

CASES = [(name, n) for name, op in OPERATORS.items() for n in range(len(op.cases))]


def build(op: Operator, arrays: tuple[np.ndarray, ...], attrs: Any) -> tuple[list[Tensor], Tensor]:
    inputs = [placeholder(a.shape, dtype_of(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    return inputs, op.compute(*inputs, **attrs)


def reduction_length(y: Tensor) -> int:
    """The longest reduction on the way to y."""
    stages = ComputeDAG.of([y]).stages
    return max(int(np.prod([a.extent for a in s.reduce_axes])) for s in stages)


def assert_close(found: np.ndarray, wanted: np.ndarray, length: int) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted)
    else:
        eps = float(np.finfo(found.dtype).eps)
        scale = float(np.max(np.abs(wanted), initial=1.0))
        tolerance = eps * (8 + 4 * np.sqrt(length)) * scale
        np.testing.assert_allclose(found, wanted, rtol=16 * eps, atol=tolerance)
