"""narrow: index arithmetic in 32 bits if every value fits; 64-bit integers are slow on a GPU.

    A[i64 blockIdx.x * 64 + …]     ──▶     A[i32 blockIdx.x * 64 + …]

Loop and thread variables become int32 if the variables, and everything computed from them, provably fit. A
kernel is narrowed as a whole or not at all: if one index may exceed 2^31, all indices stay in 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from autotensor.base.dtype import int32, int64
from autotensor.ir.bounds import NO_RANGES, Bounds, bounds
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Ramp,
    Unary,
    Var,
    cast,
    const,
)
from autotensor.ir.node import Node, children, map_children
from autotensor.ir.stmt import For, If, Let, Stmt, Store
from autotensor.ir.visit import collect

LEAST, MOST = -(1 << 31), (1 << 31) - 1


def narrow(body: Stmt) -> Stmt:
    narrower = _Narrower(_wide_lets(body))
    if not all(_fits(e, known) for e, known in narrower.index_parts(body, bounds(NO_RANGES))):
        return body
    return narrower.stmt(body)


def _wide_lets(body: Stmt) -> frozenset[Var]:
    """Variables whose values come from memory; they keep their type."""
    wide: set[Var] = set()
    before = -1
    while before != len(wide):
        before = len(wide)
        wide |= {s.var for s in collect(body, Let) if not _is_index(s.value, wide)}
    return frozenset(wide)


def _fits(e: Expr, known: Bounds) -> bool:
    reach = known.of(e)
    return reach.lo is not None and reach.hi is not None and reach.lo >= LEAST and reach.hi <= MOST


def _is_index(e: Expr, wide: Set[Var]) -> bool:
    """Whether an int64 value is computed only from variables and numbers."""
    if e.dtype.element is not int64:
        return False
    match e:
        case Var():
            return e not in wide
        case Const():
            return True
        case Binary() | Unary() | Ramp() | Broadcast():
            return all(_is_index(c, wide) for c in children(e) if isinstance(c, Expr))
        case _:
            return False


def _low(e: Expr) -> Expr:
    """An index in 32 bits."""
    match e:
        case Var():
            return _var(e)
        case Const(value):
            return const(int(value), int32)
        case _:
            return map_children(e, lambda c: _low(c) if isinstance(c, Expr) else c)


def _var(v: Var) -> Var:
    return Var(v.name, int32.with_lanes(v.type.lanes))


class _Narrower:
    """wide: the variables that keep their type."""

    def __init__(self, wide: frozenset[Var]) -> None:
        self.wide = wide

    def is_index(self, e: Expr) -> bool:
        return _is_index(e, self.wide)

    # -- expressions that must fit ---------------------------------------------------------------------------
    def index_parts(self, s: Stmt, known: Bounds) -> Iterator[tuple[Expr, Bounds]]:
        """Every expression that would be narrowed, with the bounds that hold at its place."""
        match s:
            case For(var, begin, extent, _, body):
                inner = known.in_loop(var, begin, extent)
                yield from self.parts(begin, known)
                yield from self.parts(extent, known)
                yield (var + 1), inner  # the loop's end
                yield from self.index_parts(body, inner)
            case Let(var, value, body):
                yield from self.parts(value, known)
                yield from self.index_parts(body, known.in_let(var, value))
            case If(cond, then, otherwise):
                yield from self.parts(cond, known)
                yield from self.index_parts(then, known.assuming(cond))
                if otherwise is not None:
                    yield from self.index_parts(otherwise, known.assuming(cond, False))
            case _:
                for child in children(s):
                    if isinstance(child, Stmt):
                        yield from self.index_parts(child, known)
                    elif isinstance(child, Expr):
                        yield from self.parts(child, known)

    def parts(self, e: Expr, known: Bounds) -> Iterator[tuple[Expr, Bounds]]:
        if self.is_index(e):
            yield e, known
        for child in children(e):
            if isinstance(child, Expr):
                yield from self.parts(child, known)

    # -- narrowing -------------------------------------------------------------------------------------------
    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(var, begin, extent, kind, body, thread):
                return For(_var(var), self.low(begin), self.low(extent), kind, self.stmt(body), thread)
            case Let(var, value, body):
                if self.is_index(value):
                    return Let(_var(var), _low(value), self.stmt(body))
                return Let(var, self.value(value), self.stmt(body))
            case Store(buffer, indices, value, mask):
                where = None if mask is None else self.value(mask)
                return Store(buffer, tuple(self.low(i) for i in indices), self.value(value), where)
            case _:
                return map_children(s, self.node)

    def node(self, n: Node) -> Node:
        return self.stmt(n) if isinstance(n, Stmt) else self.value(n) if isinstance(n, Expr) else n

    def low(self, e: Expr) -> Expr:
        """An index in 32 bits if possible."""
        if self.is_index(e):
            return _low(e)
        value = self.value(e)
        return cast(int32, value.a) if isinstance(value, Cast) and value.a.dtype.element is int32 else value

    def value(self, e: Expr) -> Expr:
        """A value of the same type as before, with its indices in 32 bits."""
        match e:
            case Load(buffer, indices, mask):
                where = None if mask is None else self.value(mask)
                return Load(buffer, tuple(self.low(i) for i in indices), where)
            case Compare(op, a, b) if self.is_index(a) and self.is_index(b):
                return Compare(op, _low(a), _low(b))
            case Cast(dtype, a) if self.is_index(a):
                return Cast(dtype, _low(a))
            case Const():
                return e
            case _ if self.is_index(e):
                return cast(int64, _low(e))
            case _:
                return map_children(e, lambda c: self.value(c) if isinstance(c, Expr) else c)
