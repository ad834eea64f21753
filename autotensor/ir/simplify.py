"""Simplifies expressions and statements, for given ranges of their variables.

    for xi in range(8):                                  for xi in range(8):
      if xo*8 + xi < 1024: C[(xo*8+xi)//8] = 0     ──▶     C[xo] = 0            with xo in 0..127

Expressions go bottom-up through the laws in `laws/`, until none applies. Sums are gathered in one pass and
get one form. Statements are visited from the top, and facts about their inside are collected: a loop's range,
a condition's truth. Every result is remembered for its node and its set of known facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from autotensor.base.dtype import int64, wrap_int
from autotensor.ir.affine import Affine, affine, is_sum, summands
from autotensor.ir.bounds import NO_RANGES, Bounds, Interval, Ranges, bounds
from autotensor.ir.expr import Binary, Const, Expr, Load, Neg, Op, Ramp, Reduce, Symbol, Unary, Var, const
from autotensor.ir.laws.integer_laws import INT_LAWS, canonical_sum
from autotensor.ir.laws.logic_laws import LOGIC_LAWS, constant_bool
from autotensor.ir.laws.vector_laws import VECTOR_LAWS
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import Rules, fire
from autotensor.ir.stmt import NOTHING, Alloc, Evaluate, For, ForKind, If, Let, Seq, Stmt, Store, seq
from autotensor.ir.visit import contains, free_vars

N = TypeVar("N", bound=Node)

LAWS = Rules(*VECTOR_LAWS, *INT_LAWS, *LOGIC_LAWS)


def simplify(node: N, ranges: Ranges = NO_RANGES, assume: Sequence[Expr] = ()) -> N:
    """`node` with the same meaning wherever variables lie in `ranges` and all conditions of `assume` hold.

    >>> i, j = Var("i"), Var("j")
    >>> e = (i * 8 + j) // 8
    >>> simplify(e, {j: Interval(0, 7)}) is i
    True
    """
    s = Simplifier(bounds(ranges, assume))
    done = s.stmt(node) if isinstance(node, Stmt) else s.expr(node)  # type: ignore[arg-type]
    s.close()
    return done  # type: ignore[return-value]


class Simplifier:
    """Simplifies under known facts; `inside` and `where` give the simplifier for an inner scope."""

    __slots__ = ("_inner", "_memo", "_outer", "_own", "bounds", "values")

    def __init__(
        self,
        known: Bounds,
        values: dict[Var, Expr] | None = None,
        outer: Simplifier | None = None,
        own: Var | None = None,
    ) -> None:
        """outer, own: a scope around this one that differs only in the range of the variable `own`."""
        self.bounds = known
        self._outer, self._own = outer, own
        # variables that are replaced: those of loops with one iteration, and of trivial Lets
        self.values: dict[Var, Expr] = values or {}
        self._memo: dict[Node, Any] = {}
        self._inner: dict[Any, Simplifier] = {}

    # -- scopes ----------------------------------------------------------------------------------------------
    def inside(
        self, var: Var, values: Interval, begin: Expr | None = None, extent: Expr | None = None
    ) -> Simplifier:
        """The scope where `var` lies in `values`, and in begin .. begin + extent - 1 if given."""
        key = (var, values, begin, extent)
        found = self._inner.get(key)
        if found is None:
            known = self.bounds.with_range(var, values)
            if begin is not None and not isinstance(begin, Const):
                known = known.assuming(Binary(Op.SUB, begin, var) <= 0)
            if (
                begin is not None
                and extent is not None
                and not (isinstance(begin, Const) and isinstance(extent, Const))
            ):
                # the loop has iterations
                for count in dict.fromkeys((extent, self.bounds.if_positive(extent))):
                    known = known.assuming(Binary(Op.SUB, var, begin) < count)
            outer = self if known.facts is self.bounds.facts else None
            found = self._inner[key] = type(self)(known, self.values, outer, var)
        return found

    def replacing(self, var: Var, value: Expr) -> Simplifier:
        """The scope where `var` equals `value`."""
        found = self._inner.get((var, value))
        if found is None:
            values_ = {**self.values, var: value}
            found = self._inner[(var, value)] = type(self)(self.bounds, values_, self, var)
        return found

    def where(self, cond: Expr, holds: bool = True) -> Simplifier:
        """The scope where `cond` is known.

        A condition that reads memory is ignored: a store may change it.
        """
        found = self._inner.get((cond, holds))
        if found is None:
            if contains(cond, Load):
                return self
            found = self._inner[(cond, holds)] = type(self)(self.bounds.assuming(cond, holds), self.values)
        return found

    def close(self) -> None:
        """Frees all inner scopes.

        They refer to this scope, so otherwise only the garbage collector frees them.
        """
        for inner in self._inner.values():
            inner.close()
        self._inner.clear()

    # -- expressions -----------------------------------------------------------------------------------------
    def expr(self, e: Expr) -> Any:
        kind = e.__class__
        if kind is Const:
            return e
        if kind is Var or kind is Symbol:
            return self._var(e)  # type: ignore[arg-type]
        memo = self._memo
        done = memo.get(e)
        if done is None:
            scope = self if self._outer is None else self._scope_of(e)
            if scope is not self:
                done = memo[e] = scope.expr(e)
                return done
            memo[e] = e  # laws that undo one another end here
            done = self._expr(e)
            memo[e] = done
            memo.setdefault(done, done)
        return done

    def _scope_of(self, e: Expr) -> Simplifier:
        """The outermost scope in which `e` simplifies as in this one; scopes of other variables are skipped.

        So equal parts of many copies are simplified once.
        """
        free, scope = free_vars(e), self
        while (outer := scope._outer) is not None:
            own = scope._own
            if own not in free:
                scope = outer
                continue
            value = scope.values.get(own)
            beside = outer._outer  # the scope in which `own` alone would be replaced
            if value is None or beside is None or outer._own in free or outer._own in free_vars(value):
                break
            scope = beside.replacing(own, value)
        return scope

    def _expr(self, e: Expr) -> Expr:
        if is_sum(e):
            terms: dict[Expr, int] = {}
            constant = self._gather(e, 1, terms)
            return self.sum_expr(Affine({t: k for t, k in terms.items() if k}, constant, e.dtype))
        new = self._children(e)
        fired = fire(new, LAWS, self)
        return new if fired is None else self.expr(fired)

    def affine(self, e: Expr) -> Affine:
        """A scalar integer expression as a sum."""
        a = affine(e)
        assert a is not None, "laws of sums are for scalar integers"
        return a

    def sum_expr(self, a: Affine) -> Expr:
        """The one form of a sum whose terms are simple."""
        return canonical_sum(a, self)

    def _var(self, v: Var) -> Expr:
        value = self.values.get(v)
        if value is not None:
            return value
        known = self.bounds.known.get(v)
        if known is not None and known.lo is not None and known.lo == known.hi:
            return const(known.lo, v.type)
        return v

    def _gather(self, e: Expr, k: int, terms: dict[Expr, int]) -> int:
        """Adds k times the simplified `e` to `terms` and returns its constant part."""
        parts, constant = summands(e)
        constant *= k
        for part, n in parts:
            if isinstance(part, Binary) and part.op is Op.MUL:
                constant += self._gather_product(part, k * n, terms)
                continue
            simple = self._var(part) if isinstance(part, Var) else self.expr(part)
            if simple.__class__ is Const:
                constant += k * n * int(simple.value)
            elif simple is not part and is_sum(simple):
                constant += self._gather(simple, k * n, terms)
            else:
                terms[simple] = terms.get(simple, 0) + k * n
        return constant

    def _gather_product(self, e: Binary, k: int, terms: dict[Expr, int]) -> int:
        """The same for a product of a sum of data, or of two factors that may turn out to be constant."""
        a, b = e.a, e.b
        if not isinstance(b, Const):
            a, b = (b, a) if isinstance(a, Const) else (self.expr(a), self.expr(b))
            a, b = (b, a) if isinstance(a, Const) else (a, b)
        if isinstance(b, Const):
            if e.dtype == int64 or not is_sum(a):
                return self._gather(a, k * int(b.value), terms)
            a = self.expr(a)  # (x + y)*3 of data stays, because distributing would multiply twice
            if not isinstance(a, Binary) or a.op not in (Op.ADD, Op.SUB):
                return self._gather(a, k * int(b.value), terms)
        product = Binary(Op.MUL, a, b)
        terms[product] = terms.get(product, 0) + k
        return 0

    def _children(self, e: Expr) -> Expr:
        """The expression with simplified operands; the most frequent classes come first."""
        expr = self.expr
        if isinstance(e, Binary):
            return Binary(e.op, expr(e.a), expr(e.b))
        if isinstance(e, Load):
            mask = None if e.mask is None else expr(e.mask)
            return Load(e.buffer, tuple([expr(i) for i in e.indices]), mask)
        if isinstance(e, Ramp):
            return Ramp(expr(e.base), wrap_int(e.stride, e.dtype.element), e.lanes)
        if isinstance(e, Reduce):
            return Reduce(e.combiner, tuple([expr(x) for x in e.sources]), e.axes, e.index)
        return map_children(e, expr)

    # -- statements ------------------------------------------------------------------------------------------
    def stmt(self, st: Stmt) -> Stmt:
        done = self._memo.get(st)
        if done is None:
            done = self._memo[st] = self._stmt(st)
        return done

    def _stmt(self, st: Stmt) -> Stmt:
        match st:
            case Store(buffer, indices, value, mask):
                return self._store(buffer, indices, value, mask)
            case For():
                return self._for(st)
            case Seq(stmts):
                return seq(*(self.stmt(x) for x in stmts))
            case If():
                return self._if(st)
            case Let():
                return self._let(st)
            case Alloc(buffer, body):
                inner = self.stmt(body)
                return NOTHING if inner is NOTHING else Alloc(buffer, inner)
            case Evaluate(value):
                value = self.expr(value)
                return NOTHING if isinstance(value, Const) else Evaluate(value)
        return st

    def _store(self, buffer: Any, indices: tuple[Expr, ...], value: Expr, mask: Expr | None) -> Stmt:
        mask = None if mask is None else self.expr(mask)
        holds = constant_bool(mask)
        if holds is False:
            return NOTHING
        places = tuple([self.expr(i) for i in indices])
        return Store(buffer, places, self.expr(value), None if holds else mask)

    def loop_scope(self, loop: For) -> Simplifier | None:
        """The scope of a loop's body; None if the body never runs."""
        begin, extent = self.expr(loop.begin), self.expr(loop.extent)
        turns = self.bounds.of(extent)
        if turns.hi is not None and turns.hi <= 0:
            return None
        # a thread axis with one iteration still counts for the launch
        if turns.value == 1 and loop.kind is not ForKind.THREAD:
            return self.replacing(loop.var, begin)
        first = self.bounds.of(begin)
        last = None if first.hi is None or turns.hi is None else first.hi + turns.hi - 1
        return self.inside(loop.var, Interval(first.lo, last), begin, extent)

    def _for(self, loop: For) -> Stmt:
        scope = self.loop_scope(loop)
        if scope is None:
            return NOTHING
        body = scope.stmt(loop.body)
        if loop.var in scope.values or body is NOTHING:
            return body
        return For(loop.var, self.expr(loop.begin), self.expr(loop.extent), loop.kind, body, loop.thread)

    def _if(self, st: If) -> Stmt:
        cond = self.expr(st.cond)
        holds = constant_bool(cond)
        if holds is not None:
            return (
                self.stmt(st.then) if holds else NOTHING if st.otherwise is None else self.stmt(st.otherwise)
            )
        then = self.where(cond).stmt(st.then)
        otherwise = None if st.otherwise is None else self.where(cond, False).stmt(st.otherwise)
        if otherwise is NOTHING:
            otherwise = None
        if then is otherwise or (then is NOTHING and otherwise is None):
            return then
        if then is NOTHING:
            return If(self.expr(Unary(Neg.NOT, cond)), otherwise)  # type: ignore[arg-type]
        return If(cond, then, otherwise)

    def let_scope(self, let: Let) -> Simplifier:
        """The scope of a Let's body."""
        value = self.expr(let.value)
        if isinstance(value, (Const, Var)):
            return self.replacing(let.var, value)
        known = value.dtype.is_int and value.dtype.lanes == 1
        return self.inside(let.var, self.bounds.of(value)) if known else self

    def _let(self, let: Let) -> Stmt:
        scope = self.let_scope(let)
        body = scope.stmt(let.body)
        return (
            body if let.var in scope.values or body is NOTHING else Let(let.var, self.expr(let.value), body)
        )
