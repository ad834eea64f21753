"""Operators that compute nothing and say something about a value: to differentiation, to memory, to order.

stop_gradient   the value, through which no gradient passes
recomputed      the same bytes as the start of a second computation of an earlier result
store           the value, written by a kernel of its own
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import stage
from autotensor.te import Tensor

CASES = (Case(((7, 17),)), Case(((),)))


def _same(x: Tensor, name: str) -> Tensor:
    return stage(x.shape, lambda *i: x[i], name)


def _passes(node: Any, g: Any, k: int) -> Any:
    """The gradient of a value that is its input."""
    return g


@operator("stop_gradient", kind=Kind.VIEW, reference=np.copy, cases=CASES, gradient=lambda node, g, k: None)
def stop_gradient(x: Tensor) -> Tensor:
    """x, through which no gradient passes."""
    return _same(x, "stop_gradient")


@operator("recomputed", kind=Kind.VIEW, reference=np.copy, cases=CASES, gradient=_passes)
def recomputed(x: Tensor) -> Tensor:
    """x, so that what is computed from it is not what was computed from x (equal nodes are one node)."""
    return _same(x, "recomputed")


@operator("store", kind=Kind.OPAQUE, reference=np.copy, cases=CASES, gradient=_passes)
def store(x: Tensor) -> Tensor:
    """x, written by a kernel that reads nothing else."""
    return _same(x, "store")
