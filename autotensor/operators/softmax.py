"""Softmax along one axis, in a stable form: no exp greater than exp(0) is computed.

max[…] = max_k x[…k…]     exp = exp(x - max)     sum[…] = sum_k exp     softmax = exp · (1 / sum)

There is one division for each row, not for each element, so the result may differ from exp / sum in its last
bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import axis_of, fold, kept, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]

CASES = (
    Case(((7, 17),), low=-5, high=5),
    Case(((3, 5, 33),), {"axis": 1}, low=-90, high=90),
    Case(((7,),), {"axis": 0}),
    Case(((1, 1),), {"axis": 1}),
    Case(((2, 33),), {"axis": -1}, low=900, high=1000),
)


def _softmax_reference(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def _log_softmax_reference(x: Array, axis: int = -1) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


@operator("softmax", kind=Kind.REDUCTION, reference=_softmax_reference, cases=CASES)
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    over = (axis_of("softmax", axis, x.ndim),)
    top = fold(te.max, x, over, "max")
    e = stage(x.shape, lambda *i: te.exp(x[i] - top[kept(i, over)]), "exp")
    total = fold(te.sum, e, over, "sum")
    share = stage(total.shape, lambda *i: 1 / total[i], "share")
    return stage(x.shape, lambda *i: e[i] * share[kept(i, over)], "softmax")


@operator("log_softmax", kind=Kind.REDUCTION, reference=_log_softmax_reference, cases=CASES)
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """x - max - log(sum_k exp(x - max))."""
    over = (axis_of("log_softmax", axis, x.ndim),)
    top = fold(te.max, x, over, "max")
    total = fold(te.sum, x, over, "sum", lambda v, i: te.exp(v - top[i]))
    log = stage(top.shape, lambda *i: te.log(total[i]), "log")
    return stage(x.shape, lambda *i: x[i] - top[kept(i, over)] - log[kept(i, over)], "log_softmax")
