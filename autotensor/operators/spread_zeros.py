"""`spread`: x with zeros between its elements, as a transposed convolution of any rank reads it.

spread[i] = x[i / step] where step divides i, else 0            [n] ──▶ [(n - 1)*step + 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor import te
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import is_int, require, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def _spread_reference(x: Array, steps: tuple[int, ...]) -> Array:
    out = np.zeros([(n - 1) * s + 1 for n, s in zip(x.shape, steps, strict=True)], x.dtype)
    out[tuple(slice(None, None, s) for s in steps)] = x
    return out


@operator(
    "spread",
    kind=Kind.INJECTIVE,
    reference=_spread_reference,
    cases=(
        Case(((3, 5),), {"steps": (1, 3)}),
        Case(((1, 2, 4, 3),), {"steps": (1, 1, 2, 2)}),
        Case(((7,),), {"steps": (1,)}),
    ),
)
def spread(x: Tensor, steps: tuple[int, ...]) -> Tensor:
    """steps: one for each axis; 1 leaves it as it is."""
    fits = len(steps) == x.ndim and all(is_int(s) and s >= 1 for s in steps) and 0 not in x.shape
    require(fits, f"spread: steps={steps} must be an integer >= 1 for each of the axes of x {x.shape}.")

    def body(*i: Any) -> Any:
        on = [te.floormod(v, s).equal(0) for v, s in zip(i, steps, strict=True) if s > 1]
        element = x[tuple(v if s == 1 else te.floordiv(v, s) for v, s in zip(i, steps, strict=True))]
        return te.select(te.all(*on), element, te.const(0, x.dtype)) if on else element

    return stage([(n - 1) * s + 1 for n, s in zip(x.shape, steps, strict=True)], body, "spread")
