"""unroll: replaces UNROLLED loops by their iterations, written out and simplified.

    for i in unrolled(2): S(i)     ──▶     S(0); S(1)

One walk does this: expressions that do not depend on the variable are simplified once for all copies.
"""

from __future__ import annotations

from autotensor.base.errors import LoweringError
from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.expr import Const, const
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import For, ForKind, Stmt, seq

LIMIT = 4096  # most iterations of one loop: longer code does not fit into any instruction cache


def unroll(body: Stmt) -> Stmt:
    unroller = _Unroller(bounds(NO_RANGES))
    done = unroller.stmt(body)
    unroller.close()
    return done


class _Unroller(Simplifier):
    __slots__ = ()

    def _for(self, loop: For) -> Stmt:
        if loop.kind is not ForKind.UNROLLED:
            return super()._for(loop)
        begin, extent = self.expr(loop.begin), self.expr(loop.extent)
        if not isinstance(begin, Const) or not isinstance(extent, Const):
            raise LoweringError(f"unroll: loop {loop.var.name!r} has no constant extent.")
        if extent.value > LIMIT:
            raise LoweringError(
                f"unroll: loop {loop.var.name!r} has {extent.value} iterations; "
                f"at most {LIMIT} are written out.",
                fix="Split it first.",
            )
        first = int(begin.value)
        turns = range(first, first + int(extent.value))
        return seq(*(self.replacing(loop.var, const(n)).stmt(loop.body) for n in turns))
