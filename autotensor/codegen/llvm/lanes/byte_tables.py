"""Lookups in tables of 256 bytes by bytes, on processors where one instruction takes bytes from anywhere in
two registers.

    T[u8]      ──▶      the high bit chooses between permutations of T[0..127] and of T[128..255]

AVX512-VBMI has that instruction: 64 lanes take two such instructions and a blend. On other processors lanes
are loaded one by one (memory.py). Source: Intel Architecture Instruction Set Extensions, "VPERMI2B".
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from autotensor.base.dtype import uint8
from autotensor.codegen.llvm.function_writer import mem, ty
from autotensor.ir.expr import Cast, Expr, Load
from autotensor.ir.func import Scope

if TYPE_CHECKING:
    from autotensor.codegen.llvm.expr import ValueWriter

ENTRIES = 256
LANES = 64  # lanes of a register
FEATURE = "avx512vbmi"
PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"


def byte_lanes(w: ValueWriter, e: Load, index: Expr, pointer: str) -> str:
    """The lanes of a load from a table of bytes; "" if the processor lacks the instruction, or for another
    load.

    pointer: the table's address.
    """
    place = _byte(index)
    if not w.permutes_bytes or place is None or not _is_table(e):
        return ""
    count, full = e.dtype.lanes, ty(uint8.with_lanes(LANES))
    parts = [
        w.op(f"load {mem(uint8.with_lanes(LANES))}, ptr {at}, align 1")
        for at in (pointer, *(_behind(w, pointer, n) for n in range(LANES, ENTRIES, LANES)))
    ]
    found = []
    for first in range(0, count, LANES):
        at = _spread(w, w.value(place), count, first)
        halves = [_permuted(w, full, low, at, high) for low, high in (parts[:2], parts[2:])]
        above = w.op(f"icmp slt {full} {at}, zeroinitializer")
        found.append(w.op(f"select <{LANES} x i1> {above}, {full} {halves[1]}, {full} {halves[0]}"))
    return _joined(w, found, count)


def _is_table(e: Load) -> bool:
    """Whether a load takes several lanes of bytes from a table with an element for every value of a byte."""
    b = e.buffer
    plain = b.scope is not Scope.REGISTER and not b.extents and not e.dtype.is_bool
    return plain and e.dtype.bits == 8 and e.dtype.lanes > 1 and prod(b.shape) == ENTRIES


def _byte(index: Expr) -> Expr | None:
    """The unsigned bytes that were converted to a wider index; None if the index is not made in this way."""
    while isinstance(index, Cast) and index.dtype.element != uint8:
        index = index.a
    return index if index.dtype.element == uint8 and index.dtype.lanes > 1 else None


def _behind(w: ValueWriter, pointer: str, count: int) -> str:
    return w.op(f"getelementptr i8, ptr {pointer}, i64 {count}")


def _permuted(w: ValueWriter, full: str, low: str, at: str, high: str) -> str:
    w.declared.setdefault(PERMUTE, f"declare {full} @{PERMUTE}({full}, {full}, {full})")
    return w.op(f"call {full} @{PERMUTE}({full} {low}, {full} {at}, {full} {high})")


def _spread(w: ValueWriter, lanes: str, count: int, first: int) -> str:
    """`LANES` lanes from lane `first` on. Lanes after the last one have any value."""
    if count == LANES:
        return lanes
    order = ", ".join(f"i32 {k}" if k < count else "i32 poison" for k in range(first, first + LANES))
    part = f"<{count} x i8>"
    return w.op(f"shufflevector {part} {lanes}, {part} poison, <{LANES} x i32> <{order}>")


def _joined(w: ValueWriter, parts: list[str], count: int) -> str:
    """The first `count` lanes of the parts side by side."""
    width = LANES
    while len(parts) > 1:
        order = ", ".join(f"i32 {k}" for k in range(2 * width))
        kind = f"<{width} x i8>"
        pairs = zip(parts[::2], parts[1::2] + parts[-1:] * (len(parts) % 2), strict=True)
        parts = [
            w.op(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{order}>") for a, b in pairs
        ]
        width *= 2
    if count == width:
        return parts[0]
    order = ", ".join(f"i32 {k}" for k in range(count))
    kind = f"<{width} x i8>"
    return w.op(f"shufflevector {kind} {parts[0]}, {kind} poison, <{count} x i32> <{order}>")
