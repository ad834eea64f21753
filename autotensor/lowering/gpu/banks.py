"""banks: counts how often warps have to go to shared memory, without running anything.

    for t in traffic(kernel): print(t)

    load S[tx*32 + k]         32 trips, where 1 is enough    every thread of the warp uses the same bank
    load S[tx*33 + k]          1 trip

Memory has 32 banks of 4 bytes. One trip takes one word from each bank, for all lanes that need it. Accesses
of 8 bytes a lane are made for half a warp at a time, and accesses of 16 bytes for a quarter. If addresses
depend on loops, trips are counted for some of the loops' iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from autotensor.codegen.access import access_of
from autotensor.codegen.c.tensor_intrinsics import fragments, is_tensorized, shared_operands
from autotensor.ir.expr import Const, Expr, Load, Neg, Unary, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Scope
from autotensor.ir.lane_offsets import in_lane
from autotensor.ir.node import children
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import Alloc, Evaluate, For, ForKind, If, Let, Stmt, Store
from autotensor.ir.visit import free_vars, walk
from autotensor.lowering.gpu.index_values import Values, values_of

BANKS, WORD_BYTES, WARP = 32, 4, 32
WIDEST_BYTES = 16  # the widest access of a lane
TURNS = 64  # number of iterations of the loops around an access for which trips are counted


@dataclass(frozen=True, slots=True)
class Traffic:
    """One load or store of shared memory."""

    buffer: str
    writes: bool
    text: str  # the statement
    times: int  # how often a warp makes the access, at most
    trips: float  # mean number of trips to memory for each access
    least: float  # fewest trips that the access's bytes need

    @property
    def ways(self) -> float:
        """1: no conflict; 32: lanes wait for one another."""
        return self.trips / self.least if self.least else 1.0

    def __str__(self) -> str:
        verb = "store" if self.writes else "load"
        trips = f"{self.trips:.3g} trips where {self.least:.3g} would do"
        return f"{verb} {self.buffer}: {trips}, {self.times} times"


@dataclass(frozen=True, slots=True)
class _Context:
    """The loops, threads, variables and conditions around a statement."""

    loops: Mapping[Var, tuple[int, int]] = field(default_factory=dict)  # begin and extent
    threads: Mapping[str, tuple[Var, int]] = field(default_factory=dict)
    lets: Mapping[Var, Expr] = field(default_factory=dict)
    conditions: tuple[Expr, ...] = ()


def traffic(func: PrimFunc) -> tuple[Traffic, ...]:
    """The accesses of shared memory of a finished kernel, except accesses whose indices come from memory."""
    found = (_counted(*x) for x in _accesses(func.body, _Context()))
    return tuple(dict.fromkeys(t for t in found if t is not None))


def conflicts(func: PrimFunc) -> float:
    """The trips of a warp to shared memory in the whole kernel, divided by the trips that its bytes need."""
    found = traffic(func)
    least = sum(t.least * t.times for t in found)
    return sum(t.trips * t.times for t in found) / least if least else 1.0


# -- accesses ------------------------------------------------------------------------------------------------
# buffer, flat index of a lane, bytes, whether it writes
_Found = tuple[Buffer, Expr, int, bool, Stmt, _Context]


def _accesses(s: Stmt, ctx: _Context) -> Iterator[_Found]:
    match s:
        case For(var, begin, extent, kind, body, thread):
            if not isinstance(begin, Const) or not isinstance(extent, Const):
                return
            if kind is ForKind.THREAD:
                ctx = replace(ctx, threads={**ctx.threads, thread: (var, int(extent.value))})
            elif is_tensorized(s):
                yield from _of_instruction(s, ctx)
                return
            else:
                ctx = replace(ctx, loops={**ctx.loops, var: (int(begin.value), int(extent.value))})
            yield from _accesses(body, ctx)
        case Let(var, value, body):
            yield from _reads(value, s, ctx)
            yield from _accesses(body, replace(ctx, lets={**ctx.lets, var: substitute(value, ctx.lets)}))
        case If(cond, then, otherwise):
            yield from _reads(cond, s, ctx)
            yield from _accesses(then, _under(ctx, cond))
            if otherwise is not None:
                yield from _accesses(otherwise, _under(ctx, Unary(Neg.NOT, cond)))
        case Store(_, _, value):
            yield from _reads(value, s, ctx)
            yield from _pieces(s, s, ctx)
        case Alloc(_, body):
            yield from _accesses(body, ctx)
        case Evaluate(value):
            yield from _reads(value, s, ctx)
        case _:
            for c in children(s):
                if isinstance(c, Stmt):
                    yield from _accesses(c, ctx)


def _reads(e: Expr, s: Stmt, ctx: _Context) -> Iterator[_Found]:
    for n in walk(e):
        if isinstance(n, Load):
            yield from _pieces(n, s, ctx)


def _pieces(n: Load | Store, s: Stmt, ctx: _Context) -> Iterator[_Found]:
    """The elements of shared memory that one lane of a warp moves in one access."""
    buffer, each = n.buffer, n.buffer.dtype.bytes
    if buffer.scope is not Scope.SHARED:
        return
    (index,) = n.indices
    width = access_of(n).width(WIDEST_BYTES // each)
    if n.mask is not None and n.mask.dtype.lanes == 1:
        ctx = _under(ctx, n.mask)
    for lane in range(0, index.dtype.lanes, width):
        at = in_lane(index, const(lane))
        if at is not None:
            yield buffer, substitute(at, ctx.lets), width * each, isinstance(n, Store), s, ctx


def _of_instruction(s: For, ctx: _Context) -> Iterator[_Found]:
    """The operands of a tensor instruction, as the lanes load them."""
    f = fragments(s)
    for loop in f.outer:
        assert isinstance(loop.extent, Const)
        ctx = replace(ctx, loops={**ctx.loops, loop.var: (0, int(loop.extent.value))})
    for buffer, at, size in shared_operands(f):
        yield buffer, substitute(at, ctx.lets), size, False, s, ctx


def _under(ctx: _Context, cond: Expr) -> _Context:
    return replace(ctx, conditions=(*ctx.conditions, substitute(cond, ctx.lets)))


# -- counting ------------------------------------------------------------------------------------------------
def _counted(buffer: Buffer, at: Expr, size: int, writes: bool, s: Stmt, ctx: _Context) -> Traffic | None:
    """The trips of one access; None if its index is not known before the kernel runs."""
    env, turns, times = _points(at, ctx)
    index = values_of(at, env)
    if index is None:
        return None
    threads = prod(n for axis, (_, n) in ctx.threads.items() if axis.startswith("threadIdx"))
    keep: Values = np.ones((turns, threads), np.bool_)
    for c in ctx.conditions:
        holds = values_of(c, env)
        if holds is not None:
            keep = keep & holds
    bytes_at = np.broadcast_to(index, (turns, threads)) * buffer.dtype.bytes
    trips, least = _trips(bytes_at, np.broadcast_to(keep, (turns, threads)), size)
    text = str(s).strip().split("\n", 1)[0]
    return Traffic(buffer.name, writes, text, times, trips, least)


def _points(at: Expr, ctx: _Context) -> tuple[dict[Var, Values], int, int]:
    """The values of all variables, the number of iterations that are counted, and of all iterations.

    Values are [turns, 1] for loops and [1, threads] for threads.
    """
    env: dict[Var, Values] = {}
    count = 1
    for axis in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):  # x changes fastest
        if axis in ctx.threads:
            count *= ctx.threads[axis][1]
    number, step = np.arange(count), 1
    for axis, (var, extent) in sorted(ctx.threads.items()):
        if axis.startswith("threadIdx"):
            env[var] = (number // step % extent)[None, :]
            step *= extent
        else:
            env[var] = np.zeros((1, 1), np.int64)
    used = free_vars(at).union(*(free_vars(c) for c in ctx.conditions))
    moving = [v for v in ctx.loops if v in used]
    total = prod(ctx.loops[v][1] for v in moving)
    turns = np.unique(np.linspace(0, max(0, total - 1), TURNS).astype(np.int64))
    rest = turns
    for v in moving:
        begin, extent = ctx.loops[v]
        env[v] = (begin + rest % max(1, extent))[:, None]
        rest = rest // max(1, extent)
    times = prod(n for _, n in ctx.loops.values())
    return env, len(turns), times


def _trips(at: Values, keep: Values, size: int) -> tuple[float, float]:
    """The mean trips of a warp, and the fewest for this many bytes. at: [turns, threads], in bytes."""
    lanes = WARP * WORD_BYTES // max(WORD_BYTES, size)  # lanes that access memory together
    words = max(1, size // WORD_BYTES)
    needed, least, warps = 0, 0, 0
    for turn, active in zip(at, keep, strict=True):
        for first in range(0, len(turn), WARP):
            if not active[first : first + WARP].any():
                continue
            warps += 1
            for part in range(first, min(first + WARP, len(turn)), lanes):
                here = turn[part : part + lanes][active[part : part + lanes]]
                if here.size:
                    found = np.unique((here[:, None] // WORD_BYTES + np.arange(words)).ravel())
                    needed += int(np.bincount(found % BANKS).max())
                    least += -(-len(found) // BANKS)
    return (needed / warps, least / warps) if warps else (0.0, 0.0)


__all__ = ["Traffic", "conflicts", "traffic"]
