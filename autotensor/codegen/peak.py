"""How fast this machine can possibly compute: a loop of fused multiply-adds on registers, nothing else.

measure_peak()             FLOP/s of one core
measure_peak(threads=2)    of a team
"""

from __future__ import annotations

import time

import numpy as np

from autotensor.base.dtype import DType, float32
from autotensor.base.target import Target, host
from autotensor.codegen.yardstick import Yardstick, load
from autotensor.ir.expr import Load, Ramp, Var, const
from autotensor.ir.func import Buffer, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, ForKind, Let, Store, for_range, seq

# vector registers → accumulators: enough to hide two pipes' latency of four, few enough to fit
_CHAINS = {16: 12, 32: 24}
_UNROLL = 4  # so that the loop itself costs nothing


def measure_peak(
    threads: int = 1, *, dtype: DType = float32, target: Target | None = None, seconds: float = 0.3
) -> float:
    """Floating-point operations per second of `threads` threads; a fused multiply-add counts as two.

    The best of many short runs within `seconds`. `target` must be this host, perhaps with narrower vectors.
    """
    stick = fma_yardstick(threads, dtype=dtype, target=target)
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
    """Every thread does `steps` fused multiply-adds in each of its vectors; the amount is FLOPs of all.

    chains: how many vectors; None: enough to keep a core busy. Each waits for its own last step.
    """
    target = target or host()
    lanes = target.lanes(dtype.bits)
    chains = chains or _CHAINS.get(target.vector_registers, 12)
    factors = np.array([0.999, 0.001] * 64).astype(dtype.numpy)
    result = np.zeros(threads * chains * lanes, dtype.numpy)
    flops = 2.0 * threads * chains * lanes * steps
    return load(_program(threads, chains, lanes, steps, dtype), target, threads, flops, (factors, result))


def _program(threads: int, chains: int, lanes: int, steps: int, dtype: DType) -> Program:
    """Every thread: `chains` independent vectors, each `steps` times v = v*x + y."""
    x_in, out = Buffer("x", (128,), dtype), Buffer("y", (threads * chains * lanes,), dtype)
    acc = Buffer("acc", (chains * lanes,), dtype, Scope.REGISTER)
    thread, step = Var("thread"), Var("step")
    x, y = (Var(name, dtype.with_lanes(lanes)) for name in ("x0", "y0"))
    at = [(Ramp(const(c * lanes), 1, lanes),) for c in range(chains)]
    first = (Ramp(const(0), 0, lanes),)
    second = (Ramp(const(1), 0, lanes),)
    start = seq(*(Store(acc, a, const(float(c), x.dtype)) for c, a in enumerate(at)))
    body = seq(*(Store(acc, a, Load(acc, a) * x + y) for _ in range(_UNROLL) for a in at))
    end = seq(
        *(
            Store(out, (Ramp(thread * (chains * lanes) + c * lanes, 1, lanes),), Load(acc, a))
            for c, a in enumerate(at)
        )
    )
    chain = seq(start, for_range(step, steps // _UNROLL, body), end)
    work = Let(x, Load(x_in, first), Let(y, Load(x_in, second), Alloc(acc, chain)))
    team = for_range(thread, threads, work, ForKind.PARALLEL)
    return Program(((x_in, Role.INPUT), (out, Role.OUTPUT)), (), (PrimFunc("peak", (x_in, out), team),))
