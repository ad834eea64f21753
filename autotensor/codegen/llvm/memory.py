"""Loads and stores: addresses, vectors, masks, gathers.

An address is a chain of getelementptr, one per term of the index, outermost loop first, each computed at the
head of its loop; the constant comes last and ends up as the displacement of the memory operand. Only it
differs between the rows of a tile:

    A[io*14336 + k + 3072]    A ──io*14336──▶ ──k──▶ ──3072──▶

Which instructions a vector access becomes depends on the lanes' offsets from a common base:

    0, 1, 2, …          a vector move
    all equal           a scalar load and a splat
    …, 2, 1, 0          a vector move and a reversal
    inside one aligned vector   that vector and a shuffle
    other constants     one scalar move per lane
    anything else, or scattered with a mask per lane      the gather or scatter intrinsic
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import Any

from autotensor.base.dtype import DType, bool_, int64
from autotensor.codegen.llvm.expr import ValueWriter
from autotensor.codegen.llvm.text import literal, mem, suffix, ty, vector_literal
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Broadcast, Cast, Const, Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.lanes import Lanes, lanes_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer is: its pointer, the scope in which that exists, its alignment in bytes."""

    pointer: str
    level: int
    align: int


class MemoryWriter(ValueWriter):
    """A writer that knows memory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.places: dict[Any, Place] = {}

    def place(self, buffer: Any) -> Place:
        found = self.places.get(buffer)
        if found is None:
            raise self.error(f"buffer {buffer.name!r} is neither a parameter nor allocated here.")
        return found

    # -- addresses ---------------------------------------------------------------------------------------
    def address(self, buffer: Any, index: Affine) -> tuple[str, int]:
        """Pointer to an element, and the alignment that can be proved, in bytes."""
        place = self.place(buffer)
        if buffer.scope is Scope.REGISTER and index.terms:
            at = " + ".join(f"{c}*{getattr(t, 'name', type(t).__name__)}" for t, c in index.terms.items())
            raise self.error(
                f"index {at} of register buffer {buffer.name!r} is not a constant.",
                fix="Unroll the loop over it, or keep the buffer in local scope.",
            )
        # Partial sums stay inside the object only when nothing is subtracted later.
        safe = index.constant >= 0 and all(
            c > 0 and self.bounds.at_least(t, 0) for t, c in index.terms.items()
        )
        gep = f"getelementptr {'inbounds ' if safe else ''}{mem(buffer.dtype)}, ptr"
        pointer, reached = place.pointer, place.level
        terms = sorted(
            ((self.level(t), bool(self.reads(t)), t, c) for t, c in index.terms.items()), key=_outermost_first
        )
        for level, loaded, term, c in terms:
            reached = max(reached, level)
            key = (pointer, term, c, safe)
            found = self.known.get(key)
            if found is None:
                saved = self.cur if loaded else self.at_head(reached)
                step = self.index(term)
                if c != 1:
                    step = self.op(f"mul nsw i64 {step}, {c}")
                found = self.op(f"{gep} {pointer}, i64 {step}")
                self.cur = saved
                if not loaded:
                    self.remember(key, found, reached)
            pointer = found
        if index.constant:
            last = (pointer, index.constant, safe)
            pointer = self.known.get(last) or self.remember(
                last, self.op(f"{gep} {pointer}, i64 {index.constant}"), self.depth
            )
        return pointer, gcd(place.align, index.divisor * buffer.dtype.bytes) or place.align

    def _lanes(self, buffer: Any, indices: tuple[Expr, ...]) -> Lanes | Expr:
        """The flat index as base and lane offsets, or as it is when it has no such form."""
        if len(indices) != 1:
            raise self.error(
                f"access to {buffer.name!r} has {len(indices)} indices; lowering must flatten it to one."
            )
        index = indices[0]
        if index.dtype.element != int64:
            index = Cast(int64, index)
        return lanes_of(index) or index

    # -- loads -------------------------------------------------------------------------------------------
    def load(self, e: Load) -> str:
        """The loaded value, as its type in registers."""
        t = e.dtype
        mask = _without_true(e.mask)
        lanes = self._lanes(e.buffer, e.indices)
        if mask is not None and mask.dtype.lanes not in (1, t.lanes):
            raise self.error(f"a load of {t} from {e.buffer.name!r} has a mask of {mask.dtype.lanes} lanes.")
        if isinstance(lanes, Expr):
            return self._gather(t, self._pointers(e.buffer, lanes), mask)
        base, offsets = lanes
        if mask is not None and mask.dtype.lanes > 1:
            if _contiguous(offsets):
                pointer, align = self.address(e.buffer, base.shift(offsets[0]))
                return self._masked_load(t, pointer, align, self.value(mask))
            return self._gather(t, self._spread(e.buffer, base, offsets), mask)
        if _contiguous(offsets):
            return self._plain_load(e.buffer, base.shift(offsets[0]), t, mask)
        if len(set(offsets)) == 1:
            one = self._plain_load(e.buffer, base.shift(offsets[0]), t.element, mask)
            return self.splat(one, t)
        if _contiguous(offsets[::-1]):
            forward = self._plain_load(e.buffer, base.shift(offsets[-1]), t, mask)
            order = ", ".join(f"i32 {k}" for k in reversed(range(t.lanes)))
            return self.op(f"shufflevector {ty(t)} {forward}, {ty(t)} poison, <{t.lanes} x i32> <{order}>")
        start = _aligned_block(e.buffer, base, offsets)
        if start is not None:
            block = self._plain_load(e.buffer, base.shift(start), t, mask)
            order = ", ".join(f"i32 {offset - start}" for offset in offsets)
            return self.op(f"shufflevector {ty(t)} {block}, {ty(t)} poison, <{t.lanes} x i32> <{order}>")
        result = "poison"
        for k, offset in enumerate(offsets):
            one = self._plain_load(e.buffer, base.shift(offset), t.element, mask)
            result = self.op(f"insertelement {ty(t)} {result}, {ty(t.element)} {one}, i64 {k}")
        return result

    def _plain_load(self, buffer: Any, index: Affine, t: DType, mask: Expr | None) -> str:
        """Consecutive elements; where the scalar mask is false, zeros are read instead: no branch."""
        pointer, align = self.address(buffer, index)
        if mask is not None:
            pointer = self.op(f"select i1 {self.value(mask)}, ptr {pointer}, ptr {self.zeros(t.bytes)}")
        return self._to_register(self.op(f"load {mem(t)}, ptr {pointer}, align {align}"), t)

    def zeros(self, size: int) -> str:
        """A constant of at least `size` zero bytes."""
        name = f"zeros.{max(64, size)}"
        line = f"@{name} = private unnamed_addr constant [{max(64, size)} x i8] zeroinitializer, align 64"
        self.declared.setdefault(name, line)
        return f"@{name}"

    def _masked_load(self, t: DType, pointer: str, align: int, mask: str) -> str:
        m, word = ty(bool_.with_lanes(t.lanes)), mem(t)
        name = f"llvm.masked.load.{_memory_suffix(t)}.p0"
        self.declared.setdefault(name, f"declare {word} @{name}(ptr, {m}, {word})")
        loaded = self.op(
            f"call {word} @{name}(ptr align {align} {pointer}, {m} {mask}, {word} zeroinitializer)"
        )
        return self._to_register(loaded, t)

    def _gather(self, t: DType, pointers: str, mask: Expr | None) -> str:
        m, word, v = ty(bool_.with_lanes(t.lanes)), mem(t), f"<{t.lanes} x ptr>"
        name = f"llvm.masked.gather.{_memory_suffix(t)}.v{t.lanes}p0"
        self.declared.setdefault(name, f"declare {word} @{name}({v}, {m}, {word})")
        align = t.element.bytes
        operands = f"{v} align {align} {pointers}, {m} {self._mask(mask, t)}, {word} zeroinitializer"
        loaded = self.op(f"call {word} @{name}({operands})")
        return self._to_register(loaded, t)

    def _spread(self, buffer: Any, base: Affine, offsets: tuple[int, ...]) -> str:
        """A vector of pointers: one base, constant offsets."""
        pointer, _ = self.address(buffer, base)
        steps = vector_literal(offsets, int64.with_lanes(len(offsets)))
        return self.op(f"getelementptr {mem(buffer.dtype)}, ptr {pointer}, <{len(offsets)} x i64> {steps}")

    def _pointers(self, buffer: Any, index: Expr) -> str:
        """A vector of pointers from a vector of indices."""
        if buffer.scope is Scope.REGISTER:
            raise self.error(f"the vector index of register buffer {buffer.name!r} is not a constant.")
        base = self.place(buffer).pointer
        return self.op(
            f"getelementptr {mem(buffer.dtype)}, ptr {base}, <{index.dtype.lanes} x i64> {self.index(index)}"
        )

    def _mask(self, mask: Expr | None, t: DType) -> str:
        b = bool_.with_lanes(t.lanes)
        if mask is None:
            return literal(True, b)
        value = self.value(mask)
        return value if mask.dtype.lanes == t.lanes else self.splat(value, b)

    def _to_register(self, x: str, t: DType) -> str:
        return self.op(f"icmp ne {mem(t)} {x}, {literal(0, DType('uint', 8, t.lanes))}") if t.is_bool else x

    # -- stores ------------------------------------------------------------------------------------------
    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, mask: Expr | None) -> None:
        mask = _without_true(mask)
        lanes = self._lanes(buffer, indices)
        n = indices[0].dtype.lanes
        t = buffer.dtype.with_lanes(n)
        if mask is not None and mask.dtype.lanes not in (1, n):
            raise self.error(f"a store of {t} to {buffer.name!r} has a mask of {mask.dtype.lanes} lanes.")
        if value.dtype.element != buffer.dtype or value.dtype.lanes not in (1, n):
            raise self.error(f"{value.dtype} is stored into {buffer.name!r}, which takes {t}.")
        x = self.value(value)
        if value.dtype.lanes < n:
            x = self.splat(x, t)
        if t.is_bool:
            x = self.op(f"zext {ty(t)} {x} to {mem(t)}")
        self._store(buffer, lanes, t, x, mask)
        self.forget(buffer)

    def _store(
        self,
        buffer: Buffer,
        lanes: Lanes | Expr,
        t: DType,
        x: str,
        mask: Expr | None,
    ) -> None:
        if isinstance(lanes, Expr):
            return self._scatter(t, x, self._pointers(buffer, lanes), mask)
        base, offsets = lanes
        if mask is not None and buffer.scope is Scope.REGISTER:
            return self._blend(buffer, base, offsets, t, x, mask)
        if not _contiguous(offsets):
            if mask is not None or (buffer.scope is not Scope.REGISTER and len(set(offsets)) < len(offsets)):
                return self._scatter(t, x, self._spread(buffer, base, offsets), mask)
            word = ty(DType("uint", 8)) if t.is_bool else ty(t.element)
            for k, offset in enumerate(offsets):
                one = self.op(f"extractelement {mem(t)} {x}, i64 {k}")
                pointer, align = self.address(buffer, base.shift(offset))
                self.do(f"store {word} {one}, ptr {pointer}, align {align}")
            return None
        pointer, align = self.address(buffer, base.shift(offsets[0]))
        if mask is None:
            self.do(f"store {mem(t)} {x}, ptr {pointer}, align {align}")
        elif mask.dtype.lanes == 1:
            then, after = self.label("store"), self.label("stored")
            self.do(f"br i1 {self.value(mask)}, label %{then}, label %{after}")
            self.start(then)
            self.do(f"store {mem(t)} {x}, ptr {pointer}, align {align}")
            self.do(f"br label %{after}")
            self.start(after)
        else:
            m, word = ty(bool_.with_lanes(t.lanes)), mem(t)
            name = f"llvm.masked.store.{_memory_suffix(t)}.p0"
            self.declared.setdefault(name, f"declare void @{name}({word}, ptr, {m})")
            self.do(f"call void @{name}({word} {x}, ptr align {align} {pointer}, {m} {self.value(mask)})")
        return None

    def _blend(
        self, buffer: Buffer, base: Affine, offsets: tuple[int, ...], t: DType, x: str, mask: Expr
    ) -> None:
        """A masked store to registers: keep the old value where the mask is false."""
        if not _contiguous(offsets):
            raise self.error(f"masked scattered store to register buffer {buffer.name!r}.")
        pointer, align = self.address(buffer, base.shift(offsets[0]))
        old = self.op(f"load {mem(t)}, ptr {pointer}, align {align}")
        new = self.op(f"select {ty(mask.dtype)} {self.value(mask)}, {mem(t)} {x}, {mem(t)} {old}")
        self.do(f"store {mem(t)} {new}, ptr {pointer}, align {align}")

    def _scatter(self, t: DType, x: str, pointers: str, mask: Expr | None) -> None:
        m, word, v = ty(bool_.with_lanes(t.lanes)), mem(t), f"<{t.lanes} x ptr>"
        name = f"llvm.masked.scatter.{_memory_suffix(t)}.v{t.lanes}p0"
        self.declared.setdefault(name, f"declare void @{name}({word}, {v}, {m})")
        align = t.element.bytes
        self.do(f"call void @{name}({word} {x}, {v} align {align} {pointers}, {m} {self._mask(mask, t)})")


def _contiguous(offsets: tuple[int, ...]) -> bool:
    return all(b - a == 1 for a, b in pairwise(offsets))


def _aligned_block(buffer: Any, base: Affine, offsets: tuple[int, ...]) -> int | None:
    """The offset of the aligned vector that holds all lanes; None if there is none.

    Where one lane is inside the buffer, all of that vector is: a whole number of vectors fills the buffer.
    """
    lanes = len(offsets)
    whole = buffer.scope is not Scope.REGISTER and not prod(buffer.shape) % lanes and not buffer.dtype.is_bool
    if not whole or any(c % lanes for c in base.terms.values()):
        return None
    blocks = {(base.constant + offset) // lanes for offset in offsets}
    return blocks.pop() * lanes - base.constant if len(blocks) == 1 else None


def _outermost_first(item: tuple[int, bool, Expr, int]) -> tuple[int, bool]:
    """By level; what depends on loads comes last, because it stands in the middle of its scope."""
    return item[:2]


def _memory_suffix(t: DType) -> str:
    return f"v{t.lanes}i8" if t.is_bool else suffix(t)


def _without_true(mask: Expr | None) -> Expr | None:
    """A mask that is always true is none; one that is the same in all lanes is a scalar."""
    if isinstance(mask, Broadcast):
        mask = mask.a
    return None if isinstance(mask, Const) and mask.value else mask
