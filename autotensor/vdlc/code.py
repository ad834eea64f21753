"""Programs of the accelerator, and the way from loops to such a program.

    for i, j in 8, 8: AL[i][j] = A[ko*8+i][yo*8+j]   ──▶  vdlc.dma_copy2d(AL, A[ko*8:+8][yo*8:+8])
    for i, j in 8, 8: CL[i][j] = 0                   ──▶  vdlc.fill_zero(CL)
    for k, i, j in 8, 8, 8: CL[i][j] += AL[k][i]*…   ──▶  vdlc.fused_gemm8x8_add(CL, AL, BL)

Each instruction is declared by its meaning; `tensorize` marks the loops that it replaces. Other loops are an
error, except for the zeros that begin a marked sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec

from autotensor import te
from autotensor.base.errors import CodegenError
from autotensor.codegen.declared_intrinsics import Box, Declared
from autotensor.ir.expr import Const, Var
from autotensor.ir.func import Program, Scope
from autotensor.ir.stmt import Alloc, For, Seq, Stmt
from autotensor.lowering.intrinsic_declaration import declared

TILE = 8
COPY, GEMM, ZERO = "vdlc.dma_copy2d", "vdlc.fused_gemm8x8_add", "vdlc.fill_zero"
PADS = {GEMM: ("acc_buffer", "inp_buffer", "inp_buffer")}  # the scratch-pads where operands must lie


@cache
def intrinsics() -> Mapping[str, Declared]:
    """The instructions, by their meanings."""
    A, B = te.placeholder((TILE, TILE), name="A"), te.placeholder((TILE, TILE), name="B")
    k = te.reduce_axis((0, TILE), name="k")
    gemm = te.compute((TILE, TILE), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    copy = te.compute((TILE, TILE), lambda y, x: A[y, x], name="C")
    return {COPY: declared(COPY, copy, [A]), GEMM: declared(GEMM, gemm, [A, B], reset=ZERO)}


class Region(msgspec.Struct, frozen=True):
    """A box of a buffer: for each dimension a constant, the step of each loop, and an extent."""

    buffer: str
    box: tuple[tuple[int, dict[str, int], int], ...]

    def within(self, loops: Mapping[str, int]) -> tuple[slice, ...]:
        starts = (c + sum(k * loops[v] for v, k in terms.items()) for c, terms, _ in self.box)
        return tuple(slice(s, s + n) for s, (_, _, n) in zip(starts, self.box, strict=True))

    def __str__(self) -> str:
        return _short(self.buffer) + "".join(f"[{_sum_text(c, terms)}:+{n}]" for c, terms, n in self.box)


class Instruction(msgspec.Struct, frozen=True, tag=True):
    """One operation on regions; the first region is written."""

    name: str
    regions: tuple[Region, ...]


class Loop(msgspec.Struct, frozen=True, tag=True):
    """Runs its body `extent` times."""

    var: str
    extent: int
    body: tuple[Loop | Instruction, ...]


class Pad(msgspec.Struct, frozen=True):
    """A local buffer: its scratch-pad, shape and type."""

    place: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int


class Code(msgspec.Struct, frozen=True):
    """A program of the accelerator."""

    body: tuple[Loop | Instruction, ...]
    pads: dict[str, Pad]

    def __str__(self) -> str:
        sizes = {name: "".join(f"[{n}]" for n in p.shape) for name, p in self.pads.items()}
        heads = [f"{p.place} {_short(name)}{sizes[name]}" for name, p in self.pads.items()]
        return "\n".join([*heads, *_lines(self.body, 0, self.pads)])


def select(program: Program) -> Code:
    """The accelerator's instructions for a scheduled program. Raises CodegenError for loops without an
    instruction, LoweringError for marked loops that mean something else than their instruction."""
    pads: dict[str, Pad] = {}
    body = tuple(step for f in (*program.prepare, *program.run) for step in _steps(f.body, pads))
    return Code(body, pads)


def _steps(s: Stmt, pads: dict[str, Pad]) -> tuple[Loop | Instruction, ...]:
    match s:
        case Seq(stmts):
            return tuple(step for part in stmts for step in _steps(part, pads))
        case Alloc(_, body):
            return _steps(body, pads)
        case For(thread=name) if name in intrinsics():
            gemm = intrinsics()[name]
            begun = gemm.begins(s)  # a marked loop over rows also has its zeros marked
            return (_given(name, gemm.boxes(s), pads) if begun is None else _given(ZERO, (begun,), pads),)
        case For(extent=Const(n)):
            zeroed = intrinsics()[GEMM].begins(s)
            if zeroed is not None and zeroed.buffer.scope is Scope.LOCAL:
                return (_given(ZERO, (zeroed,), pads),)
            return (Loop(s.var.name, int(n), _steps(s.body, pads)),)
    raise CodegenError(
        f"vdlc has no instruction for\n{s}",
        fix=f"Copy tiles of 8x8 to scratch-pads with cache_read, and tensorize: {', '.join(intrinsics())}.",
    )


def _given(name: str, boxes: Sequence[Box], pads: dict[str, Pad]) -> Instruction:
    """The instruction on these boxes. Local buffers get the scratch-pads that it needs."""
    places = PADS.get(name, ("",) * len(boxes))
    for box, place in zip(boxes, places, strict=True):
        b = box.buffer
        if b.scope is not Scope.LOCAL and place:
            raise CodegenError(f"{name} reads {b.name!r} from memory.", fix=f"cache_read it to the {place}.")
        if b.scope is Scope.LOCAL:
            here = pads.get(b.name, Pad(place, b.shape, str(b.dtype), b.bytes))
            if place and here.place not in ("", place):
                raise CodegenError(f"{b.name!r} cannot lie in the {here.place} and the {place}.")
            pads[b.name] = msgspec.structs.replace(here, place=place or here.place)
    return Instruction(name, tuple(_region(box) for box in boxes))


def _region(box: Box) -> Region:
    steps = ({t.name: k for t, k in a.terms.items() if isinstance(t, Var)} for a in box.begin)
    constants = (a.constant for a in box.begin)
    return Region(box.buffer.name, tuple(zip(constants, steps, box.extents, strict=True)))


def _lines(body: Sequence[Loop | Instruction], depth: int, pads: Mapping[str, Pad]) -> Iterator[str]:
    for s in body:
        if isinstance(s, Instruction):
            given = ", ".join(_short(r.buffer) if r.buffer in pads else str(r) for r in s.regions)
            yield f"{'  ' * depth}{s.name}({given})"
        else:
            yield f"{'  ' * depth}for {_axis(s.var)} in range({s.extent}):"
            yield from _lines(s.body, depth + 1, pads)


def _sum_text(constant: int, terms: Mapping[str, int]) -> str:
    parts = [f"{_axis(v)}*{k}" if k != 1 else _axis(v) for v, k in terms.items()]
    return "+".join([*parts, *([str(constant)] if constant or not parts else [])])


def _short(name: str) -> str:
    """The buffer's name without its reader: A.local:C.local is A.local, as C.local reads it."""
    return name.split(":")[0]


def _axis(name: str) -> str:
    """The axis's name without its stage: C.local:k.0 is axis k.0 of stage C.local."""
    return name.split(":")[-1]
