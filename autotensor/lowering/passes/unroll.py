"""unroll: UNROLLED loops become their iterations, written out.

for i in unrolled(2): S(i)     ──▶     S(0); S(1)
"""

from __future__ import annotations

from autotensor.base.errors import LoweringError
from autotensor.ir.expr import Const, const
from autotensor.ir.node import Node
from autotensor.ir.rewrite import substitute, transform
from autotensor.ir.stmt import For, ForKind, Stmt, seq

LIMIT = 4096  # iterations of one loop: beyond this the code no longer fits any instruction cache


def unroll(body: Stmt) -> Stmt:
    def visit(node: Node) -> Node | None:
        if not isinstance(node, For) or node.kind is not ForKind.UNROLLED:
            return None
        if not isinstance(node.begin, Const) or not isinstance(node.extent, Const):
            raise LoweringError(f"unroll: loop {node.var.name!r} has no constant extent.")
        begin, extent = int(node.begin.value), int(node.extent.value)
        if extent > LIMIT:
            raise LoweringError(
                f"unroll: loop {node.var.name!r} has {extent} iterations; at most {LIMIT} are written out."
            )
        return seq(*(substitute(node.body, {node.var: const(begin + n)}) for n in range(extent)))

    return transform(body, visit)
