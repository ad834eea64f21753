"""Features: a fixed-length vector per candidate, computed as arrays from the picture and the prior's terms.

No operator names: an unseen computation is described by the same numbers. The stage with the most operations
is described in detail, the others by their sums. `NAMES` lists the columns; SCHEMA changes whenever they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.schedule.axis import Mark
from autotensor.schedule.picture import LoopPicture, StagePicture
from autotensor.search.score.prior import Terms
from autotensor.search.score.tile import shape_of
from autotensor.te.tensor import AxisKind

Floats = npt.NDArray[np.float64]

SCHEMA = 3
DEPTHS = 7  # loop levels around the tile that are listed, innermost first
GROUPS = ("weights", "inputs", "stores")
LEAST_SHARE = 2.0**-12  # of the whole time; less is nothing

NAMES: tuple[str, ...] = (
    "prior",
    "share.compute",
    "share.L1",
    "share.L2",
    "share.memory",
    "share.others",
    "time_per_operation",
    "stages",
    "flops",
    "chunks",
    "chunk_time",
    "imbalance",
    "tile",
    "rows",
    "vectors",
    "depth",
    "loads",
    "fma_per_load",
    "lanes",
    "unrolled_reduction",
    "reduction",
    "steps_per_tile",
    "overhang",
    "padding",
    "strided_loads",
    "broadcast_loads",
    "unit_loads",
    *(f"{g}@{d}" for g in GROUPS for d in range(DEPTHS)),
    *(f"trips@{d}" for d in range(DEPTHS)),
    "attached_stages",
    "overcompute",
    "parallel_bytes",
    "alias",
    "second.share",
    "second.time_per_operation",
    "second.tile",
    "second.lanes",
    "second.strided_loads",
    "second.chunks",
)


def features(p: LoopPicture, terms: Sequence[Terms], total: Floats, target: Target) -> Floats:
    """The matrix [candidates, len(NAMES)]; sizes and times are logarithms to base 2."""
    count = p.count
    if not p.stages:
        return np.zeros((count, len(NAMES)))
    heavy = max(range(len(p.stages)), key=lambda n: p.stages[n].work)
    s, t = p.stages[heavy], terms[heavy]
    others = np.sum([np.zeros(count), *(x.total for n, x in enumerate(terms) if n != heavy)], axis=0)
    cores = np.minimum(float(target.num_cores), t.chunks)
    rows, vectors, depth = shape_of(s, count)
    moves = (t.moves[0], t.moves[1] if len(t.moves) > 1 else t.moves[0], t.moves[-1])
    columns: list[Any] = [
        _log(total * 1e9),
        *(_share(x / cores, total) for x in (t.compute, *moves)),
        _share(others, total),
        np.log2(t.compute / s.work),
        len(p.stages),
        _log(_points(s, count) * max(1.0, s.flops_per_point)),
        _log(t.chunks),
        _log(total * cores / t.chunks * 1e9),
        t.imbalance,
        t.tile,
        rows,
        vectors,
        depth,
        t.loads,
        t.tile / np.maximum(t.loads, 0.25),
        s.lanes,
        _unrolled_reduction(s, count),
        _log(_reduction(s, count)),
        _log(_steps(s, count)),
        np.log2(_full(s.points, count) / _points(s, count)),
        np.log2(_points(s, count) * max(1.0, s.flops_per_point) / s.work),
        *_loads(s),
        *_footprints(s, count),
        *_trips(s, count),
        sum(x.own < len(x.levels) for x in p.stages),
        _log(_points(s, count)),
        _log(
            np.sum(
                [np.asarray(b[_parallel_depth(s)], dtype=np.float64) + np.zeros(count) for b in s.bytes],
                axis=0,
            )
        ),
        _alias(s),
        *_second(p, terms, heavy, total),
    ]
    return np.stack([np.broadcast_to(np.asarray(c, dtype=np.float64), (count,)) for c in columns], axis=1)


def _second(p: LoopPicture, terms: Sequence[Terms], heavy: int, total: Floats) -> list[Any]:
    """The same in short of the stage that comes next in operations."""
    if len(p.stages) == 1:
        return [0.0] * sum(name.startswith("second.") for name in NAMES)
    n = max((n for n in range(len(p.stages)) if n != heavy), key=lambda n: p.stages[n].work)
    s, t = p.stages[n], terms[n]
    return [
        _share(t.total, total),
        np.log2(t.compute / s.work),
        t.tile,
        s.lanes,
        _loads(s)[0],
        _log(t.chunks),
    ]


def _loads(s: StagePicture) -> tuple[int, ...]:
    """Number of operands by kind: strided, broadcast, unit."""
    kinds = [o.vector for o in s.operands if not o.write]
    return tuple(kinds.count(k) for k in ("strided", "broadcast", "unit"))


def _share(part: Floats, total: Floats) -> Any:
    return np.log2(np.maximum(part / total, LEAST_SHARE))


def _log(x: Any) -> Any:
    return np.log2(np.asarray(x, dtype=np.float64) + 1.0)


def _full(x: Any, count: int) -> Floats:
    return np.asarray(x, dtype=np.float64) + np.zeros(count)


def _product(
    s: StagePicture, count: int, *, kind: AxisKind | None = None, mark: Mark | None = None
) -> Floats:
    total = np.ones(count)
    for level in s.levels[len(s.levels) - s.own :]:
        if (kind is None or level.kind is kind) and (mark is None or level.mark is mark):
            total = total * _full(level.trips, count)
    return total


def _unrolled_reduction(s: StagePicture, count: int) -> Floats:
    return _product(s, count, kind=AxisKind.REDUCE, mark=Mark.UNROLLED)


def _reduction(s: StagePicture, count: int) -> Floats:
    return _product(s, count, kind=AxisKind.REDUCE)


def _steps(s: StagePicture, count: int) -> Floats:
    return _product(s, count, mark=Mark.SERIAL)


def _points(s: StagePicture, count: int) -> Floats:
    total = np.ones(count)
    for level in s.levels:
        total = total * _full(level.trips, count)
    return total


def _parallel_depth(s: StagePicture) -> int:
    return next((n + 1 for n, level in enumerate(s.levels) if level.mark is Mark.PARALLEL), 0)


def _innermost(s: StagePicture) -> int:
    """Number of the level whose loops are the tile: the stage's own if it is attached, else the innermost."""
    return len(s.levels) - s.own or max(0, len(s.levels) - 1)


