"""Loop levels of a stage: what one run of each loop touches, which cache holds that, and how much it is
reused.

    loop      runs   a0      a1     together   fits in
    i0          1    3.2 MB  147 kB   3.3 MB   L3           one run of i0 touches all of a0
      i1       28    115 kB  147 kB   262 kB   L2           …

A cache keeps the operands of the outermost loop whose operands fit into the cache together. Whenever that
loop begins again, its operands are loaded again, except for those that its previous run has touched. The
prior predicts the time for these bytes (`schedules/prior/traffic.py`) with the same functions. The prior also
divides a fused loop into the loops that it was made from.
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
    """One loop around the stage's body. The last row is the body itself."""

    loop: str
    # the stage that the loop belongs to: a stage computed inside another one has loops of that one around it
    stage: str
    extent: int  # 0 for the body
    mark: str
    runs: float  # how often it begins
    bytes: tuple[float, ...]  # the bytes that one run touches, per operand
    fits: str  # the nearest cache that holds all these bytes


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One cache, and the bytes that are loaded into it while the stage runs once."""

    cache: str
    keeps: str  # the loop whose operands stay in the cache during one run
    brought: tuple[float, ...]  # bytes loaded, per operand
    reuse: tuple[float, ...]  # how often the body uses an element for each time that the element is loaded


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
    """The loops of a stage, and the caches. Loops of one iteration are left out: they change nothing."""
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
    # bytes that the body reads or writes
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
    """The nearest cache that holds this number of bytes.

    >>> cache_of(1e9, Target("llvm")), cache_of(100.0, Target("llvm"))
    ('memory', 'L1')
    """
    for n, size in enumerate(target.cache_bytes):
        if count <= size:
            return f"L{n + 1}"
    return MEMORY


def names(operands: list[Operand]) -> tuple[str, ...]:
    """Names of the operands. Written operands are marked as written; operands read twice are numbered."""
    plain = [f"{o.buffer.name} out" if o.write else o.buffer.name for o in operands]
    return tuple(
        name if plain.count(name) == 1 else f"{name} #{plain[: n + 1].count(name)}"
        for n, name in enumerate(plain)
    )
