"""Operators that compute nothing, but say something about a value: for differentiation, memory or order.

stop_gradient   the value; no gradient passes through it
recomputed      the same bytes, from which an earlier result is computed a second time
store           the value, written by a separate kernel
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
    """The gradient of an operator whose result is its input."""
    return g


@operator("stop_gradient", kind=Kind.VIEW, reference=np.copy, cases=CASES, gradient=lambda node, g, k: None)
def stop_gradient(x: Tensor) -> Tensor:
    """x; no gradient passes through it."""
    return _same(x, "stop_gradient")


@operator("recomputed", kind=Kind.VIEW, reference=np.copy, cases=CASES, gradient=_passes)
def recomputed(x: Tensor) -> Tensor:
    """x as a new node, so that results computed from it are other nodes than those computed from x."""
    return _same(x, "recomputed")


@operator("store", kind=Kind.OPAQUE, reference=np.copy, cases=CASES, gradient=_passes)
def store(x: Tensor) -> Tensor:
    """x, written by a kernel that reads nothing else."""
    return _same(x, "store")
