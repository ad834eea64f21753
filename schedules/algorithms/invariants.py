"""A value that is the same along an axis is computed once for the whole axis.

    y[n, c] = (x[n, c] - m[c]) / sqrt(v[c] + 1e-5)

        ──▶   y.same[c] = sqrt(v[c] + 1e-5)
              y[n, c]   = (x[n, c] - m[c]) / y.same[c]

    C[i, j] = Σ_k A[i, k] * exp(B[k, j])

        ──▶   C.same[k, j] = exp(B[k, j])
              C[i, j]      = Σ_k A[i, k] * C.same[k, j]

A compiler computes a value before a loop if the loop does not change it. In this algorithm, the axis is a
loop outside of the loops that change the value. The algorithm applies to calls of functions, which cost more
than a load. The result is the same number.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from autotensor.ir.expr import Call, Expr, Load
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node, children
from autotensor.ir.rewrite import transform
from autotensor.ir.visit import any_node, free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.algorithms.late_choice import is_safe

NAME = "invariants"
TIMES = 8  # a value that is computed this often is worth a stage (chosen, 2026-11)
LEAST = 4096  # points of a stage; with fewer, another stage costs more than it saves (chosen, 2026-11)
FEW = 16  # iterations of a short loop, which is unrolled and shares values (chosen, 2026-11)
CHEAP = ("abs", "floor", "ceil")  # functions that are single operations


def invariants(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stages of values that stay the same, and the stage that reads them; None if there are no such
    values."""
    op = stage.op
    if op.is_open or state.dag.carried or op.points() < LEAST:
        return None
    found = list(dict.fromkeys(e for body in op.bodies for e in _same(op, body)))
    if not found:
        return None
    names, made, reading = set(state.names), list[StageOp](), dict[Node, Expr]()
    for e in found:
        name = fresh(f"{op.name}.same", names)
        names.add(name)
        axes = _axes(op, e)
        buffer = Buffer(name, tuple(a.extent for a in axes), e.dtype)
        spatial = tuple(IterDef(a.name, a.extent) for a in axes)
        made.append(StageOp(name, spatial, (), (e,), None, (buffer,)))
        reading[e] = Load(buffer, tuple(a.var for a in axes))
    bodies = tuple(transform(b, reading.get) for b in op.bodies)
    return (*made, replace(op, bodies=bodies))


def _same(op: StageOp, e: Expr) -> list[Expr]:
    """The largest expressions with a call that are the same for several points, and that can be computed
    safely at all their own points. If one is part of another, the one that is the same for more points is
    taken."""
    parts = [] if isinstance(e, Load) else [c for c in children(e) if isinstance(c, Expr)]
    inner = [x for c in parts for x in _same(op, c)]
    axes = _axes(op, e)
    return [e] if _is_worth(op, e, axes) and all(_axes(op, x) == axes for x in inner) else inner


def _is_worth(op: StageOp, e: Expr, axes: tuple[IterDef, ...]) -> bool:
    values = prod(a.extent for a in axes)
    often = op.points() >= TIMES * values
    calls = often and e.dtype.is_float and any_node(e, _is_call)
    return calls and _varies(op, axes) and is_safe(op, e)


def _varies(op: StageOp, axes: tuple[IterDef, ...]) -> bool:
    """Whether a long inner loop changes a value with these axes: a loop over terms, or along the last
    axis."""
    inner = op.reduce_axes or [a for a in op.axes if a.extent > 1][-1:]
    return any(a in axes and a.extent >= FEW for a in inner)


def _axes(op: StageOp, e: Expr) -> tuple[IterDef, ...]:
    used = free_vars(e)
    return tuple(a for a in op.all_axes if a.var in used)


def _is_call(node: Node) -> bool:
    return isinstance(node, Call) and node.name not in CHEAP


ALGORITHMS.add(NAME, Algorithm(NAME, invariants))
