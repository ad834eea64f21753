"""Masks of loads that LLVM cannot tell apart from other masks.

    %x = masked.load(%p, %m)                      vmovups (%p), %ymm0 {%k1} {z}
    %y = shufflevector %x, … [1, 0, 3, 2]    ──▶  vpermilps $177, (%p), %ymm0 {%k1} {z}     what LLVM 22 makes
    %z = select %m, %y, 0                         reads an element that %m leaves out: a wrong number

With AVX-512, LLVM 22 folds a masked load into an operation whose result has the same mask. This is wrong
where the operation moves elements between lanes (llvm-project #178411). Also, if the operation must keep one
of its operands, LLVM takes the load out again, without its mask. Then the elements that the mask leaves out
are read, and these may lie in memory that does not exist. LLVM folds only equal masks, so a load gets a copy
of its mask from an empty piece of assembly.
"""

from __future__ import annotations

from autotensor.codegen.llvm.expr import ValueWriter
from autotensor.ir.expr import Expr

_LEAST = 8  # lanes of the smallest mask that assembly takes


def load_mask(w: ValueWriter, mask: Expr) -> str:
    """The operand that holds a vector mask of a load. It is a copy if LLVM would join the load with a
    select."""
    if not w.mask_lanes:
        return w.value(mask)
    key = ("mask of loads", mask)
    found = w.known.get(key)
    if found is not None:
        return found
    value = w.value(mask)
    if w.reads(mask):
        return _copied(w, value, mask.dtype.lanes)  # memory may change
    level = w.level(mask)
    saved = w.at_head(level)
    made = _copied(w, value, mask.dtype.lanes)
    w.cur = saved
    return w.remember(key, made, level)


def _copied(w: ValueWriter, value: str, lanes: int) -> str:
    """The mask in whole registers, each copied, and joined again."""
    one = w.mask_lanes if lanes > w.mask_lanes else max(_LEAST, 1 << (lanes - 1).bit_length())
    t = f"<{one} x i1>"
    parts = [
        w.op(f'call {t} asm "", "=^Yk,0"({t} {_lanes(w, value, lanes, first, one)})')
        for first in range(0, lanes, one)
    ]
    while len(parts) > 1:
        parts += ["zeroinitializer"] * (len(parts) % 2)
        parts = [_joined(w, a, b, one) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        one *= 2
    return _lanes(w, parts[0], one, 0, lanes)


def _lanes(w: ValueWriter, value: str, of: int, first: int, count: int) -> str:
    """Lanes `first` … of a mask of `of` lanes; those that it does not have are 0."""
    if (of, first) == (count, 0):
        return value
    picked = ", ".join(f"i32 {min(first + n, of)}" for n in range(count))
    t = f"<{of} x i1>"
    return w.op(f"shufflevector {t} {value}, {t} zeroinitializer, <{count} x i32> <{picked}>")


def _joined(w: ValueWriter, a: str, b: str, lanes: int) -> str:
    picked = ", ".join(f"i32 {n}" for n in range(2 * lanes))
    t = f"<{lanes} x i1>"
    return w.op(f"shufflevector {t} {a}, {t} {b}, <{2 * lanes} x i32> <{picked}>")


__all__ = ["load_mask"]
