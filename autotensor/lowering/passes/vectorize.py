"""vectorize: VECTORIZED loops become vector expressions.

    for i in vectorized(16): if i < 9: C[i] = A[i]   ──▶  C[0:16] = A[0:16] if mask, mask = ramp(0, 1, 16) < 9

Conditions on the loop variable become masks on the accesses inside. Loops inside stay loops, but over
vectors.
"""

from __future__ import annotations

from autotensor.base.errors import LoweringError
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Ramp,
    Select,
    Unary,
    Var,
    broadcast,
)
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Alloc, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import collect, free_vars

MAX_LANES = 256


def vectorize(body: Stmt) -> Stmt:
    def visit(node: Node) -> Node | None:
        if not isinstance(node, For) or node.kind is not ForKind.VECTORIZED:
            return None
        if not isinstance(node.extent, Const):
            raise LoweringError(f"vectorize: loop {node.var.name!r} has no constant extent.")
        if node.extent.value > MAX_LANES:
            raise LoweringError(
                f"vectorize: loop {node.var.name!r} has {node.extent.value} lanes; at most {MAX_LANES} fit.",
                fix="Split it first.",
            )
        if _one_element(node):
            return For(node.var, node.begin, node.extent, ForKind.UNROLLED, node.body)
        return Vectorizer(node.var, Ramp(node.begin, 1, int(node.extent.value))).stmt(node.body, None)

    return transform(body, visit)


def _one_element(loop: For) -> bool:
    """Whether all lanes of some store write the same element.

    This happens if an axis of extent 1 is split by a larger factor: its guard `i < 1` leaves a single lane,
    and the index becomes 0. Written out, all other iterations vanish.
    """
    stores = collect(loop.body, Store)
    return any(not any(loop.var in free_vars(i) for i in s.indices) for s in stores)


class Vectorizer:
    """Replaces one scalar variable by a ramp in everything that depends on it."""

    def __init__(self, var: Var, ramp: Ramp) -> None:
        self.var = var
        self.ramp = ramp
        self.lanes = ramp.lanes
        self._memo: dict[tuple[Expr, Expr | None], Expr] = {}
        self._moves: dict[Node, bool] = {}

    def moves(self, node: Node) -> bool:
        """Whether the node depends on the variable."""
        found = self._moves.get(node)
        if found is None:
            found = self.var in free_vars(node)
            self._moves[node] = found
        return found

    def wide(self, e: Expr, mask: Expr | None) -> Expr:
        """The expression as a vector."""
        return broadcast(self.expr(e, mask), self.lanes)

    def expr(self, e: Expr, mask: Expr | None) -> Expr:
        """The expression over the ramp, or a scalar if it does not depend on the variable."""
        if not self.moves(e):
            return e
        key = (e, mask)
        if key not in self._memo:
            self._memo[key] = self._expr(e, mask)
        return self._memo[key]

    def _expr(self, e: Expr, mask: Expr | None) -> Expr:
        match e:
            case Var():
                return self.ramp
            case Binary(op, a, b):
                return Binary(op, self.wide(a, mask), self.wide(b, mask))
            case Compare(op, a, b):
                return Compare(op, self.wide(a, mask), self.wide(b, mask))
            case Unary(op, a):
                return Unary(op, self.expr(a, mask))
            case Cast(t, a):
                return Cast(t, self.expr(a, mask))
            case Select(c, a, b):
                return Select(self.expr(c, mask), self.wide(a, mask), self.wide(b, mask))
            case Call(name, args, t):
                return Call(name, tuple(self.wide(a, mask) for a in args), t.with_lanes(self.lanes))
            case Load(buffer, (index,), own):
                mine = own if own is None else self.wide(own, mask)
                return Load(buffer, (self.wide(index, mask),), _both(mask, mine))
            case Ramp() | Broadcast():
                raise LoweringError("vectorize: a vectorized loop stands inside another.")
            case _:
                raise LoweringError(f"vectorize: {type(e).__name__} cannot be made a vector.")

    def stmt(self, s: Stmt, mask: Expr | None) -> Stmt:
        """The statement for all lanes at once; `mask` says which lanes take part."""
        if not self.moves(s) and mask is None:
            return s
        match s:
            case Store(buffer, (index,), value, own):
                if not self.moves(index):
                    raise LoweringError(
                        f"vectorize: all lanes of {self.var.name!r} write one element of {buffer.name!r}."
                    )
                mine = None if own is None else self.wide(own, mask)
                return Store(buffer, (self.wide(index, mask),), self.wide(value, mask), _both(mask, mine))
            case Seq(stmts):
                return seq(*(self.stmt(x, mask) for x in stmts))
            case For(var, begin, extent, kind, body, thread):
                if self.moves(begin) or self.moves(extent):
                    raise LoweringError(
                        f"vectorize: the extent of {var.name!r} depends on the vectorized {self.var.name!r}."
                    )
                return For(var, begin, extent, kind, self.stmt(body, mask), thread)
            case If(cond, then, otherwise):
                if not self.moves(cond):
                    other = None if otherwise is None else self.stmt(otherwise, mask)
                    return If(cond, self.stmt(then, mask), other)
                wide = self.wide(cond, mask)
                yes = self.stmt(then, _both(mask, wide))
                if otherwise is None:
                    return yes
                return seq(yes, self.stmt(otherwise, _both(mask, Unary(Neg.NOT, wide))))
            case Let(var, value, body):
                if not self.moves(value):
                    return Let(var, value, self.stmt(body, mask))
                # the vector needs its own name: the scalar may exist elsewhere (last step of a reduction)
                wide_var = Var(f"{var.name}.{self.lanes}", value.dtype.with_lanes(self.lanes))
                return Let(wide_var, self.wide(value, mask), self._with(var, wide_var).stmt(body, mask))
            case Evaluate(value):
                return Evaluate(self.expr(value, mask))
            case Alloc():
                raise LoweringError(
                    f"vectorize: a stage is computed inside the vectorized loop {self.var.name!r}."
                )
            case _:
                raise LoweringError(f"vectorize: {type(s).__name__} inside a vectorized loop.")

    def _with(self, var: Var, wide: Var) -> Vectorizer:
        """The same vectorizer, where a scalar Let variable has become a vector variable."""
        return _Chained(self, var, wide)


class _Chained(Vectorizer):
    """A vectorizer in which Let variables have become vectors."""

    def __init__(self, outer: Vectorizer, var: Var, wide: Var) -> None:
        super().__init__(outer.var, outer.ramp)
        self.known: dict[Var, Var] = {**getattr(outer, "known", {}), var: wide}

    def moves(self, node: Node) -> bool:
        found = self._moves.get(node)
        if found is None:
            found = not free_vars(node).isdisjoint({self.var, *self.known})
            self._moves[node] = found
        return found

    def _expr(self, e: Expr, mask: Expr | None) -> Expr:
        if isinstance(e, Var) and e in self.known:
            return self.known[e]
        return super()._expr(e, mask)


def _both(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return b if a is None else a
    return Binary(Op.AND, a, b)
