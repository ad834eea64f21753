"""Bytes that a stage brings into each cache: the bytes that loops touch, and those that stay from turn to
turn and from call to call.

    for i:            30 kB: the rows i to i + 4       each turn brings one new row, the others are there
      for j: …        400 bytes

The level that counts for a cache is the outermost one whose bytes fit as a whole: the cache keeps them.
Whenever the level is entered again, bytes that it has not touched in the last turn are brought in.
Levels are the stage's loops; a fused loop counts as the loops that it was made from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.schedule.extents import Number
from autotensor.schedule.loop_picture import LoopPicture, StagePicture
from autotensor.schedule.operands import Operand
from schedules.cpu import Cpu, cpu_of
from schedules.prior.rates import Rates
from schedules.prior.register_tile import added, full

Floats = npt.NDArray[np.float64]
NOTHING: Mapping[str, int] = {}  # nothing is known about the bytes that came in between


def bytes_moved(
    s: StagePicture, count: int, target: Target, rates: Rates, passed: Mapping[str, int] = NOTHING
) -> tuple[Floats, ...]:
    """Bytes that are brought into each cache because they did not stay in it, nearest first. Bytes from
    beyond the second cache count for more if they do not follow one another in memory.

    passed: for each buffer, the bytes that other stages have touched since this buffer was touched last
    (`between`).
    """
    operands = _sizes(s, count, s.bytes, [p.bytes for p in s.parts])
    times = entered(s, count)
    times = _by_level(s, times, [times[p.level] * full(p.trips, count) for p in s.parts])
    nothing = [np.zeros(count) for _ in times]
    working = [added(level) for level in zip(*operands, strict=True)] or nothing
    near = [brought(sizes, times, _steady(s)) for sizes in operands]
    starts = _starts(s, operands, count, cpu_of(target, rates.multiplies))
    far = [[x * f for x, f in zip(one, fs, strict=True)] for one, fs in zip(near, starts, strict=True)]
    caches, out = target.cache_bytes[: len(rates.bandwidths)], []
    for n, cache in enumerate(caches):
        coming = far if n else near
        traffic = [added(level) for level in zip(*coming, strict=True)] or nothing
        found = kept(working, cache, traffic)
        if rates.warm_weights:  # operands that fit as a whole are still there, if not replaced
            first = [x[0] for x in coming]
            found = np.where(working[0] <= cache, _gone(s, working[0], first, cache, passed), found)
        elif n == len(caches) - 1:  # weights make room for others'
            found = np.maximum(np.where(working[0] <= cache, 0.0, found), _cold(s, count))
        out.append(found)
    return tuple(out)


def _gone(
    s: StagePicture, working: Floats, sizes: Sequence[Floats], cache: float, passed: Mapping[str, int]
) -> Floats:
    """Bytes that a stage touches once and a cache no longer has since they were touched last."""
    gone = 0.0 * working
    for (operand, _), size in zip(moved(s), sizes, strict=True):
        gone = gone + np.where(working + passed.get(operand.buffer.name, 0) <= cache, 0.0, size)
    return gone


def _sizes(
    s: StagePicture, count: int, of_levels: Sequence[Sequence[Number]], of_parts: Sequence[Sequence[Number]]
) -> list[list[Floats]]:
    """Numbers of the operands that caches hold, per level and part of a level."""
    return [
        _by_level(s, full_sizes(numbers, count), full_sizes([part[n] for part in of_parts], count))
        for n, (operand, numbers) in enumerate(zip(s.operands, of_levels, strict=True))
        if not (operand.write and s.is_reduction)
    ]


def _by_level(s: StagePicture, of_levels: Sequence[Any], of_parts: Sequence[Any]) -> list[Any]:
    """Outermost first: behind a level that is a fused loop come its inner parts."""
    found = []
    for n, value in enumerate(of_levels):
        found += [value, *(x for p, x in zip(s.parts, of_parts, strict=True) if p.level == n)]
    return found


def _steady(s: StagePicture) -> list[bool]:
    """Whether turns of a loop move by the same distance, per level and part: fused ones of hosts do not."""
    cut = {p.level for p in s.parts}
    whole = [len(v.parts) == 1 or n in cut for n, v in enumerate(s.levels)]
    return _by_level(s, whole, [True] * len(s.parts))


def _starts(s: StagePicture, operands: Sequence[Sequence[Floats]], count: int, cpu: Cpu) -> list[list[Any]]:
    """Per operand that caches hold, and level: times as long that it takes to bring it from afar, because
    fetching ahead begins anew wherever a row of the touched bytes ends."""
    found = []
    for sizes, runs in zip(operands, _sizes(s, count, s.runs, [p.runs for p in s.parts]), strict=True):
        length = [runs[0]]
        for n in range(1, len(runs)):  # a loop along memory goes on where its last turn has ended
            goes_on = np.logical_and(runs[n - 1] > runs[n], sizes[n] <= cpu.prior_streams * runs[n])
            length.append(np.where(goes_on, length[-1], runs[n]))
        found.append([1.0 + cpu.prior_start * np.maximum(0.0, 1.0 / x - 1.0 / runs[0]) for x in length])
    return found


def between(p: LoopPicture) -> list[Mapping[str, int]]:
    """Per stage and buffer that it touches: bytes of others that were touched since that was touched last,
    in this call or the one before.

    A stage and those inside it are one nest: what these hand on stays inside.
    """
    inside = {o.buffer.name for s in p.stages if s.own < len(s.levels) for o in s.operands if o.write}
    roots = [s.levels[0].stage if s.levels else s.name for s in p.stages]
    nests: dict[str, dict[str, int]] = {root: {} for root in roots}
    for s, root in zip(p.stages, roots, strict=True):
        nests[root].update({o.buffer.name: o.buffer.bytes for o in s.operands if o.buffer.name not in inside})
    order = [*nests.values()]
    found: list[Mapping[str, int]] = []
    for s, root in zip(p.stages, roots, strict=True):
        at, own = [*nests].index(root), {o.buffer.name for o in s.operands}
        before = [order[at - n] for n in range(1, len(order))]
        found.append({name: _passed(name, before, own) for name in nests[root].keys() & own})
    return found


def _passed(name: str, nests: Sequence[Mapping[str, int]], own: Collection[str]) -> int:
    """Bytes that these nests touch, the latest first, up to the one that touches the buffer; without a
    stage's own."""
    passed: dict[str, int] = {}
    for nest in nests:
        passed.update(nest)
        if name in nest:
            break
    return sum(size for other, size in passed.items() if other not in own)


