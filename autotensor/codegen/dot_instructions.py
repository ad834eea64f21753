"""Dot instructions of processors: each adds the products of a group of elements to a sum.

    vpdpbusd      C[j] += Σ_q  i32(A[q]) * i32(B[j, q])      j in 16 lanes, q in a group of 4
    tdpbusd       C[i, j] += Σ_k Σ_q  i32(A[i, 4k + q]) * i32(B[k, j, q])          tiles of 16 x 16

The table of instructions is here, so that a trace can name an instruction and a backend can write it. For
each instruction, the table has the meaning, the features that the processor needs, and the spelling. The
files of `autotensor/instructions/` fill the table; each defines instructions, with their meaning as te
functions. An instruction can replace a nest of loops if both take the same steps through memory in each loop
(`lowering/passes/dots.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from autotensor.base.dtype import DType
from autotensor.base.registry import Registry
from autotensor.base.target import Target, features_of

TILE_REGISTERS = 8  # tile registers of AMX

# (writer, Dot, registers of its sums and operands) → the register of the result
Spelling = Callable[[Any, Any, str, str, str], str]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of the meaning: its type, and for each loop the step in elements from one turn to the
    next."""

    dtype: DType
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DotInstruction:
    """One instruction. Its meaning is a nest of these loops: rows (if there are several), columns, groups (if
    there are several), and the elements of a group."""

    name: str
    loops: tuple[int, ...]  # extents
    sums: Operand
    a: Operand
    b: Operand
    rows: int
    columns: int
    group: int
    needs: tuple[str, ...]  # features of the processor, in LLVM's names
    write: Spelling

    @property
    def depth(self) -> int:
        """Products that are added to each sum."""
        return prod(self.loops) // (self.rows * self.columns)

    @property
    def types(self) -> tuple[DType, DType, DType]:
        """The types of the sums, the left and the right operand."""
        return self.sums.dtype, self.a.dtype, self.b.dtype


DOTS: Registry[DotInstruction] = Registry("dot instruction")


def known_dots() -> Registry[DotInstruction]:
    """The table, with all instructions in it. The files of the instructions import te. They are imported only
    here, so that importing this package does not import te."""
    importlib.import_module("autotensor.instructions")
    return DOTS


def takes_tiles(instruction: str) -> bool:
    """Whether a known instruction whose operands are tiles has this name."""
    return instruction in DOTS and DOTS.get(instruction).rows > 1


def available(target: Target | None) -> tuple[DotInstruction, ...]:
    """The dot instructions of a target; none for a GPU, and none for target None, which stands for any
    CPU."""
    if target is None or target.kind != "llvm":
        return ()
    has = features_of(target)
    return tuple(dot for _, dot in known_dots().items() if has.issuperset(dot.needs))


def whole(target: Target) -> tuple[DotInstruction, ...]:
    """The instructions of a target whose sums fill its vector registers or tile registers."""
    width = target.vector_bytes
    return tuple(d for d in available(target) if d.rows > 1 or d.columns * d.sums.dtype.bytes == width)
