"""Joins the steps of a recurrence, so that each reads the state many steps back instead of one.

    y[t] = a*y[t-1] + x[t]        ──▶   y[t] = x[t] + a*x[t-1] + … + a**(n-1)*x[t-n+1] + a**n*y[t-n]
    y[t] = max(y[t-1], x[t])      ──▶   y[t] = max(x[t], x[t-1], …, y[t-n])

n neighbouring steps no longer wait for one another. A step may be affine in the steps before it, with
constant coefficients, or a maximum or minimum of the step before and of other terms. The characteristic
polynomial D(z) is multiplied by the polynomial N(z) that leaves powers of z**n alone. The product's poles are
those of D to the power n, so a stable recurrence stays stable. Source: Parhi and Messerschmitt, "Pipeline
interleaving and parallelism in recursive digital filters" (scattered look-ahead), IEEE Trans. ASSP 1989.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial, reduce

import numpy as np

from autotensor.base.dtype import float32, float64
from autotensor.ir.expr import Binary, Cmp, Const, Expr, Load, Neg, Op, Select, Unary, compare, const, select
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import any_node, free_vars
from autotensor.te.math import isnan
from autotensor.te.scan import Carried, first_steps, steps_back
from autotensor.te.stage import StageOp

# how many steps back → coefficient; 0 → the term that the step itself adds
Terms = Mapping[int, Expr]
WATCHED = 1024  # number of steps over which the growth of rounding errors is computed
GROWTH = 4.0  # how many times larger than in single steps rounding errors may become
# limits of coefficients; beyond them, float32 would turn some into 0 or infinity
SMALLEST, LARGEST = 1e-30, 1e30


@dataclass(frozen=True, slots=True)
class _Step:
    """How a step is made from the steps before it: a sum of coefficient × state, or a maximum or minimum."""

    terms: Terms
    extreme: Op | None = None


def joined(host: StageOp, carried: Carried, steps: int) -> StageOp | None:
    """The stage of a scan that reads its state `steps` steps back, and at multiples of `steps`.

    None if the recurrence has no such form, or if rounding errors would grow.
    """
    before = [b for b, after in carried if after in host.buffers]
    given = first_steps(host)
    body = host.bodies[0]
    if len(host.bodies) != 1 or len(before) != 1 or not isinstance(body, Select) or steps <= given:
        return None
    step = _of_extreme(body.otherwise, host, before) or _of_sum(body.otherwise, host, before)
    if step is None or not any(step.terms.keys() - {0}):
        return None
    if step.extreme and given > 1:  # later steps continue only from the last given step
        return None
    writer = _Writer(host, body.then, before[0], given, step)
    later = writer.extreme(steps) if step.extreme else writer.sum(steps)
    return None if later is None else replace(host, bodies=(Select(body.cond, body.then, later),))


def is_exact(host: StageOp, carried: Carried) -> bool:
    """Whether joined steps give the same bits as single steps; a maximum or minimum does."""
    before = [b for b, after in carried if after in host.buffers]
    body = host.bodies[0]
    return isinstance(body, Select) and _of_extreme(body.otherwise, host, before) is not None


def least_distance(host: StageOp, inside: Collection[StageOp], carried: Carried) -> int:
    """The least number of steps back at which a step reads, itself or through its intermediate values.

    That many steps at a time do not wait for one another.
    """
    ours = {b for b, after in carried if after in host.buffers}
    found = [steps_back(load, op) for op in inside for load in op.loads() if load.buffer in ours]
    return min((n or 1 for n in found), default=host.axes[0].extent)


# -- the operation of a step -------------------------------------------------------------------------------


def _of_extreme(e: Expr, host: StageOp, before: Collection[Buffer]) -> _Step | None:
    if not isinstance(e, Binary) or e.op not in (Op.MAX, Op.MIN):
        return None
    for state, other in ((e.a, e.b), (e.b, e.a)):
        at = _state(state, host, before)
        if at == 1 and not _reads(other, before):
            return _Step({0: other, 1: state}, e.op)
    return None


def _of_sum(e: Expr, host: StageOp, before: Collection[Buffer]) -> _Step | None:
    if e.dtype not in (float32, float64):
        return None
    terms = _affine(e, host, before)
    return None if terms is None else _Step(terms)


def _affine(e: Expr, host: StageOp, before: Collection[Buffer]) -> dict[int, Expr] | None:
    """The expression as a sum of coefficient × state, and of a rest without state (key 0)."""
    if not _reads(e, before):
        return {0: e}
    at = _state(e, host, before)
    if at is not None:
        return {at: const(1.0, e.dtype)}
    match e:
        case Unary(Neg.NEG, a):
            found = _affine(a, host, before)
            return found and {n: -x for n, x in found.items()}
        case Binary(Op.ADD | Op.SUB as op, a, b):
            left, right = _affine(a, host, before), _affine(b, host, before)
            if left is None or right is None:
                return None
            right = right if op is Op.ADD else {n: -x for n, x in right.items()}
            return {n: _added(left.get(n), right.get(n)) for n in {**left, **right}}
        case Binary(Op.MUL, a, b):
            for state, factor in ((a, b), (b, a)):
                if not _reads(factor, before):
                    found = _affine(state, host, before)
                    return found and {n: _times(factor, x) for n, x in found.items()}
    return None


def _added(a: Expr | None, b: Expr | None) -> Expr:
    if a is None or b is None:
        found = a if b is None else b
        assert found is not None
        return found
    x, y = _number(a), _number(b)
    return a + b if x is None or y is None else const(x + y, a.dtype)


def _times(a: Expr, b: Expr) -> Expr:
    x, y = _number(a), _number(b)
    if x == 1.0 or y == 1.0:
        return b if x == 1.0 else a
    return a * b if x is None or y is None else const(x * y, a.dtype)


def _number(e: Expr) -> float | None:
    """A constant's value in the generated code, rounded to its type; None if `e` is not a constant."""
    match e:
        case Const(value, dtype):
            return float(np.float32(value) if dtype is float32 else value)
        case Unary(Neg.NEG, Const() as inside):
            own = _number(inside)
            return None if own is None else -own
    return None


