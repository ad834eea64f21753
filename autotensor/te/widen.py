"""The same computation with every float in float64: what a program would answer that never rounds to float32.

    widen(dag)        C[i] = Σ_k A[i,k] B[k]     ──▶     C[i] = Σ_k f64(A[i,k]) f64(B[k]), C is float64

Inputs keep their types, so both programs take the same arrays; their elements are converted when they are
read. Conversions to a narrower float, which round, are gone. Constants keep the value that their own type
gives them. Integers and bools stay as they are. The meaning is that of `evaluate(…, accumulate=np.float64)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autotensor.base.dtype import DType, float64
from autotensor.ir.expr import Call, Cast, Combiner, Const, Expr, Load, Var, cast
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import transform
from autotensor.te.dag import ComputeDAG, StageOp


def widen(dag: ComputeDAG) -> ComputeDAG:
    """The DAG with all floats as float64 but those of its inputs, under the same names."""
    inputs = {b.name for b in dag.inputs}
    wide = {b: _wide_buffer(b) for s in dag.stages for b in s.buffers}

    def widened(node: Any) -> Expr | None:
        match node:
            case Load(buffer, indices, mask) if buffer.name in inputs:
                return cast(_wide(buffer.dtype), node)
            case Load(buffer, indices, mask):
                return Load(wide[buffer], indices, mask)
            case Const(_, t) if t.is_float:
                return cast(float64, node)
            case Cast(t, a):
                return cast(_wide(t), a)
            case Call(name, args, t):
                return Call(name, args, _wide(t))
            case Var(name, t):
                return Var(name, _wide(t))
            case _:
                return None

    def stage(s: StageOp) -> StageOp:
        return replace(
            s,
            bodies=tuple(transform(b, widened) for b in s.bodies),
            combiner=None if s.combiner is None else _wide_combiner(s.combiner, widened),
            buffers=tuple(wide[b] for b in s.buffers),
        )

    stages = tuple(stage(s) for s in dag.stages)
    return ComputeDAG(dag.inputs, dag.constants, stages, tuple(wide[b] for b in dag.outputs), dag.args)


def _wide(t: DType) -> DType:
    return float64 if t.is_float else t


def _wide_buffer(b: Buffer) -> Buffer:
    return Buffer(b.name, b.shape, _wide(b.dtype), b.scope, b.strides)


def _wide_combiner(c: Combiner, fn: Callable[[Any], Expr | None]) -> Combiner:
    lhs, rhs = (tuple(Var(v.name, _wide(v.type)) for v in side) for side in (c.lhs, c.rhs))
    result, identity = (tuple(transform(e, fn) for e in part) for part in (c.result, c.identity))
    return Combiner(c.name, lhs, rhs, result, identity)
