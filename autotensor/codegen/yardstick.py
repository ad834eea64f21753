"""Yardsticks: kernels that do a known amount of one kind of work, to measure how fast this machine does it.

stick = reading_yardstick(threads=2, bytes_each=512 << 10)
stick.run(10)                                              10 × stick.amount bytes were read

fma_yardstick (peak.py)    multiply-adds on registers         FLOPs
reading_yardstick          every thread reads its own array   bytes that a cache level delivers
copying_yardstick          every thread copies its own array  bytes read and written
clock_yardstick            a chain of integer operations      clock cycles
region_yardstick           a team that does nothing           1: a fork and join
handing_yardstick          a team reads what another wrote    1: a fork and join
joining_yardstick          a team writes, one thread adds up  1: a fork, a join and a sum
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from autotensor.base.dtype import float32, int64
from autotensor.base.target import Target, host
from autotensor.codegen.backend import compile
from autotensor.ir.expr import Binary, Load, Op, Ramp, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, ForKind, Store, for_range, seq
from autotensor.runtime.arrays import Array, aligned_empty
from autotensor.runtime.linking import loader
from autotensor.runtime.native.threads import launch

_SUMS = 8  # vectors that are summed side by side, which hides the latency of an addition
_LEAST_BYTES = 1 << 20  # bytes read in one run, so many that the start of the run costs nothing
_CHAIN = 64  # dependent operations in the clock's loop; the loop's own instructions run at the same time
_CHAIN_TURNS = 2_000
_LINE = 16  # float32 elements of a cache line


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """A loaded kernel with its arrays."""

    amount: float  # the work of one run, by all threads together
    threads: int
    run: Callable[[int], None]  # runs the kernel a number of times


def load(
    program: Program, target: Target, threads: int, amount: float, *frames: Sequence[Array]
) -> Yardstick:
    """Compiles a program for this machine and loads it with its arrays. With several sets of arrays, each run
    takes the next set."""
    loaded = loader.load(compile(program, target, name="yardstick"))
    slots = [(ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)) for arrays in frames]
    turn = itertools.cycle(slots)

    def run(count: int, _keep: object = (loaded, frames)) -> None:
        if len(slots) == 1:
            launch(loaded.entry, ctypes.addressof(slots[0]), threads, count)
            return
        for _ in range(count):
            launch(loaded.entry, ctypes.addressof(next(turn)), threads)

    return Yardstick(amount, threads, run)


def _parts(array: Array | None, size: int) -> Array:
    """The array in parts of `size` elements. Without an array, one new part, filled with ones."""
    if array is None:
        array = aligned_empty((size,), "float32")
        array.fill(1.0)
    count = array.size // size
    return array[: count * size].reshape(count, -1)


def reading_yardstick(threads: int, bytes_each: int, array: Array | None = None) -> Yardstick:
    """Every thread sums up its own `bytes_each` bytes of `array`, again and again.

    array: float32, at least threads × bytes_each, with all elements written before (pages that were never
    written share one page of zeros). If it is not given, it is made here. If it is larger, the next run reads
    its next part.
    """
    target = host()
    lanes = target.lanes(32)
    block = _SUMS * lanes
    blocks = max(1, bytes_each // (4 * block))
    size = blocks * block
    turns = max(1, _LEAST_BYTES // (4 * size))
    result = aligned_empty((threads * block,), "float32")
    x, out = Buffer("x", (threads * size,), float32), Buffer("y", (threads * block,), float32)
    acc = Buffer("acc", (block,), float32, Scope.REGISTER)
    thread, turn, i = Var("thread"), Var("turn"), Var("i")
    at = [(Ramp(const(n * lanes), 1, lanes),) for n in range(_SUMS)]
    start = seq(*(Store(acc, a, const(0.0, float32.with_lanes(lanes))) for a in at))
    first = thread * size + i * block
    add = seq(
        *(
            Store(acc, a, Load(acc, a) + Load(x, (Ramp(first + n * lanes, 1, lanes),)))
            for n, a in enumerate(at)
        )
    )
    end = seq(
        *(Store(out, (Ramp(thread * block + n * lanes, 1, lanes),), Load(acc, a)) for n, a in enumerate(at))
    )
    again = for_range(turn, turns, for_range(i, blocks, add))
    team = for_range(thread, threads, Alloc(acc, seq(start, again, end)), ForKind.PARALLEL)
    program = Program(((x, Role.INPUT), (out, Role.OUTPUT)), (), (PrimFunc("read", (x, out), team),))
    amount = 4.0 * threads * size * turns
    return load(program, target, threads, amount, *((part, result) for part in _parts(array, threads * size)))


def copying_yardstick(threads: int, bytes_each: int, array: Array | None = None) -> Yardstick:
    """Every thread copies the first half of its own `bytes_each` bytes of `array` to the second half, again
    and again. No kernel that writes as much as it reads can be faster.

    array: as for `reading_yardstick`; this yardstick writes to it.
    """
    target = host()
    lanes = target.lanes(32)
    block = _SUMS * lanes
    blocks = max(1, bytes_each // (8 * block))
    size = 2 * blocks * block
    turns = max(1, _LEAST_BYTES // (4 * size))
    x = Buffer("x", (threads * size,), float32)
    thread, turn, i = Var("thread"), Var("turn"), Var("i")
    first = thread * size + i * block
    at = [first + n * lanes for n in range(_SUMS)]
    move = seq(*(Store(x, (Ramp(a + size // 2, 1, lanes),), Load(x, (Ramp(a, 1, lanes),))) for a in at))
    team = for_range(thread, threads, for_range(turn, turns, for_range(i, blocks, move)), ForKind.PARALLEL)
    program = Program(((x, Role.OUTPUT),), (), (PrimFunc("copy", (x,), team),))
    return load(
        program,
        target,
        threads,
        4.0 * threads * size * turns,
        *((part,) for part in _parts(array, threads * size)),
    )


def clock_yardstick() -> Yardstick:
    """A chain of integer additions and exclusive ors. Each takes one cycle on every present CPU."""
    x, out = Buffer("x", (2,), int64), Buffer("y", (1,), int64)
    acc = Buffer("acc", (1,), int64, Scope.REGISTER)
    turn, zero = Var("turn"), (const(0),)
    steps = []
    for n in range(_CHAIN // 2):
        steps.append(Store(acc, zero, Load(acc, zero) + Load(x, (const(n % 2),))))
        steps.append(Store(acc, zero, Binary(Op.XOR, Load(acc, zero), Load(x, (const(1 - n % 2),)))))
    start = Store(acc, zero, Load(x, zero))
    body = Alloc(
        acc, seq(start, for_range(turn, _CHAIN_TURNS, seq(*steps)), Store(out, zero, Load(acc, zero)))
    )
    program = Program(((x, Role.INPUT), (out, Role.OUTPUT)), (), (PrimFunc("clock", (x, out), body),))
    arrays = (np.array([3, 5], np.int64), np.zeros(1, np.int64))
    return load(program, host(), 1, float(_CHAIN * _CHAIN_TURNS), arrays)


def region_yardstick(threads: int) -> Yardstick:
    """A parallel loop in which every thread writes one number."""
    out = Buffer("y", (threads * _LINE,), float32)
    thread = Var("thread")
    team = for_range(thread, threads, Store(out, (thread * _LINE,), const(1.0, float32)), ForKind.PARALLEL)
    program = Program(((out, Role.OUTPUT),), (), (PrimFunc("region", (out,), team),))
    return load(program, host(), threads, 1.0, (aligned_empty((threads * _LINE,), "float32"),))


def handing_yardstick(threads: int, lines: int) -> Yardstick:
    """A team in which each thread reads `lines` cache lines that its neighbour wrote in the region before,
    and writes as many. A single thread reads its own lines."""
    size = lines * _LINE
    x, y = (Buffer(name, (threads * size,), float32) for name in "xy")

    def region(name: str, read: Buffer, written: Buffer) -> PrimFunc:
        thread, lanes = Var("thread"), host().lanes(32)
        theirs = (thread + 1) % threads * size
        each = [
            Store(written, (Ramp(thread * size + n, 1, lanes),), Load(read, (Ramp(theirs + n, 1, lanes),)))
            for n in range(0, size, lanes)
        ]
        team = for_range(thread, threads, seq(*each), ForKind.PARALLEL)
        return PrimFunc(name, (x, y), team)

    there_and_back = (region("there", x, y), region("back", y, x))
    program = Program(((x, Role.OUTPUT), (y, Role.OUTPUT)), (), there_and_back)
    arrays = [aligned_empty((threads * size,), "float32") for _ in range(2)]
    for array in arrays:
        array.fill(1.0)
    return load(program, host(), threads, 2.0, arrays)


def joining_yardstick(threads: int, lines: int, joined: bool = True) -> Yardstick:
    """A team in which each thread writes `lines` cache lines of sums. The caller then adds these sums up.

    joined: if False, the caller does not add them up.
    """
    size, lanes = lines * _LINE, host().lanes(32)
    parts, out = Buffer("x", (threads * size,), float32), Buffer("y", (size,), float32)
    thread, at = Var("thread"), range(0, size, lanes)
    one = const(1.0, float32.with_lanes(lanes))
    write = seq(*(Store(parts, (Ramp(thread * size + n, 1, lanes),), one) for n in at))
    team = for_range(thread, threads, write, ForKind.PARALLEL)
    loads = [[Load(parts, (Ramp(const(t * size + n), 1, lanes),)) for t in range(threads)] for n in at]
    join = seq(
        *(Store(out, (Ramp(const(n), 1, lanes),), reduce(add, x)) for n, x in zip(at, loads, strict=True))
    )
    run = (PrimFunc("parts", (parts, out), team), PrimFunc("join", (parts, out), join))[: 1 + joined]
    program = Program(((parts, Role.OUTPUT), (out, Role.OUTPUT)), (), run)
    arrays = (aligned_empty((threads * size,), "float32"), aligned_empty((size,), "float32"))
    return load(program, host(), threads, 1.0, arrays)
