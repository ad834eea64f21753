"""Timing in the run child: samples of candidates as they would run in a whole model.

There, a hundred megabytes of weights pass through the caches in one inference, while activations come
straight from the layer before. So each call takes the next of many copies of the constants, and the same
inputs and outputs as the last.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime import threads
from autotensor.runtime.arrays import Array, address, aligned_empty
from autotensor.search.buffers import Slab, raw
from autotensor.search.candidate import Candidate, Room, frame, offsets, workspace
from autotensor.search.mark import Mark
from autotensor.search.native_loop import native_loop
from autotensor.search.request import Residency, rotation_copies

_WARM_UP_BELOW = 5.0  # times min_seconds: longer calls warm up by themselves
_LONG_ENOUGH = 0.75  # of min_seconds
# of the calls in a sample: a first one near the clock's resolution is not trusted further
_MOST_GROWTH = 100.0
_BLOCK = 1 << 18  # random floats, repeated: making 64 MB of them takes half a second
_ROOM = 1.25  # candidates of a task need about as much; growing means page faults and new frames for all


class Sampler:
    """Takes samples; owns the copies of constants."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._pool = Slab()
        self._holds: str | int | None = None  # random floats of a type, or one candidate's constants

    def forget(self) -> None:
        """The candidates change; their numbers will be used again."""
        if isinstance(self._holds, int):
            self._holds = None

    def sample(
        self,
        candidates: Mapping[int, Candidate],
        wanted: Sequence[tuple[int, int, float]],
        hot: Mapping[str, Array],
        room: Room,
        *,
        min_seconds: float,
        nthreads: int,
        residency: Residency,
    ) -> dict[str, Any]:
        """One sample of each candidate, in the order given, and the time of the reference kernel.

        wanted: (number, calls in a sample or 0 if unknown, expected seconds of a call). hot: inputs and
        outputs.
        """
        reference = native_loop().reference_seconds(nthreads)
        samples = {}
        for number, calls, expected in wanted:
            candidate = candidates[number]
            sizes = [a.bytes for a in candidate.rotating]
            _, size = offsets(sizes)
            copies = rotation_copies(size, residency)
            if size:
                self._fill(number, candidates, size * copies, copies, hot, room, nthreads)
            if candidate.frames is None:
                self._make_frames(candidate, copies, hot, nthreads)
            if calls == 0:
                seconds, calls = self._first(number, candidate, expected, min_seconds, nthreads)
            else:
                seconds = self._run(number, candidate, calls, nthreads)
            samples[str(number)] = (seconds / calls, calls)
        return {"reference": reference, "samples": samples}

    def _first(
        self, number: int, candidate: Candidate, expected: float, min_seconds: float, nthreads: int
    ) -> tuple[float, int]:
        """Warm up, find the number of calls that last long enough, and the sample with so many."""
        if expected < _WARM_UP_BELOW * min_seconds:
            expected = self._run(number, candidate, 1, nthreads)
        return calls_that_last(
            lambda calls: self._run(number, candidate, calls, nthreads), expected, min_seconds
        )

    def _run(self, number: int, candidate: Candidate, calls: int, nthreads: int) -> float:
        frames = candidate.frames
        assert frames is not None
        with self._mark(number, "run"):
            seconds = native_loop().run(candidate.loaded.entry, frames, candidate.turn, calls, nthreads)
        candidate.turn = (candidate.turn + calls) % len(frames)
        return seconds

    def _make_frames(
        self, candidate: Candidate, copies: int, hot: Mapping[str, Array], nthreads: int
    ) -> None:
        """Argument arrays that differ in the copy of the constants only."""
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
            elif spec.role != "constant":  # those that only `prepare` reads are gone
                table[:, k] = fixed[spec.name]
        candidate.frames = address(table) + np.arange(copies, dtype=np.uint64) * np.uint64(table.strides[0])
        candidate.keep = (table, scratch)

    def _fill(
        self,
        number: int,
        candidates: Mapping[int, Candidate],
        size: int,
        copies: int,
        hot: Mapping[str, Array],
        room: Room,
        nthreads: int,
    ) -> None:
        """Constants for timed calls, at least `size` bytes.

        Time does not depend on the values of floats, so all candidates share random ones; others are prepared
        for the candidate at each visit, for integers may be indices.
        """
        if self._pool.raw.nbytes < size:
            self._pool.reserve(int(size * _ROOM))
            self._holds = None
            for other in candidates.values():
                other.frames = None  # they point into the old pool
        candidate = candidates[number]
        kinds = {a.dtype for a in candidate.rotating}
        if len(kinds) == 1 and dtype_of(kind := kinds.pop()).is_float:
            if self._holds != kind:
                block = np.random.default_rng(0).standard_normal(_BLOCK).astype(dtype_of(kind).numpy)
                _repeat(raw(block), self._pool.raw)
                self._holds = kind
        elif self._holds != number:
            placed = {name: f.array for name, f in room.place(candidate.artifact, nthreads).items()}
            arrays = {**hot, **placed}
            slots = frame(candidate.artifact, arrays)
            if candidate.loaded.prepare:
                with self._mark(number, "prepare"):
                    threads.launch(candidate.loaded.prepare, ctypes.addressof(slots), nthreads)
            starts, each = offsets([a.bytes for a in candidate.rotating])
            first = np.zeros(each, np.uint8)
            for spec, start in zip(candidate.rotating, starts, strict=True):
                first[start : start + spec.bytes] = raw(arrays[spec.name])
            _repeat(first, self._pool.raw[: each * copies])
            self._holds = number


def calls_that_last(
    seconds_of: Callable[[int], float], expected: float, min_seconds: float
) -> tuple[float, int]:
    """Seconds of so many calls that they last long enough, and their number; expected: seconds of one."""
    calls = max(1, math.ceil(min_seconds / max(expected, 1e-9)))
    while True:
        seconds = seconds_of(calls)
        if seconds >= min_seconds * _LONG_ENOUGH:
            return seconds, calls
        growth = min(_MOST_GROWTH, 1.1 * min_seconds / max(seconds, 1e-9))
        calls = max(calls + 1, math.ceil(calls * growth))


def _repeat(block: Array, into: Array) -> None:
    whole = into.nbytes // block.nbytes * block.nbytes
    into[:whole].reshape(-1, block.nbytes)[...] = block
    into[whole:] = block[: into.nbytes - whole]
