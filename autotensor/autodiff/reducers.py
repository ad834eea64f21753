"""Derivatives of reductions with a combine function of the author's (`te.comm_reducer`).

    result = f(f(before, t), after)        before, after: all earlier and all later terms, joined

Joining is associative, so a result is this for every term t, and its derivative by t is that of an ordinary
expression. It is exact for whatever the author wrote: products, log-sum-exp, a maximum with its place (where
one of several equal terms is the winner, and gets all), merged means and variances. For n terms `before` and
`after` are n sums of up to n terms each: right always, slow for long reductions.

A combine function that is not associative, or whose start is not neutral, gives a number that depends on the
schedule; it has no derivative, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from autotensor.autodiff.functions import stage_function
from autotensor.base.dtype import DType, dtype_of
from autotensor.ir.expr import Combiner, Expr, Load, Var, const, select
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.te import AxisKind, reference
from autotensor.te.dag import IterDef, StageOp

FLAG = dtype_of("int32")
FLAG = dtype_of("int32")
SAMPLES = 64
DIGITS = 1e-3  # tolerance; also float16's rounding is below


@dataclass(frozen=True, slots=True)
class Around:
    """A reduction as a function of one term: what came before and after, and the results at that term."""

    before: StageOp
    after: StageOp
    results: tuple[Expr, ...]  # over (axes, reduce axes) of the stage


def around(stage: StageOp) -> Around:
    """The parts of a reduction whose terms are loads at (axes, reduce axes)."""
    assert stage.combiner is not None
    c, shape = stage.combiner, tuple(a.extent for a in stage.all_axes)
    place = tuple(a.var for a in stage.all_axes)
    number, last = _number(stage.reduce_axes), prod(a.extent for a in stage.reduce_axes) - 1
    before, after = (_others(stage, shape, later) for later in (False, True))
    head, tail = ([Load(b, place) for b in s.buffers[1:]] for s in (before, after))
    first = number.equal(0)
    through = _chosen(first, stage.bodies, _joined(c, head, stage.bodies))
    return Around(before, after, _chosen(number.equal(last), through, _joined(c, through, tail)))


def _others(stage: StageOp, shape: tuple[int, ...], later: bool) -> StageOp:
    """All earlier (or later) terms joined, for every term; the first result is whether there are any."""
    assert stage.combiner is not None
    name = f"{stage.name}_{'after' if later else 'before'}"
    axes = tuple(IterDef(a.name, a.extent) for a in stage.all_axes)
    others = tuple(IterDef(f"{a.name}_other", a.extent, AxisKind.REDUCE) for a in stage.reduce_axes)
    mine, theirs = _number(stage.reduce_axes), _number(others)
    one, zero = const(1, FLAG), const(0, FLAG)
    swap = {a.var: o.var for a, o in zip(stage.reduce_axes, others, strict=True)}
    terms = tuple(substitute(b, swap) for b in stage.bodies)
    counted = select(theirs > mine if later else theirs < mine, one, zero)
    buffers = (Buffer(f"{name}_some", shape, FLAG), *(
        Buffer(f"{name}{n}", shape, b.dtype) for n, b in enumerate(stage.bodies)
    ))  # fmt: skip
    return StageOp(name, axes, others, (counted, *terms), _counting(stage.combiner), buffers)


def _counting(c: Combiner) -> Combiner:
    """Joins those that count: a term that does not is left out, instead of being replaced by the start."""
    left, right = Var("lhs_some", FLAG), Var("rhs_some", FLAG)
    joined = _chosen(left.equal(0), c.rhs, _chosen(right.equal(0), c.lhs, c.result))
    either = select(right.equal(0), left, const(1, FLAG))
    return Combiner(
        f"counted_{c.name}", (left, *c.lhs), (right, *c.rhs), (either, *joined), (const(0, FLAG), *c.identity)
    )


def _joined(c: Combiner, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
    mapping: dict[Any, Any] = dict(zip((*c.lhs, *c.rhs), (*left, *right), strict=True))
    return tuple(substitute(r, mapping) for r in c.result)


def _chosen(condition: Expr, yes: Sequence[Expr], no: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(select(condition, a, b) for a, b in zip(yes, no, strict=True))


def _number(axes: Sequence[IterDef]) -> Expr:
    """Which iteration of these loops it is."""
    number: Expr = const(0)
    for a in axes:
        number = number * a.extent + a.var
    return number


@lru_cache(maxsize=256)
def complaint(c: Combiner) -> str:
    """Why results depend on the order of joining, or "" if they do not, by trying it on some numbers."""
    rng = np.random.default_rng(0)
    types = tuple(r.dtype for r in c.result)
    a, b, d = ([_sample(rng, t) for t in types] for _ in range(3))
    start = [np.broadcast_to(v, (SAMPLES,)) for v in _values(c.identity, (), ())]
    if not _same(_tried(c, start, a), a) or not _same(_tried(c, a, start), a):
        return "its start is not neutral"
    if not _same(_tried(c, _tried(c, a, b), d), _tried(c, a, _tried(c, b, d))):
        return "joining is not associative"
    return ""


def _tried(c: Combiner, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    return _values(c.result, (*c.lhs, *c.rhs), (*left, *right))


def _values(results: Sequence[Expr], variables: Sequence[Var], arrays: Sequence[Any]) -> list[Any]:
    """The expressions for arrays of the variables' values, by the reference."""
    buffers = tuple(Buffer(f"x{n}", (SAMPLES,), v.dtype) for n, v in enumerate(variables))
    at = IterDef("i", SAMPLES)
    mapping: dict[Any, Any] = {v: Load(b, (at.var,)) for v, b in zip(variables, buffers, strict=True)}
    outs = tuple(Buffer(f"y{n}", (SAMPLES,), r.dtype) for n, r in enumerate(results))
    bodies = tuple(substitute(r, mapping) for r in results)
    function = stage_function(StageOp("joined", (at,), (), bodies, None, outs))
    given = {b.name: np.ascontiguousarray(arrays[buffers.index(b)]) for b in function.inputs}
    with np.errstate(all="ignore"):  # 1 / 0 of what is not chosen
        found = reference.evaluate(function.function.dag, given)
    return [found[name] for name in function.function.outputs]


def _sample(rng: np.random.Generator, dtype: DType) -> Any:
    drawn = rng.uniform(0.1, 0.9, SAMPLES) if dtype.is_float else rng.integers(0, 2, SAMPLES)
    return drawn.astype(dtype.numpy)


def _same(found: Sequence[Any], want: Sequence[Any]) -> bool:
    return all(
        np.allclose(f.astype(np.float64), w.astype(np.float64), rtol=DIGITS, atol=DIGITS, equal_nan=True)
        for f, w in zip(found, want, strict=True)
    )


__all__ = ["Around", "around", "complaint"]
