"""The run child's side: load candidates, check their answers, take samples. What to do next is decided by the parent.

    bench = Bench(mark)
    bench.set_task(workload, oracle artifact, threads, …)
    bench.answer_oracle("normal", 0)                      inputs, and what the unscheduled program makes of them
    bench.load(7, artifact)
    bench.check(7, "normal", 0) ──▶ {"seconds": …, "error": …}
    bench.sample([7, 8, …]) ──▶ one sample of each

A candidate gets its arguments as in a compiled model: constants that only `prepare` reads are gone (null) when it runs.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import InputError, MeasureError
from autotensor.runtime import loader, threads
from autotensor.runtime.arrays import Array, address, aligned_copy, aligned_empty
from autotensor.runtime.artifact import ArgSpec, Artifact
from autotensor.runtime.cache import default_cache, object_key
from autotensor.search.buffers import Fenced, Need, Slab
from autotensor.search.checks import Verdict, compare, make_inputs, output_bounds
from autotensor.search.mark import Mark
from autotensor.search.native_loop import native_loop
from autotensor.search.request import Residency, rotation_copies, source_sha
from autotensor.te.workload import Workload

ORACLE_FORMAT = "1"  # of cached answers; another when inputs are made otherwise
_CACHED_BYTES = 32 << 20  # larger answers are computed again rather than kept on disk
_TASK_BYTES = 512 << 20  # of inputs and answers of earlier tasks that are kept
_SHIFT_ELEMENTS = 1  # inputs and outputs are aligned to their element only; a kernel must not rely on more


@dataclass(slots=True, eq=False)
class Question:
    """One set of inputs and the oracle's answers."""

    inputs: dict[str, Fenced]  # constants too
    pristine: dict[str, Array]
    answers: dict[str, Array]
    shift: int
    exact: bool

    def spoiled(self) -> str:
        """What a candidate did to its inputs; empty if nothing. Mends it."""
        found = ""
        for name, fenced in self.inputs.items():
            if complaint := fenced.complaint():
                found = found or complaint
                fenced.mend()
            if not np.array_equal(_bytes(fenced.array), _bytes(self.pristine[name])):
                found = found or f"it changed its input {name!r}"
                fenced.array[...] = self.pristine[name]
        return found

    @property
    def bytes(self) -> int:
        return 2 * sum(a.nbytes for a in self.pristine.values()) + sum(
            a.nbytes for a in self.answers.values()
        )


@dataclass(slots=True, eq=False)
class Task:
    """A workload, its oracle, and the questions asked so far."""

    workload: Workload
    oracle: Artifact
    questions: dict[tuple[str, int], Question] = field(default_factory=dict)
    hot: dict[str, Array] = field(default_factory=dict)  # activations for timing


@dataclass(slots=True, eq=False)
class Candidate:
    """Loaded code and how it is called when timed."""

    artifact: Artifact
    loaded: loader.Loaded
    bounds: dict[str, float]
    frames: np.ndarray[Any, Any] | None = None  # addresses of argument arrays
    keep: Any = None
    turn: int = 0  # first copy of the weights to use next

    @property
    def rotating(self) -> tuple[ArgSpec, ...]:
        """Constants that every call reads."""
        kept = self.artifact.entry_constants()
        return tuple(a for a in self.artifact.args if a.role == "prepared" or a.name in kept)


