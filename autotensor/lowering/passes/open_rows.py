"""The rows of a register tile that a run-time extent may leave over, and the numbers of rows with extra code.

for i.0 in …: …                                        open_rows   ──▶  i.0*14 + i.1 < n, i.1, 14
  for k in …: …                                        rows_left   ──▶  12, 10, 8, 7, 6, 5, 4, 3, 2, 1
  for i.1 in unrolled(14): if i.0*14 + i.1 < n: …
"""

from __future__ import annotations

from autotensor.ir.affine import excess
from autotensor.ir.bounds import Bounds
from autotensor.ir.expr import Compare, Const, Load, Symbol, Var
from autotensor.ir.stmt import Alloc, For, ForKind, If, Stmt, Store
from autotensor.ir.visit import collect, free_vars
from autotensor.lowering.passes.loop_guards import comparisons, guards

AROUND_TILES = (ForKind.SERIAL, ForKind.PARALLEL)  # loops that may contain tiles
IN_VAIN = 9  # at most one in this many computed rows is computed in vain


def open_rows(var: Var, body: Stmt, known: Bounds) -> tuple[Compare, Var, int] | None:
    """A guard that compares tiles of unrolled rows with a run-time extent, and the rows' variable and number.

    None if there is no such guard, or if leaving out rows leaves out no loops and no sums.

    var: the variable of the loop over tiles or, if one tile holds all rows, of the innermost loop around it.
    A loop over the taps of a window moves a tile by less than its rows.
    """
    loops = collect(body, For)
    if not any(loop.kind is ForKind.SERIAL for loop in loops):
        return None
    turning = {loop.var for loop in loops}
    unrolled = {loop.var: loop.extent for loop in loops if loop.kind is ForKind.UNROLLED}
    for cond, inner in guards(body, known, {}):
        symbols = {v for v in free_vars(cond) if isinstance(v, Symbol)}
        rows = [v for v in free_vars(cond) if v in turning]
        outside = free_vars(cond) - symbols - turning
        if not symbols or len(rows) != 1 or inner.decide(cond) is not None:
            continue
        extent = unrolled.get(rows[0])
        if (
            isinstance(extent, Const)
            and (
                _steps_over(cond, var, rows[0], int(extent.value))
                or not (outside or any(_has_rows(loop, known) for loop in loops))
            )
            and _ends_sums(body, cond)
        ):
            return cond, rows[0], int(extent.value)
    return None


def _ends_sums(body: Stmt, cond: Compare) -> bool:
    """Whether fewer rows are fewer sums. Where the guarded statements only read finished values, such as the
    pixels of a Winograd tile, the guard itself leaves out all that can be left out."""
    guarded = [s.then for s in collect(body, If) if cond in comparisons(s.cond)]
    made = {a.buffer for a in collect(body, Alloc)}
    read = {load.buffer for s in guarded for load in collect(s, Load)} & made
    if not read or any(loop.kind is ForKind.SERIAL for s in guarded for loop in collect(s, For)):
        return True
    return any(
        load.buffer is s.buffer
        for s in collect(body, Store)
        if s.buffer in read
        for load in collect(s.value, Load)
    )


def _steps_over(cond: Compare, var: Var, row: Var, rows: int) -> bool:
    """Whether the next iteration of a loop compares only rows after those of this iteration."""
    total = excess(cond)
    return total is not None and total.coefficient(var) >= rows * total.coefficient(row) > 0


def _has_rows(loop: For, known: Bounds) -> bool:
    return loop.kind in AROUND_TILES and open_rows(loop.var, loop.body, known) is not None


def rows_left(rows: int, copies: int) -> list[int]:
    """The numbers of rows, falling, for which a tile of `rows` rows gets extra code.

    Any other number is computed as the next greater one. With few copies, more rows are computed in vain.

    >>> rows_left(14, 12), rows_left(14, 4), rows_left(6, 12)
    ([12, 10, 8, 7, 6, 5, 4, 3, 2, 1], [9, 5, 3, 1], [5, 4, 3, 2, 1])
    """
    left = [rows]
    for part in range(IN_VAIN, 1, -1):
        left = [rows]
        while left[-1] > 1:
            left.append(max(1, left[-1] - 1 - left[-1] // part))
        if len(left) - 1 <= copies:
            break
    return left[1 : copies + 1]
