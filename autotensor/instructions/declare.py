"""A dot instruction declared by a te function.

A, B = te.placeholder((4,), "uint8"), te.placeholder((16, 4), "int8")
q = te.reduce_axis(4)
C = te.compute((16,), lambda j: te.sum(A[q].astype("int32") * B[j, q].astype("int32"), axis=q))
dot("x86.vpdpbusd.512", C, needs=("avx512vnni",), write=call("llvm.x86.avx512.vpdpbusd.512", "i8"))
"""

from __future__ import annotations

from autotensor.base.errors import ScheduleError
from autotensor.codegen.dot_instructions import DOTS, DotInstruction, Operand, Spelling
from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Cast, Expr, Load, Op
from autotensor.te.dag import ComputeDAG
from autotensor.te.stage import StageOp
from autotensor.te.tensor import Tensor


def dot(name: str, result: Tensor, *, needs: tuple[str, ...], write: Spelling) -> DotInstruction:
    """Registers the instruction that adds to `result`.

    result: `[columns]` or `[rows, columns]` sums of products of two tensors, over groups (if there are
    several) and the elements of a group. needs: the features of the processor that the instruction needs.
    write: writes it in LLVM IR.
    Raises ScheduleError for another computation.
    """
    (op,) = ComputeDAG.of([result]).stages
    match op.bodies[0]:
        case Binary(Op.MUL, left, right) if op.combiner is not None and op.combiner.name == "sum":
            a, b = _loaded(left), _loaded(right)
        case _:
            a = b = None
    if a is None or b is None or len(op.axes) > 2:
        raise ScheduleError(f"instruction {name!r} is not a sum of products of two tensors.")
    place = Load(op.buffers[0], tuple(x.var for x in op.axes))
    rows = op.axes[0].extent if len(op.axes) == 2 else 1
    sums, left_operand, right_operand = (_operand(op, load) for load in (place, a, b))
    return DOTS.add(
        name,
        DotInstruction(
            name,
            tuple(x.extent for x in op.all_axes),
            sums,
            left_operand,
            right_operand,
            rows,
            op.axes[-1].extent,
            op.reduce_axes[-1].extent,
            needs,
            write,
        ),
    )


def _loaded(e: Expr) -> Load | None:
    while isinstance(e, Cast):
        e = e.a
    return e if isinstance(e, Load) else None


def _operand(op: StageOp, load: Load) -> Operand:
    """The type of the loaded elements, and for each axis of the stage the step in elements."""
    steps = [0] * len(op.all_axes)
    for index, stride in zip(load.indices, load.buffer.row_major(), strict=True):
        total = affine(index)
        assert total is not None, "places are sums of axes"
        steps = [n + stride * total.coefficient(x.var) for n, x in zip(steps, op.all_axes, strict=True)]
    return Operand(load.buffer.dtype, tuple(steps))
