"""The values that an integer expression can take, and conditions that follow from them.

    interval(8*i + j, {i: Interval(0, 3), j: Interval(0, 7)})   ──▶ Interval(0, 31)
    prove(8*i + j < 32, …)                                      ──▶ True

Sums are bounded through their affine form, so that `i - i` is 0. Conditions that are known to hold (`assume`,
an enclosing If or mask) tighten the result. Data may wrap around; where it may, the answer is the whole range
of the type. int64 is data if it comes from memory; otherwise it is the type of indices, and assumed never to
overflow. `Bounds` gives the same answers and remembers them, for passes that need many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

from autotensor.ir.affine import Affine, affine
from autotensor.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Cmp,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Ramp,
    Select,
    Symbol,
    Unary,
    Var,
)
from autotensor.ir.intervals import (
    BOOL,
    EVERYTHING,
    LONG,
    NO_RANGES,
    Interval,
    Ranges,
    binary_interval,
    dtype_interval,
    wrapped,
)
from autotensor.ir.visit import contains, free_vars

__all__ = ["EVERYTHING", "NO_RANGES", "Bounds", "Interval", "Ranges", "bounds", "interval", "prove"]


def interval(expr: Expr, ranges: Ranges = NO_RANGES, assume: Sequence[Expr] = ()) -> Interval:
    """The values `expr` (integer, possibly a vector) can take, or a larger set."""
    return bounds(ranges, assume).of(expr)


def prove(cond: Expr, ranges: Ranges = NO_RANGES, assume: Sequence[Expr] = ()) -> bool | None:
    """True if `cond` always holds (in every lane), False if it never holds, None if neither is known."""
    return bounds(ranges, assume).decide(cond)


def bounds(ranges: Ranges, assume: Sequence[Expr] = ()) -> Bounds:
    """The bounds under `ranges`, where all conditions of `assume` hold."""
    out = Bounds(ranges)
    for cond in assume:
        out = out.assuming(cond)
    return out


class Bounds:
    """Intervals and proofs under fixed ranges and facts. It remembers its results.

    It also remembers the `Bounds` for inner scopes, because passes visit the same loops several times.
    """

    __slots__ = ("_inside", "_memo", "facts", "known", "truths")

    def __init__(
        self,
        known: Mapping[Expr, Interval] | Ranges,
        facts: tuple[tuple[Affine, Interval], ...] = (),
        truths: Mapping[Expr, bool] | None = None,
    ) -> None:
        self.known: Mapping[Expr, Interval] = known  # type: ignore[assignment]  # Var or opaque term -> interval
        self.facts = facts  # sums of several terms whose value is known to lie in an interval
        self.truths: Mapping[Expr, bool] = truths or {}  # conditions that are assumed, as they were written
        self._memo: dict[Expr, Interval] = {}
        self._inside: dict[tuple[Any, ...], Bounds] = {}  # by their ranges or conditions

    # -- intervals -------------------------------------------------------------------------------------------
    def at_least(self, e: Expr, least: int) -> bool:
        """Whether an integer is certainly at least `least`, in every lane."""
        return self.of(e).within(Interval(least, None))

    def below(self, e: Expr, end: int) -> bool:
        """Whether an integer is certainly in 0 … end - 1, in every lane."""
        return self.of(e).within(Interval(0, end - 1))

    def of(self, e: Expr) -> Interval:
        """The values of an integer or bool expression."""
        if e.__class__ is Var:
            seen = self.known.get(e)
            return dtype_interval(e.dtype.element) if seen is None else seen
        found = self._memo.get(e)
        if found is None:
            self._memo[e] = dtype_interval(e.dtype.element)  # in case a fact about e needs the bounds of e
            found = self._memo[e] = self._of(e)
        return found

    def _of(self, e: Expr) -> Interval:
        a = affine(e)
        if a is None or a.single() is e:
            got = self._term(e)
            seen = self.known.get(e)
            return got if seen is None else seen if isinstance(e, Var) else got.meet(seen)
        return _wrapped(self.of_affine(a), e)

    def of_affine(self, a: Affine) -> Interval:
        """The values of the sum itself, without wrapping."""
        out = self._plain(a)
        if self.facts and len(a.terms) > 1 and out.value is None:
            out = self._by_facts(a, out)
        return out

    def _plain(self, a: Affine) -> Interval:
        lo: int | None = a.constant
        hi: int | None = a.constant
        for term, k in a.terms.items():
            t = self.of(term)
            low, high = (t.lo, t.hi) if k > 0 else (t.hi, t.lo)
            lo = None if lo is None or low is None else lo + k * low
            hi = None if hi is None or high is None else hi + k * high
        return Interval(lo, hi)

    def _by_facts(self, a: Affine, out: Interval) -> Interval:
        """`out`, tightened: the sum is m*fact + rest, for each single fact, and for all facts in turn."""
        left, total = a, Interval(0, 0)
        for fact, values in self.facts:
            shared = [(n, k) for t, k in fact.terms.items() if (n := a.terms.get(t, 0))]
            for m in {n // k for n, k in shared if n % k == 0}:
                out = out.meet(values.times(m).plus(self._plain(a.plus(fact, -m))))
            term, k = next(iter(fact.terms.items()))
            n = left.terms.get(term, 0)
            if n and n % k == 0 and all(left.terms.get(t) == n // k * c for t, c in fact.terms.items()):
                left = left.plus(fact, -(n // k))
                total = total.plus(values.times(n // k))
        return out.meet(total.plus(self._plain(left)))

    def exact(self, e: Expr) -> bool:
        """Whether `affine(e)` is the value of `e` without wrapping (for a vector: base and stride)."""
        dtype = e.dtype
        if dtype.bits == 64 and dtype.kind == "int" and not is_data(e):
            return True
        if dtype.lanes > 1:
            base, step = base_and_stride(e)
            if base is None or not self.exact(base):
                return base is None
            reach = step * (dtype.lanes - 1)
            values = self.of(base).plus(Interval(min(0, reach), max(0, reach)))
            return values.within(LONG if dtype.bits == 64 else dtype_interval(dtype.element))
        a = affine(e)
        return a is None or a.single() is e or self.fits(a)

    def fits(self, a: Affine) -> bool:
        """Whether the sum lies within its type, so that an expression of it does not wrap."""
        whole = dtype_interval(a.dtype)
        if whole is EVERYTHING:
            if not any(is_data(t) for t in a.terms) or a.single() is not None:
                return True
            whole = LONG
        return self.of_affine(a).within(whole)

    def _term(self, e: Expr) -> Interval:
        """The values of an expression that is not a sum."""
        whole = dtype_interval(e.dtype.element)
        match e:
            case Symbol():
                return Interval(e.least, e.most)
            case Var():
                return whole
            case Const(value, dtype) if not dtype.is_float:
                return Interval(int(value), int(value))
            case Binary(op, a, b) if not e.dtype.is_float:
                x, y = self.of(a), self.of(b)
                leaves = op in (Op.ADD, Op.SUB, Op.MUL, Op.SHL) or (op is Op.FLOORDIV and y.has(-1))
                return (_wrapped if leaves else _narrowed)(binary_interval(op, x, y), e)
            case Unary(Neg.NEG, a) if not e.dtype.is_float:
                return _wrapped(self.of(a).times(-1), e)
            case Unary(Neg.NOT, a) if e.dtype.kind == "int":  # ~x = -x - 1
                return self.of(a).times(-1).shift(-1)
            case Select(cond, then, otherwise):
                decided = self.decide(cond)
                if decided is None:
                    return self.of(then).hull(self.of(otherwise))
                return self.of(then if decided else otherwise)
            case Cast(_, a) if e.dtype.is_int and not a.dtype.is_float:
                return _wrapped(self.of(a), e)
            case Broadcast(a, _):
                return self.of(a)
            case Ramp(base, step, lanes):
                reach = step * (lanes - 1)
                return _wrapped(self.of(base).plus(Interval(min(0, reach), max(0, reach))), e)
            case Call("abs", (a,)) if e.dtype.is_int:
                t = self.of(a)
                return _wrapped(binary_interval(Op.MAX, t, t.times(-1)).meet(Interval(0, None)), e)
            case Compare():
                decided = self.decide(e)
                return BOOL if decided is None else Interval(int(decided), int(decided))
        return whole

    # -- conditions ------------------------------------------------------------------------------------------
    def decide(self, cond: Expr) -> bool | None:
        """True if `cond` holds in all lanes always, False if never in any lane, None if neither is known."""
        if cond in self.truths:
            return self.truths[cond]
        match cond:
            case Const(value, dtype) if dtype.is_bool:
                return bool(value)
            case Compare(op, a, b) if a.dtype.is_int:
                return self._compare(op, a, b)
            case Broadcast(a, _):
                return self.decide(a)
            case Unary(Neg.NOT, a) if cond.dtype.is_bool:
                inner = self.decide(a)
                return None if inner is None else not inner
            case Binary(Op.AND, a, b) if cond.dtype.is_bool:
                x, y = self.decide(a), self.decide(b)
                return False if x is False or y is False else True if x and y else None
            case Binary(Op.OR, a, b) if cond.dtype.is_bool:
                x, y = self.decide(a), self.decide(b)
                return True if x or y else False if x is False and y is False else None
        return None

    def _compare(self, op: Cmp, a: Expr, b: Expr) -> bool | None:
        match op:
            case Cmp.GT | Cmp.LE:
                swapped = self._compare(Cmp.LT if op is Cmp.GT else Cmp.GE, b, a)
                return swapped
            case Cmp.LT:
                d = self.difference(a, b)
                return (
                    True
                    if d.hi is not None and d.hi < 0
                    else False
                    if d.lo is not None and d.lo >= 0
                    else None
                )
            case Cmp.GE:
                less = self._compare(Cmp.LT, a, b)
                return None if less is None else not less
            case Cmp.NE:
                same = self._compare(Cmp.EQ, a, b)
                return None if same is None else not same
        d = self.difference(a, b)
        if d.lo == 0 == d.hi:
            return True
        return False if not d.has(0) or self._never_equal(a, b) else None

    def difference(self, a: Expr, b: Expr) -> Interval:
        """The values of `a - b`, as mathematical integers; lane by lane for vectors."""
        if a.dtype.lanes == 1:
            x, y = affine(a), affine(b)
            if x is not None and y is not None and self.exact(a) and self.exact(b):
                return self.of_affine(x.minus(y))
        else:
            base_a, step_a = base_and_stride(a)
            base_b, step_b = base_and_stride(b)
            if base_a is not None and base_b is not None and self.exact(a) and self.exact(b):
                reach = (step_a - step_b) * (a.dtype.lanes - 1)
                return self.difference(base_a, base_b).plus(Interval(min(0, reach), max(0, reach)))
        return self.of(a).plus(self.of(b).times(-1))

    def _never_equal(self, a: Expr, b: Expr) -> bool:
        """6*x + 4*y + 1 is never 0, because a divisor of all coefficients does not divide the constant."""
        x, y = affine(a), affine(b)
        if x is None or y is None or not (self.exact(a) and self.exact(b)):
            return False
        d = x.minus(y)
        g = gcd(*d.terms.values())
        return g > 1 and d.constant % g != 0

    # -- conditions that are known to hold -------------------------------------------------------------------
    def with_range(self, term: Expr, values: Interval) -> Bounds:
        if isinstance(term, Symbol):  # a symbol's own range always holds
            values = values.meet(Interval(term.least, term.most))
        return Bounds({**self.known, term: values}, self.facts, self.truths)

    def in_loop(self, var: Var, begin: Expr, extent: Expr) -> Bounds:
        """These bounds with the loop variable in begin … begin + extent - 1."""
        found = self._inside.get((var, begin, extent))
        if found is None:
            found = self._inside[var, begin, extent] = self._in_loop(var, begin, extent)
        return found

    def _in_loop(self, var: Var, begin: Expr, extent: Expr) -> Bounds:
        first, turns = self.of(begin), self.of(extent)
        last = None if first.hi is None or turns.hi is None else first.hi + turns.hi - 1
        inside = self.with_range(var, Interval(first.lo, last))
        numbers = isinstance(extent, Const) and not is_symbolic(begin)
        if not numbers and not is_data(extent) and not is_data(begin):  # the range alone says little then
            inside = inside.assuming(Compare(Cmp.LT, var, Binary(Op.ADD, begin, extent)))
            count = self.if_positive(extent)  # the loop has iterations
            if count is not extent:
                inside = inside.assuming(Compare(Cmp.LT, var, Binary(Op.ADD, begin, count)))
        return inside

    def if_positive(self, e: Expr) -> Expr:
        """The same number, written shorter if it is at least 1: max(n - 4, 0) is then n - 4."""
        if isinstance(e, Binary) and e.op is Op.MAX:
            for a, b in ((e.a, e.b), (e.b, e.a)):
                if self.of(b).within(Interval(None, 0)):
                    return self.if_positive(a)
        return e

    def in_let(self, var: Var, value: Expr) -> Bounds:
        """These bounds, with the variable in the range of its value. Sums of data may wrap around."""
        if not value.dtype.is_int or value.dtype.lanes > 1:
            return self
        values = self.of(value)
        return self.with_range(var, values if values.within(LONG) or not is_data(value) else EVERYTHING)

    def assuming(self, cond: Expr, holds: bool = True) -> Bounds:
        """These bounds, where `cond` is known to hold (or known not to hold)."""
        found = self._inside.get((cond, holds))
        if found is None:
            found = self._inside[cond, holds] = self._assuming(cond, holds)
        return found

    def _assuming(self, cond: Expr, holds: bool) -> Bounds:
        match cond:
            case Binary(Op.AND, a, b) if holds and cond.dtype.is_bool:
                return self.assuming(a).assuming(b)
            case Binary(Op.OR, a, b) if not holds and cond.dtype.is_bool:
                return self.assuming(a, False).assuming(b, False)
            case Unary(Neg.NOT, a) if cond.dtype.is_bool:
                return self.assuming(a, not holds)
            case Broadcast(a, _):
                return self.assuming(a, holds)
            case Const():
                return self
        out = Bounds(self.known, self.facts, {**self.truths, cond: holds})
        if isinstance(cond, Compare) and cond.a.dtype.is_int and cond.a.dtype.lanes == 1:
            return out._assuming_compare(cond.op if holds else NEGATED[cond.op], cond.a, cond.b)
        return out

    def _assuming_compare(self, op: Cmp, a: Expr, b: Expr) -> Bounds:
        if not (self.exact(a) and self.exact(b)):
            return self
        match op:
            case Cmp.NE:
                return self
            case Cmp.GT | Cmp.GE:
                return self._assuming_compare(Cmp.LT if op is Cmp.GT else Cmp.LE, b, a)
            case Cmp.LT | Cmp.LE if isinstance(b, Binary) and b.op is Op.MIN:
                # x < min(p, q): x < p and x < q
                return self._assuming_compare(op, a, b.a)._assuming_compare(op, a, b.b)
            case Cmp.LT | Cmp.LE if isinstance(a, Binary) and a.op is Op.MAX:
                # max(p, q) < x: p < x and q < x
                return self._assuming_compare(op, a.a, b)._assuming_compare(op, a.b, b)
        x, y = affine(a), affine(b)
        if x is None or y is None:
            return self
        d = x.minus(y)
        values = {Cmp.LT: Interval(None, -1), Cmp.LE: Interval(None, 0), Cmp.EQ: Interval(0, 0)}[op]
        return self.with_fact(d, values)

    def with_fact(self, sum_: Affine, values: Interval) -> Bounds:
        """These bounds, where the sum is known to lie in `values`.

        Minima and maxima are split into two facts.
        """
        for term, k in sum_.terms.items():
            if isinstance(term, Binary) and abs(k) == 1 and term.op in (Op.MIN, Op.MAX):
                # s - min(p, q) <= c  ->  s - p <= c and s - q <= c;  s + max(p, q) <= c in the same way
                if (term.op is Op.MIN) == (k == -1) and values.lo is None:
                    return self._split_fact(sum_, term, k, values)
                if (term.op is Op.MIN) == (k == 1) and values.hi is None:
                    return self._split_fact(sum_, term, k, values)
        quotient = _symbolic_quotient(sum_) if values.lo is None else None
        if quotient is not None:
            # s - x//c <= v  ->  c*s - x <= c*v, because c * (x//c) <= x
            term, x, c = quotient
            multiple = sum_.without(term).scale(c).minus(x)
            return self._with_plain_fact(sum_, values).with_fact(multiple, values.times(c))
        return self._with_plain_fact(sum_, values)

    def _with_plain_fact(self, sum_: Affine, values: Interval) -> Bounds:
        values = values.shift(-sum_.constant)
        sum_ = Affine(sum_.terms, 0, sum_.dtype)
        facts = self.facts if len(sum_.terms) < 2 else (*self.facts, (sum_, values))
        return Bounds(self._narrowed(sum_, values), facts, self.truths)

    def settled(self) -> Bounds:
        """These bounds, with every fact used once more, because later facts may have narrowed its terms, or
        made a factor of a product a number."""
        out = self
        for sum_, values in self.facts:
            out = Bounds(out._narrowed(sum_, values), out.facts, self.truths)
            if (known := out._with_numbers(sum_)) is not sum_:
                out = out.with_fact(known, values)
        return out

    def _with_numbers(self, sum_: Affine) -> Affine:
        """The sum, with x*c for each product x*y whose factor y is the number c."""
        for term, k in sum_.terms.items():
            match term:
                case Binary(Op.MUL, a, b) if self.exact(term):
                    for x, y in ((a, b), (b, a)):
                        factor, inner = self.of(y).value, affine(x)
                        if factor is not None and inner is not None:
                            return self._with_numbers(sum_.without(term).plus(inner, k * factor))
        return sum_

    def _narrowed(self, sum_: Affine, values: Interval) -> dict[Expr, Interval]:
        """Intervals of the terms, if their sum lies in `values`."""
        known = dict(self.known)
        for term, k in sum_.terms.items():  # k*term = sum - rest
            rest = self._plain(sum_.without(term).shift(-sum_.constant))
            scaled = values.plus(rest.times(-1))
            lo, hi = (scaled.lo, scaled.hi) if k > 0 else (scaled.hi, scaled.lo)
            new = Interval(None if lo is None else -(-lo // k), None if hi is None else hi // k)
            known[term] = self.of(term).meet(new)
        return known

    def _split_fact(self, sum_: Affine, term: Expr, k: int, values: Interval) -> Bounds:
        assert isinstance(term, Binary)
        without = sum_.without(term)
        out = self
        for side in (term.a, term.b):
            s = affine(side)
            if s is not None and self.exact(side):
                out = out.with_fact(without.plus(s, k), values)
        return out


def _symbolic_quotient(sum_: Affine) -> tuple[Expr, Affine, int] | None:
    """A term x//c that the sum subtracts, where x depends on a run-time extent; with x and c."""
    for term, k in sum_.terms.items():
        match term:
            case Binary(Op.FLOORDIV, x, Const(c)) if k == -1 and c > 0 and is_symbolic(x):
                inner = affine(x)
                return None if inner is None else (term, inner, int(c))
    return None


