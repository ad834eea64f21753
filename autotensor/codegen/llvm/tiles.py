"""AMX's tiles: the contents of each register in a kernel, and the dots, loads and stores of tiles.

    C[0:256] = x16(0), …                      tilezero 0
    for k: C[0:256] = x86.tdpbusd(C[0:256], A[rows], W[rows])
                                              tileloadd 4, A;  tileloadd 5, W;  tdpbusd 0, 4, 5
    D[0:16] = C[0:16]                         tilestored 0, seen;  D[0:16] = seen[0:16]

This module assigns the registers. LLVM's own allocation gives each register one shape in a function, and ends
the process if there are too few registers. From the store of zeros on, sums stay in registers if their buffer
is a register buffer. Each shape of an operand has its own registers, which loads use in turn. The whole
kernel has one configuration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from autotensor.base.errors import CodegenError
from autotensor.codegen.access import Access, load_access
from autotensor.codegen.dot_instructions import DOTS, TILE_REGISTERS, takes_tiles
from autotensor.codegen.llvm.panels import passes_over, prefetch
from autotensor.ir.affine import Affine
from autotensor.ir.expr import Broadcast, Const, Dot, Expr, Load
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.lane_offsets import lanes_of
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import Store

Shape = tuple[int, int]  # the shape of a tile: rows, and the bytes of each row
Role = tuple[str, Shape]  # "a" or "b"
PALETTE = 1
# Loads of tiles read a panel from beyond L2 at 8 GB/s, because 16 rows are too few for the processor to fetch
# ahead. If the next panel is fetched, 128 x 768 x 3072 in bfloat16 takes 0.58 ms instead of 0.79 (Emerald
# Rapids, 2026-12).
AHEAD = 4096  # bytes from a tile to the tile that is fetched, if each panel is read once (chosen, 2026-12)


@dataclass(frozen=True, slots=True)
class Sums:
    """A buffer of sums: its first register, the elements of a tile, and the elements of a tile's row."""

    first: int
    lanes: int
    columns: int


