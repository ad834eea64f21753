"""Declared tensor intrinsics: loops describe the meaning of an instruction. The instruction works on boxes of
buffers.

    meaning                                        a marked nest                       what fits
    for k, y, x in 8, 8, 8:                        for ki, y, x in 8, 8, 8:            C ◀─ CL[0:+8][0:+8]
      C[y, x] = C[y, x] + A[k, y]*B[k, x]   and      CL[y, x] = CL[y, x]          ──▶  A ◀─ AL[0:+8][0:+8]
                                                       + AL[ki, y]*W[ko*8+ki, x]       B ◀─ W[ko*8:+8][0:+8]

The meaning is a te function, lowered (`lowering/intrinsic_declaration.py`). A nest fits if its loops can be
renamed so that both do the same. Each buffer of the meaning then stands for a box. The box's beginning does
not depend on the loops of the nest. Only loops that `tensorize` has marked are recognised, and the loops that
set a marked sum to its initial value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from autotensor.base.errors import LoweringError
from autotensor.ir.affine import Affine, affine
from autotensor.ir.expr import Binary, Cast, Const, Expr, Load, Op, Var
from autotensor.ir.func import Buffer
from autotensor.ir.printer import to_text
from autotensor.ir.stmt import For, Stmt, Store


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a buffer: where it begins, as sums over the loops around, and its extents."""

    buffer: Buffer
    begin: tuple[Affine, ...]
    extents: tuple[int, ...]


Found = Mapping[Buffer, Box]  # a buffer of the meaning → the box that it stands for
Names = Mapping[Var, Var]  # a loop of the meaning → a loop of the nest


@dataclass(frozen=True, slots=True)
class Declared:
    """An instruction of a target, described by its meaning."""

    name: str
    operands: tuple[Buffer, ...]  # the operands of the meaning; the one that is written comes first
    update: Stmt  # loops, perfectly nested, around one store
    reset: Stmt | None = None  # the loops that set a sum to its initial value
    reset_name: str = ""  # the instruction that does this

    def boxes(self, nest: Stmt) -> tuple[Box, ...]:
        """The operands of the instruction that replaces the nest, one box for each.

        Raises LoweringError when the nest means something else.
        """
        found = matched(self.update, nest)
        if found is None:
            raise LoweringError(
                f"tensorize: {self.name} does not fit\n{to_text(nest)}",
                fix=f"It computes\n{to_text(self.update)}",
            )
        return tuple(found[b] for b in self.operands)

    def begins(self, nest: Stmt) -> Box | None:
        """The box that the nest sets to a sum's initial value; None if the nest does something else."""
        found = None if self.reset is None else matched(self.reset, nest)
        return None if found is None else found[self.operands[0]]


def matched(meaning: Stmt, nest: Stmt) -> Found | None:
    """For each buffer of the meaning, its box in a nest of loops; None if nest and meaning differ."""
    said, what = perfect_nest(meaning)
    loops, store = perfect_nest(nest)
    if not isinstance(what, Store) or not isinstance(store, Store) or store.mask is not None:
        return None
    if sorted(said.values()) != sorted(loops.values()):
        return None
    for order in permutations(loops):
        if [loops[v] for v in order] == list(said.values()):
            found = _matched_store(what, store, dict(zip(said, order, strict=True)))
            if found is not None:
                return found
    return None


def perfect_nest(s: Stmt) -> tuple[dict[Var, int], Stmt]:
    """Loops from 0 directly in one another with their extents, and the statement inside."""
    loops: dict[Var, int] = {}
    while isinstance(s, For) and isinstance(s.extent, Const) and s.begin == Const(0, s.begin.dtype):
        loops[s.var] = int(s.extent.value)
        s = s.body
    return loops, s


def _matched_store(what: Store, store: Store, names: Names) -> Found | None:
    found = _bound(what.buffer, what.indices, store.buffer, store.indices, names, {})
    return None if found is None else _matched(what.value, store.value, names, found)


def _matched(what: Expr, e: Expr, names: Names, found: Found) -> Found | None:
    """`found` extended by the matches of the expression; sums and products are matched in either order."""
    match what, e:
        case Load(), Load() if e.mask is None and what.dtype == e.dtype:
            return _bound(what.buffer, what.indices, e.buffer, e.indices, names, found)
        case Const(a), Const(b):
            return found if a == b and what.dtype == e.dtype else None
        case Cast(_, a), Cast(_, b) if what.dtype == e.dtype:
            return _matched(a, b, names, found)
        case Binary(op, a, b), Binary(same, c, d) if op is same:
            turned = ((c, d), (d, c)) if op in (Op.ADD, Op.MUL) else ((c, d),)
            for first, second in turned:
                left = _matched(a, first, names, found)
                both = None if left is None else _matched(b, second, names, left)
                if both is not None:
                    return both
    return None


def _bound(
    meant: Buffer, at: Sequence[Expr], buffer: Buffer, indices: Sequence[Expr], names: Names, found: Found
) -> Found | None:
    """`found` with the box of `buffer` that `meant[at]` stands for; None if `meant` already stands for
    another box."""
    if len(at) != len(indices) or meant.dtype != buffer.dtype:
        return None
    begin = []
    for own, index in zip(at, indices, strict=True):
        var, total = names.get(own) if isinstance(own, Var) else None, affine(index)
        if var is None or total is None or not all(isinstance(t, Var) for t in total.terms):
            return None
        if total.coefficient(var) != 1 or any(v in total.terms for v in names.values() if v is not var):
            return None
        begin.append(total.without(var))
    box = Box(buffer, tuple(begin), meant.shape)
    return {**found, meant: box} if found.get(meant, box) == box else None
