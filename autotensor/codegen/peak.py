"""Measures how fast this machine can possibly compute: a loop runs only one instruction on registers.

measure_peak()                               FLOP/s of one core by fused multiply-adds
measure_peak(threads=2)                      of a team
measure_peak(dot=DOTS.get("x86.vpdpbusd.512"))    operations/s by a dot instruction
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from autotensor.base.dtype import DType, float32
from autotensor.base.target import Target, host
from autotensor.codegen.dot_instructions import DotInstruction
from autotensor.codegen.yardstick import Yardstick, load
from autotensor.ir.expr import Dot, Expr, Load, Ramp, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, ForKind, Let, Stmt, Store, for_range, seq

# vector registers → accumulators: enough to hide two pipes' latency of four, few enough to fit
_CHAINS = {16: 12, 32: 24}
_TILES = 4  # accumulators that are tiles; there are eight tile registers
_TURNS = 8  # the operands are the same again after this many turns
_UNROLL = 4  # so that the loop itself costs nothing


def measure_peak(
    threads: int = 1,
    *,
    dtype: DType = float32,
    dot: DotInstruction | None = None,
    target: Target | None = None,
    seconds: float = 0.3,
) -> float:
    """Operations per second of `threads` threads; a multiplication and an addition are two.

    The operations are fused multiply-adds, or the dot instruction `dot`. The result is the best of many short
    runs within `seconds`. `target` must be this host, but may have narrower vectors.
    """
    if dot is None:
        stick = fma_yardstick(threads, dtype=dtype, target=target)
    else:
        stick = dot_yardstick(dot, threads, target=target)
    best, stop = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < stop:
        started = time.perf_counter()
        stick.run(1)
        best = min(best, time.perf_counter() - started)
    return stick.amount / best


def fma_yardstick(
    threads: int = 1,
    *,
    dtype: DType = float32,
    target: Target | None = None,
    steps: int = 20_000,
    chains: int | None = None,
) -> Yardstick:
    """A yardstick: every thread does `steps` fused multiply-adds in each of its vectors. The amount is the
    FLOPs of all threads.

    chains: the number of vectors; None: enough to keep a core busy. Each step of a vector waits for the step
    before.
    """
    target = target or host()
    lanes = target.lanes(dtype.bits)
    chains = chains or _CHAINS.get(target.vector_registers, 12)
    factors = np.array([0.999, 0.001] * 64).astype(dtype.numpy)
    result = np.zeros(threads * chains * lanes, dtype.numpy)
    flops = 2.0 * threads * chains * lanes * steps
    return load(_program(threads, chains, lanes, steps, dtype), target, threads, flops, (factors, result))


def dot_yardstick(
    dot: DotInstruction, threads: int = 1, *, target: Target | None = None, steps: int = 20_000
) -> Yardstick:
    """A yardstick: every thread adds `steps` dots to each of its vectors or tiles of sums. The amount is the
    operations of all threads."""
    target = target or host()
    chains = _CHAINS.get(target.vector_registers, 12) if dot.rows == 1 else _TILES
    groups = _TURNS + _UNROLL * chains
    rng = np.random.default_rng(0)
    sizes = zip((groups * dot.rows * dot.depth, dot.columns * dot.depth), dot.types[1:], strict=True)
    operands = tuple(rng.integers(1, 3, n).astype(t.numpy) for n, t in sizes)
    sums = dot.rows * dot.columns
    result = np.zeros(threads * chains * sums, dot.sums.dtype.numpy)
    amount = 2.0 * threads * chains * sums * dot.depth * steps
    program = _dot_program(dot, threads, chains, groups, steps)
    return load(program, target, threads, amount, (*operands, result))


def _dot_program(dot: DotInstruction, threads: int, chains: int, groups: int, steps: int) -> Program:
    """The program in which every thread has `chains` independent sums v, and runs v = dot(v, x[…], y) `steps`
    times on each.

    Each step reads another operand from L1, so that LLVM cannot compute one product for several steps.
    """
    left, lanes = dot.rows * dot.depth, dot.rows * dot.columns
    x_in = Buffer("x", (groups * left,), dot.a.dtype)
    y_in = Buffer("y", (dot.columns * dot.depth,), dot.b.dtype)
    out = Buffer("z", (threads * chains * lanes,), dot.sums.dtype)
    kept = Var("y0", y_in.dtype.with_lanes(y_in.size))
    y: Expr = Load(y_in, (Ramp(const(0), 1, y_in.size),))

    def step(sums: Expr, number: int, turn: Var) -> Expr:
        group = Load(x_in, (Ramp((turn % _TURNS + number) * left, 1, left),))
        return Dot(sums, group, kept if dot.rows == 1 else y, dot.rows, dot.group, dot.name)

    known = ((kept, y),) if dot.rows == 1 else ()
    return _kernel((x_in, y_in), out, known, _team(out, threads, chains, lanes, steps, step, dot.rows > 1))


def _program(threads: int, chains: int, lanes: int, steps: int, dtype: DType) -> Program:
    """The program in which every thread has `chains` independent vectors v, and runs v = v*x + y `steps`
    times on each."""
    x_in, out = Buffer("x", (128,), dtype), Buffer("y", (threads * chains * lanes,), dtype)
    x, y = (Var(name, dtype.with_lanes(lanes)) for name in ("x0", "y0"))
    first, second = (Load(x_in, (Ramp(const(n), 0, lanes),)) for n in (0, 1))
    team = _team(out, threads, chains, lanes, steps, lambda v, *_: v * x + y)
    return _kernel((x_in,), out, ((x, first), (y, second)), team)


def _team(
    out: Buffer,
    threads: int,
    chains: int,
    lanes: int,
    steps: int,
    step: Callable[[Expr, int, Var], Expr],
    tiles: bool = False,
) -> tuple[Var, int, Stmt]:
    """A loop over threads: its variable, its extent and the statement that each thread runs."""
    acc = Buffer("acc", (chains * lanes,), out.dtype, Scope.REGISTER)
    thread, turn = Var("thread"), Var("step")
    at = [(Ramp(const(c * lanes), 1, lanes),) for c in range(chains)]
    vector = out.dtype.with_lanes(lanes)
    # Sums begin with different numbers, because LLVM would compute equal sums only once. Sums in tiles begin
    # with zeros; LLVM does not merge them
    start = seq(*(Store(acc, a, const(0.0 if tiles else float(c), vector)) for c, a in enumerate(at)))
    numbered = enumerate(at * _UNROLL)  # n: the index of a step in its turn
    body = seq(*(Store(acc, a, step(Load(acc, a), n, turn)) for n, a in numbered))
    end = seq(
        *(
            Store(out, (Ramp(thread * (chains * lanes) + c * lanes, 1, lanes),), Load(acc, a))
            for c, a in enumerate(at)
        )
    )
    return thread, threads, Alloc(acc, seq(start, for_range(turn, steps // _UNROLL, body), end))


def _kernel(
    inputs: tuple[Buffer, ...], out: Buffer, known: tuple[tuple[Var, Expr], ...], team: tuple[Var, int, Stmt]
) -> Program:
    """The program of one kernel; `known` are operands that stay in registers."""
    thread, threads, work = team
    for var, value in reversed(known):
        work = Let(var, value, work)
    loop = for_range(thread, threads, work, ForKind.PARALLEL)
    roles = (*((b, Role.INPUT) for b in inputs), (out, Role.OUTPUT))
    return Program(roles, (), (PrimFunc("peak", (*inputs, out), loop),))
