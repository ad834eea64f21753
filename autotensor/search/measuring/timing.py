"""Timing in the run child: samples of candidates under the conditions of a whole model.

In a model, a hundred megabytes of weights pass through the caches in one inference, but activations come
directly from the layer before. So each call uses the next one of many copies of the constants. Its inputs
have just been written, as that layer would do it: each core's share is in its own cache.

A sample is the median of its calls. A sample of few calls is taken again if a call lost its core: the system
kernel counts involuntary switches, so this does not depend on clocks.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime.arrays import Array, address, aligned_empty
from autotensor.search.measuring.candidate_memory import Slab, raw, repeat
from autotensor.search.measuring.candidate_time_limit import within
from autotensor.search.measuring.loaded_candidate import LoadedCandidate, offsets, workspace
from autotensor.search.measuring.measure_request import Residency, rotation_copies
from autotensor.search.measuring.native_loop import native_loop, touch_list
from autotensor.search.measuring.running_mark import Mark

_WARM_UP_BELOW = 5.0  # multiple of min_seconds: longer calls need no warm-up
_LONG_ENOUGH = 0.75  # a sample is long enough if it takes this share of min_seconds
_TOO_SHORT = 0.3  # a shorter sample means that calls were counted while another program had the core
_WARM_UP = 3  # calls for warming up; with this many, at least one nearly always has a core to itself
_PATIENCE = 20.0  # multiple of min_seconds: a sample of this length ends, whatever its number of calls
_PIECE = 4  # calls under the first time limit; each later limit is for twice as many
# a first sample near the clock's resolution is not exact, so the number of calls grows at most by this factor
_MOST_GROWTH = 100.0
_TAKES = 4.0  # a sample takes this many times as long as its calls, because of the work before each call
_MANY_CALLS = 5  # with this many calls, the median is right even if one call was interrupted
_RETAKES = 2  # most retakes of a sample with fewer calls
_RETAKEN_BELOW_S = 0.1  # longer samples are always interrupted, and retaking them takes too long
_BLOCK = 1 << 18  # number of random floats, which are repeated: making 64 MB of them takes half a second
# candidates of a task need about the same memory; growing causes page faults and new frames for all
_ROOM = 1.25


class Sampler:
    """Takes samples, and owns the copies of constants."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._pool = Slab()
        self._holds: str | int | None = None  # random floats of a type, or the constants of one candidate

    def forget(self) -> None:
        """Drops the candidates, because their numbers will be used again."""
        if isinstance(self._holds, int):
            self._holds = None

    def sample(
        self,
        candidates: Mapping[int, LoadedCandidate],
        wanted: Sequence[tuple[int, int, float]],
        hot: Mapping[str, Array],
        activations: Sequence[Array],
        constants: Callable[[int], Mapping[str, Array]],
        *,
        min_seconds: float,
        limit_s: float,
        calm_s: float | None,
        nthreads: int,
        residency: Residency,
    ) -> dict[str, Any]:
        """One sample of each candidate, in the order given, and the time of the reference kernel.

        wanted: (number, calls in a sample or 0 if unknown, expected seconds of a call).
        hot: inputs and outputs. activations: those inputs that another layer makes, the latest first.
        constants: returns a candidate's given and prepared constants, by its number.
        limit_s: this process ends when a sample takes this much longer than expected.
        calm_s: if the reference kernel takes longer than this, no samples are taken or returned. None:
        samples are always taken.
        """
        touched = touch_list(activations) if activations and residency == "graph" else None
        reference = native_loop().reference_seconds(nthreads)
        samples: dict[str, tuple[float, int]] = {}
        if calm_s is not None and reference > calm_s:
            return {"reference": reference, "samples": samples}
        for number, calls, expected in wanted:
            candidate = candidates[number]
            sizes = [a.bytes for a in candidate.rotating]
            _, size = offsets(sizes)
            copies = rotation_copies(size, residency)
            if size:
                self._fill(number, candidates, size * copies, copies, constants)
            if candidate.frames is None:
                self._make_frames(candidate, copies, hot, nthreads)
            within_s = limit_s + _TAKES * max(min_seconds, expected)
            patience_s = _PATIENCE * min_seconds
            call = partial(self._run, number, candidate, nthreads, touched, within_s, patience_s)
            seconds = _calm(call, calls) if calls else 0.0
            if calls * seconds < _TOO_SHORT * min_seconds:  # too short, or the calls were not counted yet
                seconds, calls = _first(call, expected, min_seconds)
            samples[str(number)] = (seconds, calls)
        return {"reference": reference, "samples": samples}

    def _run(
        self,
        number: int,
        candidate: LoadedCandidate,
        nthreads: int,
        touched: Array | None,
        limit_s: float,
        patience_s: float,
        calls: int,
    ) -> Array:
        """The seconds of each call. There are fewer calls if they together take longer than `patience_s`.

        On a busy machine, a call of microseconds may wait for a core for milliseconds.
        """
        frames = candidate.frames
        assert frames is not None
        entry = candidate.loaded.entry
        taken: list[Array] = []
        spent, piece = 0.0, _PIECE
        while calls > 0 and spent < patience_s:
            now = min(calls, piece)
            with self._mark(number, "run"), within(limit_s):
                taken.append(native_loop().run(entry, frames, candidate.turn, now, nthreads, touched))
            candidate.turn = (candidate.turn + now) % len(frames)
            calls, spent, piece = calls - now, spent + float(taken[-1].sum()), 2 * piece
        return np.concatenate(taken)

    def _make_frames(
        self, candidate: LoadedCandidate, copies: int, hot: Mapping[str, Array], nthreads: int
    ) -> None:
        """Argument arrays that differ only in the copy of the constants."""
        artifact, rotating = candidate.artifact, candidate.rotating
        starts, size = offsets([a.bytes for a in rotating])
        base = address(self._pool.raw)
        moving = {a.name: base + start for a, start in zip(rotating, starts, strict=True)}
        spaces = {a.name: workspace(a, nthreads) for a in artifact.role("workspace")}
        starts, total = offsets([math.prod(shape) * dtype.itemsize for shape, dtype in spaces.values()])
        scratch = aligned_empty((total,), np.dtype(np.uint8))
        fixed = {name: address(array) for name, array in hot.items()}
        fixed |= {name: address(scratch) + start for name, start in zip(spaces, starts, strict=True)}
        table = np.zeros((copies, max(1, len(artifact.args))), np.uint64)
        steps = np.arange(copies, dtype=np.uint64) * np.uint64(size)
        for k, spec in enumerate(artifact.args):
            if spec.name in moving:
                table[:, k] = moving[spec.name] + steps
            elif spec.role != "constant":  # constants that only `prepare` reads are gone
                table[:, k] = fixed[spec.name]
        candidate.frames = address(table) + np.arange(copies, dtype=np.uint64) * np.uint64(table.strides[0])
        candidate.keep = (table, scratch)

    def _fill(
        self,
        number: int,
        candidates: Mapping[int, LoadedCandidate],
        size: int,
        copies: int,
        constants: Callable[[int], Mapping[str, Array]],
    ) -> None:
        """Fills the memory for constants of timed calls, at least `size` bytes.

        Time does not depend on the values of floats, so all candidates share random floats. Other types need
        the candidate's own values, because integers may be indices.
        """
        if self._pool.raw.nbytes < size:
            self._pool.reserve(int(size * _ROOM))
            self._holds = None
            for other in candidates.values():
                other.frames = None  # they point to the old memory
        candidate = candidates[number]
        kinds = {a.dtype for a in candidate.rotating}
        if len(kinds) == 1 and dtype_of(kind := kinds.pop()).is_float:
            if self._holds != kind:
                block = np.random.default_rng(0).standard_normal(_BLOCK).astype(dtype_of(kind).numpy)
                repeat(raw(block), self._pool.raw)
                self._holds = kind
        elif self._holds != number:
            arrays = constants(number)
            starts, each = offsets([a.bytes for a in candidate.rotating])
            first = np.zeros(each, np.uint8)
            for spec, start in zip(candidate.rotating, starts, strict=True):
                first[start : start + spec.bytes] = raw(arrays[spec.name])
            repeat(first, self._pool.raw[: each * copies])
            self._holds = number