def _reads(e: Expr, before: Collection[Buffer]) -> bool:
    return any_node(e, lambda n: isinstance(n, Load) and n.buffer in before)


def _state(e: Expr, host: StageOp, before: Collection[Buffer]) -> int | None:
    """The number of steps back of a read of the state, if its other indices are those of the step; otherwise
    None."""
    if not isinstance(e, Load) or e.buffer not in before:
        return None
    own = all(i is a.var for i, a in zip(e.indices[1:], host.axes[1:], strict=True))
    return steps_back(e, host) if own else None


# -- the joined step ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the operation of many steps at once. Steps before the first one add nothing."""

    host: StageOp
    first: Expr
    before: Buffer
    given: int
    step: _Step

    def extreme(self, steps: int) -> Expr:
        """The extreme of all the steps' own terms, and then of the state. So only one operation waits for the
        state."""
        assert self.step.extreme is not None
        own = self.driven(0)
        others = [own, *(self.taken(n, self.driven(n), own) for n in range(1, steps))]
        state = self.taken(steps, self.state(steps), own)
        if own.dtype not in (float32, float64):
            return reduce(partial(Binary, self.step.extreme), (*others, state))
        # one test finds NaN in all the terms, which halves the work; a NaN in the state stays in the state
        better = Cmp.GT if self.step.extreme is Op.MAX else Cmp.LT
        found = reduce(lambda best, x: select(compare(better, x, best), x, best), others)
        found = select(compare(better, found, state), found, state)
        bad = reduce(lambda a, b: a | b, (isnan(x) for x in others))
        return select(bad, const(float("nan"), own.dtype), found)

    def sum(self, steps: int) -> Expr | None:
        back_to = self.step.terms.keys() - {0}
        numbers = {n: _number(self.step.terms[n]) for n in back_to}
        order = max(back_to)
        if any(v is None for v in numbers.values()) or order != self.given:
            return None  # products of coefficients that vary may overflow where single steps do not
        found = _scattered(tuple(numbers.get(n, 0.0) or 0.0 for n in range(1, order + 1)), steps)
        if found is None:
            return None
        taps, feedback = found
        nothing = const(-0.0, self.first.dtype)
        total = self.driven(0)
        for n, c in taps:
            total = total + self.taken(n, self.scaled(c, self.driven(n)), nothing)
        for n, c in feedback:
            total = total + self.taken(n, self.scaled(c, self.state(n)), nothing)
        return total

    def taken(self, n: int, term: Expr, neutral: Expr) -> Expr:
        """`term`, the part that comes from n steps before; `neutral` if there is no such step."""
        return select(compare(Cmp.LE, const(n), self.host.axes[0].var), term, neutral)

    def scaled(self, c: float, e: Expr) -> Expr:
        return _times(const(c, e.dtype), e)

    def state(self, n: int) -> Expr:
        t, *rest = (a.var for a in self.host.axes)
        return Load(self.before, (t - n, *rest))

    def at(self, e: Expr, n: int) -> Expr:
        t = self.host.axes[0].var
        return substitute(e, {t: t - n}) if n and t in free_vars(e) else e

    def driven(self, n: int) -> Expr:
        """The own term of the step that is n steps earlier.

        Values of given steps count as own terms, without the parts that come from other given steps.
        """
        t = self.host.axes[0].var - n
        own = self.step.terms.get(0, const(0.0, self.first.dtype))
        found = self.at(own, n)
        for g in reversed(range(self.given)):
            value = self.given_step(g)
            if self.step.extreme is None:
                for back_to, c in sorted(self.step.terms.items()):
                    if 0 < back_to <= g:
                        value = value - _times(c, self.given_step(g - back_to))
            found = select(compare(Cmp.LE, t, const(g)), value, found)
        return found

    def given_step(self, g: int) -> Expr:
        return substitute(self.first, {self.host.axes[0].var: const(g)})


