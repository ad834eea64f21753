"""Loads and stores: addresses, vectors, masks, gathers. `codegen/access.py` decides the kind of an access.

An address is a chain of getelementptr, one per term of the index, outermost loop first. Each is computed at
the head of its loop. The constant comes last and becomes the displacement of the memory operand. Only this
constant differs between the rows of a tile:

    A[io*14336 + k + 3072]    A ──io*14336──▶ ──k──▶ ──3072──▶
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from autotensor.base.dtype import DType, bool_, int64
from autotensor.codegen.access import Access, Kind, load_access, store_access
from autotensor.codegen.dot_instructions import takes_tiles
from autotensor.codegen.llvm import tiles
from autotensor.codegen.llvm.expr import Place, Start, ValueWriter
from autotensor.codegen.llvm.function_writer import cond_type, literal, mem, suffix, ty, vector_literal
from autotensor.codegen.llvm.lanes.byte_tables import byte_lanes
from autotensor.codegen.llvm.lanes.load_masks import load_mask
from autotensor.codegen.llvm.lanes.pieces import (
    Piece,
    narrowed,
    pieces_of_load,
    pieces_of_store,
    widened,
)
from autotensor.codegen.llvm.lanes.shuffles import picked, shuffle, transposed
from autotensor.codegen.llvm.lanes.stretches import between_steps, narrow_windows, picked_from
from autotensor.codegen.shared_vectors import LEAST_LANES, SharedVectors
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Cast, Dot, Expr, Load, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.intervals import Interval
from autotensor.ir.lane_offsets import in_loaded_lane
from autotensor.ir.simplify import Simplifier
from autotensor.ir.stmt import Store

ALIGNMENT = 64  # alignment, in bytes, of buffers that a kernel allocates


def allocated_bytes(buffer: Buffer) -> int:
    """The bytes that a kernel allocates for a buffer: whole vectors, at least one."""
    return -(-max(1, buffer.bytes) // ALIGNMENT) * ALIGNMENT


def address(w: ValueWriter, buffer: Any, index: Affine) -> tuple[str, int]:
    """A pointer to an element, and its alignment in bytes as far as it can be proved."""
    place, constant = w.place(buffer), index.constant
    key = (w.scopes[-1], place.pointer, constant >= 0, *index.terms.items())
    start = w.starts.get(key) or _start(w, buffer, place, index, key)
    pointer, safe, divisor = start
    if constant:
        last = (pointer, constant, safe)
        pointer = w.known.get(last) or w.remember(
            last, w.op(f"{_step(buffer, safe)} {pointer}, i64 {constant}"), w.depth
        )
    return pointer, gcd(place.align, gcd(divisor, constant) * buffer.dtype.bytes) or place.align


def _step(buffer: Any, safe: bool) -> str:
    """The instruction that moves a pointer by elements; `safe`: the result is inside the buffer."""
    return f"getelementptr {'inbounds ' if safe else ''}{mem(buffer.dtype)}, ptr"


def _start(w: ValueWriter, buffer: Any, place: Place, index: Affine, key: Any) -> Start:
    """The address of an index without its constant: all elements of a tile have this address in common."""
    if buffer.scope is Scope.REGISTER and index.terms:
        at = " + ".join(f"{c}*{getattr(t, 'name', type(t).__name__)}" for t, c in index.terms.items())
        raise w.error(
            f"index {at} of register buffer {buffer.name!r} is not a constant.",
            fix="Unroll the loop over it, or keep the buffer in local scope.",
        )
    # Partial sums stay inside the object only when nothing is subtracted later.
    safe = index.constant >= 0 and all(c > 0 and w.bounds.at_least(t, 0) for t, c in index.terms.items())
    step, pointer, reached, lasts = _step(buffer, safe), place.pointer, place.level, True
    terms = sorted(
        ((w.level(t), bool(w.reads(t)), t, c) for t, c in index.terms.items()), key=_outermost_first
    )
    for level, loaded, term, c in terms:
        reached = max(reached, level)
        known = (pointer, term, c, safe)
        found = w.known.get(known)
        if found is None:
            saved = w.cur if loaded else w.at_head(reached)
            elements = w.index(term)
            if c != 1:
                elements = w.op(f"mul nsw i64 {elements}, {c}")
            found = w.op(f"{step} {pointer}, i64 {elements}")
            w.cur = saved
            if loaded:
                lasts = False  # terms in memory may change
            else:
                w.remember(known, found, reached)
        pointer = found
    start = (pointer, safe, index.shift(-index.constant).divisor)
    if lasts:
        w.starts[key] = start
    return start


# -- loads ------------------------------------------------------------------------------------------------
def load(w: ValueWriter, e: Load) -> str:
    """The loaded value, in the type that registers hold."""
    t, buffer = e.dtype, e.buffer
    index = _flat_index(w, e)
    access = load_access(buffer, index, e.mask)
    start, mask = access.start, access.mask
    if (sums := w.tiles.in_registers(buffer)) is not None:
        tiles.show(w, buffer, sums, access)
    if mask is not None and mask.dtype.lanes not in (1, t.lanes):
        raise w.error(f"a load of {t} from {buffer.name!r} has a mask of {mask.dtype.lanes} lanes.")
    if start is None and (lanes := _looked_up(w, e, index, mask)):
        return lanes
    if start is None or access.kind is Kind.SCATTERED:
        return _gather(w, t, _pointers(w, buffer, index, access), mask)
    match access.kind:
        case Kind.CONTIGUOUS if mask is not None and mask.dtype.lanes > 1:
            pieces = pieces_of_load(w, mask)
            if pieces is not None:
                return _load_pieces(w, buffer, start, t, pieces)
            return _masked_load(w, t, *address(w, buffer, start), load_mask(w, mask))
        case Kind.CONTIGUOUS:
            value = _plain_load(w, buffer, start, t, mask)
            held = w.held.get((buffer, start.constant, t)) if _is_fixed(access) else None
            if held is not None:
                w.copies[value] = held
            return value
        case Kind.BROADCAST:
            return w.splat(_plain_load(w, buffer, start, t.element, mask), t)
        case Kind.PERMUTED:
            return shuffle(w, t, _plain_load(w, buffer, start, t, mask), "poison", access.offsets)
    if mask is None and buffer.scope is not Scope.REGISTER:
        vectors = between_steps(t, start.constant, access.offsets)
        if _inside(w, buffer, start, vectors, t.lanes):
            parts = [_plain_load(w, buffer, start.shift(at), t, None) for at in vectors]
            return picked(w, t, parts, [divmod(o - vectors[0], t.lanes) for o in access.offsets])
        if width := _stretch(access.offsets):
            return _from_stretch(w, t, buffer, start, access.offsets, width)
        if windows := narrow_windows(t, access.offsets):
            parts = [_plain_load(w, buffer, start.shift(at), windows.part(t), None) for at in windows.starts]
            return picked_from(w, t, parts, windows, access.offsets)
    result = "poison"
    for k, offset in enumerate(access.offsets):
        one = _plain_load(w, buffer, start.shift(offset), t.element, mask)
        result = w.op(f"insertelement {ty(t)} {result}, {ty(t.element)} {one}, i64 {k}")
    return result


def _looked_up(w: ValueWriter, e: Load, index: Expr, mask: Expr | None) -> str:
    """The lanes of a load whose indices are data, loaded one after another; "" if that gains nothing.

    No instruction gathers elements of fewer than 32 bits. Loading indices as a vector and taking them out of
    it costs twice as much as loading each index alone.
    """
    if mask is not None or e.buffer.scope is Scope.REGISTER or not w.reads(index) or e.dtype.bits >= 32:
        return ""
    if lanes := byte_lanes(w, e, index, w.place(e.buffer).pointer):
        return lanes
    places = [in_loaded_lane(index, const(k)) for k in range(e.dtype.lanes)]
    simplified, result = Simplifier(w.bounds), "poison"
    for k, place in enumerate(places):
        if place is None:
            return ""
        one = w.value(Load(e.buffer, (simplified.expr(place),)))
        result = w.op(f"insertelement {ty(e.dtype)} {result}, {ty(e.dtype.element)} {one}, i64 {k}")
    return result


def _inside(w: ValueWriter, buffer: Buffer, start: Affine, offsets: Sequence[int], lanes: int) -> bool:
    """Whether vectors with this number of lanes, at these ascending offsets, stay inside the buffer."""
    if not offsets or buffer.strides or buffer.extents:
        return False
    last = prod(buffer.shape) - lanes - (offsets[-1] - offsets[0])
    return w.bounds.of_affine(start.shift(offsets[0])).within(Interval(0, last))


def _stretch(offsets: Sequence[int]) -> int:
    """The width of two vectors that together hold all lanes and nothing beyond them; 0 if there is no such
    width."""
    span, width = max(offsets) - min(offsets) + 1, 1
    while 2 * width <= min(span, len(offsets)):
        width *= 2
    return width if len(offsets) >= LEAST_LANES and width >= LEAST_LANES and span <= 2 * width else 0


def _from_stretch(
    w: ValueWriter, t: DType, buffer: Any, start: Affine, offsets: Sequence[int], width: int
) -> str:
    """Lanes from anywhere in a stretch of memory, which two vectors hold: its first elements and its last.

    Loading lane by lane costs a move for each lane, a shuffle of two vectors little more than one move.
    """
    low, high = min(offsets), max(offsets) - width + 1
    part = t.element.with_lanes(width)
    first = _plain_load(w, buffer, start.shift(low), part, None)
    last = _plain_load(w, buffer, start.shift(high), part, None) if high > low else first
    lanes = (o - low if o - low < width else width + o - high for o in offsets)
    order = ", ".join(f"i32 {k}" for k in lanes)
    return w.op(f"shufflevector {ty(part)} {first}, {ty(part)} {last}, <{t.lanes} x i32> <{order}>")


def load_shared(w: ValueWriter, shared: SharedVectors) -> None:
    """Loads vectors that several loads share; the results of these loads are then known."""
    first = next(iter(shared.wanted))
    t, buffer = first.dtype, first.buffer
    vectors = [_plain_load(w, buffer, shared.base.shift(at), t, None) for at in shared.vectors]
    columns = transposed(w, t, vectors) if shared.is_square else []
    for n, wanted in enumerate(shared.wanted):
        value = columns[n] if columns else picked(w, t, vectors, shared.sources(wanted))
        w.remember(wanted, value, w.depth)
        for read in w.reads(wanted):  # recorded now, so that threads meet before a later store to this buffer
            w.readers[read].append(wanted)


def _flat_index(w: ValueWriter, access: Load | Store) -> Expr:
    """The only index of an access, in 64 bits, because narrower sums may wrap."""
    if len(access.indices) != 1:
        raise w.error(
            f"access to {access.buffer.name!r} has {len(access.indices)} indices; "
            "lowering must flatten it to one."
        )
    index = access.indices[0]
    return index if index.dtype.element == int64 else Cast(int64, index)


def _plain_load(w: ValueWriter, buffer: Any, index: Affine, t: DType, mask: Expr | None) -> str:
    """Loads consecutive elements. If the scalar mask is false, zeros are read instead, without a branch."""
    pointer, align = address(w, buffer, index)
    if mask is not None:
        pointer = w.op(f"select i1 {w.value(mask)}, ptr {pointer}, ptr {_zeros(w, t.bytes)}")
    return _to_register(w, w.op(f"load {mem(t)}, ptr {pointer}, align {align}"), t)


def _zeros(w: ValueWriter, size: int) -> str:
    """A constant of at least `size` zero bytes."""
    name = f"zeros.{max(64, size)}"
    line = f"@{name} = private unnamed_addr constant [{max(64, size)} x i8] zeroinitializer, align 64"
    w.declared.setdefault(name, line)
    return f"@{name}"


def _load_pieces(w: ValueWriter, buffer: Any, start: Affine, t: DType, pieces: Sequence[Piece]) -> str:
    """The lanes of the pieces, each loaded by itself; zeros in the other lanes."""
    result = "zeroinitializer"
    for p in pieces:
        part = t.element.with_lanes(p.lanes)
        pointer, align = address(w, buffer, start.shift(p.first))
        loaded = w.op(f"load {mem(part)}, ptr {pointer}, align {align}")
        result = widened(w, mem(part), loaded, p, mem(t), result)
    return _to_register(w, result, t)


def _masked_load(w: ValueWriter, t: DType, pointer: str, align: int, mask: str) -> str:
    m, word = cond_type(t), mem(t)
    name = f"llvm.masked.load.{_memory_suffix(t)}.p0"
    w.declared.setdefault(name, f"declare {word} @{name}(ptr, {m}, {word})")
    loaded = w.op(f"call {word} @{name}(ptr align {align} {pointer}, {m} {mask}, {word} zeroinitializer)")
    return _to_register(w, loaded, t)


def _gather(w: ValueWriter, t: DType, pointers: str, mask: Expr | None) -> str:
    m, word, v = cond_type(t), mem(t), f"<{t.lanes} x ptr>"
    name = f"llvm.masked.gather.{_memory_suffix(t)}.v{t.lanes}p0"
    w.declared.setdefault(name, f"declare {word} @{name}({v}, {m}, {word})")
    align = t.element.bytes
    operands = f"{v} align {align} {pointers}, {m} {_mask_of_lanes(w, mask, t)}, {word} zeroinitializer"
    return _to_register(w, w.op(f"call {word} @{name}({operands})"), t)


def _pointers(w: ValueWriter, buffer: Any, index: Expr, access: Access) -> str:
    """A vector of pointers, with constant steps from one base if possible, else from a vector of indices."""
    if access.start is not None:
        pointer, _ = address(w, buffer, access.start)
        steps = vector_literal(access.offsets, index.dtype)
    elif buffer.scope is Scope.REGISTER:
        raise w.error(f"the vector index of register buffer {buffer.name!r} is not a constant.")
    else:
        pointer, steps = w.place(buffer).pointer, w.index(index)
    return w.op(f"getelementptr {mem(buffer.dtype)}, ptr {pointer}, <{index.dtype.lanes} x i64> {steps}")


def _mask_of_lanes(w: ValueWriter, mask: Expr | None, t: DType) -> str:
    b = bool_.with_lanes(t.lanes)
    if mask is None:
        return literal(True, b)
    value = w.value(mask)
    return value if mask.dtype.lanes == t.lanes else w.splat(value, b)


def _to_register(w: ValueWriter, x: str, t: DType) -> str:
    return w.op(f"icmp ne {mem(t)} {x}, {literal(0, DType('uint', 8, t.lanes))}") if t.is_bool else x


# -- stores -----------------------------------------------------------------------------------------------
def store(w: ValueWriter, s: Store) -> None:
    buffer, value = s.buffer, s.value
    if isinstance(value, Dot) and takes_tiles(value.instruction):
        return tiles.add(w, s, value)
    if (sums := w.tiles.in_registers(buffer)) is not None:
        return tiles.begin(w, s, sums)
    index = _flat_index(w, s)
    access = store_access(buffer, index, s.mask)
    n, mask = index.dtype.lanes, access.mask
    t = buffer.dtype.with_lanes(n)
    if mask is not None and mask.dtype.lanes not in (1, n):
        raise w.error(f"a store of {t} to {buffer.name!r} has a mask of {mask.dtype.lanes} lanes.")
    if value.dtype.element != buffer.dtype or value.dtype.lanes not in (1, n):
        raise w.error(f"{value.dtype} is stored into {buffer.name!r}, which takes {t}.")
    x = held = w.value(value)
    if value.dtype.lanes < n:
        x = held = w.splat(x, t)
    if t.is_bool:
        x = w.op(f"zext {ty(t)} {x} to {mem(t)}")
    if access.start is None or access.kind is Kind.SCATTERED:
        _scatter(w, t, x, _pointers(w, buffer, index, access), mask)
    elif access.kind is Kind.CONTIGUOUS:
        _store_vector(w, buffer, access.start, t, x, mask)
    elif mask is not None:
        raise w.error(f"masked scattered store to register buffer {buffer.name!r}.")
    else:
        word = ty(DType("uint", 8)) if t.is_bool else ty(t.element)
        for k, offset in enumerate(access.offsets):
            one = w.op(f"extractelement {mem(t)} {x}, i64 {k}")
            pointer, align = address(w, buffer, access.start.shift(offset))
            w.do(f"store {word} {one}, ptr {pointer}, align {align}")
    w.forget(buffer)
    if buffer.scope in (Scope.LOCAL, Scope.REGISTER):
        _hold(w, buffer, access, t, held)


def _hold(w: ValueWriter, buffer: Any, access: Access, t: DType, x: str) -> None:
    """Records the value that a store leaves in a private buffer, so that a later load can use this value."""
    first = access.start.constant if access.start is not None and _is_fixed(access) else None
    if (buffer, first, t) not in w.held:  # otherwise no other known value overlaps
        end = 0 if first is None else first + t.lanes
        for key in [k for k in w.held if k[0] is buffer]:
            if first is None or (key[1] < end and first < key[1] + key[2].lanes):
                del w.held[key]
    if first is not None:
        w.held[buffer, first, t] = x


def _is_fixed(access: Access) -> bool:
    """Whether an access moves whole lanes at a constant index."""
    return access.is_whole and not (access.start is None or access.start.terms)


def _store_vector(w: ValueWriter, buffer: Any, start: Affine, t: DType, x: str, mask: Expr | None) -> None:
    """Stores neighbouring elements. A masked store to registers becomes a full store with the old values in
    the other lanes, if the buffer has room for all lanes."""
    pointer, align = address(w, buffer, start)
    if mask is not None and buffer.scope is Scope.REGISTER and _has_place(buffer, start, t.lanes):
        old = w.op(f"load {mem(t)}, ptr {pointer}, align {align}")
        x = w.op(f"select {ty(mask.dtype)} {w.value(mask)}, {mem(t)} {x}, {mem(t)} {old}")
        mask = None
    if mask is None:
        w.do(f"store {mem(t)} {x}, ptr {pointer}, align {align}")
    elif mask.dtype.lanes == 1:
        then, after = w.label("store"), w.label("stored")
        w.do(f"br i1 {w.value(mask)}, label %{then}, label %{after}")
        w.start(then)
        w.do(f"store {mem(t)} {x}, ptr {pointer}, align {align}")
        w.do(f"br label %{after}")
        w.start(after)
    elif (pieces := pieces_of_store(w, mask)) is not None:
        for p in pieces:
            part = t.element.with_lanes(p.lanes)
            there, align = address(w, buffer, start.shift(p.first))
            w.do(f"store {mem(part)} {narrowed(w, mem(t), x, p)}, ptr {there}, align {align}")
    else:
        m, word = cond_type(t), mem(t)
        name = f"llvm.masked.store.{_memory_suffix(t)}.p0"
        w.declared.setdefault(name, f"declare void @{name}({word}, ptr, {m})")
        w.do(f"call void @{name}({word} {x}, ptr align {align} {pointer}, {m} {w.value(mask)})")


def _has_place(buffer: Buffer, start: Affine, lanes: int) -> bool:
    """Whether all lanes, also masked ones, lie in the memory of a register buffer."""
    return 0 <= start.constant <= allocated_bytes(buffer) // buffer.dtype.bytes - lanes


def _scatter(w: ValueWriter, t: DType, x: str, pointers: str, mask: Expr | None) -> None:
    m, word, v = cond_type(t), mem(t), f"<{t.lanes} x ptr>"
    name = f"llvm.masked.scatter.{_memory_suffix(t)}.v{t.lanes}p0"
    w.declared.setdefault(name, f"declare void @{name}({word}, {v}, {m})")
    align = t.element.bytes
    w.do(f"call void @{name}({word} {x}, {v} align {align} {pointers}, {m} {_mask_of_lanes(w, mask, t)})")


def _outermost_first(item: tuple[int, bool, Expr, int]) -> tuple[int, bool]:
    """A key that sorts terms by level. Terms with loads come last, because they stand in the middle of a
    scope."""
    return item[:2]


def _memory_suffix(t: DType) -> str:
    return f"v{t.lanes}i8" if t.is_bool else suffix(t)
