"""A reducer of a program's author is tried on a few numbers.

The terms of a reduction are joined in any order and in parts, each of which starts from the identity. So a
reducer must be associative and commutative, and its identity must change nothing; otherwise the result
depends on the schedule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.base.errors import TensorError
from autotensor.ir.expr import Combiner
from autotensor.ir.reducers import OPERATORS
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import Types, Values

TRIED = (1.5, 3.0, 2.25)  # positive, and in no order; as integers 1, 3, 2
ROUNDED = 1e-6  # relative difference of results in float64


def check_reducers(dag: ComputeDAG) -> None:
    """Raises TensorError for a reducer of single values that may not join a few numbers in any order.

    A reducer of tuples is not tried: it may be valid only for tuples that fit together.
    """
    for stage in dag.stages:
        combiner = stage.combiner
        if combiner is not None and len(combiner.lhs) == 1 and combiner.name not in OPERATORS:
            _check(stage.name, combiner)


def _check(stage: str, combiner: Combiner) -> None:
    (left,), (right,), (joined,) = combiner.lhs, combiner.rhs, combiner.result
    if left.dtype.is_bool:
        return
    types = Types(np.float64)

    def value(e: Any, **sides: Any) -> Any:
        return Values(None, {left: sides.get("x"), right: sides.get("y")}, {}, types).value(e, None)

    def join(x: Any, y: Any) -> Any:
        return value(joined, x=x, y=y)

    a, b, c = (types.of(left.dtype).type(v) for v in TRIED)
    start = value(combiner.identity[0])
    with np.errstate(all="ignore"):
        kept = [(join(x, y), v) for v in (a, b, c) for x, y in ((start, v), (v, start))]
        ordered = [(join(a, b), join(b, a)), (join(join(a, b), c), join(a, join(b, c)))]
    if not _all_equal(kept):
        raise TensorError(
            f"stage {stage!r}: its reducer changes a value that it joins with the identity, so the result "
            "would depend on the schedule.",
            fix="fidentity gives what changes nothing: 0 for a sum, 1 for a product.",
        )
    if not _all_equal(ordered):
        raise TensorError(
            f"stage {stage!r}: its reducer gives another result if it joins values in another order, so the "
            "result would depend on the schedule.",
            fix="It must be f(x, y) = f(y, x) and f(f(x, y), z) = f(x, f(y, z)); pairs with the index k keep "
            "an order.",
        )


def _all_equal(pairs: list[tuple[Any, Any]]) -> bool:
    return all(np.isclose(float(x), float(y), rtol=ROUNDED, equal_nan=True) for x, y in pairs)
