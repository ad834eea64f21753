"""Loop levels of a stage: what one run of each loop touches, which cache holds that, and what reuse it gives.

    loop      runs   a0      a1     together   fits in
    i0          1    3.2 MB  147 kB   3.3 MB   L3           one run of i0 touches all of a0
      i1       28    115 kB  147 kB   262 kB   L2           …

A cache keeps the operands of the outermost loop whose operands fit into it together. Whenever that loop
begins again, they are loaded again, except those that it has touched the last time. These are the bytes
whose time the prior predicts (`schedules/prior/traffic.py`), by the same functions; that takes fused loops
apart, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.schedule.axis import Mark
from autotensor.schedule.loop_picture import LoopPicture, StagePicture
from autotensor.schedule.operands import Operand
from schedules.prior.register_tile import full
from schedules.prior.traffic import brought, entered, full_sizes, kept, moved

Floats = npt.NDArray[np.float64]

MEMORY = "memory"
MARKS = {Mark.PARALLEL: "parallel", Mark.UNROLLED: "unrolled", Mark.VECTORIZED: "vector"}
BODY = "body"  # the level inside all loops


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One loop around the stage's body; last, the body itself."""

    loop: str
    stage: str  # whose loop it is: a stage that is computed inside another has the other's loops around it
    extent: int  # 0: of the body
    mark: str
    runs: float  # how often it begins
    bytes: tuple[float, ...]  # per operand, what one run touches
    fits: str  # the nearest cache that holds all of these


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One cache, and what goes into it while the stage runs once."""

    cache: str
    keeps: str  # the loop of which one run fits
    brought: tuple[float, ...]  # bytes per operand
    reuse: tuple[float, ...]  # how often the body uses an element while it is there


@dataclass(frozen=True, slots=True)
class LevelTable:
    """The loops of one stage."""

    stage: str
    operands: tuple[str, ...]
    loops: tuple[LoopRow, ...]
    caches: tuple[CacheRow, ...]


def heaviest(p: LoopPicture) -> StagePicture:
    """The stage with the most operations, which the model's features describe."""
    return max(p.stages, key=lambda s: s.work)


def level_table(s: StagePicture, target: Target) -> LevelTable:
    """Loops of one iteration are left out: they change nothing."""
    operands = [o for o, _ in moved(s)]
    sizes = np.asarray(
        [[b[0] for b in full_sizes(bytes_, 1)] for _, bytes_ in moved(s)]
    )  # [operands, levels + 1]
    times = [float(t[0]) for t in entered(s, 1)]
    extents = [int(full(v.extent, 1)[0]) for v in s.levels]
    loops = tuple(
        LoopRow(
            v.axis,
            v.stage,
            extent,
            MARKS.get(v.mark, ""),
            times[n],
            tuple(map(float, sizes[:, n])),
            cache_of(float(sizes[:, n].sum()), target),
        )
        for n, (v, extent) in enumerate(zip(s.levels, extents, strict=True))
        if extent > 1
    )
    last = tuple(map(float, sizes[:, -1]))
    body = LoopRow(BODY, s.name, 0, "", times[-1], last, cache_of(sum(last), target))
    return LevelTable(s.name, names(operands), (*loops, body), _caches(s, target, operands, sizes, extents))


def _caches(
    s: StagePicture, target: Target, operands: list[Operand], sizes: Floats, extents: list[int]
) -> tuple[CacheRow, ...]:
    times = entered(s, 1)
    steady = [len(v.parts) == 1 for v in s.levels]
    traffic = np.asarray(
        [[t[0] for t in brought(b[:, None], times, steady)] for b in sizes]
    )  # [operands, levels + 1]
    # bytes the body asks for
    uses = np.asarray([float(times[-1][0]) * o.buffer.dtype.bytes for o in operands])
    out = []
    for n, cache in enumerate(target.cache_bytes):
        level = int(kept(sizes.sum(axis=0), cache, range(sizes.shape[1])))
        inner = next((m for m in range(level, len(extents)) if extents[m] > 1), None)
        bytes_in = traffic[:, level]
        out.append(
            CacheRow(
                f"L{n + 1}",
                BODY if inner is None else s.levels[inner].axis,
                tuple(map(float, bytes_in)),
                tuple(map(float, uses / np.maximum(bytes_in, 1.0))),
            )
        )
    return tuple(out)


def cache_of(count: float, target: Target) -> str:
    """The nearest cache that holds so many bytes.

    >>> cache_of(1e9, Target("llvm")), cache_of(100.0, Target("llvm"))
    ('memory', 'L1')
    """
    for n, size in enumerate(target.cache_bytes):
        if count <= size:
            return f"L{n + 1}"
    return MEMORY


def names(operands: list[Operand]) -> tuple[str, ...]:
    """Names of the operands; what is written says so, what is read twice is numbered."""
    plain = [f"{o.buffer.name} out" if o.write else o.buffer.name for o in operands]
    return tuple(
        name if plain.count(name) == 1 else f"{name} #{plain[: n + 1].count(name)}"
        for n, name in enumerate(plain)
    )
