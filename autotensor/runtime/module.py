"""Module: a compiled function that can be called with NumPy arrays.

    f = Module(artifact)
    c = f(a, b)              inputs only: outputs are new arrays
    f(a, b, c)               inputs and outputs: filled in place
    g = f.bind(W=w)          constants are prepared once; g(a) then takes the rest

Arrays are NumPy's, or any that speak DLPack (torch's, CuPy's on the CPU), which are read where they are.

A call takes a *frame* (argument array and workspaces) from a small pool, fills in the addresses of the arrays
and makes one native call; from the second one on that also checks the arrays and fills them in (`direct`).
Weights are shared between frames, so any number of threads may call at once.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.base import switches
from autotensor.base.absent import absent
from autotensor.base.errors import ArgumentError, ArtifactError
from autotensor.base.registry import suggest
from autotensor.base.target import default_threads
from autotensor.runtime import artifact as artifacts
from autotensor.runtime import direct, loader, threads
from autotensor.runtime.arguments import Slot, fill, place_all
from autotensor.runtime.arrays import (
    ALIGNMENT,
    Array,
    address,
    aligned_copy,
    aligned_empty,
    aligned_empty_at,
    aligned_together,
)
from autotensor.runtime.artifact import ArgSpec, Artifact
from autotensor.runtime.exchange import adopted
from autotensor.runtime.signature import Signature
from autotensor.runtime.timer import Residency, sample

_IDLE_FRAMES = (
    32  # a frame may hold a whole model's activations; more concurrent calls than this allocate anew
)


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """What one call needs for itself."""

    slots: Any  # ctypes array of pointers, one per ArgSpec
    address: int
    keep: tuple[Array, ...]  # workspaces, and prepared arrays when they are made anew in every call


@dataclass(frozen=True, slots=True, eq=False)
class _Short:
    """The short way of calls; frames and caller belong to one size of team."""

    call: direct.Caller
    threads: int
    idle: deque[_Frame]


_ELSEWHERE = {  # what TVM's modules have
    "time_evaluator": "f.time([a, b]) gives all samples in seconds",
    "get_source": 'it is f.source("llvm"), also "te", "nest", "ir", "asm", "trace"',
    "imported_modules": "a module is one piece; f.source(...) has its texts",
    "entry_name": "a module is one function; call it",
    "entry_func": "a module is one function; call it",
    "export_library": 'write f.save("k.atm"), and autotensor.load("k.atm") elsewhere',
}


class Module:
    """A loaded artifact; see the module's docstring. Calls are re-entrant."""

    def __init__(self, artifact: Artifact, threads: int | None = None, provider: str | None = None) -> None:
        """Load `artifact`. `threads` defaults to AUTOTENSOR_NUM_THREADS, OMP_NUM_THREADS, the usable cores.

        Raises ArtifactError if this machine cannot run it.
        """
        self._start(artifact, loader.load(artifact), dict(artifact.values), threads, provider)

    def _start(
        self,
        artifact: Artifact,
        loaded: loader.Loaded,
        values: dict[str, Array],
        nthreads: int | None,
        provider: str | None,
    ) -> None:
        self.artifact = artifact
        self.name = artifact.name
        self._loaded = loaded
        self._provider_name = provider
        name = provider or switches.provider()
        self._provider = threads.choose(name) if name else None
        self.threads = nthreads if nthreads is not None else switches.num_threads() or default_threads()
        self._alone = bool(artifact.meta.get("alone"))  # nothing is parallel: a region would only cost
        self._values = {name: _aligned(value) for name, value in values.items()}
        self._prepare_each_call = not self._is_prepared()
        if self._prepare_each_call and all(n in self._values for n in _names(artifact.role("constant"))):
            self._values = self._prepare(self._values)
            self._prepare_each_call = False
        # Constants that were needed for preparing only are not kept, and are not asked for again.
        open_ = [n for n in _names(artifact.role("constant")) if n not in self._values]
        unbound = open_ if self._prepare_each_call else []
        slots = [Slot.of(k, spec, artifact.index_range(spec.name)) for k, spec in enumerate(artifact.args)]
        self._inputs = tuple(s for s in slots if s.spec.role == "input" or s.spec.name in unbound)
        self._outputs = tuple(s for s in slots if s.spec.role == "output")
        self._indices = tuple((n, s) for n, s in enumerate(self._inputs) if s.values is not None)

    if not TYPE_CHECKING:  # a type checker should go on reporting names that do not exist

        def __getattr__(self, name: str) -> Any:
            raise absent("f", name, self, _ELSEWHERE)

    @property
    def args(self) -> tuple[ArgSpec, ...]:
        """What a call takes, in order: inputs and unbound constants, then outputs."""
        return tuple(s.spec for s in (*self._inputs, *self._outputs))

    @property
    def signature(self) -> Signature:
        """Names, shapes and types of what a call takes and gives: print it."""
        return Signature(tuple(s.spec for s in self._inputs), tuple(s.spec for s in self._outputs))

    @property
    def threads(self) -> int:
        """Most threads of one call."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        if not isinstance(count, int) or count < 1:
            raise ArgumentError(
                f"{self.name}: threads is {count!r}; it must be a whole number of at least 1."
            )
        self._threads = count
        # Frames are made for one team size. A running call keeps its own deque and gives its frame back to
        # that.
        self._idle: deque[_Frame] = deque(maxlen=_IDLE_FRAMES)
        self._short: _Short | None = None  # made at the first call, which chooses the provider

    def __call__(self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array) -> Any:
        """Run. Returns the outputs (one array, or a tuple) unless all were given as arguments; then None.

        Raises ArgumentError naming the argument that does not fit.
        """
        given: Sequence[Array] = arrays
        results: Sequence[Array] | None = None
        count = len(self._inputs)
        if out is not None or named:
            given, results = place_all(self.name, self._inputs, self._outputs, arrays, out, named)
        elif len(arrays) == count + len(self._outputs) > count:
            if self._runs_directly(arrays):
                return None
            given, results = arrays[:count], arrays[count:]
        elif len(arrays) != count:
            given, results = place_all(self.name, self._inputs, self._outputs, arrays, out, named)
        elif self._short is not None:
            made = tuple(aligned_empty_at(s.shape, s.dtype)[0] for s in self._outputs)
            if self._runs_directly((*arrays, *made)):
                return made[0] if len(made) == 1 else made
        outputs = self._run(given, results)
        if results is not None and out is None:
            return None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _runs_directly(self, arrays: tuple[Any, ...]) -> bool:
        """Run on exactly these arrays, outputs among them, if they fit: the way that takes a microsecond."""
        short = self._short
        if short is None or short.threads != self._threads or threads.is_forked():
            return False
        if self._indices and not all(slot.is_inside(arrays[n]) for n, slot in self._indices):
            return False  # the long way has the words
        idle = short.idle
        try:
            frame = idle.pop()
        except IndexError:
            frame = self._frame(short.threads)
        try:
            return short.call(frame.address, arrays) != 0
        finally:
            idle.append(frame)

    def _shorten(self, nthreads: int, idle: deque[_Frame]) -> None:
        """From now on calls take the short way; not those that prepare, or have no outputs."""
        table = threads.table_of(self._provider)
        if table is None or self._prepare_each_call or not self._outputs or not direct.layout_is_known():
            return
        team = 1 if self._alone else nthreads
        call = direct.caller(table, self._loaded.entry, team, self._inputs, self._outputs)
        self._short = _Short(call, nthreads, idle)

    def _run(self, given: Sequence[Array], results: Sequence[Array] | None) -> Sequence[Array]:
        nthreads, idle = self._threads, self._idle
        try:
            frame = idle.pop()
        except IndexError:
            frame = self._frame(nthreads)
        try:
            given, results = adopted(self.name, given, results)
            outputs = self._fill(frame, given, results)
            if self._prepare_each_call and self._loaded.prepare:
                threads.launch(self._loaded.prepare, frame.address, nthreads, 1, self._provider)
            team = 1 if self._alone else nthreads
            threads.launch(self._loaded.entry, frame.address, team, 1, self._provider)
        finally:
            idle.append(frame)
        if self._short is None:
            self._shorten(nthreads, idle)
        return outputs

    def _fill(
        self, frame: _Frame, given: Sequence[Array], results: Sequence[Array] | None
    ) -> Sequence[Array]:
        """Write the addresses of all arrays into the frame; gives the outputs, new ones if `results` is
        None."""
        slots = frame.slots
        if results is not None:
            fill(self.name, slots, self._inputs, self._outputs, given, results)
            return results
        fill(self.name, slots, self._inputs, (), given, ())
        made = []
        for slot in self._outputs:
            array, slots[slot.index] = aligned_empty_at(slot.spec.shape, slot.dtype)
            made.append(array)
        return made

    def _frame(self, nthreads: int) -> _Frame:
        """A new frame: shared values, own workspaces, own prepared arrays where none are shared."""
        slots = (ctypes.c_void_p * max(1, len(self.artifact.args)))()
        keep: list[Array] = []
        for k, spec in enumerate(self.artifact.args):
            if spec.name in self._values and not (spec.role == "prepared" and self._prepare_each_call):
                slots[k] = address(self._values[spec.name])
            elif spec.role == "workspace":
                size = spec.stride * nthreads if spec.per_thread else spec.bytes
                keep.append(aligned_empty((size,), "uint8"))
                slots[k] = address(keep[-1])
            elif spec.role == "prepared":
                keep.append(aligned_empty(spec.shape, spec.dtype))
                slots[k] = address(keep[-1])
        return _Frame(slots, ctypes.addressof(slots), tuple(keep))

    def _is_prepared(self) -> bool:
        """Whether nothing is left to prepare: all prepared arrays and the constants that `entry` reads are
        there."""
        made = _names(self.artifact.role("prepared"))
        needed = self.artifact.entry_constants() if made else _names(self.artifact.role("constant"))
        return all(n in self._values for n in (*made, *needed))

    def _prepare(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Run `prepare` on all constants; gives prepared arrays and the constants that must stay."""
        missing = [a for a in self.artifact.role("prepared") if a.name not in values]
        if missing and not self._loaded.prepare:
            raise ArtifactError(f"{self.name} has neither a value nor a prepare function for {missing[0]}.")
        made = aligned_together({a.name: (a.shape, a.dtype) for a in self.artifact.role("prepared")})
        frame = self._frame(self._threads)
        for k, spec in enumerate(self.artifact.args):
            if spec.name in made:
                frame.slots[k] = address(made[spec.name])
        if made:
            threads.launch(self._loaded.prepare, frame.address, self._threads, 1, self._provider)
        for array in made.values():
            array.flags.writeable = False
        return made | {n: values[n] for n in self.artifact.entry_constants()}

    def bind(self, **constants: Array) -> Module:
        """A module in which these constants have values; when it has all of them it prepares, once.

        The arrays are read now; changing them later changes nothing. Raises ArgumentError for anything that
        is not a free constant of this function, or does not fit.
        """
        free = {s.spec.name: s for s in self._inputs if s.spec.role == "constant"}
        values = dict(self._values)
        for name, array in constants.items():
            if name not in free:
                raise ArgumentError(
                    f"bind: {self.name} has no free constant {name!r}.", fix=suggest(name, tuple(free))
                )
            free[name].address(self.name, array)  # checks
            values[name] = aligned_copy(array)
            values[name].flags.writeable = False
        bound = Module.__new__(Module)
        bound._start(self.artifact, self._loaded, values, self._threads, self._provider_name)
        return bound

    def source(self, kind: str) -> str:
        """One of the texts kept from compiling: "te", "nest", "ir", "llvm", "asm" …"""
        texts = self.artifact.texts
        if kind not in texts:
            raise ArgumentError(f"{self.name} keeps no text {kind!r}.", fix=suggest(kind, tuple(texts)))
        return texts[kind]

    def save(self, path: str | Path) -> None:
        """Write code, texts and bound constants to an `.atm` file, atomically."""
        artifacts.save(path, replace(self.artifact, values=self._values))

    def time(
        self,
        arrays: Iterable[Array],
        repeat: int = 5,
        min_seconds: float = 0.02,
        residency: Residency = "hot",
    ) -> tuple[float, ...]:
        """Seconds of one run, `repeat` samples; `arrays` are inputs, outputs optional. Preparing is not
        timed."""
        placed = place_all(self.name, self._inputs, self._outputs, tuple(arrays), None, {})
        given, results = adopted(self.name, *placed)
        frame = self._frame(self._threads)
        keep = self._fill(frame, given, results)
        if self._prepare_each_call and self._loaded.prepare:
            threads.launch(self._loaded.prepare, frame.address, self._threads, 1, self._provider)

        team = 1 if self._alone else self._threads

        def run(count: int) -> None:
            threads.launch(self._loaded.entry, frame.address, team, count, self._provider)

        samples = sample(run, repeat=repeat, min_seconds=min_seconds, residency=residency)
        del keep, given  # alive until here: the frame holds bare addresses
        return samples

    def __repr__(self) -> str:
        return f"<Module {self.name}({', '.join(str(a) for a in self.args)}), {self._threads} threads>"


def _names(specs: Iterable[ArgSpec]) -> tuple[str, ...]:
    return tuple(s.name for s in specs)


def _aligned(value: Array) -> Array:
    """`value` itself if kernels can use it as it is, else an aligned row-major copy."""
    fits = value.flags.c_contiguous and value.dtype.isnative and address(value) % ALIGNMENT == 0
    return np.asarray(value) if fits else aligned_copy(value)
