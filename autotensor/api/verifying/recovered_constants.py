"""Recovers the constants of a kernel from the arrays that were prepared from them.

    W [64, 64, 3, 3] ──layout──▶ prepared [2, 64, 3, 3, 32]         the file keeps only this array
    1 2 3 4 …        ──layout──▶ where each element came from ──▶ W again

A compiled model holds its weights once, as its kernels read them. Preparing mostly moves elements. Then an
array of element numbers, prepared in the same way, shows where each element went. If preparing computes
(Winograd's filters), the constants cannot be recovered. Such a kernel is compared with the results that its
schedule's stages give for the prepared arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from autotensor.ir.expr import Cast, Const, Expr, Load, Select
from autotensor.ir.func import Buffer
from autotensor.schedule.state import State
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.reference import evaluate

Array = np.ndarray[Any, Any]


def recovered(state: State, prepared: Mapping[str, Array], wanted: Iterable[str]) -> dict[str, Array] | None:
    """The constants of these names; None if one cannot be recovered. prepared: arrays by stage name."""
    found: dict[str, Array] = {}
    moved = _moves(state)
    for b in state.dag.inputs:
        if b.name not in wanted:
            continue
        pieces = [s for s in moved if _source(s) == b.name and s.name in prepared]
        if not pieces:
            return None
        numbers = np.arange(1, int(np.prod(b.shape)) + 1, dtype=np.float64).reshape(b.shape)
        flat = np.empty(numbers.size, b.dtype.numpy)
        seen = np.zeros(numbers.size, bool)
        for stage in pieces:
            went = _numbered(stage, b.name, numbers)
            array = prepared[stage.name].reshape(went.shape)
            real = went > 0
            places = went[real].astype(np.int64) - 1
            flat[places] = array[real].astype(b.dtype.numpy)
            seen[places] = True
        if not seen.all():
            return None
        found[b.name] = flat.reshape(b.shape)
    return found


def _moves(state: State) -> list[StageOp]:
    """The stages of preparing that only move elements of one constant and write zeros."""
    constant = state.constant_stages()
    ops = [s.op for s in state.stages if s.name in constant]
    return [op for op in ops if op.combiner is None and len(op.bodies) == 1 and _is_move(op.bodies[0])]


def _is_move(e: Expr) -> bool:
    match e:
        case Load():
            return True
        case Cast(t, a) if t.is_float and a.dtype.is_float and t.bits >= a.dtype.bits:
            return _is_move(a)
        case Select(_, a, b):
            return all(_is_move(x) or (isinstance(x, Const) and x.value == 0) for x in (a, b))
    return False


def _source(op: StageOp) -> str | None:
    reads = op.reads()
    return reads[0].name if len(reads) == 1 else None


def _numbered(op: StageOp, name: str, numbers: Array) -> Array:
    """The origin of each element of the stage: the number of an element of the constant, or 0."""
    (read,) = op.reads()
    dag = ComputeDAG((read,), frozenset(), (op,), op.buffers, (name, op.buffers[0].name))
    if not read.dtype.is_float:  # the numbers must be floats
        return np.zeros(op.buffers[0].shape)
    return evaluate(dag, {name: numbers}, np.float64)[op.buffers[0].name]


def prepared_dag(state: State) -> ComputeDAG:
    """The stages that the kernel computes from prepared arrays: the schedule's stages except the constant
    stages."""
    constant = state.constant_stages()
    ops = _needed(state, state.dag.outputs, constant)
    return replace(state.dag, inputs=_read_from_outside(ops), constants=frozenset(), stages=ops)


def preparing_dag(state: State) -> ComputeDAG | None:
    """The stages that prepare the constants. Its results are the arrays that calls read; None if calls read
    none of them.

    Arrays that only preparing reads are not among the results: in a model, the next layer overwrites them.
    """
    constant = state.constant_stages()
    read = _read_from_outside(_needed(state, state.dag.outputs, constant))
    made = tuple(b for s in state.live() if s.name in constant for b in s.op.buffers if b in read)
    if not made:
        return None
    ops = _needed(state, made, frozenset())
    inputs = _read_from_outside(ops)
    return ComputeDAG(inputs, frozenset(), ops, made, tuple(b.name for b in (*inputs, *made)))


def _needed(state: State, wanted: Iterable[Buffer], given: Set[str]) -> tuple[StageOp, ...]:
    """The live stages that compute these arrays, producers first. The given stages are left out, and also
    those that only these need."""
    needed, found = set(wanted), []
    for s in reversed(state.live()):
        if s.name not in given and not needed.isdisjoint(s.op.buffers):
            found.append(s.op)
            needed.update(s.op.reads())
    return tuple(reversed(found))


def _read_from_outside(ops: Iterable[StageOp]) -> tuple[Buffer, ...]:
    """The arrays that the stages read and do not compute, each once."""
    made = {b for op in ops for b in op.buffers}
    return tuple(dict.fromkeys(b for op in ops for b in op.reads() if b not in made))


__all__ = ["prepared_dag", "preparing_dag", "recovered"]
