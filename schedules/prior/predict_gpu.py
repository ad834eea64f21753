"""The prior for a GPU: seconds of every candidate from waves of blocks, occupancy, and traffic.

    seconds of a kernel = waves × max(steps of a block, its bytes / its share of bandwidth) + launch

    waves       blocks / (multiprocessors × blocks that one holds), rounded up to whole waves
    holds       as many blocks as threads, shared memory and registers allow
    steps       a block's FMAs, loads from shared memory and loads for copies, divided by the rate of a
                multiprocessor; more if too few threads hide the latency. With tensor cores: their products,
                or the bytes that warps fetch for them, divided by their rate

Source: the micro-models of Roller (Zhu et al., OSDI 2022) and tritonBLAS (2025), simplified.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.codegen.c.tensor_intrinsics import INTRINSICS, products_a_cycle
from autotensor.schedule.axis import Mark
from autotensor.schedule.loop_picture import LoopPicture, StagePicture
from autotensor.te.thread import VTHREAD
from schedules.prior.rates import Rates
from schedules.prior.register_tile import added, full, tile_of
from schedules.prior.terms import Terms

Floats = npt.NDArray[np.float64]

LAUNCH_S = 3e-6
THREADS_OF_SM, BLOCKS_OF_SM, REGISTERS_OF_SM = 2048, 32, 65536
OTHER_REGISTERS = 32.0  # registers of a thread besides accumulators and operands
ENOUGH_THREADS = 512.0  # with this many threads on a multiprocessor, latencies are hidden
SM_LANES, SM_SHARED = 128.0, 128.0  # FMAs of a multiprocessor per cycle; its bytes from shared memory
LOAD = 1.5  # cost in FMAs of an element from shared memory: 32 a cycle, not 128; a warp shares some


@dataclass(frozen=True, slots=True)
class _Launch:
    """For each candidate: blocks of a kernel, threads of a block, and blocks that a multiprocessor holds."""

    blocks: Floats
    threads: Floats
    held: Floats

    def waves(self, cores: int) -> Floats:
        return np.ceil(self.blocks / np.maximum(1.0, cores * self.held))


def predict_gpu(p: LoopPicture, target: Target, rates: Rates) -> tuple[Floats, tuple[Terms, ...]]:
    """Seconds for each candidate, and the terms of every stage."""
    shared, registers = _shared_bytes(p), _registers(p)
    terms = tuple(_stage(s, p.count, target, rates, shared, registers) for s in p.stages)
    total = np.zeros(p.count)
    for t in terms:
        total = total + t.total
    return total, terms


def _stage(
    s: StagePicture, count: int, target: Target, rates: Rates, shared: Floats, registers: Floats
) -> Terms:
    lanes = np.maximum(1.0, full(s.lanes, count))
    tile = tile_of(s, count, lanes)
    launch = _launch(s, count, registers, shared, target)
    points = full(s.points, count)
    if _is_shared(s):  # threads divide the work; virtual threads have none, and lanes work together
        points = points / (launch.threads * _virtual(s, count) * lanes)
    loaded = tile.rows + tile.vectors * lanes  # elements for each step of a thread's tile
    per_point = 1.0 + LOAD * loaded / np.maximum(1.0, tile.size * lanes)
    work = points * np.maximum(1.0, s.flops_per_point / 2.0) * per_point  # FMAs that all threads issue
    instruction = next((level.thread for level in s.levels if level.thread in INTRINSICS), "")
    if instruction:
        multiplied = SM_LANES / products_a_cycle(instruction, target.capability)
        work = points * np.maximum(multiplied, _fetched_by_warps(s, count) * SM_LANES / SM_SHARED)
    busy = np.minimum(1.0, launch.threads * launch.held / ENOUGH_THREADS)
    full_waves = launch.waves(target.num_cores) * target.num_cores * launch.held
    imbalance = np.maximum(1.0, full_waves / np.maximum(1.0, launch.blocks))
    compute = work * 2.0 / rates.flops
    traffic = _global_bytes(s, count, launch)
    moves = (traffic / rates.bandwidths[0], traffic / rates.bandwidths[-1])
    computing = compute / target.num_cores * imbalance / np.maximum(0.05, busy)
    parts = (computing, moves[0] / target.num_cores, np.minimum(moves[1], _least(s, count, rates)))
    start = LAUNCH_S if s.own == len(s.levels) else 0.0
    slowest: Floats = reduce(np.maximum, parts)
    total = slowest + 0.2 * (added(parts) - slowest) + start
    nothing = np.zeros(count)
    return Terms(
        compute, moves, launch.blocks, imbalance, tile.size, tile.loads, parts, nothing, start, total
    )


def _launch(s: StagePicture, count: int, registers: Floats, shared: Floats, target: Target) -> _Launch:
    blocks, threads = np.ones(count), np.ones(count)
    for level in s.levels:
        if level.thread.startswith("blockIdx"):
            blocks = blocks * full(level.extent, count)
        elif level.thread.startswith("threadIdx") and level.stage == s.levels[0].stage:
            threads = threads * full(level.extent, count)
    held = np.minimum(THREADS_OF_SM / threads, REGISTERS_OF_SM / (registers * threads))
    held = np.minimum(held, target.max_shared_bytes / np.maximum(1.0, shared))
    return _Launch(blocks, threads, np.clip(np.floor(held), 1.0, BLOCKS_OF_SM))


def _shared_bytes(p: LoopPicture) -> Floats:
    """The bytes of a block's shared memory: the results of stages that are attached in it and bound to
    threads."""
    total = np.zeros(p.count)
    for s in p.stages:
        if _is_shared(s):
            for operand, sizes in zip(s.operands, s.bytes, strict=True):
                if operand.write:
                    total = total + full(sizes[len(s.levels) - s.own], p.count)
    return total


def _is_shared(s: StagePicture) -> bool:
    """Whether threads of a block compute the stage together: it is attached in a block and bound to
    threads."""
    own = s.levels[len(s.levels) - s.own :]
    return s.own < len(s.levels) and any(level.mark is Mark.BOUND for level in own)


def _registers(p: LoopPicture) -> Floats:
    """The registers of a thread: the accumulators of its largest tile, for all its virtual threads, and
    others."""
    most = np.zeros(p.count)
    for s in p.stages:
        lanes = np.maximum(1.0, full(s.lanes, p.count))
        size = tile_of(s, p.count, lanes).size * lanes
        most = np.maximum(most, size if _is_shared(s) else size * _virtual(s, p.count))
    return most + OTHER_REGISTERS


def _virtual(s: StagePicture, count: int) -> Floats:
    """The number of virtual threads of a thread."""
    total = np.ones(count)
    for level in (x for x in s.levels if x.thread == VTHREAD):
        total = total * full(level.extent, count)
    return total


def _fetched_by_warps(s: StagePicture, count: int) -> Floats:
    """Bytes from shared memory for each product of tensor cores. A warp's rows and columns are its virtual
    threads along the two axes; each is loaded once for all products of the warp's tile."""
    sides: dict[str, Floats] = {}
    for level in (x for x in s.levels if x.thread == VTHREAD):
        axis = level.axis.rpartition(".")[0]
        sides[axis] = sides.get(axis, np.full(count, 8.0)) * full(level.extent, count)
    total = added([1.0 / side for side in sides.values()]) if sides else np.ones(count)
    return total * max(o.buffer.dtype.bytes for o in s.operands if not o.write)


def _global_bytes(s: StagePicture, count: int, launch: _Launch) -> Floats:
    """The bytes that all blocks together read and write: the bytes of one block, times the number of
    blocks."""
    inside = sum(level.thread.startswith("blockIdx") for level in s.levels)
    total = np.zeros(count)
    for sizes in s.bytes:
        total = total + full(sizes[inside], count)
    return total * launch.blocks


def _least(s: StagePicture, count: int, rates: Rates) -> Floats:
    """The seconds to read every operand once from memory; later reads find it in L2."""
    total = np.zeros(count)
    for sizes in s.bytes:
        total = total + full(sizes[0], count)
    return total / rates.memory_bandwidth
