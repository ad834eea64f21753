"""The cost of a reduction's term in a register tile: for each accumulator, each row and each vector.

    acc[row, vector] += select(m[row, k] > 0, a[row, k] * b[k, vector], 0)

        per accumulator   a product and its sum: one operation
        per row           two scalars are loaded, one is compared
        per vector        one vector is loaded

Work that depends only on the row is done once for all vectors of the row. Work that depends only on the
vector is done once for all rows. A matrix product has the cost (1, 1, 1), and holds one vector for each row
and each vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.target import Target
from autotensor.ir.expr import Binary, Call, Compare, Const, Expr, Load, Op, Select, Unary, Var
from autotensor.ir.node import children
from autotensor.ir.reducers import alone
from autotensor.ir.visit import free_vars
from autotensor.schedule.stage_work import ROOTS, SINGLE
from autotensor.te.dag import StageOp
from autotensor.te.stage import evaluated
from schedules.cpu import EXTREME, cpu_of

DIVISION = 4.0  # a division or a square root counts as this many operations (chosen, 2026-11)


@dataclass(frozen=True, slots=True)
class BodyWork:
    """The operations of one step. Loads do not count, because other units execute them in parallel."""

    both: float = 1.0  # for each accumulator
    row: float = 0.0  # for each row, besides loads
    vector: float = 0.0  # for each vector, besides loads
    row_loads: float = 1.0
    vector_loads: float = 1.0
    rows_held: int = 1  # values of a row that all its accumulators need
    vectors_held: int = 1  # values of a vector that all its accumulators need
    results: int = 1  # results of the reduction: each needs an accumulator of one register

    @property
    def is_product(self) -> bool:
        return self == PRODUCT


PRODUCT = BodyWork()


def body_work(op: StageOp, vector: str, target: Target) -> BodyWork:
    """The work of a reduction whose accumulators lie along `vector` and the other spatial axes."""
    rows = frozenset(a.name for a in op.axes if a.name != vector)
    called = cpu_of(target).called
    counts = {"both": 0.0, "row": 0.0, "vector": 0.0, "none": 0.0}
    loads = {"both": 0, "row": 0, "vector": 0, "none": 0}
    held: dict[str, set[Expr]] = {"row": set(), "vector": set(), "none": set()}
    seen: set[Expr] = set()

    def kind(e: Expr) -> str:
        names = {v.name for v in free_vars(e)}
        along, across = vector in names, bool(names & rows)
        return "both" if along and across else "vector" if along else "row" if across else "none"

    def visit(e: Expr) -> None:
        if e in seen:
            return
        seen.add(e)
        mine = kind(e)
        if isinstance(e, Load):
            loads[mine] += 1
            return
        if not is_whole(e):
            counts[mine] += vector_operations(e, called)
        for c in children(e):
            if not isinstance(c, Expr):
                continue
            if mine == "both" and (theirs := kind(c)) != "both" and not c.dtype.is_int and _moves(c):
                held[theirs].add(c)
            visit(c)

    for body in op.bodies:
        visit(body)
    fused = fused_joins(op)
    both = max(1.0, counts["both"] + joins(op, called) - fused)
    return BodyWork(
        both,
        counts["row"] + counts["none"],
        counts["vector"],
        float(loads["row"] + loads["none"]),
        float(loads["vector"] + loads["both"]),
        len(held["row"]) + len(held["none"]),
        len(held["vector"]) + loads["both"],
        len(op.buffers),
    )


def joins(op: StageOp, called: float) -> float:
    """Operations that join one term to the others; 0 if nothing is joined. called: see
    `vector_operations`."""
    if op.combiner is None:
        return 0.0
    results = (sum(vector_operations(e, called) for e in evaluated((r,))) for r in op.combiner.result)
    return sum(max(1.0, n) for n in results)


def joins_extremes(op: StageOp) -> bool:
    """Whether the reduction is a minimum or maximum of floats. Two steps of such a chain share the
    instructions that keep NaN."""
    results = () if op.combiner is None else evaluated(op.combiner.result)
    return any(isinstance(e, Binary) and e.op in (Op.MIN, Op.MAX) and e.dtype.is_float for e in results)


def fused_joins(op: StageOp) -> float:
    """The number of additions that are one operation together with a product, as in sums of products."""
    if op.combiner is None:
        return 0.0
    reducers = (alone(op.combiner, n) for n in range(len(op.bodies)))
    sums = (b for b, c in zip(op.bodies, reducers, strict=True) if c is not None and c.name == "sum")
    return float(sum(map(_products, sums)))


def _products(e: Expr) -> int:
    match e:
        case Binary(Op.MUL):
            return 1
        case Binary(Op.ADD | Op.SUB, a, b):
            return _products(a) + _products(b)
        case Select(_, then, _):
            return _products(then) + 1  # the condition is a mask of that operation
    return 0


def vector_operations(e: Expr, called: float) -> float:
    """Operations of an expression without its subexpressions. called: operations that a function call counts
    for."""
    match e:
        case Binary(Op.DIV):
            return DIVISION
        case Binary(Op.MIN | Op.MAX, Const(), _) | Binary(Op.MIN | Op.MAX, _, Const()):
            return 1.0
        case Binary(Op.MIN | Op.MAX, a, _) if a.dtype.is_float:
            return EXTREME
        case Binary() | Compare() | Select() | Unary():
            return 1.0
        case Call(name):
            return DIVISION if name in ROOTS else 1.0 if name in SINGLE else called
        case _:
            return 0.0


def is_whole(e: Expr) -> bool:
    """Whether an expression is integer arithmetic, which the scalar units do in parallel."""
    return e.dtype.is_int and not isinstance(e, Call)


def _moves(e: Expr) -> bool:
    return bool(free_vars(e)) and not isinstance(e, Var)
