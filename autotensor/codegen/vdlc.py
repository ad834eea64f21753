"""vdlc: a simulated accelerator, as the smallest example of a target with memory and instructions of its own.

    loops of a schedule                                   instructions
    for i, j in 8, 8: AL[i][j] = A[ko*8+i][yo*8+j]   ──▶  dma_copy2d(AL, A[ko*8:+8][yo*8:+8])
    for i, j in 8, 8: CL[i][j] = 0                   ──▶  fill_zero(CL)
    for i, j, k in 8, 8, 8: CL[i][j] += AL[k][i]*…   ──▶  fused_gemm8x8_add(CL, AL, BL)

`select` recognises instructions in the loops of a scheduled program (`lower_nest`): cache_read, cache_write
and compute_at make the copies and say where they stand; what no instruction does is an error. The machine
that executes them is in `vdlc_machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autotensor.base.errors import CodegenError
from autotensor.ir.affine import Affine, affine
from autotensor.ir.expr import Binary, Const, Expr, Load, Op, Var
from autotensor.ir.func import Buffer, Program, Scope
from autotensor.ir.stmt import Alloc, For, Seq, Stmt, Store

TILE = 8


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a buffer: where it begins, as sums over the loops around it, and its extents."""

    buffer: Buffer
    begin: tuple[Affine, ...]
    extents: tuple[int, ...]

    def within(self, loops: Mapping[Var, int]) -> tuple[slice, ...]:
        starts = [a.constant + sum(k * loops[v] for v, k in _variables(a)) for a in self.begin]
        return tuple(slice(s, s + n) for s, n in zip(starts, self.extents, strict=True))

    def __str__(self) -> str:
        spans = (f"[{_sum_text(a)}:+{n}]" for a, n in zip(self.begin, self.extents, strict=True))
        name = _short(self.buffer)
        return name if self.buffer.scope is Scope.LOCAL else f"{name}{''.join(spans)}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation on regions; the first is written, and read too where `accumulates`."""

    name: str
    regions: tuple[Region, ...]
    unit: str  # "dma" or "matrix"
    accumulates: bool = False

    def __str__(self) -> str:
        return f"vdlc.{self.name}({', '.join(map(str, self.regions))})"


