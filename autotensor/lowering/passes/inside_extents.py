"""inside extents: keeps accesses inside buffers whose shapes are known at run time.

    for i in unrolled(4): acc[i] += A[i0*4 + i, k]          A: [n, 64]
        ──▶  acc[i] += A[min(i0*4 + i, n - 1), k]
    for j in vectorized(8): acc[j] += B[k, j0*8 + j]        B: [64, n]
        ──▶  acc[j] += B[k, j0*8 + j] if j0*8 + j < n

Points beyond an extent are computed where that is simpler, for example in the last rows of a register tile.
Their values are never used (see nest/guards.py), but the elements that they read must exist. Schedules keep
points inside the greatest extents; this pass keeps them inside the actual extents. Loads that are inside
anyway stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from autotensor.base.errors import LoweringError
from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import Binary, Cmp, Const, Expr, Load, Op, Var, all_of, compare, minimum
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.simplify import Simplifier, simplify
from autotensor.ir.stmt import Alloc, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect, free_vars


def inside_extents(body: Stmt) -> Stmt:
    """The statement with limits and masks on the loads that need them.

    Raises LoweringError for a store that is not provably inside.
    """
    return _stmt(body, Facts(bounds(NO_RANGES))) if _has_extents(body) else body


def _has_extents(body: Stmt) -> bool:
    stores, loads = collect(body, Store), collect(body, Load)
    return any(s.buffer.extents for s in stores) or any(x.buffer.extents for x in loads)


@dataclass(frozen=True)
class Facts:
    """The facts that hold at a statement."""

    known: Bounds
    values: dict[Var, Expr] = field(default_factory=dict)  # values of Lets
    lanes: frozenset[Var] = frozenset()  # variables of vectorized loops

    def in_loop(self, loop: For) -> Facts:
        """The facts inside of a loop."""
        lanes = self.lanes | {loop.var} if loop.kind is ForKind.VECTORIZED else self.lanes
        return replace(self, known=self.known.in_loop(loop.var, loop.begin, loop.extent), lanes=lanes)

    def in_let(self, let: Let) -> Facts:
        """The facts where a variable has its value."""
        known = _in_let(self.known, let.var, let.value)
        return replace(self, known=known, values={**self.values, let.var: let.value})

    def where(self, cond: Expr, holds: bool = True) -> Facts:
        """The facts where a condition holds, or does not."""
        return replace(self, known=self.known.assuming(cond, holds))

    def inside(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is certainly in 0 … extent - 1."""
        if isinstance(extent, Const):
            return self.known.below(index, int(extent.value))
        return self.known.at_least(index, 0) and self.below(index, extent)

    @cached_property
    def _settled(self) -> Bounds:
        return self.known.settled()

    def below(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is certainly less than an extent."""
        simpler = Simplifier(self.known).expr(extent)
        for end in (extent, simpler):  # bounds of outer loops may name the extent as it is written
            inside = compare(Cmp.LT, index, end)
            if self.known.decide(inside) is True or self._settled.decide(inside) is True:
                return True
        extent = simpler
        match extent:
            case Binary(Op.FLOORDIV, total, Const(parts)) if parts > 0:  # index*parts + parts - 1 < total
                last = simplify(index * extent.b + (extent.b - 1))
                if self.known.decide(compare(Cmp.LT, last, total)) is True:
                    return True
            case Binary(Op.MIN, a, b) if self.below(index, a) and self.below(index, b):
                return True
            case Binary(Op.MAX, a, b) if self.below(index, a) or self.below(index, b):
                return True
        match self.values.get(index, index):  # type: ignore[call-overload]
            case Binary(Op.FLOORDIV, x, q):  # x < extent*q
                return self.below(x, simplify(extent * q))
            case Binary(Op.ADD) as total:  # a + x//q < extent  ⇔  a*q + x < extent*q
                return any(
                    self.below(simplify(rest * q + x), simplify(extent * q))
                    for x, q, rest in _quotients(total)
                )
            case Binary(Op.MOD, _, q):
                return self.known.decide(compare(Cmp.LE, q, extent)) is True
        return False


def _quotients(total: Expr) -> Iterator[tuple[Expr, Expr, Expr]]:
    """(x, q, rest) for each way to write a sum as x//q + rest, with q a positive constant."""
    match total:
        case Binary(Op.ADD, a, b):
            for one, other in ((a, b), (b, a)):
                match one:
                    case Binary(Op.FLOORDIV, x, Const(q)) if q > 0:
                        yield x, one.b, other
                    case Binary(Op.ADD):
                        yield from ((x, q, rest + other) for x, q, rest in _quotients(one))


def _stmt(s: Stmt, scope: Facts) -> Stmt:
    match s:
        case For(var, begin, extent, kind, body, thread):
            inner = scope.in_loop(s)
            return For(var, _expr(begin, scope), _expr(extent, scope), kind, _stmt(body, inner), thread)
        case Let(var, value, body):
            return Let(var, _expr(value, scope), _stmt(body, scope.in_let(s)))
        case If(cond, then, otherwise):
            other = None if otherwise is None else _stmt(otherwise, scope.where(cond, False))
            return If(_expr(cond, scope), _stmt(then, scope.where(cond)), other)
        case Seq(stmts):
            return seq(*(_stmt(x, scope) for x in stmts))
        case Alloc(buffer, body):
            return Alloc(buffer, _stmt(body, scope))
        case Store(buffer, indices, value, mask):
            index = tuple(_expr(i, scope) for i in indices)
            under = scope if mask is None else scope.where(mask)
            _check_store(s, under)
            return Store(buffer, index, _expr(value, under), mask)
        case Evaluate(value):
            return Evaluate(_expr(value, scope))
        case _:
            return s


def _in_let(known: Bounds, var: Var, value: Expr) -> Bounds:
    """The bounds where the variable has this value; a remainder is also below a divisor that is a symbol."""
    inner = known.in_let(var, value)
    match value:
        case Binary(Op.MOD, _, q) if not isinstance(q, Const) and known.decide(q >= 1) is True:
            return inner.assuming(compare(Cmp.LT, var, q))
    return inner


def _expr(e: Expr, scope: Facts) -> Expr:
    def visit(node: Node) -> Node | None:
        if not isinstance(node, Load) or not node.buffer.extents:
            return None
        under = scope if node.mask is None else scope.where(node.mask)
        indices, masks = [], [] if node.mask is None else [node.mask]
        for index, extent in zip(node.indices, node.buffer.extents, strict=True):
            loose = not isinstance(extent, Const) and not under.below(index, extent)
            if loose and free_vars(index) & scope.lanes:
                masks.append(compare(Cmp.LT, index, extent))
            elif loose:
                index = minimum(index, extent - 1)
            indices.append(index)
        return Load(node.buffer, tuple(indices), all_of(*masks) if masks else None)

    return transform(e, visit)


def _check_store(s: Store, scope: Facts) -> None:
    buffer: Buffer = s.buffer
    for axis, (index, extent) in enumerate(zip(s.indices, buffer.extents or (), strict=False)):
        if not isinstance(extent, Const) and not scope.below(index, extent):
            raise LoweringError(
                f"the index {index} of axis {axis} of {buffer.name!r} is not provably below its run-time "
                f"extent {extent}.",
                fix="Schedule the stage that writes it in another way, or build it for a fixed shape.",
            )


__all__ = ["inside_extents"]
