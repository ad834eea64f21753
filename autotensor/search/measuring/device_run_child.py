"""The run child for devices: the same questions and verdicts as `Bench`, but kernels run on a device.

    fences, arrays, fences in host memory ──copied──▶ the device runs ──copied back──▶ the same checks

The oracle runs on the processor: naive loops compiled by LLVM. If a kernel writes outside of its arrays, it
writes into the fences that were copied with the arrays. Only launches are timed, by the device's clock.
Inputs and constants are on the device, as they are in a whole model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.runtime.arrays import Array
from autotensor.runtime.device.contract import Device, DeviceCall, Memory, Run
from autotensor.runtime.device.devices import device_of
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.launches import launches
from autotensor.search.measuring.candidate_memory import Fenced, Need, raw, same_bytes
from autotensor.search.measuring.candidate_time_limit import within
from autotensor.search.measuring.checks import output_bounds
from autotensor.search.measuring.fenced_constants import Held
from autotensor.search.measuring.native_loop import native_loop
from autotensor.search.measuring.run_child import Bench
from autotensor.search.measuring.running_mark import Mark

LEAST_PREPARE_S = 10.0  # seconds that `prepare` may take in addition to the limit of a run
_WARM_UP_BELOW = 5.0  # multiple of min_seconds: longer calls need no warm-up
_LONG_ENOUGH = 0.75  # a sample is long enough if it takes this share of min_seconds
# a sample near the clock's resolution is not exact, so the number of calls grows at most by this factor
_MOST_GROWTH = 100.0
_TAKES = 4.0  # a sample takes this many times as long as its calls, because of the work before each call


@dataclass(slots=True, eq=False)
class DeviceCandidate:
    """An artifact for a device, and, once it is timed, its memory and plan."""

    artifact: Artifact
    bounds: dict[str, float]
    run: Run | None = None
    keep: list[Memory] = field(default_factory=list)


class DeviceBench(Bench):
    """A run child whose candidates run on a device."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(mark)
        self._device: Device | None = None  # the first candidate opens it
        self._on_device: dict[int, DeviceCandidate] = {}

    def load(self, number: int, artifact: Artifact, tolerance: float | None) -> int:
        """Takes a candidate. Returns the bytes of constants that its calls read."""
        self._device = device_of(artifact.target)
        launches(artifact, "run")  # raises errors now rather than later
        bounds = output_bounds(self.task.workload.dag, tolerance)
        self._on_device[number] = DeviceCandidate(artifact, bounds)
        return sum(a.bytes for a in artifact.weights())

    def forget(self) -> None:
        self._on_device.clear()
        super().forget()

    # -- checking -----------------------------------------------------------------------------------------

    def check(self, number: int, kind: str, seed: int, inexact: bool, limit_s: float) -> dict[str, Any]:
        """Runs once, between fences and traps. Returns the verdict, and the seconds that the run took.

        limit_s: this process ends if the run takes longer. inexact: as in `Bench.check`.
        """
        candidate, question = self._on_device[number], self.task.questions[kind, seed]
        artifact, device = candidate.artifact, self._opened()
        specs = artifact.role("prepared")
        made = Held([Need(a.name, a.shape, dtype_of(a.dtype).numpy, read_only=True) for a in specs])
        made.trap()
        placed = self._room.place(artifact, 1)
        read = {**question.large.fenced, **question.held.fenced, **made.fenced}
        mirrors = {name: _Mirror(device, fenced) for name, fenced in {**read, **placed}.items()}
        for m in mirrors.values():
            m.send()
        memory = {name: m.array for name, m in mirrors.items()}
        if specs:
            with self._mark(number, "prepare"), within(limit_s + LEAST_PREPARE_S):
                plan_of(device, artifact, "prepare", memory)()
                device.finish()
            for spec in specs:
                mirrors[spec.name].fetch()
        complaint = made.broken()
        with self._mark(number, "run"), within(limit_s):
            seconds = device.seconds(plan_of(device, artifact, "run", memory), 1)
        for name in placed:
            mirrors[name].fetch()
        stray = next((c for f in placed.values() if (c := f.complaint())), "")
        changed = next((f"it changed its input {name!r}" for name in read if not mirrors[name].is_kept()), "")
        arrays = {name: f.array for name, f in {**read, **placed}.items()}
        return self._verdict(
            question, arrays, candidate.bounds, complaint or stray or changed, seconds, inexact
        )

    # -- timing -------------------------------------------------------------------------------------------

    def sample(
        self,
        wanted: Sequence[tuple[int, int, float]],
        min_seconds: float,
        limit_s: float,
        calm_s: float | None,
    ) -> dict[str, Any]:
        """One sample of each candidate, in the order given, and the time of the processor's reference kernel.
        See `Sampler.sample`."""
        reference = native_loop().reference_seconds(self._threads)
        samples: dict[str, tuple[float, int]] = {}
        if calm_s is not None and reference > calm_s:
            return {"reference": reference, "samples": samples}
        device = self._opened()
        for number, calls, expected in wanted:
            run = self._timed(self._on_device[number])
            within_s = limit_s + _TAKES * max(min_seconds, expected)

            def seconds_of(
                count: int, run: Run = run, number: int = number, within_s: float = within_s
            ) -> float:
                with self._mark(number, "run"), within(within_s):
                    return device.seconds(run, count)

            if calls == 0:
                if expected < _WARM_UP_BELOW * min_seconds:
                    expected = seconds_of(1)
                seconds, calls = calls_that_last(seconds_of, expected, min_seconds)
            else:
                seconds = seconds_of(calls)
            samples[str(number)] = (seconds / calls, calls)
        return {"reference": reference, "samples": samples}

    def _timed(self, candidate: DeviceCandidate) -> Run:
        """The candidate's plan with memory of its own, and with the inputs of the first question."""
        if candidate.run is None:
            device, artifact = self._opened(), candidate.artifact
            values = next(iter(self.task.questions.values())).inputs
            memory = {}
            for spec in artifact.args:
                memory[spec.name] = device.allocate(spec.bytes)
                if spec.name in values:
                    device.write(memory[spec.name], values[spec.name])
            if launches(artifact, "prepare"):
                plan_of(device, artifact, "prepare", memory)()
            candidate.run = plan_of(device, artifact, "run", memory)
            candidate.keep = list(memory.values())
        return candidate.run

    def _opened(self) -> Device:
        assert self._device is not None
        return self._device


