"""The rates of a machine that the prior reads: peak, bandwidths, regions, register tiles.

    Rates.guess(target)         plausible rates, if nothing was measured
    calibration.calibrated(…)   measured

A register tile of `rows` broadcast elements × `vectors` does rows·vectors fused multiply-adds in each step of
the reduction; `MicroKernels` says how long a step takes, with the vectors coming from L1, L2 or L3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import DotInstruction
from schedules.cpu import cpu_of
from schedules.kit.dot_uses import gain

Floats = npt.NDArray[np.float64]

LEVELS = ("L1", "L2", "L3")  # caches from which the vectors of a micro-kernel come
# the rates of one multiprocessor: 128 FMAs a cycle at 1.6 GHz; bytes/s from L2 and memory (A100 and H100,
# data sheets)
SM_FLOPS, SM_L2, SM_MEMORY = 2 * 128 * 1.6e9, 40e9, 20e9
REGION_S = 2e-6  # fork and join of one parallel region or barrier, as a guess


@dataclass(frozen=True)
class MicroKernels:
    """Measured register tiles of float32. If it is empty, nothing was measured, and the prior uses its
    formula."""

    lanes: int = 0  # elements of a vector; the times are valid for this width only
    # (rows, vectors) → time of one step with the vectors in L1, L2, L3, in fused multiply-adds at peak
    steps: Mapping[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)

    def costs(self, rows: Any, vectors: Any) -> Floats:
        """The times of a step [levels, candidates]; NaN if the tile was not measured and is not between two
        measured ones."""
        table = self._table
        r, v = np.asarray(rows, dtype=np.int64), np.asarray(vectors, dtype=np.int64)
        known = (r < table.shape[1]) & (v < table.shape[2])
        found = table[:, np.where(known, r, 0), np.where(known, v, 0)]
        return np.where(known, found, np.nan)

    @cached_property
    def _table(self) -> Floats:
        """The times [levels, rows, vectors]. Between measured numbers of rows, they are interpolated."""
        most_rows = max((r for r, _ in self.steps), default=0)
        most_vectors = max((v for _, v in self.steps), default=0)
        table = np.full((len(LEVELS), most_rows + 1, most_vectors + 1), np.nan)
        for v in range(1, most_vectors + 1):
            mine = sorted((r, s) for (r, w), s in self.steps.items() if w == v)
            if not mine:
                continue
            known = np.asarray([r for r, _ in mine])
            between = np.arange(known[0], known[-1] + 1)
            for level in range(len(LEVELS)):
                times = np.asarray([s[min(level, len(s) - 1)] for _, s in mine])
                table[level, between, v] = np.interp(between, known, times)
        return table


@dataclass(frozen=True)
class Rates:
    """The rates of a machine, for the number of threads of the target."""

    flops: float  # peak of one core in float32, FLOP/s
    bandwidths: tuple[float, ...]  # bytes/s of one core from L2, L3, …, memory
    memory_bandwidth: float  # bytes/s of all cores together
    team_flops: float | None = None  # peak of all threads together; None: one core's, times the cores
    team_bandwidths: tuple[float, ...] = ()  # `bandwidths` of all threads; (): one core's, times the cores
    region_s: float = REGION_S  # fork and join of one parallel region
    kernels: MicroKernels = field(default_factory=MicroKernels)
    multiplies: float | None = None  # FMAs of whole registers a cycle, as measured
    # measured operations per second of one core by dot instructions; for others, the record's numbers count
    dots: Mapping[str, float] = field(default_factory=dict)
    warm_weights: bool = False  # constants stay in the caches between calls; otherwise they come from memory
    guessed: bool = False  # whether the rates were not measured on that machine

    @staticmethod
    def guess(target: Target) -> Rates:
        """Guessed rates: a core with one FMA per cycle in its widest vectors, and memory after its last
        cache. For a card, these are the rates of a multiprocessor."""
        if target.on_card:
            return Rates(SM_FLOPS, (SM_L2, SM_MEMORY), SM_MEMORY * target.num_cores, guessed=True)
        cpu, nearer = cpu_of(target), min(len(target.cache_bytes), 3) - 1
        levels = (*cpu.bandwidths[: max(0, nearer)], cpu.bandwidths[-1])
        return Rates(cpu.clock * 2 * target.lanes(32), levels, cpu.memory, guessed=True)

    def peak(self, cores: int) -> float:
        """FLOP/s of all threads of the target together."""
        return self.team_flops if self.team_flops is not None else self.flops * cores

    def gain(self, dot: DotInstruction, target: Target) -> float:
        """A dot instruction's operations per second, divided by those of FMAs in float32."""
        return self.dots[dot.name] / self.flops if dot.name in self.dots else gain(dot, target)

    def team_bandwidth(self, level: int, cores: int) -> float:
        """The bytes/s of all threads together from a level of `bandwidths`."""
        if self.team_bandwidths:
            return self.team_bandwidths[level]
        return self.memory_bandwidth if level == len(self.bandwidths) - 1 else self.bandwidths[level] * cores


def as_timed(rates: Rates, residencies: Iterable[str]) -> Rates:
    """The rates for times with these residencies: weights stay in the caches if everything was measured hot.

    >>> as_timed(Rates(1e11, (1e10,), 1e10), ["hot", "model"]).warm_weights
    True
    """
    return replace(rates, warm_weights="hot" in set(residencies))
