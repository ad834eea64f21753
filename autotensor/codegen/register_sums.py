"""Sums of integers after register tiles: terms from memory are added to each other first.

    (tile - s) + b            ──▶     tile + (b - s)            s, b: from memory; tile: in registers

Terms that are the same for every row of a tile are then added up only once. Sums of integers wrap around, so
any order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from autotensor.ir.expr import Binary, Expr, Op
from autotensor.ir.func import Buffer, Scope

Term = tuple[Op, Expr]  # a term, and whether it is added or subtracted
Reads = Callable[[Expr], Collection[Buffer]]  # the buffers that an expression reads


def sum_apart(reads: Reads, op: Op, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """The only term of a sum that is in registers, and the sum of the other terms; None if that would change
    nothing, or if there is no such term."""
    if not _in_registers(reads, a) and not _in_registers(reads, b):
        return None
    inner: list[Term] = []
    outer: list[Term] = []
    for sign, term in _terms(op, a, b):
        (inner if _in_registers(reads, term) else outer).append((sign, term))
    outer.sort(key=lambda term: term[0] is Op.SUB)
    if len(inner) != 1 or inner[0][0] is Op.SUB or len(outer) < 2 or outer[0][0] is Op.SUB:
        return None
    total = outer[0][1]
    for sign, term in outer[1:]:
        total = Binary(sign, total, term)
    return inner[0][1], total


def _in_registers(reads: Reads, e: Expr) -> bool:
    return any(buffer.scope is Scope.REGISTER for buffer in reads(e))


def _terms(op: Op, a: Expr, b: Expr, sign: Op = Op.ADD) -> list[Term]:
    found: list[Term] = []
    for x, taken in ((a, sign is Op.SUB), (b, (op is Op.SUB) != (sign is Op.SUB))):
        own = Op.SUB if taken else Op.ADD
        match x:
            case Binary(Op.ADD | Op.SUB as inner, c, d):
                found += _terms(inner, c, d, own)
            case _:
                found.append((own, x))
    return found
