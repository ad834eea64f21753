"""Finds inputs for which a copy pays if they do not begin at a cache line.

NumPy's arrays begin 16 bytes after the start of a line. Every second vector of 32 bytes then lies in two
lines, and a kernel that reads an operand hundreds of times pays for this each time: a product of 512x512 with
operands that begin there took 5.2 ms instead of 3.2 on Zen 3. Copying 1 MiB takes 0.05 ms.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import or_

from autotensor.ir.affine import affine
from autotensor.ir.bounds import interval, is_symbolic
from autotensor.ir.expr import Const, Expr, Load, Ramp
from autotensor.ir.func import Buffer, Program, Role
from autotensor.ir.node import children
from autotensor.ir.stmt import For, If, Stmt
from autotensor.ir.visit import contains

MANY = 8  # how often vectors read an element; a copy reads and writes each element once
MUCH = 1 << 20  # bytes read in all; below this, checking the address costs more than a copy saves


def reread(program: Program) -> list[str]:
    """The names of the inputs for which a copy pays.

    Vectors read each element of such an input at least MANY times on average, and at least MUCH bytes in all.
    A vector counts only if it lies in one line whenever the input begins at a line.
    """
    read: Counter[Buffer] = Counter()
    for func in program.run:
        read += _Reader().of(func.body)
    inputs = program.buffers(Role.INPUT)
    return [b.name for b in inputs if read[b] >= max(MANY * b.size, MUCH // b.dtype.bytes)]


class _Reader:
    """Remembers the vectors that each part of an expression reads, because the same part occurs many times:
    in an unrolled tile, every row uses the same vector.
    """

    def __init__(self) -> None:
        self._vectors: dict[Expr, tuple[Load, ...]] = {}

    def of(self, s: Stmt, turns: int = 1) -> Counter[Buffer]:
        """Elements of each buffer that whole vectors read in all turns of the loops.

        A loop whose extent is known only at run time counts with its greatest extent. Any other loop without
        a constant extent counts as one turn. The larger of two branches counts, because a turn runs only one
        of them.
        """
        found: Counter[Buffer] = Counter()
        self._add(s, turns, found)
        return found

    def _add(self, s: Stmt, turns: int, found: Counter[Buffer]) -> None:
        if isinstance(s, For) and (isinstance(s.extent, Const) or is_symbolic(s.extent)):
            turns *= interval(s.extent).hi or 1
        if isinstance(s, If):
            test: Counter[Buffer] = Counter()
            self._add_loads(s.cond, turns, test)
            branches = [self.of(b, turns) for b in (s.then, s.otherwise) if b is not None]
            found.update(reduce(or_, branches, test))
            return
        for part in children(s):
            if isinstance(part, Stmt):
                self._add(part, turns, found)
            elif isinstance(part, Expr):
                self._add_loads(part, turns, found)

    def _add_loads(self, e: Expr, turns: int, found: Counter[Buffer]) -> None:
        for x in self._reads(e):
            found[x.buffer] += turns * x.dtype.lanes

    def _reads(self, e: Expr) -> tuple[Load, ...]:
        """The distinct loads in `e` that read whole vectors of one line."""
        if not contains(e, Load):
            return ()
        found = self._vectors.get(e)
        if found is None:
            below = [x for c in children(e) if isinstance(c, Expr) for x in self._reads(c)]
            own = [e] if isinstance(e, Load) and _in_one_line(e) else []
            found = self._vectors[e] = tuple(dict.fromkeys((*own, *below)))
        return found


def _in_one_line(load: Load) -> bool:
    """Whether the elements of a load follow one another, and the index of the first is a multiple of their
    number."""
    index = load.indices[-1]
    if not isinstance(index, Ramp) or index.stride != 1:
        return False
    begin = affine(index.base)
    return begin is not None and begin.divisor % index.lanes == 0
