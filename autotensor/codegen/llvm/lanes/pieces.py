"""Loads and stores of a constant part of a vector, as narrower loads and stores, without a mask.

    10 columns in vectors of 8 lanes, the second vector        vmaskmovps (%p), %ymm15, %ymm0      10 cycles
    load x8 if ramp(8, 1, 8) < 10                        ──▶   vmovsd (%p), %xmm0                 ½ cycle

With AVX2, which has no registers of masks, a Zen 1 takes 12 cycles for a masked store of a whole register and
10 for a masked load (2026-12). The lanes of a tail are often known when the code is written. They are in one
stretch, which a few moves of 4, 2 and 1 elements cover. Contractions with 10 and 18 columns are 1.8 and 1.5
times as fast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from autotensor.codegen.llvm.expr import ValueWriter
from autotensor.ir.expr import Const, Expr, const
from autotensor.ir.lane_offsets import in_lane
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import free_vars


class Piece(NamedTuple):
    """Neighbouring lanes that one instruction moves."""

    first: int
    lanes: int


def pieces_of_store(w: ValueWriter, mask: Expr) -> tuple[Piece, ...] | None:
    """The pieces of a store with this mask; None if one masked instruction is as good."""
    return _pieces(mask) if w.registers == "x" else None


def pieces_of_load(w: ValueWriter, mask: Expr) -> tuple[Piece, ...] | None:
    """The same for a load. Joining two pieces takes most processors as long as a masked load."""
    pieces = pieces_of_store(w, mask)
    return pieces if pieces is not None and (len(pieces) <= 1 or w.slow_masks) else None


@lru_cache(maxsize=1 << 10)  # the tails of a tile have the same mask again and again
def _pieces(mask: Expr) -> tuple[Piece, ...] | None:
    """The lanes of a constant mask in pieces whose sizes are powers of two, large ones first; None if the
    mask is not constant or has gaps."""
    ones = [in_lane(mask, const(k)) for k in range(mask.dtype.lanes)]
    values = [None if e is None or free_vars(e) else simplify(e) for e in ones]
    if not all(isinstance(v, Const) for v in values):
        return None
    holds = [isinstance(v, Const) and bool(v.value) for v in values]
    if True not in holds:
        return ()
    first, count = holds.index(True), sum(holds)
    if not all(holds[first : first + count]):
        return None
    found = []
    while count:
        lanes = 1 << (count.bit_length() - 1)
        found.append(Piece(first, lanes))
        first, count = first + lanes, count - lanes
    return tuple(found)


def widened(w: ValueWriter, part: str, loaded: str, p: Piece, whole: str, others: str) -> str:
    """The vector `others`, with the piece in its lanes. part, whole: the types."""
    lanes = int(whole[1:].split()[0])
    if p.lanes == 1:
        return w.op(f"insertelement {whole} {others}, {part} {loaded}, i64 {p.first}")
    order = ", ".join(
        f"i32 {k - p.first if p.first <= k < p.first + p.lanes else p.lanes}" for k in range(lanes)
    )
    spread = w.op(f"shufflevector {part} {loaded}, {part} zeroinitializer, <{lanes} x i32> <{order}>")
    if others == "zeroinitializer":
        return spread
    chosen = ", ".join(f"i32 {lanes + k if p.first <= k < p.first + p.lanes else k}" for k in range(lanes))
    return w.op(f"shufflevector {whole} {others}, {whole} {spread}, <{lanes} x i32> <{chosen}>")


def narrowed(w: ValueWriter, whole: str, value: str, p: Piece) -> str:
    """The lanes of the piece."""
    if p.lanes == 1:
        return w.op(f"extractelement {whole} {value}, i64 {p.first}")
    lanes = ", ".join(f"i32 {p.first + k}" for k in range(p.lanes))
    return w.op(f"shufflevector {whole} {value}, {whole} poison, <{p.lanes} x i32> <{lanes}>")
