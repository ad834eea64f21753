"""The machine: two named scratch-pads, a copy engine, a matrix unit, and a counter of cycles.

    dma     |AL|BL|AL|BL|AL|BL| …                    instructions run one after the other; with `overlap`,
    matrix        |gemm||gemm||gemm| …               copies run while the matrix unit computes

The costs are invented. Only the structure of the cycles is real: how often each instruction runs, and which
instruction waits for which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import CodegenError
from autotensor.vdlc.code import COPY, GEMM, ZERO, Code, Instruction, Loop, Pad

Array = np.ndarray[Any, np.dtype[Any]]
Step = Callable[[Instruction, Mapping[str, int]], None]


@dataclass(frozen=True, slots=True)
class Report:
    """The cost of a run."""

    cycles: int
    counts: Mapping[str, int]  # runs of each instruction
    busy: Mapping[str, int]  # cycles of each unit

    def __str__(self) -> str:
        counts = ", ".join(f"{n:,} {name.split('.')[-1]}" for name, n in self.counts.items())
        busy = ", ".join(f"{unit} {100 * n / max(1, self.cycles):.0f} %" for unit, n in self.busy.items())
        return f"{self.cycles:,} cycles; {counts}; busy: {busy}"


@dataclass(frozen=True, slots=True)
class Machine:
    """Sizes and costs. Two pairs of tiles fit in inp_buffer: one pair is used while the next is copied."""

    inp_buffer: int = 1024  # bytes
    acc_buffer: int = 512
    overlap: bool = False  # two copies of every local buffer; instructions begin when their data is ready
    dma_cycles: int = 8  # to begin a copy
    bytes_per_cycle: int = 64
    gemm_cycles: int = 24  # 8 steps, 16 to fill and empty the array
    fill_cycles: int = 8

    def check(self, code: Code) -> None:
        """Raises CodegenError when a scratch-pad is too small."""
        for place, size in (("inp_buffer", self.inp_buffer), ("acc_buffer", self.acc_buffer)):
            needed = (1 + self.overlap) * sum(p.bytes for p in code.pads.values() if p.place == place)
            if needed > size:
                raise CodegenError(
                    f"vdlc: {place} has {size} bytes, this schedule needs {needed}.", fix="Use smaller tiles."
                )

    def run(self, code: Code, arrays: Mapping[str, Array]) -> Report:
        """Executes the code on arrays by name, in place."""
        memory = {n: np.zeros(p.shape, dtype_of(p.dtype).numpy) for n, p in code.pads.items()} | dict(arrays)
        clock = _Clock(code.pads, self.overlap)
        counts: dict[str, int] = {}

        def step(i: Instruction, loops: Mapping[str, int]) -> None:
            _act(i.name, *(memory[r.buffer][r.within(loops)] for r in i.regions))
            counts[i.name] = counts.get(i.name, 0) + 1
            clock.take(i, self.cost(i, code.pads))

        _execute(code.body, {}, step)
        return Report(clock.end, counts, clock.busy)

    def cost(self, i: Instruction, pads: Mapping[str, Pad]) -> int:
        """Cycles of one instruction."""
        if i.name == COPY:
            pad = next(pads[r.buffer] for r in i.regions if r.buffer in pads)
            size = prod(n for _, _, n in i.regions[0].box) * dtype_of(pad.dtype).bytes
            return self.dma_cycles + -(-size // self.bytes_per_cycle)
        return self.gemm_cycles if i.name == GEMM else self.fill_cycles


def _act(name: str, target: Array, *sources: Array) -> None:
    if name == GEMM:
        target += sources[0].T @ sources[1]
    else:
        target[...] = sources[0] if name == COPY else 0


class _Clock:
    """The times when instructions begin and end. A buffer that is written again uses its other copy."""

    def __init__(self, pads: Mapping[str, Pad], overlap: bool) -> None:
        copies = 1 + overlap
        self.overlap = overlap
        self.end = 0
        self.free = {"dma": 0, "matrix": 0}
        self.busy = {"dma": 0, "matrix": 0}
        self.ready = {b: [0] * copies for b in pads}  # when a copy's content is there
        self.used = {b: [0] * copies for b in pads}  # when a copy was read for the last time
        self.now = dict.fromkeys(pads, 0)  # the copy in use

    def take(self, i: Instruction, cycles: int) -> None:
        unit = "dma" if i.name == COPY else "matrix"
        written, reads = i.regions[0].buffer, [r.buffer for r in i.regions[1:] if r.buffer in self.now]
        waits = [self.free[unit], *(self.ready[b][self.now[b]] for b in reads)]
        if written in self.now:
            if i.name in (COPY, ZERO):
                self.now[written] = (self.now[written] + 1) % len(self.ready[written])
            copy = self.now[written]
            waits += [self.used[written][copy], self.ready[written][copy]]
        end = (max(waits) if self.overlap else self.end) + cycles
        self.free[unit] = end
        self.busy[unit] += cycles
        self.end = max(self.end, end)
        for b in reads:
            self.used[b][self.now[b]] = max(end, self.used[b][self.now[b]])
        if written in self.now:
            self.ready[written][self.now[written]] = end


def _execute(body: Sequence[Loop | Instruction], loops: dict[str, int], step: Step) -> None:
    for s in body:
        if isinstance(s, Instruction):
            step(s, loops)
            continue
        for n in range(s.extent):
            loops[s.var] = n
            _execute(s.body, loops, step)