class Bench:
    """One run child. Nothing here survives a candidate's crash, and nothing needs to."""

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.threads = 1
        self.residency: Residency = "graph"
        self.tasks: dict[str, Task] = {}
        self.candidates: dict[int, Candidate] = {}
        self._outputs = Slab()  # of checks
        self._own = Slab()  # prepared arrays and workspaces of checks
        self._pool = Slab()  # copies of weights
        self._pool_dtype = ""
        self._pool_owner = -1

    # -- the task -----------------------------------------------------------------------------------------------------

    def set_task(self, text: str, oracle: Artifact, nthreads: int, residency: Residency) -> None:
        workload = Workload.from_text(text)
        self.threads, self.residency = nthreads, residency
        task = self.tasks.pop(workload.key, None) or Task(workload, oracle)
        self.tasks[workload.key] = task  # the latest is last
        self.candidates.clear()
        self._pool_dtype = ""
        while (
            len(self.tasks) > 1
            and sum(q.bytes for t in self.tasks.values() for q in t.questions.values()) > _TASK_BYTES
        ):
            del self.tasks[next(iter(self.tasks))]

    @property
    def task(self) -> Task:
        if not self.tasks:
            raise InputError("this worker has no task yet.")
        return next(reversed(self.tasks.values()))

    def answer_oracle(self, kind: str, seed: int, exact: bool) -> None:
        """Inputs of a kind and seed, and what the unscheduled program makes of them, once per task."""
        task = self.task
        if (kind, seed) in task.questions:
            return
        tried = [kind] if exact else [kind, "positive"]  # roots and logarithms of normal numbers say nothing
        best: tuple[float, dict[str, Array], dict[str, Array]] | None = None
        for k in tried:
            inputs = make_inputs(task.workload.dag, k, seed)
            answers = self._oracle_answers(inputs, k, seed)
            share = _finite_share(answers)
            if best is None or share > best[0]:
                best = (share, inputs, answers)
            if share == 1.0:
                break
        assert best is not None
        if best[0] == 0.0:
            raise MeasureError("its answers are not finite on random inputs, so no candidate can be checked.")
        shift = _SHIFT_ELEMENTS if len(task.questions) % 2 else 0
        needs = [Need(n, a.shape, a.dtype, read_only=True) for n, a in best[1].items()]
        placed = Slab().place(needs, shift)  # the arrays keep their memory alive
        for fenced in placed:
            fenced.array[...] = best[1][fenced.name]
        task.questions[kind, seed] = Question({f.name: f for f in placed}, best[1], best[2], shift, exact)

    def _oracle_answers(self, inputs: Mapping[str, Array], kind: str, seed: int) -> dict[str, Array]:
        task, dag = self.task, self.task.workload.dag
        cache = default_cache()
        key = object_key("oracle", ORACLE_FORMAT, task.workload.key, source_sha(task.oracle), kind, str(seed))
        size = sum(b.bytes for b in dag.outputs)
        data = cache.get(key) if size <= _CACHED_BYTES else None
        if data is not None and len(data) == size:
            answers, at = {}, 0
            for b in dag.outputs:
                answers[b.name] = np.frombuffer(data, b.dtype.numpy, b.size, at).reshape(b.shape)
                at += b.bytes
            return answers
        candidate = _loaded(task.oracle, {})
        placed = self._place(candidate, 0, 1)
        arrays = {**{n: aligned_copy(a) for n, a in inputs.items()}, **{f.name: f.array for f in placed}}
        frame = _frame(task.oracle, arrays)  # holds bare addresses: `arrays` must live on
        if candidate.loaded.prepare:
            threads.launch(candidate.loaded.prepare, ctypes.addressof(frame), 1)
        threads.launch(candidate.loaded.entry, ctypes.addressof(frame), 1)
        answers = {b.name: aligned_copy(arrays[b.name]) for b in dag.outputs}
        if size <= _CACHED_BYTES:
            cache.put(key, b"".join(_bytes(a).tobytes() for a in answers.values()))
        return answers

    # -- candidates ---------------------------------------------------------------------------------------------------

    def load(self, number: int, artifact: Artifact, tolerance: float | None) -> None:
        """Link a candidate's code. Raises ArtifactError if that cannot be done."""
        self.candidates[number] = _loaded(artifact, output_bounds(self.task.workload.dag, tolerance))

    def forget(self) -> None:
        self.candidates.clear()
        self._pool_owner = -1

    def prepared_bytes(self, number: int) -> int:
        return sum(a.bytes for a in self.candidates[number].rotating)

    def check(self, number: int, kind: str, seed: int, inexact: bool = False) -> dict[str, Any]:
        """Run once on a set of inputs between fences and traps; the verdict, and the seconds that the run took.

        inexact: do not ask for equal bits on integers.
        """
        candidate, question = self.candidates[number], self.task.questions[kind, seed]
        artifact, loaded = candidate.artifact, candidate.loaded
        placed = self._place(candidate, question.shift, self.threads)
        arrays = {**{n: f.array for n, f in question.inputs.items()}, **{f.name: f.array for f in placed}}
        frame = _frame(artifact, arrays)
        where = ctypes.addressof(frame)
        if loaded.prepare:
            with self.mark(number, "prepare"):
                threads.launch(loaded.prepare, where, self.threads)
        prepared = {a.name: arrays[a.name].copy() for a in artifact.role("prepared")}
        kept = artifact.entry_constants()
        for k, spec in enumerate(artifact.args):
            if spec.role == "constant" and spec.name not in kept:
                frame[k] = None
        with self.mark(number, "run"):
            began = time.perf_counter()
            threads.launch(loaded.entry, where, self.threads)
            seconds = time.perf_counter() - began
        complaint = next((c for f in placed if (c := f.complaint())), "") or question.spoiled()
        for name, before in prepared.items():
            if not np.array_equal(_bytes(arrays[name]), _bytes(before)):
                complaint = complaint or f"running changed the prepared constant {name!r}"
        verdict = self._judge(candidate, question, arrays, question.exact and not inexact)
        return {
            "seconds": seconds,
            "error": _finite(verdict.error),
            "allowed": verdict.allowed,
            "complaint": complaint or verdict.complaint,
        }

    def _judge(
        self, candidate: Candidate, question: Question, arrays: Mapping[str, Array], exact: bool
    ) -> Verdict:
        """The verdict of the output that is worst."""
        worst = Verdict(0.0, 0.0)
        for name, want in question.answers.items():
            bound = candidate.bounds[name]
            verdict = compare(arrays[name], want, 0.0 if exact else bound)
            if verdict.complaint:
                return Verdict(
                    verdict.error,
                    bound if math.isfinite(bound) else verdict.allowed,
                    f"output {name!r}: {verdict.complaint}",
                )
            if exact:
                verdict = Verdict(0.0, bound if math.isfinite(bound) else 0.0)
            if verdict.ratio >= worst.ratio:
                worst = verdict
        return worst

    def _place(self, candidate: Candidate, shift: int, nthreads: int) -> list[Fenced]:
        """Everything that the candidate writes, filled with traps."""
        outputs, own = [], []
        for a in candidate.artifact.args:
            if a.role == "output":
                outputs.append(Need(a.name, a.shape, dtype_of(a.dtype).numpy))
            elif a.role == "prepared":
                own.append(Need(a.name, a.shape, dtype_of(a.dtype).numpy, read_only=True))
            elif a.role == "workspace":
                own.append(Need(a.name, *_workspace(a, nthreads)))
        placed = [*self._outputs.place(outputs, shift), *self._own.place(own)]
        for fenced in placed:
            fenced.trap()
        return placed

    # -- samples ------------------------------------------------------------------------------------------------------

    def sample(self, wanted: Sequence[Sequence[Any]], min_seconds: float) -> dict[str, Any]:
        """One sample of each candidate, in the order given, and the time of the reference kernel.

        wanted: (number, calls in a sample or 0 if unknown, expected seconds of a call).
        """
        loop = native_loop()
        reference = loop.reference_seconds(self.threads)
        samples = {}
        for number, calls, expected in wanted:
            candidate = self.candidates[number]
            frames = self._frames(number, candidate)
            if calls == 0:
                seconds, calls = self._first_sample(number, candidate, frames, expected, min_seconds)
            else:
                seconds = self._run(number, candidate, frames, calls)
            samples[str(number)] = (seconds / calls, calls)
        return {"reference": reference, "samples": samples}

    def _first_sample(
        self,
        number: int,
        candidate: Candidate,
        frames: np.ndarray[Any, Any],
        expected: float,
        min_seconds: float,
    ) -> tuple[float, int]:
        """Warm up, find the number of calls that last long enough, and the sample with so many."""
        if expected < _WARM_UP_BELOW * min_seconds:
            expected = self._run(number, candidate, frames, 1)
        calls = max(1, math.ceil(min_seconds / max(expected, 1e-9)))
        while True:
            seconds = self._run(number, candidate, frames, calls)
            if seconds >= min_seconds * _LONG_ENOUGH:
                return seconds, calls
            growth = min(_MOST_GROWTH, 1.1 * min_seconds / max(seconds, 1e-9))
            calls = max(calls + 1, math.ceil(calls * growth))

    def _run(self, number: int, candidate: Candidate, frames: np.ndarray[Any, Any], calls: int) -> float:
        with self.mark(number, "run"):
            seconds = native_loop().run(candidate.loaded.entry, frames, candidate.turn, calls, self.threads)
        candidate.turn = (candidate.turn + calls) % len(frames)
        return seconds

    def _frames(self, number: int, candidate: Candidate) -> np.ndarray[Any, Any]:
        """Addresses of the argument arrays of timed calls, one per copy of the constants."""
        task = self.task
        if not task.hot:
            question = next(iter(task.questions.values()))
            task.hot = {b.name: aligned_copy(question.pristine[b.name]) for b in task.workload.dag.inputs}
            task.hot |= {b.name: aligned_empty(b.shape, b.dtype) for b in task.workload.dag.outputs}
        rotating = candidate.rotating
        offsets, size = _offsets([a.bytes for a in rotating])
        copies = rotation_copies(size, self.residency)
        self._fill_pool(number, candidate, size, copies)
        if candidate.frames is not None:
            return candidate.frames
        spaces = [(a, *_workspace(a, self.threads)) for a in candidate.artifact.role("workspace")]
        starts, total = _offsets([int(np.prod(shape)) * dtype.itemsize for _, shape, dtype in spaces])
        scratch = aligned_empty((total,), np.dtype(np.uint8)) if total else None
        at = {
            a.name: s + (address(scratch) if scratch is not None else 0)
            for (a, _, _), s in zip(spaces, starts, strict=True)
        }
        at |= {n: address(a) for n, a in task.hot.items() if n not in candidate.artifact.entry_constants()}
        dead = {a.name for a in candidate.artifact.role("constant")} - {a.name for a in rotating}
        args = candidate.artifact.args
        table = np.zeros((copies, max(1, len(args))), np.uint64)
        base = address(self._pool.raw)
        where = {a.name: o for a, o in zip(rotating, offsets, strict=True)}
        for k, spec in enumerate(args):
            if spec.name in where:
                table[:, k] = base + where[spec.name] + np.arange(copies, dtype=np.uint64) * np.uint64(size)
            elif spec.name not in dead:
                table[:, k] = at[spec.name]
        candidate.frames = address(table) + np.arange(copies, dtype=np.uint64) * np.uint64(table.strides[0])
        candidate.keep = (table, scratch)
        return candidate.frames

    def _fill_pool(self, number: int, candidate: Candidate, size: int, copies: int) -> None:
        """Constants for timed calls. Time does not depend on the values of floats, so all candidates share random ones;
        others are prepared for the candidate at each visit, for integers may be indices."""
        if not size:
            return
        kinds = {a.dtype for a in candidate.rotating}
        shared = next(iter(kinds)) if len(kinds) == 1 and dtype_of(next(iter(kinds))).is_float else ""
        raw = self._pool.raw
        if raw.nbytes < size * copies:
            self._pool.reserve(size * copies)
            raw = self._pool.raw
            self._pool_dtype, self._pool_owner = "", -1
            for other in self.candidates.values():
                other.frames = None  # they point into the old pool
        if shared:
            if self._pool_dtype != shared:
                block = (
                    np.random.default_rng(0)
                    .standard_normal(_BLOCK)
                    .astype(dtype_of(shared).numpy)
                    .view(np.uint8)
                )
                whole = raw.nbytes // block.nbytes * block.nbytes
                raw[:whole].reshape(-1, block.nbytes)[...] = block
                raw[whole:] = block[: raw.nbytes - whole]
                self._pool_dtype, self._pool_owner = shared, -1
            return
        if self._pool_owner == number:
            return
        self._pool_dtype, self._pool_owner = "", number
        placed = {f.name: f.array for f in self._place(candidate, 0, self.threads)}
        frame = _frame(candidate.artifact, {**self.task.hot, **placed})
        if candidate.loaded.prepare:
            with self.mark(number, "prepare"):
                threads.launch(candidate.loaded.prepare, ctypes.addressof(frame), self.threads)
        offsets, _ = _offsets([a.bytes for a in candidate.rotating])
        first = raw[:size]
        for spec, offset in zip(candidate.rotating, offsets, strict=True):
            source = placed.get(spec.name, self.task.hot.get(spec.name))
            assert source is not None
            first[offset : offset + spec.bytes] = _bytes(source)
        raw[: size * copies].reshape(copies, size)[1:] = first


