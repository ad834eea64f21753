"""A tensor intrinsic declared by a te function.

A, B = te.placeholder((8, 8)), te.placeholder((8, 8))
k = te.reduce_axis(8)
C = te.compute((8, 8), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k))
declared("toy.gemm8x8", C, [A, B], reset="toy.zero")
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.errors import LoweringError
from autotensor.codegen.declared_intrinsics import Declared
from autotensor.ir.stmt import Seq
from autotensor.lowering.pipeline import lower_nest
from autotensor.schedule.schedule import create_schedule
from autotensor.te.tensor import Tensor


def declared(name: str, result: Tensor, inputs: Sequence[Tensor] = (), reset: str = "") -> Declared:
    """The instruction `name`, which computes `result`; its operands are the result and then `inputs`.

    reset: for a sum, the instruction with which the sum begins. Raises LoweringError for more than one stage.
    """
    s = create_schedule(result)
    dag = s.dag
    if len(dag.stages) != 1:
        raise LoweringError(
            f"tensorize: the meaning of {name} has {len(dag.stages)} stages; it must have one."
        )
    (stage,) = dag.stages
    if stage.reduce_axes:
        s[result].reorder(*(a.name for a in (*stage.reduce_axes, *stage.axes)))
    body = lower_nest(s.state).run[0].body
    operands = tuple(dag.buffer_of(t) for t in (result, *inputs))
    if isinstance(body, Seq):
        begin, update = body.stmts
        return Declared(name, operands, update, begin, reset)
    return Declared(name, operands, body)
