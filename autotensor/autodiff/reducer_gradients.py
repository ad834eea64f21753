"""Derivatives of reductions with a user's combine function (`te.comm_reducer`), and of products.

    result = f(f(before, t), after)        before, after: all earlier and all later terms, joined

Joining is associative, so the result has this form for every term t. Its derivative with respect to t is that
of an ordinary expression. It is exact for every combine function: products, log-sum-exp, a maximum with its
index, merged means and variances. (If several terms of a maximum are equal, one wins and gets the whole
adjoint.)

For n terms, log2(n) steps join all terms before each term; each step joins twice as many terms:

    p1[m] = t[m-1] t[m]        p2[m] = p1[m-2] p1[m]        p4[m] = p2[m-4] p2[m]        before t[m]: p[m-1]

Source of the steps: Hillis and Steele, Data Parallel Algorithms, 1986.

A combine function that is not associative, or whose start is not neutral, gives a number that depends on the
schedule. It has no derivative, and `complaint` says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from autotensor.autodiff.gradient_functions import stage_function
from autotensor.base.dtype import DType
from autotensor.ir.expr import Combiner, Expr, Load, Var, const, select
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.te import reference
from autotensor.te.dag import IterDef, StageOp

SAMPLES = 64
DIGITS = 1e-3  # tolerance; the rounding of float16 is below it


@dataclass(frozen=True, slots=True)
class Around:
    """A reduction as a function of one term; all other terms are values. `stages` compute the buffers that
    `results` read."""

    results: tuple[Expr, ...]  # over (axes, reduce axes) of the stage
    stages: tuple[StageOp, ...]


def around(stage: StageOp) -> Around:
    """The reduction as a function of one term; its terms must be loads."""
    assert stage.combiner is not None
    c, count = stage.combiner, prod(a.extent for a in stage.reduce_axes)
    if count == 1:
        return Around(stage.bodies, ())
    flat = _in_a_row(stage, count)
    before, after = (_scanned(flat, c, later) for later in (False, True))
    axes, number = tuple(a.var for a in stage.axes), _number(stage.reduce_axes)
    head = [Load(b, (*axes, number - 1)) for b in before[-1].buffers]
    tail = [Load(b, (*axes, number + 1)) for b in after[-1].buffers]
    through = _chosen(number > 0, _joined(c, head, stage.bodies), stage.bodies)
    results = _chosen(number < count - 1, _joined(c, through, tail), through)
    return Around(results, (flat, *before, *after))


def _in_a_row(stage: StageOp, count: int) -> StageOp:
    """A stage that puts the terms of every result in one row."""
    row = IterDef("m", count)
    digits: dict[Any, Any] = {}
    rest: Expr = row.var
    for a in reversed(stage.reduce_axes):
        digits[a.var], rest = rest % a.extent, rest // a.extent
    bodies = tuple(substitute(b, digits) for b in stage.bodies)
    axes = tuple(IterDef(a.name, a.extent) for a in stage.axes)
    return _stage(f"{stage.name}_row", (*axes, row), bodies)


def _scanned(flat: StageOp, c: Combiner, later: bool) -> tuple[StageOp, ...]:
    """Stages. The last one joins every term with all earlier (or later) terms; the others are steps to it."""
    *_, row = flat.axes
    at = tuple(a.var for a in flat.axes)
    made, step = [flat], 1
    while step < row.extent:
        other = row.var + step if later else row.var - step
        mine, theirs = ([Load(b, (*at[:-1], m)) for b in made[-1].buffers] for m in (row.var, other))
        pair = (mine, theirs) if later else (theirs, mine)
        there = other < row.extent if later else row.var >= step
        bodies = _chosen(there, _joined(c, *pair), mine)
        made.append(_stage(f"{flat.name}_{'after' if later else 'before'}{step}", flat.axes, bodies))
        step *= 2
    return tuple(made[1:])


def _stage(name: str, axes: tuple[IterDef, ...], bodies: Sequence[Expr]) -> StageOp:
    shape = tuple(a.extent for a in axes)
    buffers = tuple(Buffer(f"{name}_{n}", shape, b.dtype) for n, b in enumerate(bodies))
    return StageOp(name, axes, (), tuple(bodies), None, buffers)


def _joined(c: Combiner, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
    mapping: dict[Any, Any] = dict(zip((*c.lhs, *c.rhs), (*left, *right), strict=True))
    return tuple(substitute(r, mapping) for r in c.result)


def _chosen(condition: Expr, yes: Sequence[Expr], no: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(select(condition, a, b) for a, b in zip(yes, no, strict=True))


def _number(axes: Sequence[IterDef]) -> Expr:
    """The index of an iteration among all iterations of these loops."""
    number: Expr = const(0)
    for a in axes:
        number = number * a.extent + a.var
    return number


@lru_cache(maxsize=256)
def complaint(c: Combiner) -> str:
    """The reason why results depend on the order of joining; "" if they do not. It is found by trying some
    numbers."""
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
    """The values of the expressions, by the NumPy reference. arrays: the values of each variable."""
    buffers = tuple(Buffer(f"x{n}", (SAMPLES,), v.dtype) for n, v in enumerate(variables))
    at = IterDef("i", SAMPLES)
    mapping: dict[Any, Any] = {v: Load(b, (at.var,)) for v, b in zip(variables, buffers, strict=True)}
    outs = tuple(Buffer(f"y{n}", (SAMPLES,), r.dtype) for n, r in enumerate(results))
    bodies = tuple(substitute(r, mapping) for r in results)
    function = stage_function(StageOp("joined", (at,), (), bodies, None, outs))
    given = {b.name: np.ascontiguousarray(arrays[buffers.index(b)]) for b in function.inputs}
    with np.errstate(all="ignore"):  # 1 / 0 in the branch that is not chosen
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
