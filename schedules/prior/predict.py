"""The analytic prior: seconds of every candidate, from the loop picture and the machine's rates.

For each stage, the time is the larger one of computing and moving:

    computing   steps × max(FMA issue, load issue, latency of the accumulators)
    moving      for each cache: the bytes that are brought into the cache, divided by the bandwidth; the
                loops outside of the level that fits into the cache bring them in (`traffic.py`)

The times of stages are added. The time of a parallel loop is divided by the cores, rounded up to whole
chunks. The prior ranks candidates without any measurements; a learned model
(`autotensor/search/score/cost_model.py`) corrects it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import TILE_REGISTERS, DotInstruction
from autotensor.schedule.axis import Mark
from autotensor.schedule.formulas import elementwise
from autotensor.schedule.loop_picture import LoopPicture, StagePicture
from schedules.cpu import Cpu, cpu_of
from schedules.prior.predict_gpu import predict_gpu
from schedules.prior.rates import LEVELS, Rates
from schedules.prior.register_tile import (
    Tile,
    added,
    dot_of,
    full,
    is_product,
    taken_at_once,
    tile_of,
    ways,
)
from schedules.prior.terms import Terms
from schedules.prior.traffic import NOTHING, between, bytes_moved

Floats = npt.NDArray[np.float64]
LEAST_GAIN = 0.1  # gain of an unknown instruction (chosen, 2026-11)

__all__ = ["Rates", "Terms", "predict", "stage_terms"]


def predict(p: LoopPicture, target: Target, rates: Rates) -> tuple[Floats, tuple[Terms, ...]]:
    """Seconds for each candidate, and the terms of every stage.

    A stage that is computed in small pieces inside another stage (a register tile in its epilogue) overlaps
    with that stage: the times for computing are added, the times for moving are added, and the larger of the
    two sums counts. If the threads of a GPU's block run one after the other on a core, the blocks are
    iterations of a parallel loop.
    """
    target = target.processor()
    if target.is_gpu:
        return predict_gpu(p, target, rates)
    cpu = cpu_of(target, rates.multiplies)
    terms = tuple(
        stage_terms(s, p.count, target, rates, b) for s, b in zip(p.stages, between(p), strict=True)
    )
    total = np.zeros(p.count)
    merged = {s.name: (t.parts, t.hidden) for s, t in zip(p.stages, terms, strict=True)}
    for s, t in zip(p.stages, terms, strict=True):  # inner stages come before the stages around them
        parts, hidden = merged[s.name]
        seconds = _together(parts, hidden, cpu.prior_overlap)
        if s.own < len(s.levels):
            around_it = s.levels[: len(s.levels) - s.own]
            visits: Floats = reduce(np.multiply, [full(v.trips, p.count) for v in around_it])
            fine = seconds * target.num_cores < cpu.prior_fine * visits
            outer = s.levels[len(s.levels) - s.own - 1].stage
            around, inside = merged[outer]
            both = tuple(a + np.where(fine, x, 0.0) for a, x in zip(around, parts, strict=True))
            merged[outer] = (both, inside + np.where(fine, hidden, 0.0))
            seconds = np.where(fine, 0.0, seconds)
        total = total + seconds + t.launch
    return total, terms


def _together(parts: tuple[Floats, ...], hidden: Floats, overlap: float) -> Floats:
    """Seconds of parts that overlap: the longest part, and a share of the others."""
    slowest: Floats = reduce(np.maximum, parts)
    rest: Floats = np.maximum(0.0, added(parts) - slowest - hidden)
    return slowest + overlap * rest


def stage_terms(
    s: StagePicture, count: int, target: Target, rates: Rates, passed: Mapping[str, int] = NOTHING
) -> Terms:
    """The terms of one stage. passed: for each buffer, the bytes that other stages have touched since this
    buffer was touched last."""
    cpu = cpu_of(target, rates.multiplies)
    cycle = 2.0 * target.lanes(32) / rates.flops  # seconds
    lanes = np.maximum(1.0, np.minimum(full(s.lanes, count), 4.0 * target.lanes(32)))
    tile = tile_of(s, count, lanes)
    steps = _steps(s, count)
    traffic = bytes_moved(s, count, target, rates, passed)
    per_step, measured = _measured_step(s, count, tile, lanes, steps, traffic, rates)
    per_step = np.where(measured, per_step, _step(s, count, tile, target, rates)) + _crowding(
        s, tile, target, cpu
    )
    compute = steps * per_step * cycle
    chunks = full(1, count)
    for level in s.levels:
        if level.mark is Mark.PARALLEL:
            chunks = full(level.extent, count)
        elif level.thread.startswith("blockIdx"):
            chunks = chunks * full(level.extent, count)
    cores = np.minimum(float(target.num_cores), chunks)
    imbalance = np.ceil(chunks / cores) * cores / chunks
    share = cores / imbalance
    moves = tuple(t / b for t, b in zip(traffic, rates.bandwidths, strict=False))
    limits = [rates.team_bandwidth(level, target.num_cores) for level in range(len(moves))]
    parts = [np.maximum(m / share, t / limit) for m, t, limit in zip(moves, traffic, limits, strict=True)]
    computing = np.maximum(compute / share, compute * rates.flops / rates.peak(target.num_cores))
    # a measured step includes its transfers from the caches
    hidden = np.where(measured, added(parts[:-1]) if len(parts) > 1 else 0.0, 0.0)
    launch = rates.region_s if s.own == len(s.levels) else 0.0
    all_parts = (computing, *parts)
    total = _together(all_parts, hidden, cpu.prior_overlap) + launch
    return Terms(compute, moves, chunks, imbalance, tile.size, tile.loads, all_parts, hidden, launch, total)


def _step(s: StagePicture, count: int, tile: Tile, target: Target, rates: Rates) -> Floats:
    """Cycles of the innermost unrolled code, by the formula. A dot instruction computes a whole group at
    once."""
    cpu, dot = cpu_of(target, rates.multiplies), dot_of(s)
    if dot is not None and dot.rows > 1:
        return _step_of_tiles(s, count, tile, dot, max(LEAST_GAIN, rates.gain(dot, target)), cpu)
    gain, group = (1.0, 1) if dot is None else (max(LEAST_GAIN, rates.gain(dot, target)), dot.group)
    registers = np.maximum(1.0, full(s.lanes, count) / target.lanes(8 * s.operands[-1].buffer.dtype.bytes))
    work = registers * tile.size * tile.depth * _operations(s, cpu) / gain
    # without a chain, the sums of the next tile use the waiting time
    chain = cpu.latency * tile.depth / group * tile.chained
    loads = registers * cpu.prior_load * tile.loads / group
    per_step = np.maximum(np.maximum(work, loads), chain) + cpu.prior_step
    spills = s.is_reduction & (tile.size + 1 > target.sum_registers)  # other stages write at once
    return np.where(spills, per_step * cpu.prior_spilled, per_step)


def _operations(s: StagePicture, cpu: Cpu) -> float:
    """The operations of a point, in times of an FMA. The divider works at the same time as the other
    units."""
    others = max(1.0, s.flops_per_point / 2.0) + s.slow.calls * (cpu.called - 1.0)
    return max(others, s.slow.divisions * cpu.prior_division)


def _step_of_tiles(
    s: StagePicture, count: int, tile: Tile, dot: DotInstruction, gain: float, cpu: Cpu
) -> Floats:
    """The same as `_step`, for an instruction that multiplies tiles. Its time depends on its rows and not on
    its groups. A tile is loaded row by row."""
    rows, points = taken_at_once(s, count)
    whole = dot.rows * dot.depth / gain  # cycles of an instruction with all rows
    work = tile.size * whole * np.maximum(rows, cpu.tiles.least_rows) / dot.rows
    chain = cpu.tiles.latency / cpu.tiles.product * whole * tile.chained
    loads = cpu.prior_load * tile.loads * rows
    per_step = np.maximum(np.maximum(work, loads), chain) + cpu.prior_step
    spills = tile.size + 2.0 > TILE_REGISTERS
    return np.where(spills, per_step * cpu.prior_spilled, per_step) / points


def _measured_step(
    s: StagePicture,
    count: int,
    tile: Tile,
    lanes: Floats,
    steps: Floats,
    traffic: tuple[Floats, ...],
    rates: Rates,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The same as `_step`, for tiles of matrix products whose micro-kernel was measured; and which candidates
    have such tiles.

    If some vectors are in L1 and the others come from L2, the time is interpolated by their shares.
    """
    if not rates.kernels.steps or not is_product(s):
        return np.zeros(count), np.zeros(count, dtype=np.bool_)
    costs = elementwise(rates.kernels.costs)(tile.rows, tile.vectors)  # [L1, L2, L3; candidates]
    streamed = np.maximum(1.0, steps * tile.depth * tile.vectors * lanes * 4.0)  # bytes of read vectors
    cost = costs[0]
    for level in range(1, min(len(LEVELS), len(traffic))):
        far = np.minimum(1.0, traffic[level - 1] / streamed)
        cost = cost + far * np.maximum(0.0, costs[level] - costs[level - 1])
    known = np.isfinite(cost) & (lanes == rates.kernels.lanes)
    return np.where(known, cost, 0.0) * tile.depth, known


def _crowding(s: StagePicture, tile: Tile, target: Target, cpu: Cpu) -> Floats:
    """Additional cycles of a step if its operands compete for few sets of L1."""
    w = ways(target)
    missing = np.clip((tile.lines - w - 1.0) / (cpu.prior_crowded_lines * w), 0.0, 1.0) ** 1.5
    each = cpu.prior_crowded * tile.rows if is_product(s) else cpu.prior_crowded_window * tile.size
    return each * tile.depth * missing


def _steps(s: StagePicture, count: int) -> Floats:
    """The number of runs of the innermost unrolled code."""
    steps = np.ones(count)
    for n, level in enumerate(s.levels):
        own = n >= len(s.levels) - s.own
        if not own or level.mark not in (Mark.UNROLLED, Mark.VECTORIZED):
            steps = steps * full(level.trips, count)
    return steps
