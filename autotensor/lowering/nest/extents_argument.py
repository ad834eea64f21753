"""Passes symbols to kernels: the program gets one more argument, an array that is read at the kernel's top.

extents: int64[2]                     n = extents[0]
                             ──▶      for i in range(n): …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotensor.base.dtype import int64
from autotensor.ir.expr import Load, Symbol, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.stmt import Let
from autotensor.runtime.files.artifact import EXTENTS


def with_extents(program: Program, symbols: Sequence[Symbol]) -> Program:
    """The program with a constant that holds the symbols in this order; without symbols, as it is."""
    if not symbols:
        return program
    extents = Buffer(EXTENTS, (len(symbols),), int64)

    def reading(func: PrimFunc) -> PrimFunc:
        body = func.body
        for n, symbol in reversed(list(enumerate(symbols))):
            body = Let(symbol, Load(extents, (const(n),)), body)
        return replace(func, params=(*func.params, extents), body=body)

    args = (*program.args, (extents, Role.CONSTANT))
    return replace(program, args=args, run=tuple(map(reading, program.run)))


__all__ = ["with_extents"]
