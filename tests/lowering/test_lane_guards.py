"""Loads that all lanes of a vectorized loop share run only if some lane takes part."""

from __future__ import annotations

import numpy as np
import pytest
from fences import ended_by, fenced

import autotensor as at
from autotensor import te
from autotensor.base.dtype import float32
from autotensor.base.errors import LoweringError
from autotensor.ir.expr import Expr, Load, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.stmt import For, ForKind, If, Stmt, Store
from autotensor.lowering.passes.lane_guards import lane_guards

X, Y, Z = (Buffer(name, (n,), float32) for name, n in (("x", 5), ("y", 64), ("z", 64)))
ROW, LANE = Var("i"), Var("j")


def loops(cond: Expr, load: Load) -> Stmt:
    lanes = For(
        LANE, const(0), const(8), ForKind.VECTORIZED, If(cond, Store(Y, (ROW * 8 + LANE,), load), None)
    )
    return For(ROW, const(0), const(8), ForKind.SERIAL, lanes)


@pytest.mark.parametrize(
    ("cond", "guard"),
    [(ROW * 8 + LANE < 36, "i < 5"), (ROW * 8 - LANE <= 20, "i < 4"), (ROW * 8 + LANE * 2 <= 30, "i < 4")],
)
def test_the_lane_that_fulfils_a_condition_first_guards_the_load(cond: Expr, guard: str) -> None:
    made = lane_guards(loops(cond, Load(X, (ROW,))))
    outer = made.body.body  # type: ignore[attr-defined]
    assert str(outer.cond) == guard
    assert outer.then.cond is cond


@pytest.mark.parametrize(
    "load",
    [
        Load(Z, (ROW,)),  # inside anyway
        Load(Z, (ROW * 8 + LANE,)),  # it gets the mask of its lane
        Load(X, (ROW + 3,)),  # the condition of a lane does not prove it either
    ],
)
def test_other_loads_need_no_guard(load: Load) -> None:
    body = loops(ROW * 8 + LANE < 36, load)
    assert lane_guards(body) == body


def test_a_condition_of_which_no_lane_is_first_is_refused() -> None:
    with pytest.raises(LoweringError, match="is the same for all lanes of a vectorized loop"):
        lane_guards(loops(ROW + LANE * LANE < 5, Load(X, (ROW,))))


@pytest.mark.parametrize("rows", range(1, 10))
def test_rows_that_do_not_exist_are_not_read(rows: int) -> None:
    """The second half of a tile may lie beyond the extent. The lanes were masked, but a load that they share
    was not."""
    n = te.var("n", range=(1, 64))
    A, k = te.placeholder((n,), "float64", name="A"), te.reduce_axis(n // 2 + 1, name="k")
    B = te.compute((n,), lambda i: te.sum(A[i // 2], axis=k), name="B")
    s = te.create_schedule(B)
    s["B"].split("i", factors=[2, 2])
    s["B"].reorder("i.0", "k", "i.1", "i.2")
    s["B"].unroll("i.1")
    s["B"].vectorize("i.2")
    f = at.build(s, [A, B], target="llvm -threads=1")
    a = np.arange(rows, dtype=np.float64)
    assert ended_by(lambda: f(fenced(a))) == 0
    np.testing.assert_array_equal(f(a), (rows // 2 + 1) * a[np.arange(rows) // 2])
