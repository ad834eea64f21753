"""DeviceModule: a compiled function whose kernels run on a device; it is called like a `Module`.

    f = DeviceModule(artifact)
    c = f(a, b)              NumPy in, NumPy out: copied to the device and back
    c = f(to_device(a), b)   if an argument is on the device, the results stay on the device, too
    g = f.bind(W=w)          constants are prepared on the device, once

A *frame* is memory for every argument, and the plan that runs on this memory. Host arrays are copied into the
frame's own memory. If a call gets arrays on the device, a frame of its own uses their memory directly. Calls
on one device take turns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArgumentError, ArtifactError, TargetError
from autotensor.runtime.arguments import Slot, fill, place_all
from autotensor.runtime.arrays import Array
from autotensor.runtime.device.array import DeviceArray
from autotensor.runtime.device.contract import Device, DeviceCall, Memory, Run
from autotensor.runtime.device.devices import check_process, device_of
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.launches import LaunchSpec, launches
from autotensor.runtime.function import CompiledFunction
from autotensor.runtime.timer import Residency, sample

_FRAMES = 8  # number of frames that are kept for calls with arrays on the device


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """The memory of each argument, and the plan that uses this memory."""

    memory: Mapping[str, Memory]
    prepare: Run | None
    run: Run


class DeviceModule(CompiledFunction):
    """A loaded artifact for a device; see the module's docstring."""

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        """Opens the device that `artifact` is for. Raises TargetError if there is no such device, and
        ArtifactError if the device refuses the code. `threads` has no effect: it is for callers that do not
        know the target."""
        self._start(artifact, dict(artifact.values))

    def _start(self, artifact: Artifact, values: dict[str, Array]) -> None:
        self.device: Device = device_of(artifact.target)
        self.threads = artifact.target.num_cores
        self._take(artifact, values)
        self._frames: OrderedDict[tuple[tuple[str, int], ...], _Frame] = OrderedDict()

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run. Returns the outputs (one array, or a tuple), or None if the caller gave all output arrays.

        Raises ArgumentError, which names the argument that does not fit.
        """
        given, results = place_all(self.name, self._inputs, self._outputs, arrays, out, named)
        check_process(self.device)
        with self.device.lock:
            there = {**self._on_device(self._inputs, given), **self._on_device(self._outputs, results or ())}
            frame = self._frame(there)
            self._send(frame, given, results, there)
            if frame.prepare is not None:
                frame.prepare()
            frame.run()
            outputs = self._receive(frame, results, there, stay=bool(there))
        return self._answer(outputs, results, out)

    # -- arguments ----------------------------------------------------------------------------------------

    def _on_device(self, slots: Sequence[Slot], arrays: Sequence[Any]) -> dict[str, Memory]:
        """The memory of the arguments that are already on the device, by name."""
        found: dict[str, Memory] = {}
        for slot, array in zip(slots, arrays, strict=False):
            if isinstance(array, np.ndarray):
                continue
            if isinstance(array, DeviceArray) and array.device is self.device:
                memory: Memory = array.memory
                shape, dtype = array.shape, array.dtype
            else:
                try:
                    memory = self.device.foreign(array)
                except TargetError as error:
                    named = f"{self.name}: argument {slot.spec.name!r}: {error.what}"
                    raise ArgumentError(named, fix=error.fix) from error
                if memory is None:
                    continue  # the checks for host arrays raise the error
                interface = array.__cuda_array_interface__
                shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
            if tuple(shape) != slot.shape or dtype != slot.dtype:
                raise ArgumentError(
                    f"{self.name}: argument {slot.spec.name!r} is {dtype}[{', '.join(map(str, shape))}]; "
                    f"expected {slot.spec.dtype}[{', '.join(map(str, slot.shape))}].",
                    fix="Kernels are compiled for fixed shapes and types.",
                )
            found[slot.spec.name] = memory
        return found

    def _send(
        self,
        frame: _Frame,
        given: Sequence[Any],
        results: Sequence[Any] | None,
        there: Mapping[str, Memory],
    ) -> None:
        """Checks the host arrays, and copies the inputs to the device."""
        here = [(s, a) for s, a in zip(self._inputs, given, strict=True) if s.spec.name not in there]
        back = [
            (s, a)
            for s, a in zip(self._outputs, results or (), strict=False)
            if s.spec.name not in there and not isinstance(a, DeviceArray)
        ]
        fill(
            self.name,
            [0] * len(self.artifact.args),
            [s for s, _ in here],
            [s for s, _ in back],
            [a for _, a in here],
            [a for _, a in back],
        )
        for slot, array in here:
            self.device.write(frame.memory[slot.spec.name], array)

    def _receive(
        self, frame: _Frame, results: Sequence[Any] | None, there: Mapping[str, Memory], *, stay: bool
    ) -> list[Any]:
        """The outputs: the given arrays, filled, or else new arrays. New arrays are on the device if an
        argument was on the device."""
        out: list[Any] = []
        for n, slot in enumerate(self._outputs):
            name = slot.spec.name
            if results is not None:
                array = results[n]
                if name not in there:
                    self.device.read(frame.memory[name], array)
            elif stay:
                memory = self.device.allocate(slot.bytes)
                self._copy(frame.memory[name], memory, slot)
                array = DeviceArray(self.device, memory, slot.shape, slot.dtype)
            else:
                array = np.empty(slot.shape, slot.dtype)
                self.device.read(frame.memory[name], array)
            out.append(array)
        if results is not None and there:
            self.device.finish()
        return out

    def _copy(self, source: Memory, into: Memory, slot: Slot) -> None:
        """A copy in new memory of the device: the next call would overwrite the frame's own memory."""
        self.device.copy(source, into, slot.bytes)

    # -- frames -------------------------------------------------------------------------------------------

    def _frame(self, there: Mapping[str, Memory]) -> _Frame:
        """A frame that uses the caller's memory for these arguments."""
        key = tuple(sorted((name, id(memory)) for name, memory in there.items()))
        found = self._frames.pop(key, None)
        if found is None:
            found = self._new_frame(there)
        # newest last; the frame keeps the caller's memory alive, so its id stays valid
        self._frames[key] = found
        while len(self._frames) > _FRAMES:
            del self._frames[next(k for k in self._frames if k != key)]
        return found

    def _new_frame(self, there: Mapping[str, Memory]) -> _Frame:
        own = self._frames.get(())
        memory: dict[str, Memory] = dict(own.memory) if own is not None else self._memory()
        memory |= there
        prepare = self._plan("prepare", memory) if self._prepare_each_call else None
        return _Frame(memory, prepare, self._plan("run", memory))

    def _memory(self, values: Mapping[str, Array] | None = None) -> dict[str, Memory]:
        """Memory of the device for every argument. Arguments with values are filled."""
        values = self._values if values is None else values
        memory: dict[str, Memory] = {}
        for spec in self.artifact.args:
            if spec.role == "constant" and spec.name not in values and not self._prepare_each_call:
                continue  # only `prepare` reads this argument, and `prepare` has run
            memory[spec.name] = self.device.allocate(spec.bytes)
            if spec.name in values:
                self.device.write(memory[spec.name], values[spec.name])
        return memory

    def plans(self, counts: Sequence[int], arrays: Sequence[Array]) -> list[Run]:
        """The run divided into plans, for timing: plan k has counts[k] launches."""
        with self.device.lock:
            frame = self._frame({})
            self._send(frame, arrays, None, {})
            specs, runs, at = launches(self.artifact, "run"), [], 0
            for count in counts:
                runs.append(self._run_of(specs[at : at + count], frame.memory))
                at += count
        return runs

    def _plan(self, part: str, memory: Mapping[str, Memory]) -> Run:
        return self._run_of(launches(self.artifact, part), memory)

    def _run_of(self, specs: Sequence[LaunchSpec], memory: Mapping[str, Memory]) -> Run:
        args = self.artifact.args
        calls = []
        for spec in specs:
            memories = tuple(
                self.device.part(memory[args[n].name], offset, _size(args[n], offset))
                for n, offset in spec.args
            )
            calls.append(
                DeviceCall(
                    spec.kernel, memories, spec.grid, spec.block, spec.dynamic_shared_bytes, spec.object
                )
            )
        return self.device.plan(self.artifact.objects, calls)

    def _prepared(self) -> dict[str, Array]:
        """The prepared arrays, computed on the device and copied back."""
        with self.device.lock:
            memory = self._memory()
            self._plan("prepare", memory)()
            made: dict[str, Array] = {}
            for spec in self.artifact.role("prepared"):
                array = np.empty(spec.shape, dtype_of(spec.dtype).numpy)
                self.device.read(memory[spec.name], array)
                array.flags.writeable = False
                made[spec.name] = array
            self.device.finish()
        return made

    def _with(self, values: dict[str, Array]) -> Self:
        bound = type(self).__new__(type(self))
        bound._start(self.artifact, values)
        return bound

    def time(
        self,
        arrays: Iterable[Any],
        repeat: int = 5,
        min_seconds: float = 0.02,
        residency: Residency = "hot",
    ) -> tuple[float, ...]:
        """`repeat` samples of one run's seconds, by the device's clock, without preparing and copying."""
        given, results = place_all(self.name, self._inputs, self._outputs, tuple(arrays), None, {})
        with self.device.lock:
            there = self._on_device(self._inputs, given)
            frame = self._frame(there)
            self._send(frame, given, results, there)
            if frame.prepare is not None:
                frame.prepare()
            clock = DeviceClock(self.device, frame.run)
            return sample(
                clock.run, repeat=repeat, min_seconds=min_seconds, residency=residency, clock=clock.now
            )

    def __repr__(self) -> str:
        return f"<DeviceModule {self.name}({', '.join(str(a) for a in self.args)}) on {self.device.name}>"


class DeviceClock:
    """A clock that only runs while the device runs. It is both the run and the clock for `sample`."""

    def __init__(self, device: Device, run: Run) -> None:
        self._device, self._run, self._seconds = device, run, 0.0

    def run(self, count: int) -> None:
        self._seconds += self._device.seconds(self._run, count)

    def now(self) -> float:
        return self._seconds


def _size(spec: ArgSpec, offset: int) -> int:
    if offset > spec.bytes:
        raise ArtifactError(f"a kernel begins {offset} bytes into {spec}, which has {spec.bytes}.")
    return spec.bytes - offset
