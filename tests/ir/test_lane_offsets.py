"""Vector indices as a sum and an offset for each lane."""

import pytest

from autotensor.base.dtype import int64
from autotensor.ir.affine import to_expr
from autotensor.ir.expr import Broadcast, Load, Ramp, Var, const
from autotensor.ir.func import Buffer
from autotensor.ir.lane_offsets import lanes_of

i, j = Var("i"), Var("j")
FOUR = Broadcast(const(4), 4)


@pytest.mark.parametrize(
    ("e", "base", "offsets"),
    [
        (Ramp(i * 32 + 16, 1, 4), "i * 32 + 16", (0, 1, 2, 3)),
        (Ramp(i, -2, 3), "i", (0, -2, -4)),
        (Broadcast(i, 2), "i", (0, 0)),
        (i * 2, "i * 2", (0,)),
        (Ramp(i, 1, 4) - Broadcast(j, 4), "i - j", (0, 1, 2, 3)),
        (FOUR * Ramp(i, 1, 4), "i * 4", (0, 4, 8, 12)),
        ((Ramp(i * 4 + 2, 1, 4)) // FOUR, "i", (0, 0, 1, 1)),
        ((Ramp(i * 4 + 2, 1, 4)) % FOUR, "0", (2, 3, 0, 1)),
    ],
)
def test_forms(e, base, offsets):
    lanes = lanes_of(e)
    assert lanes is not None
    assert (str(to_expr(lanes.base)), lanes.offsets) == (base, offsets)


@pytest.mark.parametrize(
    "e",
    [
        Ramp(i, 1, 4) % FOUR,  # where it wraps depends on i
        Ramp(i, 1, 4) * Ramp(j, 1, 4),
        Load(Buffer("D", (8,), int64), (Ramp(i, 1, 4),)),
        Ramp(i, 1, 4) // Broadcast(const(0), 4),
    ],
)
def test_what_has_no_such_form(e):
    assert lanes_of(e) is None