@dataclass(slots=True)
class TileRegisters:
    """The eight tile registers of a kernel, and their uses."""

    shapes: tuple[Shape, ...] = ()  # the shape of each register
    sums: dict[Buffer, Sums] = field(default_factory=dict)
    operands: dict[Role, tuple[int, ...]] = field(default_factory=dict)
    holders: dict[int, Any] = field(default_factory=dict)  # register → the operand that it is known to hold
    turn: dict[Role, int] = field(default_factory=lambda: defaultdict(int))

    def in_registers(self, buffer: Any) -> Sums | None:
        """The sums of a buffer if they stay in registers, else None."""
        return self.sums.get(buffer) if buffer.scope is Scope.REGISTER else None

    def configuration(self) -> str:
        """The 64 bytes that configure the registers, in LLVM's notation."""
        rows = [n for n, _ in self.shapes] + [0] * (16 - len(self.shapes))
        widths = [n for _, n in self.shapes] + [0] * (16 - len(self.shapes))
        numbers = [PALETTE, *[0] * 15, *(b for n in widths for b in (n % 256, n // 256)), *rows]
        return "".join(f"\\{n:02X}" for n in numbers)


def tile_registers(kernel: str, dots: Iterable[Dot]) -> TileRegisters:
    """The registers of a kernel with these dots. Raises CodegenError where there are too few."""
    places: defaultdict[Buffer, dict[Expr, Shape]] = defaultdict(dict)
    lanes: dict[Buffer, int] = {}
    wanted: dict[Role, int] = {}
    for e in dots:
        if takes_tiles(e.instruction) and isinstance(e.sums, Load):
            places[e.sums.buffer][e.sums.indices[0]] = _shape(e, e.rows)
            lanes[e.sums.buffer] = max(e.dtype.lanes, lanes.get(e.sums.buffer, 0))
            wanted |= {("a", _shape(e.a, e.rows)): 1, ("b", _shape(e.b, e.depth // e.group)): 1}
    shapes: list[Shape] = []
    found = TileRegisters()
    for buffer, of in places.items():
        (shape, *others), count = {*of.values()}, len(of) if buffer.scope is Scope.REGISTER else 1
        if others:
            raise CodegenError(f"kernel {kernel!r}: sums in {buffer.name!r} are tiles of several shapes.")
        found.sums[buffer] = Sums(len(shapes), lanes[buffer], lanes[buffer] // shape[0])
        shapes += [shape] * count
    spare = TILE_REGISTERS - len(shapes) - len(wanted)
    if spare < 0:
        raise CodegenError(
            f"kernel {kernel!r}: its dots need {len(shapes) + len(wanted)} registers of tiles.",
            fix=f"There are {TILE_REGISTERS}: take fewer sums at once, or tiles of one shape.",
        )
    for role, (part, shape) in enumerate(wanted):
        count = 1 + (spare if role == len(wanted) - 1 else 0)
        found.operands[part, shape] = tuple(range(len(shapes), len(shapes) + count))
        shapes += [shape] * count
    found.shapes = tuple(shapes)
    return found


def _shape(e: Expr, rows: int) -> Shape:
    return rows, e.dtype.bytes // rows


def call(w: Any, name: str, *args: tuple[str, Any]) -> None:
    """Calls an LLVM function on tiles, which returns nothing."""
    w.declared.setdefault(name, f"declare void @{name}({', '.join(kind for kind, _ in args)})")
    w.do(f"call void @{name}({', '.join(f'{kind} {value}' for kind, value in args)})")


def configure(w: Any) -> None:
    """Gives the registers their shapes, at the beginning of a kernel."""
    text = w.tiles.configuration()
    name = "tiles." + "_".join(f"{rows}x{width}" for rows, width in w.tiles.shapes)
    w.declared[name] = f'@{name} = private unnamed_addr constant [64 x i8] c"{text}", align 64'
    call(w, "llvm.x86.ldtilecfg", ("ptr", f"@{name}"))


def release(w: Any) -> None:
    """Empties the registers at the end of a kernel, so that the system need not save them."""
    call(w, "llvm.x86.tilerelease")


def add(w: Any, s: Store, e: Dot) -> None:
    """Writes a dot of tiles, whose result must be stored where its sums are."""
    buffer, index = s.buffer, s.indices[0]
    if not isinstance(e.sums, Load) or (e.sums.buffer, e.sums.indices[0]) != (buffer, index) or s.mask:
        raise w.error("a dot of tiles must be stored where its sums are.")
    of, start = w.tiles.sums[buffer], _start(w, e.sums)
    a = _loaded(w, e.a, e.rows, "a")
    b = _loaded(w, e.b, e.depth // e.group, "b")
    near = w.tiles.in_registers(buffer) is not None
    register = of.first + (start.constant // of.lanes if near else 0)
    row = ("i64", of.columns * buffer.dtype.bytes)
    at = ("i8", register)
    if not near:
        w.reads(e.sums)
        pointer = ("ptr", w.address(buffer, start))
        call(w, "llvm.x86.tileloadd64", at, pointer, row)
    call(w, DOTS.get(e.instruction).write(w, e, "", "", ""), at, ("i8", a), ("i8", b))
    if not near:
        call(w, "llvm.x86.tilestored64", at, pointer, row)
    w.forget(buffer)


def _start(w: Any, e: Load) -> Affine:
    """The first element of a tile whose rows follow one another in memory."""
    found = load_access(e.buffer, e.indices[0])
    if not found.is_whole or found.start is None:
        raise w.error(f"sums of tiles lie apart: {e}.")
    return found.start


def _loaded(w: Any, e: Expr, rows: int, part: str) -> int:
    """The register of an operand: `rows` rows of neighbouring elements, at equal distances in memory.

    A register's contents are known only in the scope of its load: an inner loop loads the operand again.
    """
    tiles: TileRegisters = w.tiles
    known = ("tile", e)
    scope, register = w.known.get(known, (None, -1))
    if scope is w.scopes[-1] and tiles.holders.get(register) is e:
        return int(register)
    width = e.dtype.lanes // rows
    lanes = lanes_of(e.indices[0]) if isinstance(e, Load) and e.mask is None else None
    first = 0 if lanes is None else lanes.offsets[0]
    pitch = lanes.offsets[width] - first if lanes is not None and rows > 1 else width
    places = tuple(first + r * pitch + c for r in range(rows) for c in range(width))
    if lanes is None or not isinstance(e, Load) or lanes.offsets != places:
        raise w.error(f"an operand of a dot of tiles does not lie in memory as a tile: {e}.")
    role = (part, _shape(e, rows))
    own = tiles.operands[role]
    register = own[tiles.turn[role] % len(own)]
    tiles.turn[role] += 1
    pointer = w.address(e.buffer, lanes.base.shift(first))
    step = ("i64", pitch * e.buffer.dtype.bytes)
    call(w, "llvm.x86.tileloadd64", ("i8", register), ("ptr", pointer), step)
    if part == "b" and e.buffer.scope is Scope.GLOBAL:
        _fetch_ahead(w, e, pointer, lanes.base, rows, pitch * e.buffer.dtype.bytes)
    tiles.holders[register] = e
    for read in w.reads(e):  # recorded, so that threads meet before another kernel writes to this buffer
        w.readers[read].append(known)
    w.remember(known, (w.scopes[-1], register), w.depth)
    return register


def _fetch_ahead(w: Any, e: Load, pointer: str, place: Affine, rows: int, step: int) -> None:
    """Fetches some rows of the tile in the next panel into L2, where a tile of this panel is loaded. If there
    is only one pass, it fetches all rows of a tile that follows soon."""
    passes = passes_over(w, place)
    share, ahead = rows, AHEAD
    if passes.loops and passes.ahead > 0 and passes.count > 0:
        share, ahead = passes.share(rows), passes.ahead * e.buffer.dtype.bytes
        begin = w.value(simplify(passes.first(rows) * step))
        pointer = w.op(f"getelementptr i8, ptr {pointer}, i64 {begin}")
    elif passes.loops:
        return
    for row in range(share):
        prefetch(w, pointer, ahead + row * step)


def begin(w: Any, s: Store, sums: Sums) -> None:
    """Writes a store of zeros, with which sums of tiles begin. Each store is one row; the store of the first
    row clears the tile."""
    place, value = lanes_of(s.indices[0]), s.value.a if isinstance(s.value, Broadcast) else s.value
    zeros = isinstance(value, Const) and value.value == 0 and s.mask is None
    if place is None or not place.base.is_constant or not zeros:
        raise w.error(f"sums of tiles begin with zeros, not with {s.value}.")
    tile, row = divmod(place.base.constant + place.offsets[0], sums.lanes)
    if row == 0:
        call(w, "llvm.x86.tilezero", ("i8", sums.first + tile))
    w.forget(s.buffer)


def show(w: Any, buffer: Any, sums: Sums, access: Access) -> None:
    """Stores a tile of sums to memory when the first of its elements is loaded. Then memory has all
    elements."""
    if access.start is None or access.start.terms:
        raise w.error(f"the place of sums of tiles in {buffer.name!r} must be a constant.")
    first, last = (access.start.constant + end(access.offsets) for end in (min, max))
    for number in range(first // sums.lanes, last // sums.lanes + 1):
        known = ("seen", buffer, number)
        if known in w.known:
            continue
        place = number * sums.lanes * buffer.dtype.bytes
        pointer = w.op(f"getelementptr inbounds i8, ptr {w.places[buffer].pointer}, i64 {place}")
        row = ("i64", sums.columns * buffer.dtype.bytes)
        call(w, "llvm.x86.tilestored64", ("i8", sums.first + number), ("ptr", pointer), row)
        w.remember(known, pointer, w.depth)
        w.readers[buffer].append(known)
