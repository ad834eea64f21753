"""Masks of loads that LLVM cannot tell apart from other masks.

    %x = masked.load(%p, %m)                      vmovups (%p), %ymm0 {%k1} {z}
    %y = shufflevector %x, … [1, 0, 3, 2]    ──▶  vpermilps $177, (%p), %ymm0 {%k1} {z}     what LLVM 22 makes
    %z = select %m, %y, 0                         reads an element that %m leaves out: a wrong number

With AVX-512, LLVM 22 folds a masked load into an operation whose result has the same mask. This is wrong
where the operation moves elements between lanes (llvm-project #178411). Also, if the operation must keep one
of its operands, LLVM takes the load out again, without its mask. Then the elements that the mask leaves out
are read, and these may lie in memory that does not exist. LLVM folds only equal masks, so a load gets a copy
of its mask from an empty piece of assembly.

    %m = and %c, <1, 1, 0, 0, 0, 0>               vpmaskmovq (%p), %ymm1, %ymm0
    %x = masked.load(%p, %m)                 ──▶  vmovdqu 32(%p), %ymm2           what LLVM 22 makes with AVX2

Without AVX-512, LLVM 22 divides a mask into registers, and loads a register of which all lanes are left out
without a mask, or ends the process. A copy hides from LLVM which lanes are always left out.
"""

from __future__ import annotations

from autotensor.base.dtype import int32
from autotensor.codegen.llvm.expr import ValueWriter
from autotensor.codegen.llvm.function_writer import literal, ty
from autotensor.ir.expr import Compare, Expr, Load, Var
from autotensor.ir.visit import any_node, collect

_LEAST = 8  # lanes of the smallest mask that is copied: assembly takes no smaller masks
_VECTORS = "x"  # LLVM's constraint for registers of vectors, on targets where they hold the masks


def load_mask(w: ValueWriter, mask: Expr) -> str:
    """The operand that holds a vector mask of a load. It is a copy if LLVM would join the load with a select,
    or load without the mask."""
    if not (w.mask_lanes or (w.registers == _VECTORS and _is_partly_known(mask))):
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


def _is_partly_known(mask: Expr) -> bool:
    """Whether a part of the mask is known when the kernel is compiled, and another part is not."""
    return _varies(mask) and any(not _varies(c) for c in collect(mask, Compare))


def _varies(e: Expr) -> bool:
    return any_node(e, lambda n: isinstance(n, (Var, Load)))


def _copied(w: ValueWriter, value: str, lanes: int) -> str:
    """The mask in whole registers, each copied, and joined again."""
    most, copy = (w.mask_lanes, _copied_mask) if w.mask_lanes else (_LEAST, _copied_vector)
    one = most if lanes > most else max(_LEAST, 1 << (lanes - 1).bit_length())
    parts = [copy(w, _lanes(w, value, lanes, first, one), one) for first in range(0, lanes, one)]
    while len(parts) > 1:
        parts += ["zeroinitializer"] * (len(parts) % 2)
        parts = [_joined(w, a, b, one) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        one *= 2
    return _lanes(w, parts[0], one, 0, lanes)


def _copied_mask(w: ValueWriter, value: str, lanes: int) -> str:
    t = f"<{lanes} x i1>"
    return w.op(f'call {t} asm "", "=^Yk,0"({t} {value})')


def _copied_vector(w: ValueWriter, value: str, lanes: int) -> str:
    """A mask that lies in the signs of integers, where AVX's loads look for it."""
    t = int32.with_lanes(lanes)
    signs = w.op(f"sext <{lanes} x i1> {value} to {ty(t)}")
    copied = w.op(f'call {ty(t)} asm "", "={_VECTORS},0"({ty(t)} {signs})')
    return w.op(f"icmp slt {ty(t)} {copied}, {literal(0, t)}")


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
