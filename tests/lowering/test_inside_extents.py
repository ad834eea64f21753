"""Accesses that are provably inside a shape that is known at run time."""

from __future__ import annotations

import itertools

import pytest

from autotensor.base.dtype import int64
from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.expr import Cmp, Var, compare
from autotensor.ir.simplify import simplify
from autotensor.lowering.passes.inside_extents import _Scope

n, a, b, c = (Var(name, int64) for name in "nabc")


@pytest.mark.parametrize("width", [3, 6, 10, 48])
def test_rows_of_a_fused_loop_in_vectors(width: int) -> None:
    """Elements a*16*width + b*16 + c of [n*2, width]: the row is a*16 + (b*16 + c)//width."""
    element = simplify(a * (16 * width) + b * 16 + c)
    row = simplify(a * 16 + (b * 16 + c) // width)
    scope = _Scope(bounds(NO_RANGES).assuming(compare(Cmp.LT, element, n * 2 * width), True))
    assert scope.below(row, simplify(n * 2))
    assert not scope.below(row, simplify(n * 2 - 1))
    assert not scope.below(simplify(row + 1), simplify(n * 2))


def test_the_law_by_trying() -> None:
    """a + x//q < e  ⇔  a*q + x < e*q, with numbers of both signs."""
    for a_, x, q, e in itertools.product(range(-3, 4), range(-9, 10), (1, 2, 3, 5), range(-2, 3)):
        assert (a_ + x // q < e) == (a_ * q + x < e * q)
