"""Analytic prior: seconds of every candidate of a population, from the picture and the machine's rates alone.

Per stage, the time is the larger of computing and moving:

    computing   steps × max(FMA issue, load issue, latency of the accumulators)
    moving      per cache: bytes that loops outside the level that fits in it bring in, over the bandwidth

Stages add up; parallel loops divide by the cores, rounded up to whole chunks. It ranks with no data at all;
the learned model (`model.py`) corrects it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.schedule.axis import Mark
from autotensor.schedule.picture import LoopPicture, StagePicture
from autotensor.te.tensor import AxisKind

Floats = npt.NDArray[np.float64]

STEP_OVERHEAD = 0.5  # cycles per innermost iteration beside FMAs and loads (Zen 4, 2026-11)
LOAD = 0.6  # cycles of a load beside FMAs: two ports; broadcasts fold into the FMA (Zen 4, 2026-11)
LATENCY = 4.0  # cycles from one FMA to the next of the same accumulator
FITS = 1.0  # share of a cache that one loop level may use before it spills
SPILLED = 2.5  # slow-down of a tile that needs more registers than there are
OVERLAP = 0.3  # of what is not the bottleneck, still felt
REGION_S = 2e-6  # fork and join of one parallel region or barrier


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machine can do; measured by `calibrate.py`, else a plausible guess."""

    flops: float  # peak of one core in float32, FLOP/s
    bandwidths: tuple[float, ...]  # bytes/s of one core from L2, L3, …, memory
    memory_bandwidth: float  # bytes/s of all cores together

    @staticmethod
    def guess(target: Target) -> Rates:
        """A 3.6 GHz core with one FMA a cycle in its widest vectors."""
        return Rates(3.6e9 * 2 * target.lanes(32), (100e9, 60e9, 20e9), 30e9)


@dataclass(frozen=True, slots=True)
class Terms:
    """Parts of a stage's predicted time in seconds, per candidate."""

    compute: Floats
    moves: tuple[Floats, ...]  # behind L1, L2, L3 …
    chunks: Floats  # iterations of the parallel loop, 1 without one
    imbalance: Floats  # ≥ 1
    tile: Floats  # vector accumulators (or stores) of one unrolled step
    loads: Floats  # vector or scalar loads of one step
    total: Floats


def predict(p: LoopPicture, target: Target, rates: Rates) -> tuple[Floats, tuple[Terms, ...]]:
    """Seconds per candidate, and the terms of every stage."""
    terms = tuple(stage_terms(s, p.count, target, rates) for s in p.stages)
    total = np.sum([t.total for t in terms], axis=0) if terms else np.zeros(p.count)
    return np.asarray(total, dtype=np.float64), terms


def _array(x: Any, count: int) -> Floats:
    return np.broadcast_to(np.asarray(x, dtype=np.float64), (count,)).astype(np.float64)


def stage_terms(s: StagePicture, count: int, target: Target, rates: Rates) -> Terms:
    cycle = 2.0 * target.lanes(32) / rates.flops  # seconds
    lanes = np.maximum(1.0, np.minimum(_array(s.lanes, count), 4.0 * target.lanes(32)))
    tile, depth = _tile(s, count)
    loads = _loads(s, count, lanes)
    work = tile * depth * max(1.0, s.flops_per_point / 2.0)
    chain = LATENCY * depth if s.is_reduction else 0.0
    per_step = np.maximum(np.maximum(work, LOAD * loads), chain) + STEP_OVERHEAD
    per_step = np.where(tile + 1 > target.vector_registers, per_step * SPILLED, per_step)
    compute = _steps(s, count) * per_step * cycle
    chunks = _array(1, count)
    for level in s.levels:
        if level.mark is Mark.PARALLEL:
            chunks = _array(level.extent, count)
    cores = np.minimum(float(target.num_cores), chunks)
    imbalance = np.ceil(chunks / cores) * cores / chunks
    moves = _moves(s, count, target, rates)
    share = cores / imbalance
    memory = np.maximum(moves[-1] / share, moves[-1] * rates.bandwidths[-1] / rates.memory_bandwidth)
    parts = [compute / share, *(m / share for m in moves[:-1]), memory]
    slowest = np.maximum.reduce(parts)
    second = np.sum(parts, axis=0) - slowest
    launch = REGION_S if s.own == len(s.levels) else 0.0
    total = slowest + OVERLAP * second + launch
    return Terms(compute, moves, chunks, imbalance, tile, loads, total)