def calls_that_last(
    seconds_of: Callable[[int], float], expected: float, min_seconds: float
) -> tuple[float, int]:
    """Seconds of a sample that is long enough, and its number of calls. expected: seconds of one call."""
    calls = max(1, math.ceil(min_seconds / max(expected, 1e-9)))
    while True:
        seconds = seconds_of(calls)
        if seconds >= min_seconds * _LONG_ENOUGH:
            return seconds, calls
        growth = min(_MOST_GROWTH, 1.1 * min_seconds / max(seconds, 1e-9))
        calls = max(calls + 1, math.ceil(calls * growth))


def plan_of(device: Device, artifact: Artifact, part: str, memory: Mapping[str, Memory]) -> Run:
    """The launches of a kernel's artifact, with the memory for each argument."""
    names = [a.name for a in artifact.args]
    calls = [
        DeviceCall(
            s.kernel,
            tuple(memory[names[n]] for n, _ in s.args),
            s.grid,
            s.block,
            s.dynamic_shared_bytes,
            s.object,
        )
        for s in launches(artifact, part)
    ]
    return device.plan(artifact.objects, calls)


class _Mirror:
    """A fenced array of the host, and its image on the device: fence, array, fence."""

    def __init__(self, device: Device, fenced: Fenced) -> None:
        self._device, self._fenced = device, fenced
        self._start = -(-fenced.before.nbytes // device.alignment) * device.alignment
        size = self._start + fenced.array.nbytes + fenced.after.nbytes
        self._bytes: Array = np.full(size, fenced.byte, np.uint8)
        self._whole = device.allocate(size)
        self.array = device.part(self._whole, self._start, max(1, fenced.array.nbytes))

    def send(self) -> None:
        f, start = self._fenced, self._start
        self._bytes[start - f.before.nbytes : start] = f.before
        self._bytes[start : start + f.array.nbytes] = raw(f.array)
        self._bytes[start + f.array.nbytes :] = f.after
        self._device.write(self._whole, self._bytes)

    def is_kept(self) -> bool:
        """Whether the device still holds the bytes (with fences) that were last copied to or from it."""
        now = np.empty_like(self._bytes)
        self._device.read(self._whole, now)
        return same_bytes(now, self._bytes)

    def fetch(self) -> None:
        f, start = self._fenced, self._start
        self._device.read(self._whole, self._bytes)
        f.before[...] = self._bytes[start - f.before.nbytes : start]
        f.array.reshape(-1).view(np.uint8)[...] = self._bytes[start : start + f.array.nbytes]
        f.after[...] = self._bytes[start + f.array.nbytes :]
