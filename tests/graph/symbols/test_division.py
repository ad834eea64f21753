"""Extents divided by numbers."""

from __future__ import annotations

import pytest

from autotensor import te
from autotensor.graph.symbols.division import divided
from autotensor.ir.expr import Expr
from autotensor.te.symbols import number, symbols_of

h, w = te.var("h", range=(1, 40)), te.var("w", range=(1, 40))


@pytest.mark.parametrize("extent", [h * 14 * w, h * w * 14 + (h - 1) * 7, (h * 2 - 6) * (w * 7 + 7)])
@pytest.mark.parametrize("by", [1, 7, 14, 3])
def test_no_remainder_at_any_extent(extent: Expr, by: int) -> None:
    values = [dict(zip(symbols_of(h, w), at, strict=True)) for at in ((3, 5), (40, 1), (7, 8), (6, 40))]
    found = divided(extent, by)
    if found is None:
        assert any(number(extent, at) % by for at in values)
    else:
        assert [number(found, at) for at in values] == [number(extent, at) // by for at in values]


def test_a_number_that_divides_some_values_is_no_factor() -> None:
    assert divided(h * w + h, 2) is None
    assert divided(h * 3, 3) is not None