_WARM_UP_BELOW = 5.0  # times min_seconds: longer calls warm up by themselves
_LONG_ENOUGH = 0.75
_MOST_GROWTH = 100.0
_BLOCK = 1 << 18  # random floats, repeated: making 64 MB of them takes half a second


def _loaded(artifact: Artifact, bounds: dict[str, float]) -> Candidate:
    return Candidate(artifact, loader.load(artifact), bounds)


def _frame(artifact: Artifact, arrays: Mapping[str, Array]) -> Any:
    """The argument array: addresses in the artifact's order."""
    return (ctypes.c_void_p * max(1, len(artifact.args)))(*(address(arrays[a.name]) for a in artifact.args))


def _workspace(a: ArgSpec, nthreads: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the memory behind a workspace argument."""
    if a.per_thread:
        return (a.stride * nthreads,), np.dtype(np.uint8)
    return a.shape, dtype_of(a.dtype).numpy


def _offsets(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where arrays of these sizes start when each is at a multiple of 64 bytes, and how much they take together."""
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += -(-size // 64) * 64
    return starts, at


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _finite_share(answers: Mapping[str, Array]) -> float:
    """Least share of finite elements among float outputs."""
    shares = [
        float(np.isfinite(a.astype(np.float32, copy=False) if a.dtype.itemsize <= 4 else a).mean())
        for a in answers.values()
        if a.dtype.kind not in "biu" and a.size
    ]
    return min(shares, default=1.0)