def _by_depth(s: StagePicture, count: int, values: Sequence[Floats]) -> list[Floats]:
    """Values of levels by depth, innermost first; loops of one iteration are no depth of their own."""
    first = _innermost(s)
    table = np.broadcast_to(values[0], (DEPTHS, count)).copy()  # what is not there is as the outermost
    table[0] = values[first]
    depth = np.zeros(count, dtype=np.int64)
    rows = np.arange(count)
    for n in range(first - 1, -1, -1):
        depth += _full(s.levels[n].trips, count) != 1.0
        mine = depth < DEPTHS
        table[depth[mine], rows[mine]] = values[n][mine]
    return list(table)


def _footprints(s: StagePicture, count: int) -> list[Floats]:
    out: list[Floats] = []
    for group in GROUPS:
        totals = [np.zeros(count) for _ in range(len(s.levels) + 1)]
        for operand, sizes in zip(s.operands, s.bytes, strict=True):
            mine = "stores" if operand.write else "weights" if operand.constant else "inputs"
            if mine == group:
                totals = [t + _full(b, count) for t, b in zip(totals, sizes, strict=True)]
        out.extend(_log(t) for t in _by_depth(s, count, totals))
    return out


def _trips(s: StagePicture, count: int) -> list[Floats]:
    entered = [np.ones(count)]
    for level in s.levels:
        entered.append(entered[-1] * _full(level.trips, count))
    return [_log(t) for t in _by_depth(s, count, entered)]


def _alias(s: StagePicture) -> float:
    """Whether rows of an input lie a multiple of 4 KiB apart, and compete for the same cache sets."""
    worst = 0.0
    for o in s.operands:
        if o.write or o.constant or len(o.buffer.shape) < 2:
            continue
        step = o.buffer.row_major()[-2] * o.buffer.dtype.bytes
        worst = max(worst, 2.0 if step % 4096 == 0 else 1.0 if step % 2048 == 0 else 0.0)
    return worst
