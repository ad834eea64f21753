"""How far two correct programs may be apart, from types, lengths of reductions and sizes of terms.

    error_bound(dag)                    {"C": 4.6e-6}, relative
    term_sizes(dag, arrays)             {"C": 31.2}: the size to which roundings are relative
    tolerance(dag, arrays, exact)       {"C": array}: how far each element may be from `exact`

All comparisons of floats use the rule at the end of this file: `|x - exact| <= bound (|exact| + scale)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod, sqrt
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, float64
from autotensor.ir.expr import (
    Binary,
    Call,
    Cast,
    Cmp,
    Combiner,
    Compare,
    Const,
    Expr,
    Load,
    Neg,
    Op,
    Select,
    Unary,
    Var,
    cast,
    const,
)
from autotensor.ir.func import Buffer
from autotensor.ir.visit import walk
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.reference import evaluate

Array = np.ndarray[Any, Any]

_EPS = {16: 2.0**-10, 32: 2.0**-23, 64: 2.0**-52}
_BFLOAT_EPS = 2.0**-7
OPERATIONS = 8  # roundings that a body is allowed; its operations may be fused and reordered
GROWTH = 4.0  # allowed standard deviations of the random walk of roundings
_EXACT = (
    "floor",
    "ceil",
    "round",
    "trunc",
    "abs",
    "isnan",
    "isinf",
    "fmod",
    "floormod",
    "floordiv",
    "rounded",
)


def _eps(t: DType) -> float:
    return _BFLOAT_EPS if t.kind == "bfloat" else _EPS[t.bits] if t.is_float else 0.0


def _rounding(e: Expr) -> float:
    """eps of the coarsest operation in the expression that rounds; 0 if all operations are exact."""
    coarsest = 0.0
    for node in walk(e):
        match node:
            case Binary(Op.ADD | Op.SUB | Op.MUL | Op.DIV, a) if a.dtype.is_float:
                rounds = True
            case Call(name) if node.dtype.is_float:
                rounds = name not in _EXACT
            case Cast(t, a) if t.is_float:
                rounds = not a.dtype.is_float or _eps(t) > _eps(a.dtype)
            case _:
                continue
        coarsest = max(coarsest, _eps(node.dtype) if rounds else 0.0)
    return coarsest


def error_bound(dag: ComputeDAG) -> dict[str, float]:
    """Per computed buffer, how far two correct programs may be apart, relative to the sizes of its terms.

        bound = max of the bounds of its inputs + 8 eps(body) + 4 eps(combiner) sqrt(reduction length)

    eps belongs to the coarsest operation that rounds; it is 0 for copies, comparisons, max and the like. The
    roundings of a sum of n terms behave like a random walk of n steps, and the bound allows 4 standard
    deviations; sums in blocks walk much less. The worst case, n eps, would hide real mistakes. The bound does
    not cover functions that magnify the errors of their arguments. Integers and bools that depend on rounded
    floats (argmax of near ties, round of near halves) may differ by any amount: their bound is inf.
    """
    bounds = {b.name: 0.0 for b in (*dag.inputs, *(before for before, _ in dag.carried))}
    for s in dag.stages:
        bound = max((bounds[b.name] for b in s.reads()), default=0.0)
        bound += OPERATIONS * max(_rounding(body) for body in s.bodies)
        if s.combiner is not None:
            length = prod(a.extent for a in s.reduce_axes)
            bound += GROWTH * sqrt(length) * max(_rounding(r) for r in s.combiner.result)
        if any(after in s.buffers for _, after in dag.carried):
            bound *= s.axes[0].extent  # each step passes its error on
        for b in s.buffers:
            bounds[b.name] = bound if b.dtype.is_float or bound == 0.0 else inf
    return {b.name: bounds[b.name] for s in dag.stages for b in s.buffers}


def coarsest_rounding(dag: ComputeDAG) -> float:
    """eps of the coarsest operation of all stages that rounds; 0 if all operations are exact."""
    results = [r for s in dag.stages if s.combiner is not None for r in s.combiner.result]
    return max((_rounding(e) for e in (*results, *(b for s in dag.stages for b in s.bodies))), default=0.0)


# -- sizes of terms ------------------------------------------------------------------------------------------


def term_sizes(dag: ComputeDAG, arrays: Mapping[str, Array]) -> dict[str, float]:
    """Per float output, the greatest size of an element's terms: sqrt(a² + b² + …) of a sum a + b + ….

    This would be the sum's typical size if the signs of its terms were random. Where terms cancel, a result
    is far smaller than that, and its roundings are not. Ordinary outputs hold an element that is as large as
    this size, so nothing more is allowed for them. For a DAG with scans, the result is empty. The cost is
    about three times that of `evaluate`.
    """
    if dag.carried:
        return {}
    squares = evaluate(with_squares(dag), arrays, accumulate=np.float64)
    found = {}
    for b in dag.outputs:
        values = squares.get(_squares_name(b))
        if values is not None:
            finite = values[np.isfinite(values)]
            found[b.name] = float(np.sqrt(finite.max(initial=0.0)))
    return found


def with_squares(dag: ComputeDAG) -> ComputeDAG:
    """The DAG with a stage of squared term sizes after every stage that computes floats.

    C[i] = Σ_k A[i,k] B[k]     ──▶     C[i] = …;  C:squares[i] = Σ_k A[i,k]² B[k]²
    """
    known: dict[Buffer, Buffer] = {}
    stages: list[StageOp] = []
    for s in dag.stages:
        stages.append(s)
        stages += _square_stages(s, known)
    return ComputeDAG(dag.inputs, dag.constants, tuple(stages), dag.outputs, dag.args)


def _squares_name(b: Buffer) -> str:
    return f"{b.name}:squares"  # no author's name holds a colon


def _square_stages(s: StageOp, known: dict[Buffer, Buffer]) -> list[StageOp]:
    made = []
    for n, b in enumerate(s.buffers):
        if not b.dtype.is_float:
            continue
        squares = Buffer(_squares_name(b), b.shape, float64)
        own = Load(b, tuple(a.var for a in s.axes))
        body, combiner = _reduced(s.combiner, _Squares(known).of(s.bodies[n]), s.bodies[n], own)
        made.append(
            StageOp(squares.name, s.axes, s.reduce_axes if combiner else (), (body,), combiner, (squares,))
        )
        known[b] = squares
    return made


_LEFT, _RIGHT = Var("lhs0", float64), Var("rhs0", float64)
_SUM = Combiner("sum", (_LEFT,), (_RIGHT,), (Binary(Op.ADD, _LEFT, _RIGHT),), (const(0, float64),))
_MAX = Combiner("max", (_LEFT,), (_RIGHT,), (Binary(Op.MAX, _LEFT, _RIGHT),), (const(0, float64),))


def _reduced(c: Combiner | None, squares: Expr, body: Expr, own: Expr) -> tuple[Expr, Combiner | None]:
    """The terms that are joined, and their combiner.

    A sum joins the squares of its terms. A minimum or maximum takes the square of the term that it took. Any
    other reducer gives own².
    """
    if c is None:
        return squares, None
    match c.result:
        case (Binary(Op.ADD, a, b),) if {a, b} == {*c.lhs, *c.rhs}:
            return squares, _SUM
        case (Binary(Op.MIN | Op.MAX, a, b),) if {a, b} == {*c.lhs, *c.rhs}:
            return Select(Compare(Cmp.EQ, body, own), squares, const(0, float64)), _MAX
        case _:
            return _square(own), None


def _square(e: Expr) -> Expr:
    x = cast(float64, e)
    return Binary(Op.MUL, x, x)


class _Squares:
    """Squared term sizes of expressions; `known`: buffer → the buffer of its squared term sizes."""

    def __init__(self, known: Mapping[Buffer, Buffer]) -> None:
        self.known = known
        self.memo: dict[Expr, Expr] = {}

    def of(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._of(e) if e.dtype.is_float else _square(e)
        return found

    def _of(self, e: Expr) -> Expr:
        match e:
            case Load(buffer, indices, mask) if buffer in self.known:
                return Load(self.known[buffer], indices, mask)
            case Binary(Op.ADD | Op.SUB, a, b):
                return Binary(Op.ADD, self.of(a), self.of(b))
            case Binary(Op.MUL, a, b):
                return Binary(Op.MUL, self.of(a), self.of(b))
            case Binary(Op.DIV, a, b):
                return Binary(Op.DIV, self.of(a), _square(b))
            case Binary(Op.MIN | Op.MAX as op, a, b):
                first = Compare(Cmp.LE if op is Op.MIN else Cmp.GE, a, b)
                return Select(first, self.of(a), self.of(b))
            case Select(cond, a, b):
                return Select(cond, self.of(a), self.of(b))
            case Unary(Neg.NEG, a) | Cast(_, a) | Call("abs" | "rounded", (a,)):
                return self.of(a)
            case Const(value) if value in (inf, -inf):  # the identity of a minimum, never a term
                return const(0, float64)
            case _:
                return _square(e)


# -- the rule ------------------------------------------------------------------------------------------------


def scale(exact: Array, terms: float = 0.0) -> float:
    """The scale of errors of a whole result: its largest element, or the size of its terms where they cancel.

    exact: finite values. terms: the output's entry of `term_sizes`.
    """
    return max(float(np.abs(exact).max(initial=0.0)), terms)


def tolerance(dag: ComputeDAG, arrays: Mapping[str, Array], exact: Mapping[str, Array]) -> dict[str, Array]:
    """Per output, the absolute difference from `exact` that each element of a correct result may have.

    0 means that the element must be equal; inf means that it may be anything (an integer that depends on
    rounded floats). An element whose exact value is not finite gets 0.
    """
    bounds, terms = error_bound(dag), term_sizes(dag, arrays)
    found: dict[str, Array] = {}
    for b in dag.outputs:
        values, bound = exact[b.name].astype(np.float64), bounds[b.name]
        finite = np.isfinite(values)
        if bound in (0.0, inf):
            found[b.name] = np.full(values.shape, bound)
            continue
        size = np.abs(np.where(finite, values, 0.0))
        allowed = bound * (size + scale(size, terms.get(b.name, 0.0)))
        found[b.name] = np.where(finite, allowed, 0.0)
    return found
