"""How tightly C's operators bind. This decides where parentheses must stand.

a * (b + c)     the sum has rank SUM, but its place requires at least PRODUCT
"""

from __future__ import annotations

from enum import IntEnum

from autotensor.ir.expr import Cmp, Op


class Rank(IntEnum):
    """C's precedences, the loosest first."""

    TERNARY = 3
    OR = 4
    AND = 5
    BIT_OR = 6
    BIT_XOR = 7
    BIT_AND = 8
    EQUAL = 9
    LESS = 10
    SHIFT = 11
    SUM = 12
    PRODUCT = 13
    UNARY = 14
    ATOM = 15


ARITHMETIC = {Op.ADD: Rank.SUM, Op.SUB: Rank.SUM, Op.MUL: Rank.PRODUCT, Op.DIV: Rank.PRODUCT}
BITS = {
    Op.AND: Rank.BIT_AND,
    Op.OR: Rank.BIT_OR,
    Op.XOR: Rank.BIT_XOR,
    Op.SHL: Rank.SHIFT,
    Op.SHR: Rank.SHIFT,
}
INFIX = {**ARITHMETIC, **BITS}


def rank_of(comparison: Cmp) -> Rank:
    return Rank.EQUAL if comparison in (Cmp.EQ, Cmp.NE) else Rank.LESS
