"""Inverts affine accesses: finds the iterations that read a given element.

    a loop nest reads  x[2*h + kh, c]  at  (h, kh, c)        element b0, b1 of x
        c  = b1
        h  = (b0 - kh) // 2        where (b0 - kh) % 2 == 0 and 0 <= h < H
        kh remains: the adjoint of x[b0, b1] is a sum over kh

Every dimension of the tensor gives one equation. If the axes in an equation are the digits of a number
(4*i + j, j below 4), the equation is solved for all of them. Otherwise it is solved for the longest axis,
because the axes that remain are summed over. An equation that cannot be solved (indices from memory, two
equations for one axis) becomes a condition `index == b`. So any access can be inverted. If all axes of an
affine access are solved, its inverse is a gather, without a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotensor.ir.affine import Affine, affine, to_expr
from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import Binary, Const, Expr, Op, Var, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import free_vars, walk
from autotensor.te.indices import clamped, reads_memory


@dataclass(frozen=True, slots=True)
class Inverse:
    """The iterations that read an element."""

    values: Mapping[Var, Expr]  # the value of every axis, from the element's indices and `remaining`
    remaining: Mapping[Var, int]  # axes to sum over, with their extents
    guards: tuple[Expr, ...]  # conditions that must hold; conditions that protect others come first


def invert(
    indices: Sequence[Expr], shape: Sequence[int], place: Sequence[Var], axes: Mapping[Var, int]
) -> Inverse:
    """Inverts the access `indices` of a tensor.

    place: the element's indices, one variable for each dimension of `shape`. axes: loops with their extents.
    Indices from memory read where they are held: at the ends, if they are outside.
    """
    indices = [clamped(i, const(n)) for i, n in zip(indices, shape, strict=True)]
    solver = _Solver(place, shape, axes)
    equations = solver.digits(indices)
    pending = list(zip(equations, place, shape, strict=True))
    while pending:
        n, axis = solver.choose([index for index, _, _ in pending])
        index, at, extent = pending.pop(n)
        if axis is None:
            solver.require(index, at, extent)
        elif not solver.solve_digits(index, at):
            solver.solve(index, at, axis)
    return solver.result()


class _Solver:
    def __init__(self, place: Sequence[Var], shape: Sequence[int], axes: Mapping[Var, int]) -> None:
        self.axes = dict(axes)
        self.open = dict(axes)  # not yet solved
        self.values: dict[Var, Expr] = {}
        self.guards: list[Expr] = []
        self.ranges = {p: Interval(0, n - 1) for p, n in zip(place, shape, strict=True)}

    # -- quotients and remainders of one axis ----------------------------------------------------------------
    def digits(self, indices: Sequence[Expr]) -> list[Expr]:
        """The indices; each axis that is divided is split into digits: v//4, v%4  ──▶  v.1, v.0"""
        out = list(indices)
        for v, extent in self.axes.items():
            cuts = _cuts(out, v)
            if not cuts:
                continue
            weights = (1, *cuts)
            sizes = [b // a for a, b in pairwise(weights)] + [-(-extent // weights[-1])]
            digits = [Var(f"{v.name}.{n}") for n in range(len(sizes))]
            whole = _total(digits, weights)
            ranges = {d: Interval(0, n - 1) for d, n in zip(digits, sizes, strict=True)}
            out = [simplify(substitute(e, {v: whole}), ranges) for e in out]
            del self.open[v]
            self.open |= dict(zip(digits, sizes, strict=True))
            self.values[v] = whole
            if weights[-1] * sizes[-1] > extent:
                self.guards.append(whole < extent)
        return out

    # -- equations -------------------------------------------------------------------------------------------
    def choose(self, indices: Sequence[Expr]) -> tuple[int, Var | None]:
        """The next equation and the axis to solve it for: few unknowns first, then the longest axis."""
        best: tuple[tuple[int, int], int, Var | None] | None = None
        for n, index in enumerate(indices):
            a = self._affine(index)
            found = {v: c for v, c in a.terms.items() if isinstance(v, Var) and v in self.open}
            inside = {v for t in a.opaque_terms() for v in free_vars(t)}
            linear = [v for v in found if v not in inside]
            unknown = len(set(found) | (inside & set(self.open)))
            if not linear:
                continue
            longest = max(linear, key=lambda v: (self.open[v], abs(found[v]) == 1))
            rank = (unknown, -self.open[longest])
            if best is None or rank < best[0]:
                best = rank, n, longest
        return (0, None) if best is None else (best[1], best[2])

    def _affine(self, index: Expr) -> Affine:
        found = affine(substitute(index, self.values))
        assert found is not None  # indices are integers
        return found

    def solve(self, index: Expr, at: Var, axis: Var) -> None:
        """Solves c*axis + rest == at for the axis."""
        a = self._affine(index)
        c = a.coefficient(axis)
        rest = a.without(axis)
        sign = 1 if c > 0 else -1
        difference = to_expr(Affine({at: sign}, 0, a.dtype).plus(rest, -sign))  # == |c| * axis
        extent = self.open.pop(axis)
        value = difference if abs(c) == 1 else difference // abs(c)
        if abs(c) != 1:
            self.guards.append((difference % abs(c)).equal(0))
        swap = {axis: value}
        self.values = {v: substitute(e, swap) for v, e in self.values.items()} | {axis: value}
        self.guards = [substitute(g, swap) for g in self.guards] + [value >= 0, value < extent]

    def solve_digits(self, index: Expr, at: Var) -> bool:
        """Solves c1*a + c2*b + … + rest == at, if every element has at most one a, b, …; else gives False.

        4*i + j, j below 4  ──▶  i = at // 4, j = at % 4
        """
        a = self._affine(index)
        found = [(c, v) for v, c in a.terms.items() if isinstance(v, Var) and v in self.open]
        inside = {v for t in a.opaque_terms() for v in free_vars(t)}
        if len(found) < 2 or any(c < 0 or v in inside for c, v in found):
            return False
        found.sort(key=lambda term: -term[0])
        reach = [sum(c * (self.open[v] - 1) for c, v in found[n:]) for n in range(1, len(found) + 1)]
        if any(c <= below for (c, _), below in zip(found, reach, strict=True)):
            return False
        unknown = {v for _, v in found}
        rest = Affine({t: k for t, k in a.terms.items() if t not in unknown}, a.constant, a.dtype)
        left = to_expr(Affine({at: 1}, 0, a.dtype).plus(rest, -1))
        guards, swap = [left >= 0], dict[Var, Expr]()
        for c, v in found:
            swap[v] = left if c == 1 else left // c
            guards.append(swap[v] < self.open.pop(v))
            left = left % c
        if found[-1][0] != 1:
            guards.append(left.equal(0))
        self.values = {v: substitute(e, swap) for v, e in self.values.items()} | swap
        self.guards = [substitute(g, swap) for g in self.guards] + guards
        return True

    def require(self, index: Expr, at: Var, extent: int) -> None:
        """Adds a condition for an equation that can be solved for no axis."""
        found = substitute(index, self.values)
        if not (extent == 1 and isinstance(found, Const)):
            self.guards.append(found.equal(at))

    def result(self) -> Inverse:
        ranges = self.ranges | {v: Interval(0, n - 1) for v, n in self.open.items()}
        guards: list[Expr] = []
        # Conditions that read memory come last: the others ensure that they read inside the tensor.
        for g in sorted(self.guards, key=reads_memory):
            if prove(g, ranges) is not True and g not in guards:
                guards.append(g)
        values = {v: self.values.get(v, v) for v in self.axes}
        return Inverse(values, dict(self.open), tuple(guards))


def _cuts(indices: Iterable[Expr], v: Var) -> tuple[int, ...]:
    """The weights of the digits into which quotients and remainders cut an axis; () if there are no such
    digits, or if one weight does not divide the next.

    v // 12, v // 4 % 3, v % 4  ──▶  (4, 12)
    """
    found: set[int] = set()
    for node in {n for e in indices for n in walk(e)}:
        match node:
            case Binary(Op.FLOORDIV, x, Const(c)) if x is v and c > 1:
                found.add(int(c))
            case Binary(Op.MOD, x, Const(c)) if x is v and c > 1:
                found.add(int(c))
            case Binary(Op.MOD, Binary(Op.FLOORDIV, x, Const(c)), Const(d)) if x is v and c > 1 and d > 1:
                found |= {int(c), int(c) * int(d)}
    cuts = tuple(sorted(found))
    return cuts if all(b % a == 0 for a, b in pairwise(cuts)) else ()


def _total(digits: Sequence[Var], weights: Sequence[int]) -> Expr:
    out: Expr = const(0)
    for d, w in zip(digits, weights, strict=True):
        out = d * w if isinstance(out, Const) else out + d * w
    return simplify(out)
