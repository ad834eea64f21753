"""Module: a compiled function that can be called with NumPy arrays.

    f = Module(artifact)
    c = f(a, b)              inputs only: outputs are new arrays
    f(a, b, c)               inputs and outputs: outputs are filled in place
    g = f.bind(W=w)          constants are prepared once; g(a) then takes the other inputs

Arrays are NumPy's, or arrays of any library that supports DLPack (torch, CuPy on the CPU). The latter are
read in place.

A call takes an *argument block* (with its workspaces) from a small pool, writes the addresses of the arrays
into it, and makes one native call. From the second call on, the native call also checks the arrays and writes
their addresses (`direct_call`). Weights are shared between blocks, so any number of threads may call at once.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from autotensor.base import switches
from autotensor.base.counted import counted
from autotensor.base.errors import ArgumentError, ArtifactError
from autotensor.base.target import default_threads
from autotensor.runtime.arguments import fill, listed, place_all
from autotensor.runtime.array_exchange import adopted
from autotensor.runtime.arrays import (
    ALIGNMENT,
    Array,
    address,
    aligned_copy,
    aligned_empty,
    bytes_together,
    views_together,
)
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import default_prepared_cache
from autotensor.runtime.files.prepared_cache import Pages, prepared_pages
from autotensor.runtime.function import CompiledFunction
from autotensor.runtime.linking import loader
from autotensor.runtime.native import direct_call, threads
from autotensor.runtime.results import LEAST, result_array, result_arrays
from autotensor.runtime.timer import Residency, sample

_TINY = 1024  # bytes of a result; to align such a result takes more time (1 us) than it saves
# idle blocks that are kept, each with memory for a whole model; more calls at once make new blocks
_IDLE_BLOCKS = 32


@dataclass(frozen=True, slots=True, eq=False)
class _ArgumentBlock:
    """The memory that one call needs for itself."""

    slots: Any  # ctypes array of pointers, one per ArgSpec
    address: int
    keep: tuple[Array, ...]  # workspaces; also the prepared arrays, if every call makes them


@dataclass(frozen=True, slots=True, eq=False)
class _Short:
    """The short way of calls. The blocks and the caller are for one size of team."""

    call: direct_call.Caller
    threads: int
    idle: deque[_ArgumentBlock]


class Module(CompiledFunction):
    """A loaded artifact; see the module's docstring. Several calls may run at once."""

    _key = ""  # "": other processes do not share its prepared arrays

    def __init__(
        self, artifact: Artifact, threads: int | None = None, provider: str | None = None, key: str = ""
    ) -> None:
        """Loads `artifact`. `threads` defaults to AUTOTENSOR_NUM_THREADS, OMP_NUM_THREADS, then the usable
        cores.

        key: a hash of code and values. Under this key, other processes find the arrays that this module
        prepares, in the cache folder. "": the prepared arrays are this module's own.
        Raises ArtifactError if this machine cannot run the artifact.
        """
        self._key = key
        self._start(artifact, loader.load(artifact), dict(artifact.values), threads, provider)

    def _start(
        self,
        artifact: Artifact,
        loaded: loader.Loaded,
        values: dict[str, Array],
        nthreads: int | None,
        provider: str | None,
    ) -> None:
        # set first, because the error about a refused number of threads contains it
        self.name = artifact.name
        self._loaded = loaded
        self._provider_name = provider
        name = provider or switches.provider()
        self._provider = threads.choose(name) if name else None
        threads.look_again()
        self.threads = nthreads if nthreads is not None else switches.num_threads() or default_threads()
        # nothing in the artifact is parallel, so a parallel region would only cost time
        self._alone = bool(artifact.meta.get("alone"))
        read = {a.name for a in artifact.weights()}  # other arrays may have any alignment, and are dropped
        self._take(artifact, {n: _aligned(v) if n in read else v for n, v in values.items()})
        self._results_are_tiny = all(s.bytes <= _TINY for s in self._outputs)
        self._results_are_small = all(s.bytes < LEAST for s in self._outputs)
        self._kinds = tuple((s.shape, s.dtype) for s in self._outputs)
        reread = artifact.meta.get("reread", ())
        self._reread = tuple(k for k, s in enumerate(self._inputs) if s.spec.name in reread)

    @property
    def threads(self) -> int:
        """The largest number of threads of one call."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        if not isinstance(count, int) or count < 1:
            raise ArgumentError(
                f"{self.name}: threads is {count!r}; it must be a whole number of at least 1."
            )
        self._threads = count
        # Blocks are made for one team size. A call that is running keeps its own deque, and gives its block
        # back to that deque.
        self._idle: deque[_ArgumentBlock] = deque(maxlen=_IDLE_BLOCKS)
        self._short: _Short | None = None  # made at the first call, which chooses the provider

    def __call__(self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array) -> Any:
        """Run. Returns the outputs (one array, or a tuple), or None if the caller gave all output arrays.

        Raises ArgumentError, which names the argument that does not fit.
        """
        placed = self._placed(arrays, out, named)
        count = len(self._inputs)
        results = placed[count:] if len(placed) > count else None
        if self._short is not None:
            placed = self._at_lines(placed)
            made = self._new_results(placed) if results is None else results
            if self._runs_directly((*placed, *made) if results is None else placed):
                return self._answer(made, results, out)
        return self._answer(self._run(placed[:count], results), results, out)

    def _placed(
        self, arrays: tuple[Array, ...], out: Array | Sequence[Array] | None, named: Mapping[str, Array]
    ) -> tuple[Array, ...]:
        """The inputs in order, and then the outputs if the caller gave them."""
        count, outputs = len(self._inputs), len(self._outputs)
        if not named:
            if out is None and len(arrays) in (count, count + outputs):
                return arrays
            if out is not None and len(arrays) == count and len(results := listed(out)) == outputs:
                return (*arrays, *results)
        given, filled = place_all(self.name, self._inputs, self._outputs, arrays, out, named)
        return (*given, *(filled or ()))

    def _runs_directly(self, arrays: tuple[Any, ...]) -> bool:
        """Runs on exactly these arrays, outputs included, if they fit. This short way takes a microsecond."""
        short = self._short
        if short is None or short.threads != self._threads or threads.is_forked():
            return False
        idle = short.idle
        try:
            block = idle.pop()
        except IndexError:
            block = self._block(short.threads)
        try:
            return short.call(block.address, arrays) != 0
        finally:
            idle.append(block)

    def _shorten(self, nthreads: int, idle: deque[_ArgumentBlock]) -> None:
        """Makes later calls take the short way, unless each call prepares or there are no outputs."""
        table = threads.table_of(self._provider)
        if self._prepare_each_call or not self._outputs or not direct_call.layout_is_known():
            return
        team = 1 if self._alone else nthreads
        call = direct_call.caller(table, self._loaded.entry, team, self._inputs, self._outputs)
        self._short = _Short(call, nthreads, idle)

    def _run(self, given: Sequence[Array], results: Sequence[Array] | None) -> Sequence[Array]:
        nthreads, idle = self._threads, self._idle
        try:
            block = idle.pop()
        except IndexError:
            block = self._block(nthreads)
        try:
            given, results = adopted(self.name, given, results)
            given = self._at_lines(tuple(given))
            outputs = self._fill(block, given, results)
            if self._prepare_each_call and self._loaded.prepare:
                threads.launch(self._loaded.prepare, block.address, nthreads, 1, self._provider)
            team = 1 if self._alone else nthreads
            threads.launch(self._loaded.entry, block.address, team, 1, self._provider)
        finally:
            idle.append(block)
        if self._short is None:
            self._shorten(nthreads, idle)
        return outputs

    def _fill(
        self, block: _ArgumentBlock, given: Sequence[Array], results: Sequence[Array] | None
    ) -> Sequence[Array]:
        """Writes the addresses of all arrays into the block. Returns the outputs, which are new if `results`
        is None."""
        slots = block.slots
        if results is not None:
            fill(self.name, slots, self._inputs, self._outputs, given, results)
            return results
        fill(self.name, slots, self._inputs, (), given, ())
        made = self._new_results(given)
        for slot, array in zip(self._outputs, made, strict=True):
            slots[slot.index] = address(array)
        return made

    def _at_lines(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same arrays, inputs first. An array that the kernel reads again and again is copied if it does
        not begin at a cache line (see `codegen/reread.py`)."""
        if not self._reread:
            return given
        placed = list(given)
        for k in self._reread:
            array, slot = given[k], self._inputs[k]
            if type(array) is np.ndarray and slot.takes(array) and address(array) % ALIGNMENT:
                placed[k] = result_array(slot.shape, slot.dtype)
                placed[k][...] = array
        return tuple(placed)

    def _new_results(self, given: Sequence[Any]) -> list[Array]:
        if self._results_are_tiny:
            return [np.empty(s.shape, s.dtype) for s in self._outputs]
        if self._results_are_small:
            return [aligned_empty(s.shape, s.dtype) for s in self._outputs]
        return result_arrays(self._kinds, given)

    def _block(self, nthreads: int, preparing: bool = False) -> _ArgumentBlock:
        """A new block: shared values, its own workspaces, and its own prepared arrays if none are shared.

        preparing: without the workspaces that threads share. Stages that depend on constants only are in
        prepared arrays. In an open function, the shared workspaces have the size for the greatest extents.
        """
        slots = (ctypes.c_void_p * max(1, len(self.artifact.args)))()
        keep: list[Array] = []
        for k, spec in enumerate(self.artifact.args):
            if spec.name in self._values and not (spec.role == "prepared" and self._prepare_each_call):
                slots[k] = address(self._values[spec.name])
            elif spec.role == "workspace" and (spec.per_thread or not preparing):
                size = spec.stride * nthreads if spec.per_thread else spec.bytes
                keep.append(aligned_empty((size,), "uint8"))
                slots[k] = address(keep[-1])
            elif spec.role == "prepared":
                keep.append(aligned_empty(spec.shape, spec.dtype))
                slots[k] = address(keep[-1])
        return _ArgumentBlock(slots, ctypes.addressof(slots), tuple(keep))

    def _prepared(self) -> dict[str, Array]:
        missing = [a for a in self.artifact.role("prepared") if a.name not in self._values]
        if missing and not self._loaded.prepare:
            raise ArtifactError(f"{self.name} has neither a value nor a prepare function for {missing[0]}.")
        shapes = {a.name: (a.shape, a.dtype) for a in self.artifact.role("prepared")}
        cache = default_prepared_cache() if self._key else None
        pages = prepared_pages(cache, self._key, bytes_together(shapes))
        if isinstance(pages, Pages):
            try:
                self._prepare_in(views_together(pages.data, shapes))
            except BaseException:
                pages.dropped()
                raise
            pages = pages.kept()
        return views_together(pages, shapes)

    def _prepare_in(self, made: Mapping[str, Array]) -> None:
        block = self._block(self._threads, preparing=True)
        for k, spec in enumerate(self.artifact.args):
            if spec.name in made:
                block.slots[k] = address(made[spec.name])
        if made:
            threads.launch(self._loaded.prepare, block.address, self._threads, 1, self._provider)

    def _with(self, values: dict[str, Array]) -> Self:
        bound = type(self).__new__(type(self))
        bound._start(self.artifact, self._loaded, values, self._threads, self._provider_name)
        return bound

    def time(
        self,
        arrays: Iterable[Array],
        repeat: int = 5,
        min_seconds: float = 0.02,
        residency: Residency = "hot",
    ) -> tuple[float, ...]:
        """`repeat` samples of the seconds of one run. `arrays` are the inputs, and optionally the outputs.

        A sample is the mean of as many runs as take `min_seconds`. On a busy machine, samples include the
        time of other programs. The least of many short samples (repeat=50, min_seconds=0.001) includes less
        of it. Preparing is not timed.
        """
        # one array: without this check, its rows would be taken for the arguments
        if hasattr(arrays, "shape"):
            raise ArgumentError(f"{self.name}: time takes the arrays in a list.", fix="f.time([a, b]).")
        placed = place_all(self.name, self._inputs, self._outputs, tuple(arrays), None, {})
        given, results = adopted(self.name, *placed)
        given = self._at_lines(tuple(given))
        block = self._block(self._threads)
        keep = self._fill(block, given, results)
        if self._prepare_each_call and self._loaded.prepare:
            threads.launch(self._loaded.prepare, block.address, self._threads, 1, self._provider)

        team = 1 if self._alone else self._threads

        def run(count: int) -> None:
            threads.launch(self._loaded.entry, block.address, team, count, self._provider)

        samples = sample(run, repeat=repeat, min_seconds=min_seconds, residency=residency)
        del keep, given  # keeps them alive until here, because the block holds bare addresses
        return samples

    def __repr__(self) -> str:
        threads = counted(self._threads, "thread")
        return f"<Module {self.name}({', '.join(str(a) for a in self.args)}), {threads}>"


def _aligned(value: Array) -> Array:
    """`value` itself if kernels can use it directly, else an aligned row-major copy."""
    fits = value.flags.c_contiguous and value.dtype.isnative and address(value) % ALIGNMENT == 0
    return np.asarray(value) if fits else aligned_copy(value)