def is_symbolic(e: Expr) -> bool:
    """Whether an expression depends on an extent that is known at run time only."""
    return any(isinstance(v, Symbol) for v in free_vars(e))


@lru_cache(maxsize=1 << 14)
def is_data(e: Expr) -> bool:
    """Whether an expression depends on the contents of memory."""
    return contains(e, Load)


def _narrowed(i: Interval, e: Expr) -> Interval:
    return wrapped(i, e.dtype)


def _wrapped(i: Interval, e: Expr) -> Interval:
    """The values of `e`, which are `i` if `e` cannot wrap around."""
    if e.dtype.bits == 64 and e.dtype.kind == "int" and not i.within(LONG) and is_data(e):
        return EVERYTHING
    return wrapped(i, e.dtype)


NEGATED = {
    Cmp.EQ: Cmp.NE,
    Cmp.NE: Cmp.EQ,
    Cmp.LT: Cmp.GE,
    Cmp.GE: Cmp.LT,
    Cmp.GT: Cmp.LE,
    Cmp.LE: Cmp.GT,
}


def base_and_stride(e: Expr) -> tuple[Expr | None, int]:
    """(base, stride) of a vector that is a Ramp or a Broadcast; (None, 0) for any other vector."""
    match e:
        case Ramp(base, step, _):
            return base, step
        case Broadcast(a, _):
            return a, 0
    return None, 0
