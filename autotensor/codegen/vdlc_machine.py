"""The machine of `vdlc.py`: two named scratch-pads, a copy engine, a matrix unit, and a counter of cycles.

    dma     |AL|BL|AL|BL|AL|BL| …                    one instruction after the other, or with `overlap`
    matrix        |gemm||gemm||gemm| …               copies going on while the matrix unit computes

The costs are made up; what is true of the cycles is their structure: how often each instruction runs, and
what waits for what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotensor.base.errors import CodegenError
from autotensor.codegen.vdlc import Code, Instruction, Loop
from autotensor.ir.expr import Var
from autotensor.ir.func import Buffer

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run took."""

    cycles: int
    counts: Mapping[str, int]  # of each instruction
    busy: Mapping[str, int]  # cycles of each unit

    def __str__(self) -> str:
        counts = ", ".join(f"{n:,} {name}" for name, n in self.counts.items())
        busy = ", ".join(f"{unit} {100 * n / max(1, self.cycles):.0f} %" for unit, n in self.busy.items())
        return f"{self.cycles:,} cycles; {counts}; busy: {busy}"


@dataclass(frozen=True, slots=True)
class Machine:
    """Sizes and costs. Two tiles fit in inp_buffer twice over: while one pair is used the next may come."""

    pad_bytes: Mapping[str, int] = field(default_factory=lambda: {"inp_buffer": 1024, "acc_buffer": 512})
    dma_cycles: int = 8  # to begin a copy
    bytes_per_cycle: int = 64
    gemm_cycles: int = 24  # 8 steps, 16 to fill and empty the array
    fill_cycles: int = 8

    def run(self, code: Code, arrays: Mapping[str, Array], *, overlap: bool = False) -> Report:
        """Executes the code on arrays by name, in place.

        overlap: every local buffer has two copies, and an instruction begins as soon as its unit is free and
        what it touches is ready; else each begins when the one before has ended.
        Raises CodegenError when a scratch-pad is too small.
        """
        copies = 2 if overlap else 1
        self._check(code, copies)
        memory: dict[Buffer, Array] = {b: np.zeros(b.shape, b.dtype.numpy) for b in code.pads}
        clock = _Clock(code.pads, copies, overlap)
        counts: dict[str, int] = {}

        def step(i: Instruction, loops: Mapping[Var, int]) -> None:
            views = [memory.get(r.buffer, arrays.get(r.buffer.name))[r.within(loops)] for r in i.regions]  # type: ignore[index]
            ACTIONS[i.name](*views)
            counts[i.name] = counts.get(i.name, 0) + 1
            clock.take(i, self.cost(i))

        _execute(code.body, {}, step)
        return Report(clock.end, counts, clock.busy)

    def cost(self, i: Instruction) -> int:
        """Cycles of one instruction."""
        if i.unit == "dma":
            r = i.regions[0]
            return self.dma_cycles + -(
                -int(np.prod(r.extents)) * r.buffer.dtype.bytes // self.bytes_per_cycle
            )
        return self.gemm_cycles if i.accumulates else self.fill_cycles

    def _check(self, code: Code, copies: int) -> None:
        for pad, size in self.pad_bytes.items():
            needed = copies * sum(b.bytes for b, where in code.pads.items() if where == pad)
            if needed > size:
                raise CodegenError(
                    f"vdlc: {pad} has {size} bytes, this schedule needs {needed}.", fix="Use smaller tiles."
                )


def _write(target: Array, source: Array) -> None:
    target[...] = source


def _zero(target: Array) -> None:
    target[...] = 0


def _multiply_add(acc: Array, left: Array, right: Array) -> None:
    acc += left.T @ right


ACTIONS: Mapping[str, Callable[..., None]] = {
    "dma_copy2d": _write,
    "fill_zero": _zero,
    "fused_gemm8x8_add": _multiply_add,
}


class _Clock:
    """When instructions begin and end. A buffer that is written anew takes its other copy."""

    def __init__(self, pads: Mapping[Buffer, str], copies: int, overlap: bool) -> None:
        self.overlap = overlap
        self.end = 0
        self.free = {"dma": 0, "matrix": 0}
        self.busy = {"dma": 0, "matrix": 0}
        self.ready = {b: [0] * copies for b in pads}  # when a copy's content is there
        self.used = {b: [0] * copies for b in pads}  # when a copy was read for the last time
        self.now = dict.fromkeys(pads, 0)  # the copy in use

    def take(self, i: Instruction, cycles: int) -> None:
        written, reads = i.regions[0].buffer, [r.buffer for r in i.regions[1:] if r.buffer in self.now]
        waits = [self.free[i.unit], *(self.ready[b][self.now[b]] for b in reads)]
        if written in self.now:
            if not i.accumulates:
                self.now[written] = (self.now[written] + 1) % len(self.ready[written])
            copy = self.now[written]
            waits += [self.used[written][copy], self.ready[written][copy]]
        end = (max(waits) if self.overlap else self.end) + cycles
        self.free[i.unit] = end
        self.busy[i.unit] += cycles
        self.end = max(self.end, end)
        for b in reads:
            self.used[b][self.now[b]] = max(end, self.used[b][self.now[b]])
        if written in self.now:
            self.ready[written][self.now[written]] = end


def _execute(
    body: Sequence[Loop | Instruction],
    loops: dict[Var, int],
    step: Callable[[Instruction, Mapping[Var, int]], None],
) -> None:
    for s in body:
        if isinstance(s, Instruction):
            step(s, loops)
            continue
        for n in range(s.extent):
            loops[s.var] = n
            _execute(s.body, loops, step)
