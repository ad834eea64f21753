"""Features: a vector of fixed length per candidate, computed as arrays from the picture and the prior's
terms.

There are no names of operators, so an unseen computation is described by the same numbers. The stage with the
most operations is described in detail, the other stages by their sums. `_columns` is the table. SCHEMA
changes whenever the table changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.schedule.axis import Mark
from autotensor.schedule.formulas import elementwise
from autotensor.schedule.loop_picture import LoopPicture, StagePicture
from autotensor.te.tensor import AxisKind
from schedules.cpu import PAGE
from schedules.prior.register_tile import added, full, shape_of
from schedules.prior.terms import Terms

Floats = npt.NDArray[np.float64]

SCHEMA = 4
DEPTHS = 7  # loop levels around the tile that are listed, innermost first
GROUPS = ("weights", "inputs", "stores")
LEAST_SHARE = 2.0**-12  # share of the whole time; a smaller share counts as nothing


def features(p: LoopPicture, terms: Sequence[Terms], total: Floats, target: Target) -> Floats:
    """The matrix [candidates, len(NAMES)]. Sizes and times are logarithms to base 2."""
    return matrix_of(columns(p, terms, total, target), p.count)


def matrix_of(values: Sequence[Any], count: int) -> Floats:
    """The matrix [candidates, features]. Each value is a number, or an array over the candidates."""
    matrix = np.empty((count, len(values)))
    for n, value in enumerate(values):
        matrix[:, n] = value
    return matrix


def columns(p: LoopPicture, terms: Sequence[Terms], total: Floats, target: Target) -> tuple[Any, ...]:
    """The values of NAMES, in order: each is one number, or an array over the candidates."""
    return tuple(_columns(p, terms, total, target.num_cores).values()) if p.stages else (0.0,) * len(NAMES)


def _columns(p: LoopPicture, terms: Sequence[Terms], total: Floats, cores: int) -> dict[str, Any]:
    """The table: each column by its name, as one number or an array over the candidates."""
    count = p.count
    (s, t), *others = sorted(zip(p.stages, terms, strict=True), key=lambda x: -x[0].work)
    busy = np.minimum(float(cores), t.chunks)
    rows, vectors, depth = shape_of(s, count)
    points = _points(s, count)
    operations = points * max(1.0, s.flops_per_point)
    strided, broadcast, unit = _loads(s)
    return {
        "prior": _log(total * 1e9),
        "share.compute": _share(t.compute / busy, total),
        "share.L1": _share(t.moves[0] / busy, total),
        "share.L2": _share(t.moves[min(1, len(t.moves) - 1)] / busy, total),
        "share.memory": _share(t.moves[-1] / busy, total),
        "share.others": _share(added([np.zeros(count), *(x.total for x in terms if x is not t)]), total),
        "time_per_operation": np.log2(t.compute / s.work),
        "stages": len(p.stages),
        "flops": _log(operations),
        "chunks": _log(t.chunks),
        "chunk_time": _log(total * busy / t.chunks * 1e9),
        "imbalance": t.imbalance,
        "tile": t.tile,
        "rows": rows,
        "vectors": vectors,
        "depth": depth,
        "loads": t.loads,
        "fma_per_load": t.tile / np.maximum(t.loads, 0.25),
        "lanes": s.lanes,
        "unrolled_reduction": _product(s, count, kind=AxisKind.REDUCE, mark=Mark.UNROLLED),
        "reduction": _log(_product(s, count, kind=AxisKind.REDUCE)),
        "steps_per_tile": _log(_product(s, count, mark=Mark.SERIAL)),
        "overhang": np.log2(full(s.points, count) / points),
        "padding": np.log2(operations / s.work),
        "strided_loads": strided,
        "broadcast_loads": broadcast,
        "unit_loads": unit,
        **{f"{g}@{d}": v for g in GROUPS for d, v in enumerate(_footprint(s, count, g))},
        **{f"trips@{d}": v for d, v in enumerate(_trips(s, count))},
        "attached_stages": sum(x.own < len(x.levels) for x in p.stages),
        "overcompute": _log(points),
        "parallel_bytes": _log(_parallel_bytes(s, count)),
        "alias": _alias(s),
        **{f"second.{k}": v if others else 0.0 for k, v in _short(*(others or [(s, t)])[0], total).items()},
    }


def _short(s: StagePicture, t: Terms, total: Floats) -> dict[str, Any]:
    """Features of the stage with the second most operations."""
    return {
        "share": _share(t.total, total),
        "time_per_operation": np.log2(t.compute / s.work),
        "tile": t.tile,
        "lanes": s.lanes,
        "strided_loads": _loads(s)[0],
        "chunks": _log(t.chunks),
    }


def _loads(s: StagePicture) -> tuple[int, ...]:
    """The number of operands of each kind: strided, broadcast, unit."""
    kinds = Counter[str]()
    for o in s.operands:
        if not o.write:
            kinds[o.vector] += o.count
    return kinds["strided"] + kinds["apart"], kinds["broadcast"], kinds["unit"]


def _share(part: Floats, total: Floats) -> Any:
    return np.log2(np.maximum(part / total, LEAST_SHARE))


def _log(x: Any) -> Any:
    return np.log2(x + 1.0)


def _product(
    s: StagePicture, count: int, *, kind: AxisKind | None = None, mark: Mark | None = None
) -> Floats:
    total = np.ones(count)
    for level in s.levels[len(s.levels) - s.own :]:
        if (kind is None or level.kind is kind) and (mark is None or level.mark is mark):
            total = total * full(level.trips, count)
    return total


def _points(s: StagePicture, count: int) -> Floats:
    total = np.ones(count)
    for level in s.levels:
        total = total * full(level.trips, count)
    return total


def _parallel_bytes(s: StagePicture, count: int) -> Any:
    """Bytes that one iteration of the parallel loop touches."""
    depth = next((n + 1 for n, level in enumerate(s.levels) if level.mark is Mark.PARALLEL), 0)
    return added([np.zeros(count), *(full(b[depth], count) for b in s.bytes)])


def _innermost(s: StagePicture) -> int:
    """Index of the level of the tile: the first of the stage's own levels if attached, else the last."""
    return len(s.levels) - s.own or max(0, len(s.levels) - 1)