def _first(call: Callable[[int], Array], expected: float, min_seconds: float) -> tuple[float, int]:
    """Warms up, and finds the number of calls that last long enough. Returns the sample with this many calls.

    The shortest call counts as the time of a call. If a call that lost its core counted, its time would be
    two milliseconds, and a sample of a kernel of six microseconds would have a single call.
    """
    least, spent = expected, 0.0
    if expected < _WARM_UP_BELOW * min_seconds:
        least = float(call(_WARM_UP).min())
    calls = max(1, math.ceil(min_seconds / max(least, 1e-9)))
    while True:
        times = call(calls)
        least, spent = min(least, float(times.min())), spent + float(times.sum())
        lasting = len(times) * max(least, 1e-9)
        if lasting >= min_seconds * _LONG_ENOUGH or spent >= min_seconds * _PATIENCE:
            return float(np.median(times)), calls
        calls = max(calls + 1, math.ceil(calls * min(_MOST_GROWTH, 1.1 * min_seconds / lasting)))


def _calm(call: Callable[[int], Array], calls: int) -> float:
    """The median of this many calls. If the calls are few, they are retaken, if possible, until no call has
    lost its core."""
    found: list[float] = []
    for _ in range(1 + _RETAKES):
        before = _switches()
        times = call(calls)
        found.append(float(np.median(times)))
        if calls >= _MANY_CALLS or times.sum() > _RETAKEN_BELOW_S:
            return found[-1]
        if _switches() == before:
            return found[-1]
    return min(found)


def _switches() -> int:
    """The number of times that a thread of this process lost its core to another process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
