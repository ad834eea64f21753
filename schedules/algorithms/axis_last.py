"""A stage whose result lies across its operands or its reader is computed with another axis last.

    C[i, j] = Σ_k A[k, i] * B[j, k, i]

        ──▶   C.along[j, i] = Σ_k A[k, i] * B[j, k, i];   C[i, j] = C.along[j, i]

Then vectors read contiguous memory in every operand, and the result is transposed once. If all readers have
the same order of axes, this order is taken, and they read C.along itself. The terms and their order stay the
same.
"""

from __future__ import annotations

from dataclasses import replace

from autotensor.ir.expr import Expr, Load
from autotensor.ir.func import Buffer
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.extents import access
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import IterDef, StageOp

NAME = "axis_last"


def axis_last(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The stage with another axis last, and the transposed result; None if no other axis is better."""
    op = stage.op
    order = order_of_readers(state, stage) or order_along_memory(op) or order_of_batches(op)
    if not order:
        return None
    name = fresh(f"{op.name}.along", set(state.names))
    extents = tuple(a.extent for a in order)
    made = tuple(Buffer(f"{name}{b.name.removeprefix(op.name)}", extents, b.dtype) for b in op.buffers)
    loads = tuple(Load(b, tuple(a.var for a in order)) for b in made)
    return (
        replace(op, name=name, axes=order, buffers=made, tag=""),
        StageOp(op.name, op.axes, (), loads, None, op.buffers, op.tag),
    )


def order_of_readers(state: State, stage: Stage) -> tuple[IterDef, ...]:
    """The axes of a stage in the order of its readers: the axes that a reader reduces, then the others. Every
    reader must read one element for each term or point. The result is () if the last axis stays the last, or
    if readers have different orders."""
    orders = {_order_of(r.op, stage.op) for r in state.consumers(stage)}
    if stage.op.is_open or state.is_output(stage) or len(orders) != 1:
        return ()
    (order,) = orders
    return order if order and order[-1] is not stage.op.axes[-1] else ()


def _order_of(reader: StageOp, op: StageOp) -> tuple[IterDef, ...]:
    """The same as `order_of_readers`, for one reader; () unless the indices are all axes of the reader."""
    loads = {load.indices for load in reader.loads() if load.buffer in op.buffers}
    (indices,) = loads if len(loads) == 1 else ((),)
    axes: dict[Expr, IterDef] = dict(zip(indices, op.axes, strict=False))
    order = tuple(axes[a.var] for a in (*reader.reduce_axes, *reader.axes) if a.var in axes)
    whole = len(order) == len(reader.all_axes) == len(op.axes)
    extents = [a.extent for a in (*reader.reduce_axes, *reader.axes)]
    return order if whole and [a.extent for a in order] == extents else ()


def order_along_memory(op: StageOp) -> tuple[IterDef, ...]:
    """The axes of a reduction with the axis last that moves along memory; () if there is no such axis."""
    along = axis_along_memory(op)
    return () if along is None else (*(a for a in op.axes if a is not along), along)


def order_of_batches(op: StageOp) -> tuple[IterDef, ...]:
    """The axes of a product whose last axis is a batch axis, that is, an axis of all operands. Batch axes
    come first, and then the other axes. () for other stages.

        C[i, j, b] = Σ_k A[i, b, k] * B[j, b, k]     ──▶     (b, i, j)
    """
    read = [free_vars(load) for load in op.loads()]
    batches = tuple(a for a in op.axes if all(a.var in names for names in read))
    others = tuple(a for a in op.axes if a not in batches)
    own = [{a.name for a in others if a.var in names} for names in read]
    apart = len(own) > 1 and all(own) and sum(map(len, own)) == len(others)
    fits = op.is_reduction and not op.is_open and apart and op.axes[-1] in batches
    return (*batches, *others) if fits else ()


def axis_along_memory(op: StageOp) -> IterDef | None:
    """The longest axis of the result that moves along memory in all loads whose indices have it. The result
    is None if there is no such axis, or if the last axis moves along memory in some load."""
    if not op.is_reduction or op.is_open or len(op.axes) < 2 or any(_walked_along(op, op.axes[-1])):
        return None
    fit = [a for a in op.axes[:-1] if a.extent > 1 and all(_walked_along(op, a) or [False])]
    return max(fit, key=lambda a: a.extent, default=None)


def _walked_along(op: StageOp, axis: IterDef) -> list[bool]:
    """For each load whose index has the axis: whether neighbours along the axis are next to each other."""
    walked = [load for load in op.loads() if axis.var in free_vars(load)]
    return [_last_alone(load, axis) for load in walked]


def _last_alone(load: Load, axis: IterDef) -> bool:
    """Whether an axis moves along the last dimension only, in steps of one."""
    *outer, last = load.indices
    found = access(last)
    return (
        found is not None
        and found.is_sum
        and found.steps.get(axis.name) == 1
        and not any(axis.var in free_vars(i) for i in outer)
    )


ALGORITHMS.add(NAME, Algorithm(NAME, axis_last))