Taps = tuple[tuple[int, float], ...]


@lru_cache(maxsize=256)
def _scattered(coefficients: tuple[float, ...], steps: int) -> tuple[Taps, Taps] | None:
    """The coefficients of the steps' own terms and those of the state, as pairs (steps back, coefficient).

    The computation is exact. Rounded coefficients would connect steps that are independent (y[t] = y[t-3]/2,
    8 steps at a time).
    """
    near = dict(enumerate(map(Fraction, coefficients), 1))
    far = _of_powers(near, steps)
    spread = {0: Fraction(1), **{n * steps: -c for n, c in far.items()}}
    taps: dict[int, Fraction] = {}
    for n in range((steps - 1) * len(near) + 1):  # divide `spread` by 1 - near; the remainder is 0
        taps[n] = spread.get(n, Fraction(0)) + sum(c * taps[n - k] for k, c in near.items() if k <= n)
    numbers = [abs(c) for c in (*taps.values(), *far.values()) if c]
    if not all(SMALLEST < c < LARGEST for c in numbers):
        return None
    own = _gain(near)
    if not np.isfinite(own) or _gain({n * steps: c for n, c in far.items()}) > GROWTH * own:
        return None
    added = tuple((n, float(c)) for n, c in taps.items() if n and c)
    return added, tuple((n * steps, float(c)) for n, c in far.items() if c)


def _of_powers(near: Mapping[int, Fraction], steps: int) -> dict[int, Fraction]:
    """The coefficients of the recurrence whose poles are the poles of `near` to the power `steps`.

    Newton's identities give them from the sums of the poles' powers. These sums follow the recurrence itself.
    """
    order = len(near)
    sums: dict[int, Fraction] = {}
    for n in range(1, order * steps + 1):
        sums[n] = n * near.get(n, Fraction(0)) + sum(c * sums[n - k] for k, c in near.items() if k < n)
    far: dict[int, Fraction] = {}
    for n in range(1, order + 1):
        far[n] = (sums[n * steps] - sum(c * sums[(n - k) * steps] for k, c in far.items())) / n
    return far


def _gain(terms: Mapping[int, Fraction]) -> float:
    """The total error if every step makes an error of 1: the sum of the absolute impulse response."""
    response = np.zeros(WATCHED)
    coefficients = [(n, float(c)) for n, c in terms.items() if c]
    for t in range(WATCHED):
        response[t] = float(t == 0) + sum(c * response[t - n] for n, c in coefficients if n <= t)
        if not abs(response[t]) < LARGEST:
            return float("inf")
    return float(np.abs(response).sum())
