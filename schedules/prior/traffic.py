"""Estimate of the bytes that a stage brings into each cache.

They are the bytes that its loops touch, less those that stay from one iteration, or one call, to the next.

    for i:            30 kB: the rows i to i + 4       each iteration brings one new row, the others stay
      for j: …        400 bytes

Levels are the stage's loops; a fused loop counts as the loops from which it was made. The level that counts
for a cache is the outermost level whose bytes fit into the cache as a whole, because the cache keeps them.
Whenever this level begins again, the bytes that it did not touch in the last iteration are brought in.
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
NOTHING: Mapping[str, int] = {}  # no bytes of other stages are known


def bytes_moved(
    s: StagePicture, count: int, target: Target, rates: Rates, passed: Mapping[str, int] = NOTHING
) -> tuple[Floats, ...]:
    """The bytes that are brought into each cache because they did not stay in it, nearest cache first. Bytes
    from beyond the second cache count more if they are not contiguous.

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
        if rates.warm_weights:  # operands that fit as a whole stay, unless they are replaced
            first = [x[0] for x in coming]
            found = np.where(working[0] <= cache, _gone(s, working[0], first, cache, passed), found)
        elif n == len(caches) - 1:  # weights are replaced by those of other layers
            found = np.maximum(np.where(working[0] <= cache, 0.0, found), _cold(s, count))
        out.append(found)
    return tuple(out)


def _gone(
    s: StagePicture, working: Floats, sizes: Sequence[Floats], cache: float, passed: Mapping[str, int]
) -> Floats:
    """The bytes that a stage touches once and that a cache has lost since they were touched last."""
    gone = 0.0 * working
    for (operand, _), size in zip(moved(s), sizes, strict=True):
        gone = gone + np.where(working + passed.get(operand.buffer.name, 0) <= cache, 0.0, size)
    return gone


def _sizes(
    s: StagePicture, count: int, of_levels: Sequence[Sequence[Number]], of_parts: Sequence[Sequence[Number]]
) -> list[list[Floats]]:
    """The numbers of the operands that caches hold, for each level and each part of a level, as arrays."""
    return [
        _by_level(s, full_sizes(numbers, count), full_sizes([part[n] for part in of_parts], count))
        for n, (operand, numbers) in enumerate(zip(s.operands, of_levels, strict=True))
        if not (operand.write and s.is_reduction)
    ]


def _by_level(s: StagePicture, of_levels: Sequence[Any], of_parts: Sequence[Any]) -> list[Any]:
    """The values of all levels, outermost first. After a level that is a fused loop come its inner parts."""
    found = []
    for n, value in enumerate(of_levels):
        found += [value, *(x for p, x in zip(s.parts, of_parts, strict=True) if p.level == n)]
    return found


def _steady(s: StagePicture) -> list[bool]:
    """For each level and part: whether iterations of the loop move by the same distance. In fused loops of
    hosts, they do not."""
    cut = {p.level for p in s.parts}
    whole = [len(v.parts) == 1 or n in cut for n, v in enumerate(s.levels)]
    return _by_level(s, whole, [True] * len(s.parts))


def _starts(s: StagePicture, operands: Sequence[Sequence[Floats]], count: int, cpu: Cpu) -> list[list[Any]]:
    """For each operand that caches hold, and each level: a factor for the time to fetch it from beyond L2.
    The factor is above 1 because fetching ahead starts again wherever a row of the touched bytes ends."""
    found = []
    for sizes, runs in zip(operands, _sizes(s, count, s.runs, [p.runs for p in s.parts]), strict=True):
        length = [runs[0]]
        for n in range(1, len(runs)):  # a loop along memory continues at the end of its last iteration
            goes_on = np.logical_and(runs[n - 1] > runs[n], sizes[n] <= cpu.prior_streams * runs[n])
            length.append(np.where(goes_on, length[-1], runs[n]))
        found.append([1.0 + cpu.prior_start * np.maximum(0.0, 1.0 / x - 1.0 / runs[0]) for x in length])
    return found


def between(p: LoopPicture) -> list[Mapping[str, int]]:
    """For each stage and each buffer that it touches: the bytes of other buffers that were touched since this
    buffer was touched last, in this call or the one before.

    A stage and the stages inside it are one nest; the buffers between these do not count.
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
    """The bytes that these nests touch, from the latest back to the one that touches the buffer, without a
    stage's own buffers."""
    passed: dict[str, int] = {}
    for nest in nests:
        passed.update(nest)
        if name in nest:
            break
    return sum(size for other, size in passed.items() if other not in own)


def moved(s: StagePicture) -> list[tuple[Operand, tuple[Number, ...]]]:
    """The operands that caches hold, with their bytes for each level. Accumulators are in registers, so they
    do not count."""
    return [
        (o, sizes) for o, sizes in zip(s.operands, s.bytes, strict=True) if not (o.write and s.is_reduction)
    ]


def full_sizes(sizes: Sequence[Number], count: int) -> list[Floats]:
    """The sizes of each level, as arrays [candidates]."""
    return [full(b, count) for b in sizes]


def entered(s: StagePicture, count: int) -> list[Floats]:
    """For each level [candidates]: how often the level begins; as the last entry, how often the body runs."""
    times = [np.ones(count)]
    for level in s.levels:
        times.append(times[-1] * full(level.trips, count))
    return times


def brought(sizes: Sequence[Floats], times: Sequence[Floats], steady: Sequence[bool] = ()) -> list[Floats]:
    """For each level [candidates]: the total bytes of an operand that are brought in, if a cache keeps the
    bytes that this level touches.

    Whenever the level begins, the bytes are brought in again, except those that are the same as the last
    time. steady: for the loops around the levels after the first one, whether their iterations move by the
    same distance. Then the bytes that an iteration shares with the one before (as in windows) are still in
    the cache.
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
    """For each candidate, the value of the outermost level whose operands fit together into a cache and stay
    in it; if there is no such level, the value of the last level."""
    found = of_levels[-1]
    for size, mine in zip(working[::-1], of_levels[::-1], strict=True):
        found = np.where(size <= cache, mine, found)
    return found


def _cold(s: StagePicture, count: int) -> Floats:
    """The bytes of weights, which come from memory in every call of a whole model."""
    total = np.zeros(count)
    for operand, sizes in zip(s.operands, s.bytes, strict=True):
        if operand.constant:
            total = total + full(sizes[0], count)
    return total