def _tile(s: StagePicture, count: int) -> tuple[Floats, Floats]:
    """Vectors that one step writes (unrolled spatial loops), and reduction steps it takes (unrolled ones)."""
    tile, depth = np.ones(count), np.ones(count)
    for level in s.levels[len(s.levels) - s.own :]:
        if level.mark is Mark.UNROLLED:
            if level.kind is AxisKind.REDUCE:
                depth = depth * _array(level.extent, count)
            else:
                tile = tile * _array(level.extent, count)
    return tile, depth


def _steps(s: StagePicture, count: int) -> Floats:
    """How often the innermost unrolled code runs."""
    steps = np.ones(count)
    for n, level in enumerate(s.levels):
        own = n >= len(s.levels) - s.own
        if not own or level.mark not in (Mark.UNROLLED, Mark.VECTORIZED):
            steps = steps * _array(level.trips, count)
    return steps


def _loads(s: StagePicture, count: int, lanes: Floats) -> Floats:
    """Load instructions per step: distinct vectors, or broadcast scalars; gathers cost a lane each."""
    first = len(s.levels)
    for n in range(len(s.levels) - 1, len(s.levels) - s.own - 1, -1):
        if s.levels[n].mark not in (Mark.UNROLLED, Mark.VECTORIZED):
            break
        first = n
    total = np.zeros(count)
    for operand, sizes in zip(s.operands, s.bytes, strict=True):
        if operand.write and s.is_reduction:
            continue
        elements = _array(sizes[first], count) / operand.buffer.dtype.bytes
        total = total + (elements / lanes if operand.vector == "unit" else elements)
    return total


def _moves(s: StagePicture, count: int, target: Target, rates: Rates) -> tuple[Floats, ...]:
    """Seconds of one core to bring in what does not stay in each cache, nearest first.

    In a cache stays what the outermost loop level touches whose operands fit together. Whenever that level is
    entered they are brought in again, but for those that are the same as the last time.
    """
    operands = [
        [_array(b, count) for b in sizes]
        for o, sizes in zip(s.operands, s.bytes, strict=True)
        if not (o.write and s.is_reduction)  # accumulators are in registers
    ]
    entered = [np.ones(count)]
    for level in s.levels:
        entered.append(entered[-1] * _array(level.trips, count))
    depth = len(s.levels) + 1
    working = [np.sum([sizes[n] for sizes in operands], axis=0) for n in range(depth)]
    traffic = np.zeros((depth, count))
    for sizes in operands:
        times = entered[0]
        for n in range(depth):
            same = sizes[n] == sizes[n - 1] if n else False
            times = np.where(same, times, entered[n])
            traffic[n] += sizes[n] * times
    out = []
    for cache, bandwidth in zip(target.cache_bytes[: len(rates.bandwidths)], rates.bandwidths, strict=False):
        fits = np.stack([w <= FITS * cache for w in working])  # [levels, candidates]
        first = np.where(fits.any(axis=0), fits.argmax(axis=0), depth - 1)
        out.append(traffic[first, np.arange(count)] / bandwidth)
    out[-1] = np.where(working[0] <= FITS * target.cache_bytes[len(out) - 1], 0.0, out[-1])
    return (*out[:-1], np.maximum(out[-1], _cold(s, count) / rates.bandwidths[-1]))


def _cold(s: StagePicture, count: int) -> Floats:
    """Bytes of weights: in a whole model they come from memory every time."""
    total = np.zeros(count)
    for operand, sizes in zip(s.operands, s.bytes, strict=True):
        if operand.constant:
            total = total + _array(sizes[0], count)
    return total
