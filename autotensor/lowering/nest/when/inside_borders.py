"""borders: where stages slide along a loop, an iteration tests once whether its rows are inside all borders.

    for v: P[v % 3] = select(1 <= v < n - 1, …)     ──▶     for v: if 1 <= v < n - 1: P[v % 3] = …
                                                                   else: P[v % 3] = select(1 <= v < n - 1, …)

If a whole tile is computed at once, its rows are inside the borders when the tile is, so loops over tiles are
cut at the borders instead. A loop that keeps the results of its iterations cannot be cut. Without this test,
every vector of every row would be a select.
"""

from __future__ import annotations

from collections.abc import Set

from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import Expr, Select, Var, all_of, conjuncts
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import If, Stmt
from autotensor.ir.visit import collect, free_vars
from autotensor.lowering.index_limits import strongest
from autotensor.lowering.nest.loops import Loops


def inside_borders(loops: Loops, var: Var, own: Set[Var], ranges: dict[Var, Interval], body: Stmt) -> Stmt:
    """The computation of the stage in an iteration of the loop over `var`.

    The computation is written twice if a test in the iteration decides conditions of its Selects for all
    values of the variables `own`.
    """
    values = {a.var: loops.values[a.name] for a in loops.stage.op.all_axes}
    found: dict[Expr, None] = {}
    for select in (s for b in loops.bodies for s in collect(b, Select)):
        for cond in conjuncts(substitute(select.cond, values)):
            here = strongest(cond, own, ranges)
            if here is not None and var in free_vars(here) and prove(here, ranges) is None:
                found[here] = None
    return If(all_of(*found), body, body) if found else body


__all__ = ["inside_borders"]