def _by_depth(s: StagePicture, count: int, values: Sequence[Floats]) -> list[Any]:
    """Values of levels by depth, innermost first. Loops of one iteration add no depth."""
    first = _innermost(s)
    around = [full(v.trips, count) for v in s.levels[:first]]
    table = elementwise(partial(_picked, first))(*around, *values[: first + 1])
    return [table[d] for d in range(DEPTHS)]


def _picked(first: int, *of_levels: Floats) -> Floats:
    """[DEPTHS, candidates]. of_levels: trips of the `first` outer levels, then values of these and one
    more."""
    trips, values = of_levels[:first], of_levels[first:]
    count = np.broadcast(*of_levels).size
    table = np.empty((DEPTHS, count))  # missing depths get the outermost level's value
    table[:] = values[0]
    table[0] = values[first]
    depth = np.zeros(count, dtype=np.int64)
    rows = np.arange(count)
    for n in range(first - 1, -1, -1):
        depth += trips[n] != 1.0
        mine = depth < DEPTHS
        table[depth[mine], rows[mine]] = np.broadcast_to(values[n], (count,))[mine]
    return table


def _footprint(s: StagePicture, count: int, group: str) -> list[Floats]:
    totals = [np.zeros(count) for _ in range(len(s.levels) + 1)]
    for operand, sizes in zip(s.operands, s.bytes, strict=True):
        mine = "stores" if operand.write else "weights" if operand.constant else "inputs"
        if mine == group:
            totals = [t + full(b, count) for t, b in zip(totals, sizes, strict=True)]
    return [_log(t) for t in _by_depth(s, count, totals)]


def _trips(s: StagePicture, count: int) -> list[Floats]:
    entered = [np.ones(count)]
    for level in s.levels:
        entered.append(entered[-1] * full(level.trips, count))
    return [_log(t) for t in _by_depth(s, count, entered)]


def _alias(s: StagePicture) -> float:
    """Whether rows of an input are a multiple of 4 KiB apart, and compete for the same cache sets."""
    worst = 0.0
    for o in s.operands:
        if o.write or o.constant or len(o.buffer.shape) < 2:
            continue
        step = o.buffer.row_major()[-2] * o.buffer.dtype.bytes
        worst = max(worst, 2.0 if step % PAGE == 0 else 1.0 if step % (PAGE // 2) == 0 else 0.0)
    return worst


_ONE = np.ones(1)
# one operation without a loop; it has all columns
_POINT = StagePicture("", (), 0, 1, 1.0, 1, False, (), (), (), 1)
_TERMS = Terms(_ONE, (_ONE,), _ONE, _ONE, _ONE, _ONE, (), _ONE, 0.0, _ONE)
NAMES = tuple(_columns(LoopPicture(1, (_POINT,)), (_TERMS,), _ONE, 1))