@dataclass(frozen=True, slots=True)
class Loop:
    """Its body, `extent` times."""

    var: Var
    extent: int
    body: tuple[Loop | Instruction, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A program of the accelerator; `pads` says which scratch-pad each local buffer lies in."""

    body: tuple[Loop | Instruction, ...]
    pads: Mapping[Buffer, str]

    def __str__(self) -> str:
        heads = [f"{pad} {_short(b)}{''.join(f'[{n}]' for n in b.shape)}" for b, pad in self.pads.items()]
        return "\n".join([*heads, *_lines(self.body, 0)])


# -- from loops to instructions --------------------------------------------------------------------------


def select(program: Program) -> Code:
    """The accelerator's instructions for a scheduled program.

    Raises CodegenError for loops that no instruction does.
    """
    kernels = [_statement(f.body) for f in (*program.prepare, *program.run)]
    body = tuple(step for kernel in kernels for step in kernel)
    gemms = [i for i in instructions(body) if i.accumulates]
    accumulators = {i.regions[0].buffer for i in gemms}
    local = dict.fromkeys(
        r.buffer for i in instructions(body) for r in i.regions if r.buffer.scope is Scope.LOCAL
    )
    return Code(body, {b: "acc_buffer" if b in accumulators else "inp_buffer" for b in local})


def instructions(body: Sequence[Loop | Instruction]) -> Iterator[Instruction]:
    """All instructions of a body, each once."""
    for step in body:
        if isinstance(step, Loop):
            yield from instructions(step.body)
        else:
            yield step


def _statement(s: Stmt) -> tuple[Loop | Instruction, ...]:
    match s:
        case Seq(stmts):
            return tuple(step for part in stmts for step in _statement(part))
        case Alloc(_, body):
            return _statement(body)
        case For():
            loops, inner = _perfect_nest(s)
            if isinstance(inner, Store):
                for made in (_copied(loops, inner), _filled(loops, inner), _gemm(loops, inner)):
                    if made is not None:
                        return (made,)
            elif loops:
                return (Loop(s.var, loops[s.var], _statement(s.body)),)
    raise CodegenError(
        f"vdlc has no instruction for\n{s}",
        fix="It copies boxes between memory and scratch-pads, fills with zero, and multiplies 8x8 tiles.",
    )


def _perfect_nest(s: Stmt) -> tuple[dict[Var, int], Stmt]:
    """Loops directly in one another, from 0, and what is inside."""
    loops: dict[Var, int] = {}
    while (
        isinstance(s, For)
        and isinstance(s.extent, Const)
        and isinstance(s.begin, Const)
        and s.begin.value == 0
    ):
        loops[s.var] = int(s.extent.value)
        s = s.body
    return loops, s


def _region(
    buffer: Buffer, indices: Sequence[Expr], order: Sequence[Var | None], loops: Mapping[Var, int]
) -> Region | None:
    """The box that indices run through, where index n is something + order[n]; None when they do not."""
    begin, extents = [], []
    for index, var in zip(indices, order, strict=True):
        a = affine(index)
        inner = [t for t in a.terms if t in loops] if a is not None else []
        if (
            a is None
            or inner != ([] if var is None else [var])
            or (var is not None and a.coefficient(var) != 1)
        ):
            return None
        if not all(isinstance(t, Var) for t in a.terms):
            return None
        begin.append(replace(a, terms={t: k for t, k in a.terms.items() if t is not var}))
        extents.append(1 if var is None else loops[var])
    return Region(buffer, tuple(begin), tuple(extents))


def _copied(loops: Mapping[Var, int], s: Store) -> Instruction | None:
    """dst[…+i][…+j] = src[…+i][…+j], between memory and a scratch-pad."""
    order = tuple(loops)
    if not isinstance(s.value, Load) or s.mask is not None or len(order) != 2 or len(s.indices) != 2:
        return None
    written = _region(s.buffer, s.indices, order, loops)
    read = _region(s.value.buffer, s.value.indices, order, loops)
    if written is None or read is None or len({s.buffer.scope, s.value.buffer.scope}) != 2:
        return None
    return Instruction("dma_copy2d", (written, read), "dma")


def _filled(loops: Mapping[Var, int], s: Store) -> Instruction | None:
    """dst[i][j] = 0"""
    zero = isinstance(s.value, Const) and s.value.value == 0 and s.buffer.scope is Scope.LOCAL
    written = (
        _region(s.buffer, s.indices, tuple(loops), loops) if zero and len(loops) == len(s.indices) else None
    )
    return None if written is None else Instruction("fill_zero", (written,), "matrix")


def _gemm(loops: Mapping[Var, int], s: Store) -> Instruction | None:
    """acc[i][j] += left[k][i] * right[k][j], all of 8x8"""
    if list(loops.values()) != [TILE] * 3:
        return None
    i, j, k = loops
    match s.value:
        case Binary(Op.ADD, Load() as acc, Binary(Op.MUL, Load() as left, Load() as right)):
            found = [
                _region(s.buffer, s.indices, (i, j), loops),
                _region(left.buffer, left.indices, (k, i), loops),
                _region(right.buffer, right.indices, (k, j), loops),
            ]
            same = acc.buffer is s.buffer and acc.indices == s.indices
            if same and all(r is not None and r.buffer.scope is Scope.LOCAL for r in found):
                return Instruction(
                    "fused_gemm8x8_add", tuple(r for r in found if r), "matrix", accumulates=True
                )
    return None


def _lines(body: Sequence[Loop | Instruction], depth: int) -> Iterator[str]:
    for s in body:
        if isinstance(s, Instruction):
            yield "  " * depth + str(s)
        else:
            yield "  " * depth + f"for {_axis(s.var)} in range({s.extent}):"
            yield from _lines(s.body, depth + 1)


def _variables(a: Affine) -> list[tuple[Var, int]]:
    return [(t, k) for t, k in a.terms.items() if isinstance(t, Var)]


def _sum_text(a: Affine) -> str:
    parts = [f"{_axis(t)}*{k}" if k != 1 else _axis(t) for t, k in _variables(a)]
    return "+".join([*parts, *([str(a.constant)] if a.constant or not parts else [])])


def _short(buffer: Buffer) -> str:
    """A.local:C.local is A.local, as read by C.local."""
    return buffer.name.split(":")[0]


def _axis(var: Var) -> str:
    """C.local:k.0 is axis k.0 of stage C.local."""
    return var.name.split(":")[-1]
