"""Micro-kernels: the time of one step of each register tile, measured on kernels of our code generator.

    C[rows, panels, vectors·lanes] += A[rows, k] · B[panels, k, vectors·lanes]

    panels → for k: broadcast A[r, k] × the vectors of B[panel, k, :]        rows and vectors are unrolled

In the near kernel, one panel is in L1, so its k-steps find B there. In the far kernels, the panels fill half
of L2, or a part of L3, so every step loads its vectors from there. The near kernel runs with two lengths: the
difference of their times is the time of the steps without the loop's beginning and end. The unit of times is
a fused multiply-add at peak rate, so that times stay right when the clock changes: a tile of 6 rows and 4
vectors is perfect if its step takes 24.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotensor import te
from autotensor.base.target import Target
from autotensor.codegen.peak import fma_yardstick
from autotensor.codegen.yardstick import Yardstick, load
from autotensor.lowering.pipeline import lower
from autotensor.runtime.arrays import Array, aligned_empty
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.trace import Trace
from autotensor.search.machine.probes import measure_rates
from autotensor.te.dag import ComputeDAG
from schedules.prior.rates import LEVELS, MicroKernels

MOST_VECTORS = 6
ROWS = {  # number of vectors → the measured numbers of rows; the others are interpolated
    1: (1, 2, 4, 8, 12, 16, 20, 24, 28, 30),
    2: (1, 2, 3, 4, 6, 7, 8, 10, 12, 13, 14),
    3: (1, 2, 3, 4, 6, 7, 8, 9),
}
FAR_STEPS = (
    250  # steps of the reduction if vectors come from L2 or L3; then rows of A are in different cache sets
)
GROUP = 8  # number of tiles that are timed alternately
ROUNDS = 5
GROUP_S = 1.5  # seconds for more rounds if other programs disturb
NEAR_SHARE = 0.75  # share of L1 that the operands of the near kernel take
FAR_TIMES = 4  # the data in L3 is this many times as large as the cache before it


@dataclass(frozen=True, slots=True)
class MicroTile:
    rows: int
    vectors: int


def tiles(target: Target) -> tuple[MicroTile, ...]:
    """The tiles that fit into the registers, about forty."""
    out: list[MicroTile] = []
    for vectors in range(1, MOST_VECTORS + 1):
        spare = 1 if vectors == 1 else vectors + 1
        most = (target.sum_registers - spare) // vectors
        wanted = [r for r in ROWS.get(vectors, range(1, most + 1)) if r <= most]
        out.extend(MicroTile(r, vectors) for r in dict.fromkeys((*wanted, *((most,) if most else ()))))
    return tuple(out)


def measure_microkernels(
    target: Target,
    chosen: Sequence[MicroTile] | None = None,
    listener: Callable[[int, int], None] = lambda done, all_: None,
) -> MicroKernels:
    """Measures the time of a step for each tile. This takes about twenty seconds. The caller holds the timing
    lock.

    listener: called with the number of finished tiles and the number of all tiles.
    """
    target = target.with_threads(1)
    wanted = tiles(target) if chosen is None else tuple(chosen)
    far = _far_bytes(target)
    arena = aligned_empty((max(far) // 4 + FAR_STEPS * MOST_VECTORS * target.lanes(32),), "float32")
    arena.fill(0.5)
    steps: dict[tuple[int, int], tuple[float, ...]] = {}
    for first in range(0, len(wanted), GROUP):
        group = wanted[first : first + GROUP]
        listener(first, len(wanted))
        steps.update(_measure_group(group, target, far, arena))
    return MicroKernels(target.lanes(32), steps)


def _measure_group(
    group: Sequence[MicroTile], target: Target, far: Sequence[int], arena: Array
) -> dict[tuple[int, int], tuple[float, ...]]:
    """Measures the peak and these tiles, alternately."""
    kernels = [_kernels(t, target, far, arena) for t in group]
    sticks = [fma_yardstick(1, target=target), *(k for tile in kernels for k in tile)]
    rates = iter(m.value for m in measure_rates(sticks, rounds=ROUNDS, budget_s=GROUP_S))
    one = 2.0 * target.lanes(32) / next(rates)  # seconds of one fused multiply-add
    return {
        (t.rows, t.vectors): _steps([k.amount for k in tile], [next(rates) * one for _ in tile])
        for t, tile in zip(group, kernels, strict=True)
    }


def _steps(amounts: Sequence[float], rates: Sequence[float]) -> tuple[float, ...]:
    """Times of near and far steps, from steps per run and steps per unit of time. The first two are near."""
    short, long = (a / r for a, r in zip(amounts[:2], rates[:2], strict=True))
    near = (long - short) / (amounts[1] - amounts[0])
    rest = max(0.0, short - near * amounts[0])  # time for the beginning and end of a reduction
    times = [near]
    for rate in rates[2:]:
        times.append(max(times[-1], 1.0 / rate - rest / FAR_STEPS))
    return tuple(times)


def _far_bytes(target: Target) -> tuple[int, ...]:
    """Bytes of the vectors that must come from L2, and from L3."""
    caches = target.cache_bytes
    return tuple(
        caches[level] // 2 if level == 1 else min(caches[level] // 2, FAR_TIMES * caches[level - 1])
        for level in range(1, min(len(LEVELS), len(caches)))
    )


def _kernels(t: MicroTile, target: Target, far: Sequence[int], arena: Array) -> tuple[Yardstick, ...]:
    """A short and a long near kernel, then kernels whose vectors come from L2 and L3. Amounts are steps."""
    width = t.vectors * target.lanes(32)
    most = int(NEAR_SHARE * target.cache_bytes[0]) // (4 * (width + t.rows))
    shapes = [(1, most // 2), (1, most // 2 * 2)]
    shapes += [(max(1, size // (4 * width * FAR_STEPS)), FAR_STEPS) for size in far]
    return tuple(_kernel(t, panels, steps, target, arena) for panels, steps in shapes)


def _kernel(t: MicroTile, panels: int, steps: int, target: Target, arena: Array) -> Yardstick:
    width = t.vectors * target.lanes(32)
    a = te.placeholder((t.rows, steps), name="a")
    b = te.placeholder((panels, steps, width), name="b")
    k = te.reduce_axis(steps, name="k")
    c = te.compute((t.rows, panels, width), lambda i, p, j: te.sum(a[i, k] * b[p, k, j], axis=k), name="c")
    program = lower(tile_trace(target.lanes(32)).replay(ComputeDAG.of([a, b, c])))
    left, out = aligned_empty((t.rows, steps), "float32"), aligned_empty((t.rows, panels, width), "float32")
    left.fill(0.5)
    return load(program, target, 1, float(panels * steps), (left, arena, out))


def tile_trace(lanes: int) -> Trace:
    """The schedule in the module's docstring, for stage c[i, p, j] with reduction k."""
    near = "c.local"
    return Trace(
        (
            CacheWrite("c", "local"),
            SplitStep("c", "j", (lanes,)),
            Reorder("c", ("p", "i", "j.0", "j.1")),
            Unroll("c", "i"),
            Unroll("c", "j.0"),
            Vectorize("c", "j.1"),
            ComputeAt(near, "c", "p"),
            SplitStep(near, "j", (lanes,)),
            Reorder(near, ("k", "p", "i", "j.0", "j.1")),
            Unroll(near, "p"),
            Unroll(near, "i"),
            Unroll(near, "j.0"),
            Vectorize(near, "j.1"),
        )
    )
