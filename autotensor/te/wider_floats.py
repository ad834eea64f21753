"""The same computation in wider floats, as if a program never rounded to narrow floats.

    widen(dag)        C[i] = Σ_k A[i,k] B[k]     ──▶     C[i] = Σ_k f64(A[i,k]) f64(B[k]), C is float64

Inputs keep their types, so both programs take the same arrays; their elements are converted when they are
read. Conversions to a narrower float, which round, are left out. Constants keep the value that their own type
gives them. Integers and bools stay as they are. The meaning is that of `evaluate(…, accumulate=np.float64)`.

`widen_halves(dag)` widens only the floats of 16 bits, to float32, and keeps conversions to them, because
the author of such a conversion needs its rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autotensor.base.dtype import DType, float32, float64
from autotensor.ir.expr import Call, Cast, Combiner, Const, Expr, Load, Var, cast
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import transform
from autotensor.te.dag import ComputeDAG, StageOp

Widening = Callable[[DType], DType]


def widen(dag: ComputeDAG) -> ComputeDAG:
    """The DAG with all floats as float64, except those of its inputs, under the same names."""
    return _widened(dag, lambda t: float64 if t.is_float else t, round_casts=False)


def widen_halves(dag: ComputeDAG) -> ComputeDAG:
    """The DAG with float32 for floats of 16 bits, except those of its inputs, under the same names."""
    return _widened(dag, lambda t: float32 if t.is_half else t, round_casts=True)


def _widened(dag: ComputeDAG, wide: Widening, *, round_casts: bool) -> ComputeDAG:
    """round_casts: conversions to a narrow type are kept, and their results are converted back."""
    inputs = {b.name for b in dag.inputs}
    made = (*(b for s in dag.stages for b in s.buffers), *(before for before, _ in dag.carried))
    buffers = {b: Buffer(b.name, b.shape, wide(b.dtype), b.scope, b.strides) for b in made}

    def widened(node: Any) -> Expr | None:
        match node:
            case Load(buffer, indices, mask) if buffer.name in inputs:
                return cast(wide(buffer.dtype), node)
            case Load(buffer, indices, mask):
                return Load(buffers[buffer], indices, mask)
            case Const(_, t) if t.is_float:
                return cast(wide(t), node)
            case Cast(t, a):
                return cast(wide(t), cast(t, a) if round_casts else a)
            case Call(name, args, t):
                return Call(name, args, wide(t))
            case Var(name, t):
                return Var(name, wide(t))
            case _:
                return None

    def stage(s: StageOp) -> StageOp:
        return replace(
            s,
            bodies=tuple(transform(b, widened) for b in s.bodies),
            combiner=None if s.combiner is None else _combiner(s.combiner, wide, widened),
            buffers=tuple(buffers[b] for b in s.buffers),
        )

    stages = tuple(stage(s) for s in dag.stages)
    return ComputeDAG(
        dag.inputs,
        dag.constants,
        stages,
        tuple(buffers[b] for b in dag.outputs),
        dag.args,
        tuple((buffers[before], buffers[after]) for before, after in dag.carried),
    )


def _combiner(c: Combiner, wide: Widening, fn: Callable[[Any], Expr | None]) -> Combiner:
    lhs, rhs = (tuple(Var(v.name, wide(v.type)) for v in side) for side in (c.lhs, c.rhs))
    result, identity = (tuple(transform(e, fn) for e in part) for part in (c.result, c.identity))
    return Combiner(c.name, lhs, rhs, result, identity)
