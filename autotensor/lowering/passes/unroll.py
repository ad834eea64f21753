"""unroll: replaces UNROLLED loops by their iterations, written out and simplified.

    for i in unrolled(2): S(i)     ──▶     S(0); S(1)

One walk does this: expressions that do not depend on the variable are simplified once for all copies.
"""

from __future__ import annotations

from math import prod

from autotensor.base.errors import LoweringError
from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.expr import Const, const
from autotensor.ir.node import Node, children
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import For, ForKind, Stmt, seq

LIMIT = 4096  # most iterations of one loop: longer code does not fit into any instruction cache
# Most copies of a body by loops inside one another. Default schedules of ResNet-18 and MobileNetV2 write at
# most 112; compiling 65536 takes 42 s and 1.8 GB (Zen 5, 2026-12).
MOST_COPIES = 4 * LIMIT


def unroll(body: Stmt) -> Stmt:
    nested = _unrolled(body)
    copies = prod(extent for _, extent in nested)
    if len(nested) > 1 and copies > MOST_COPIES:
        names = ", ".join(repr(name) for name, _ in nested)
        raise LoweringError(
            f"unroll: loops {names} inside one another write {copies} copies; at most {MOST_COPIES} are "
            "written out.",
            fix="Unroll fewer of them, or split one and unroll its inner part.",
        )
    unroller = _Unroller(bounds(NO_RANGES))
    done = unroller.stmt(body)
    unroller.close()
    return done


def _unrolled(s: Node) -> tuple[tuple[str, int], ...]:
    """Names and extents of unrolled loops inside one another, where they write the most copies."""
    paths = (_unrolled(x) for x in children(s) if isinstance(x, Stmt))
    inner = max(paths, key=lambda path: prod(extent for _, extent in path), default=())
    if isinstance(s, For) and s.kind is ForKind.UNROLLED and isinstance(s.extent, Const):
        return ((s.var.name, int(s.extent.value)), *inner)
    return inner


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