def moved(s: StagePicture) -> list[tuple[Operand, tuple[Number, ...]]]:
    """Operands that caches hold, with their bytes per level; accumulators are in registers."""
    return [
        (o, sizes) for o, sizes in zip(s.operands, s.bytes, strict=True) if not (o.write and s.is_reduction)
    ]


def full_sizes(sizes: Sequence[Number], count: int) -> list[Floats]:
    """Per level [candidates]."""
    return [full(b, count) for b in sizes]


def entered(s: StagePicture, count: int) -> list[Floats]:
    """Per level [candidates]: how often the level begins; in the last place, how often the body runs."""
    times = [np.ones(count)]
    for level in s.levels:
        times.append(times[-1] * full(level.trips, count))
    return times


def brought(sizes: Sequence[Floats], times: Sequence[Floats], steady: Sequence[bool] = ()) -> list[Floats]:
    """Per level [candidates]: bytes of an operand brought in altogether, if a cache keeps what that level
    touches.

    Whenever the level is entered they are brought in again, but for those that are the same as the last time.
    steady: of the loops around the levels behind the first, whether their turns move by the same distance:
    then what a turn shares with the one before, as windows do, is still there.
    """
    out, again = [], times[0]
    for n in range(len(times)):
        if n:
            again = np.where(sizes[n] == sizes[n - 1], again, times[n])
        found = sizes[n] * again
        if n and steady and steady[n - 1]:
            found = np.minimum(found, sizes[n - 1] * times[n - 1])
        out.append(found)
    return out


def kept(working: Sequence[Floats], cache: float, of_levels: Sequence[Any]) -> Any:
    """Per candidate the value of the outermost level whose operands fit together into a cache, and stay
    there; of the last level where none does."""
    found = of_levels[-1]
    for size, mine in zip(working[::-1], of_levels[::-1], strict=True):
        found = np.where(size <= cache, mine, found)
    return found


def _cold(s: StagePicture, count: int) -> Floats:
    """Bytes of weights: in a whole model they come from memory every time."""
    total = np.zeros(count)
    for operand, sizes in zip(s.operands, s.bytes, strict=True):
        if operand.constant:
            total = total + full(sizes[0], count)
    return total
