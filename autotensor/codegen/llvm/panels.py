"""Panels that are read in several passes: each pass fetches its share of the next panel.

    for panel: for pass: for k: C[…] = dot(C[…], A[…], W.packed[panel, k])
                                prefetch W.packed[panel + 1, k], some of its lines in each pass

A panel from beyond L2 would otherwise arrive in the first pass only, which waits for it. Later passes
would leave the memory idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import ceil, prod
from typing import Any

from autotensor.codegen.access import load_access
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Expr, Load, const
from autotensor.ir.func import Scope
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import free_vars

LINE = 64  # bytes of a cache line
READ, L2, DATA = 0, 2, 1  # arguments of LLVM's prefetch


@dataclass(frozen=True, slots=True)
class Passes:
    """The loops around a load of a panel, in elements of its buffer."""

    step: int  # from one iteration of the innermost loop to the next; 0 if there is no such loop
    loops: tuple[Any, ...]  # the passes, innermost first
    ahead: int  # from a panel to the next one; 0 if the loop around the passes does not move to another panel

    @property
    def count(self) -> int:
        """How often a panel is read; 0 if this is not a constant."""
        return prod(x.extent for x in self.loops)

    def share(self, parts: int) -> int:
        """How many of the parts of an iteration each pass fetches."""
        return ceil(parts / self.count)

    def first(self, parts: int) -> Expr:
        """The first part that this pass fetches."""
        number = reduce(lambda n, x: n * x.extent + (x.var - x.first), reversed(self.loops), const(0))
        return simplify(number * self.share(parts) % parts)


def passes_over(w: Any, place: Affine) -> Passes:
    """The passes of a load from this place: in `for panel: for pass: for k`, the place does not depend on the
    pass."""
    inside = w.around[::-1]
    depends = [any(x.var in free_vars(term) for term in place.terms) for x in inside] + [False]
    first = depends.index(False)
    end = depends.index(True, first) if True in depends[first:] else len(inside)
    panels = inside[end : end + 1]
    return Passes(
        place.coefficient(inside[0].var) if first else 0,
        tuple(inside[first:end]),
        place.coefficient(panels[0].var) if panels else 0,
    )


def fetch_next(w: Any, e: Expr) -> None:
    """Fetches some lines of the next panel into L2, next to the load `e` of one line of this panel. The loads
    of one iteration fetch different lines."""
    if not isinstance(e, Load) or e.mask is not None or e.buffer.scope is not Scope.GLOBAL:
        return
    found, bytes_ = load_access(e.buffer, e.indices[0]), e.buffer.dtype.bytes
    if found.start is None or not found.is_whole or e.dtype.bytes != LINE:
        return
    passes = passes_over(w, found.start)
    step = passes.step * bytes_
    if passes.count < 2 or passes.ahead <= 0 or step <= 0 or step % LINE:
        return
    lines = step // LINE
    if found.start.constant * bytes_ % step // LINE >= passes.share(lines):
        return
    begin = w.value(simplify(passes.first(lines) * LINE))
    pointer = w.op(f"getelementptr i8, ptr {w.address(e.buffer, found.start)}, i64 {begin}")
    prefetch(w, pointer, passes.ahead * bytes_)


def prefetch(w: Any, pointer: str, ahead: int) -> None:
    """Fetches the line `ahead` bytes from the pointer into L2."""
    name = "llvm.prefetch.p0"
    w.declared.setdefault(name, f"declare void @{name}(ptr, i32, i32, i32)")
    line = w.op(f"getelementptr i8, ptr {pointer}, i64 {ahead}")
    w.do(f"call void @{name}(ptr {line}, i32 {READ}, i32 {L2}, i32 {DATA})")
