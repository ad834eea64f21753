"""Lanes beyond an attached stage's box are computed without a guard; only their reads are guarded.

    for j in vectorized(16):                        for j in vectorized(16):
      if j < 9: acc[j] += a * B[j]        ──▶         acc[j] += a * (B[j] if j < 9)

The buffer has room for whole vectors, and these lanes have no reader. A guard around an accumulator would
turn every update into a blend.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autotensor.ir.expr import Expr, Load, Var, all_of
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Stmt
from autotensor.ir.visit import any_node, collect, free_vars
from autotensor.lowering.nest.guards import may_trap
from autotensor.schedule.extents import leaf_var
from autotensor.schedule.state import At, Split, Stage
from autotensor.te.tensor import AxisKind


def rows_of_vectors(stage: Stage, leaf: str) -> bool:
    """Whether a loop is the inner part of the axis along which the rows of the stage's private buffer run."""
    inner = stage.storage[0][-1:] if stage.storage is not None else tuple(a.name for a in stage.op.axes[-1:])
    return isinstance(stage.place, At) and any(
        isinstance(r, Split) and r.parent in inner and r.children[-1] == leaf and len(r.children) == 2
        for r in stage.relations
    )


def guard_loads(
    stage: Stage, lane: Var, conditions: Sequence[Expr], body: Stmt, own: Collection[Buffer]
) -> Stmt | None:
    """The body of a vectorized loop with the conditions on its loads; None if the conditions must stay
    outside of the loop.

    own: the buffers that the stage writes.
    """
    concerned = frozenset[Var]().union(*(free_vars(c) for c in conditions))
    sums = {leaf_var(stage.name, a.name) for a in stage.leaves if a.kind is AxisKind.REDUCE}
    if concerned & sums or any(any_node(b, may_trap) for b in stage.op.bodies):
        return None
    for load in collect(body, Load):
        if load.buffer not in own and free_vars(load) & concerned and lane not in free_vars(load):
            return None

    def visit(node: Node) -> Node | None:
        if not isinstance(node, Load) or node.buffer in own or lane not in free_vars(node):
            return None
        masks = conditions if node.mask is None else (*conditions, node.mask)
        return Load(node.buffer, node.indices, all_of(*masks))

    return transform(body, visit)
