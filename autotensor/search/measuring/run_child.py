"""The run child: it loads candidates, checks their answers and takes samples, as the parent requests.

    bench = Bench(mark)
    bench.set_task(workload text, oracle's artifacts, …)
    bench.answer_oracle("normal", 0)                 inputs, and the unscheduled program's answers
    bench.load(7, artifact)
    bench.check(7, "normal", 0) ──▶ {"seconds": …, "error": …, "complaint": …}
    bench.sample([(7, 0, 0.001), …]) ──▶ one sample of each

A candidate gets its arguments in the same way as in a compiled model: constants that only `prepare` reads are
gone. The prepared arrays are made once for all candidates of a task that share the code of `prepare`. Large
constants are the same for all sets of inputs, because preparing 400 MB of weights takes longer than running a
kernel.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import InputError, MeasureError
from autotensor.runtime.arrays import Array, aligned_copy, aligned_empty
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import default_cache, object_key
from autotensor.runtime.native import threads
from autotensor.runtime.results import result_arrays
from autotensor.search.measuring.candidate_memory import Need, Slab, raw, stretches
from autotensor.search.measuring.candidate_time_limit import within
from autotensor.search.measuring.checks import (
    Verdict,
    compare,
    compare_wide,
    fill_large,
    large_constants,
    make_inputs,
    output_bounds,
    sizes_of_terms,
)
from autotensor.search.measuring.fenced_constants import Held
from autotensor.search.measuring.loaded_candidate import LoadedCandidate, Room, frame
from autotensor.search.measuring.measure_request import Residency, source_sha
from autotensor.search.measuring.oracle import fit_to_compare
from autotensor.search.measuring.running_mark import Mark
from autotensor.search.measuring.timing import Sampler
from autotensor.te.workload import Workload

ORACLE_FORMAT = "2"  # format of cached answers; it changes when inputs are made differently
_CACHED_BYTES = 32 << 20  # answers with more bytes are not kept on disk, but computed again
_TASK_BYTES = 512 << 20  # bytes of inputs and answers of earlier tasks that are kept in memory
_PREPARED_BYTES = 1 << 30  # bytes of this task's prepared constants that are kept
_SHIFT_ELEMENTS = 1  # arrays are only aligned to their elements; every other set of inputs tests this


@dataclass(slots=True, eq=False)
class Question:
    """One set of inputs, and the oracle's answers."""

    held: Held  # inputs, including constants
    large: Held  # inputs that are the same in other questions
    kind: str  # kind of the inputs, which may differ from the requested kind
    answers: dict[str, Array]
    shift: int
    exact: bool  # whether answers must be equal bit for bit
    terms: dict[str, float] | None = None  # sizes of the answers' terms; None: not computed yet
    wide: dict[str, Array] | None = None  # answers of the float64 program; None: not computed yet
    before: Question | None = None  # the question that this one replaces; `prepared` may name it by its id

    @property
    def inputs(self) -> dict[str, Array]:
        return {**self.large.arrays, **self.held.arrays}

    @property
    def bytes(self) -> int:
        wide = {} if self.exact else self.wide or {}  # exact answers are also the answers in float64
        return self.held.bytes + sum(a.nbytes for a in (*self.answers.values(), *wide.values()))


@dataclass(slots=True, eq=False)
class Examination:
    """A workload, its oracle, and the questions so far."""

    workload: Workload
    oracle: Artifact
    wide: Artifact | None = None  # the oracle in float64; None: no candidate has needed it yet
    questions: dict[tuple[str, int], Question] = field(default_factory=dict)
    large: dict[str, Held] = field(default_factory=dict)  # large constants, by kind of the question
    # by the code and the constants that it read; the latest comes last
    prepared: dict[object, Held] = field(default_factory=dict)
    hot: dict[str, Array] = field(default_factory=dict)  # activations and outputs for timing

    @property
    def bytes(self) -> int:
        own = sum(q.bytes for q in self.questions.values())
        return own + sum(h.bytes for h in self.large.values())


class Bench:
    """One run child. None of its state survives a candidate's crash, and none of it needs to."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._threads = 1
        self._residency: Residency = "graph"
        self._tasks: dict[str, Examination] = {}  # the present task is the last one
        self._candidates: dict[int, LoadedCandidate] = {}
        self._room = Room(Slab(), Slab())
        self._sampler = Sampler(mark)

    def set_task(
        self, text: str, oracle: Artifact, wide: Artifact | None, nthreads: int, residency: Residency
    ) -> None:
        """Prepares for candidates of this workload, with teams of `nthreads`."""
        workload = Workload.from_text(text)
        self._threads, self._residency = nthreads, residency
        self.forget()
        task = self._tasks[workload.key] = self._tasks.pop(workload.key, Examination(workload, oracle))
        task.wide = wide or task.wide
        for other in self._tasks.values():
            if other is not task:
                other.prepared.clear()
        while len(self._tasks) > 1 and sum(t.bytes for t in self._tasks.values()) > _TASK_BYTES:
            del self._tasks[next(iter(self._tasks))]

    @property
    def task(self) -> Examination:
        if not self._tasks:
            raise InputError("this worker has no task yet.")
        return next(reversed(self._tasks.values()))

    # -- the oracle ---------------------------------------------------------------------------------------

    def answer_oracle(self, kind: str, seed: int, exact: bool, wide: bool = False) -> None:
        """Makes inputs of a kind and seed, and the unscheduled program's answers for them, once per task.

        wide: also make the answers in float64; `exact` answers are equal to these already.
        Raises MeasureError when no answer is finite, because then nothing could be checked.
        """
        task = self.task
        question = task.questions.get((kind, seed))
        if question is None:
            question = task.questions[kind, seed] = self._question(kind, seed, exact)
        if wide and question.wide is None:
            if exact:
                question.wide = question.answers
            else:
                assert task.wide is not None
                question.wide = self._oracle_answers(task.wide, question.inputs, question.kind, seed)

    def _question(self, kind: str, seed: int, exact: bool) -> Question:
        task = self.task
        best: tuple[float, str, dict[str, Array], dict[str, Array]] = (0.0, kind, {}, {})
        # roots and logarithms of normal numbers are mostly NaN
        for k in [kind] if exact else [kind, "positive"]:
            inputs = make_inputs(task.workload.dag, k, seed, self._large(k).arrays)
            answers = self._oracle_answers(task.oracle, inputs, k, seed)
            share = _finite_share(answers)
            if share > best[0]:
                best = (share, k, inputs, answers)
            if share == 1.0:
                break
        share, k, inputs, answers = best
        if share == 0.0:
            raise MeasureError("its answers are not finite on random inputs, so no candidate can be checked.")
        large = self._large(k)
        shift = _SHIFT_ELEMENTS if len(task.questions) % 2 else 0
        own = {name: a for name, a in inputs.items() if name not in large.arrays}
        held = Held([Need(n, a.shape, a.dtype, read_only=True) for n, a in own.items()], shift)
        for name, array in held.arrays.items():
            array[...] = own[name]
        held.seal()
        return Question(held, large, k, answers, shift, exact)

    def _large(self, kind: str) -> Held:
        """Large constants for one kind of questions, made once per task."""
        task = self.task
        kind = "positive" if kind == "positive" else "any"
        if kind not in task.large:
            buffers = large_constants(task.workload.dag)
            held = Held([Need(b.name, b.shape, b.dtype.numpy, read_only=True) for b in buffers])
            for array in held.arrays.values():
                fill_large(array, kind)
            held.seal()
            task.large[kind] = held
        return task.large[kind]

    def _oracle_answers(
        self, oracle: Artifact, inputs: Mapping[str, Array], kind: str, seed: int
    ) -> dict[str, Array]:
        """The unscheduled program's results for the inputs, from the cache if it has them."""
        key = object_key(
            "oracle",
            ORACLE_FORMAT,
            np.__version__,
            self.task.workload.key,
            source_sha(oracle),
            kind,
            str(seed),
        )
        outputs = {a.name: (a.shape, dtype_of(a.dtype).numpy) for a in oracle.role("output")}
        size = sum(prod(shape) * t.itemsize for shape, t in outputs.values())
        cache = default_cache()
        data = cache.get(key) if size <= _CACHED_BYTES else None
        if data is not None and len(data) == size:
            answers, at = {}, 0
            for name, (shape, t) in outputs.items():
                answers[name] = np.frombuffer(data, t, prod(shape), at).reshape(shape)
                at += answers[name].nbytes
            return answers
        candidate = LoadedCandidate.of(oracle, {})
        # naive loops store every stage, and need far more memory than candidates do later
        room = Room(Slab(), Slab())
        placed = {name: f.array for name, f in room.place(oracle, self._threads).items()}
        prepared = {a.name: aligned_empty(a.shape, a.dtype) for a in oracle.role("prepared")}
        arrays = {**{name: np.ascontiguousarray(a) for name, a in inputs.items()}, **placed, **prepared}
        slots = frame(oracle, arrays)
        for function in filter(None, (candidate.loaded.prepare, candidate.loaded.entry)):
            threads.launch(function, ctypes.addressof(slots), self._threads)
        answers = {name: arrays[name] for name in outputs}
        if size <= _CACHED_BYTES:
            cache.put(key, b"".join(raw(a).tobytes() for a in answers.values()))
        return answers

    # -- candidates ---------------------------------------------------------------------------------------

    def load(self, number: int, artifact: Artifact, tolerance: float | None) -> int:
        """Links a candidate's code. Returns the bytes of the constants of its calls. Raises ArtifactError."""
        candidate = LoadedCandidate.of(artifact, output_bounds(self.task.workload.dag, tolerance))
        self._candidates[number] = candidate
        return sum(a.bytes for a in candidate.rotating)

    def _prepared(self, number: int, question: Question) -> tuple[Held, str]:
        """The constants that a candidate's `prepare` makes, and a complaint if it made an error."""
        task, candidate = self.task, self._candidates[number]
        prepare = candidate.loaded.prepare
        if not prepare:
            return Held([]), ""
        artifact = candidate.artifact
        code, reads = artifact.prepared_by()
        own = any(name not in question.large.arrays for name in reads)
        key = (code or source_sha(artifact), id(question) if own else id(question.large))
        if key in task.prepared:
            task.prepared[key] = task.prepared.pop(key)  # now it is the latest
            return task.prepared[key], ""
        specs = artifact.role("prepared")
        made = Held(
            [Need(a.name, a.shape, dtype_of(a.dtype).numpy, read_only=True) for a in specs],
            changed="running changed the prepared constant",
        )
        made.trap()
        placed = {name: f.array for name, f in self._room.place(artifact, self._threads).items()}
        slots = frame(artifact, {**question.inputs, **placed, **made.arrays})
        with self._mark(number, "prepare"):
            threads.launch(prepare, ctypes.addressof(slots), self._threads)
        complaint = made.broken() or question.held.complaint()
        made.seal()
        if not complaint:
            task.prepared[key] = made
            while len(task.prepared) > 1 and sum(h.bytes for h in task.prepared.values()) > _PREPARED_BYTES:
                del task.prepared[next(iter(task.prepared))]
        return made, complaint

    def _constants(self, number: int) -> dict[str, Array]:
        """The constants that a candidate's calls read: given ones and prepared ones."""
        first = next(iter(self.task.questions.values()))
        return {**first.inputs, **self._prepared(number, first)[0].arrays}

    def forget(self) -> None:
        """Unloads all candidates."""
        self._candidates.clear()
        self._sampler.forget()

    def check(self, number: int, kind: str, seed: int, inexact: bool, limit_s: float) -> dict[str, Any]:
        """Runs once, between fences and traps. Returns the verdict, and the seconds that the run took.

        limit_s: this process ends if the run takes longer. inexact: the candidate's algorithm rounds
        differently, so its floats are compared with those of the float64 program.
        """
        candidate, question = self._candidates[number], self.task.questions[kind, seed]
        artifact, loaded = candidate.artifact, candidate.loaded
        prepared, complaint = self._prepared(number, question)
        placed = self._room.place(artifact, self._threads, question.shift)
        constants, kept = {a.name for a in artifact.role("constant")}, artifact.entry_constants()
        inputs = {n: a for n, a in question.inputs.items() if n not in constants or n in kept}
        arrays = {**inputs, **prepared.arrays, **{name: f.array for name, f in placed.items()}}
        slots = frame(artifact, arrays)
        with self._mark(number, "run"), within(limit_s):
            began = time.perf_counter()
            threads.launch(loaded.entry, ctypes.addressof(slots), self._threads)
            seconds = time.perf_counter() - began
        stray = next((c for f in placed.values() if (c := f.complaint())), "")
        spoiled, changed = question.held.complaint(), prepared.complaint()  # both calls restore the arrays
        complaint = complaint or stray or spoiled or changed
        found = self._verdict(question, arrays, candidate.bounds, complaint, seconds, inexact)
        if found["complaint"] and not complaint and not inexact and self._asked_anew(kind, seed):
            return self.check(number, kind, seed, inexact, limit_s)
        return found

    def _asked_anew(self, kind: str, seed: int) -> bool:
        """Replaces a question on whose inputs the oracle is not near enough to exact answers. Returns whether
        it did. A question on positive inputs is never replaced."""
        task, before = self.task, self.task.questions[kind, seed]
        if before.exact or before.kind == "positive":
            return False
        dag = task.workload.dag
        if fit_to_compare(dag, before.inputs, before.answers):
            return False
        question = self._question("positive", seed, exact=False)
        if not fit_to_compare(dag, question.inputs, question.answers):
            return False
        if before.wide is not None:
            assert task.wide is not None
            question.wide = self._oracle_answers(task.wide, question.inputs, question.kind, seed)
        question.before = before
        task.questions[kind, seed] = question
        return True

    def _verdict(
        self,
        question: Question,
        arrays: Mapping[str, Array],
        bounds: Mapping[str, float],
        complaint: str,
        seconds: float,
        inexact: bool,
    ) -> dict[str, Any]:
        """The answer to a check. `complaint` is an error other than wrong results."""
        exact = question.exact and not inexact
        if inexact:
            assert question.wide is not None
            verdict = _judge_wide(question.wide, question.answers, arrays, bounds)
        else:
            verdict = _judge(question.answers, arrays, bounds, exact)
        # either it is wrong, or terms cancel in the oracle's answer
        if verdict.complaint and not exact and not inexact:
            if question.terms is None:
                question.terms = sizes_of_terms(self.task.workload.dag, question.inputs)
            verdict = _judge(question.answers, arrays, bounds, exact, question.terms)
        return {
            "seconds": seconds,
            "error": verdict.error if math.isfinite(verdict.error) else None,
            "allowed": verdict.allowed,
            "complaint": complaint or verdict.complaint,
        }

    def sample(
        self,
        wanted: Sequence[tuple[int, int, float]],
        min_seconds: float,
        limit_s: float,
        calm_s: float | None,
    ) -> dict[str, Any]:
        """One sample of each candidate; see Sampler.sample."""
        task, dag = self.task, self.task.workload.dag
        activations = [b.name for b in dag.inputs if b.name not in dag.constants]
        if not task.hot:
            first = next(iter(task.questions.values())).inputs
            task.hot = {name: aligned_copy(first[name]) for name in activations}
            # at the addresses where a call of the kernel would place them
            made = result_arrays(((b.shape, b.dtype.numpy) for b in dag.outputs), task.hot.values())
            task.hot.update(zip((b.name for b in dag.outputs), made, strict=True))
        return self._sampler.sample(
            self._candidates,
            wanted,
            task.hot,
            [task.hot[name] for name in activations],
            self._constants,
            min_seconds=min_seconds,
            limit_s=limit_s,
            calm_s=calm_s,
            nthreads=self._threads,
            residency=self._residency,
        )


def _judge(
    answers: Mapping[str, Array],
    arrays: Mapping[str, Array],
    bounds: Mapping[str, float],
    exact: bool,
    terms: Mapping[str, float] = MappingProxyType({}),
) -> Verdict:
    """The worst verdict of all outputs."""
    found = {}
    for name, want in answers.items():
        verdict = compare(arrays[name], want, 0.0 if exact else bounds[name], terms.get(name, 0.0))
        # equal or not; the error is reported in the unit of the other outputs
        if exact and math.isfinite(bounds[name]):
            verdict = Verdict(verdict.error, bounds[name], verdict.complaint)
        found[name] = verdict
    return _worst(found)


def _judge_wide(
    wide: Mapping[str, Array],
    answers: Mapping[str, Array],
    arrays: Mapping[str, Array],
    bounds: Mapping[str, float],
) -> Verdict:
    """The same for an algorithm that rounds differently. Integers are compared as usual."""
    return _worst(
        {
            name: compare(arrays[name], want, bounds[name])
            if want.dtype.kind in "biu"
            else compare_wide(arrays[name], wide[name], bounds[name])
            for name, want in answers.items()
        }
    )


def _worst(verdicts: Mapping[str, Verdict]) -> Verdict:
    """The first verdict with a complaint, else the verdict nearest to its tolerance."""
    for name, v in verdicts.items():
        if v.complaint:
            return Verdict(v.error, v.allowed, f"output {name!r}: {v.complaint}")
    return max(verdicts.values(), key=lambda v: v.ratio)


def _finite_share(answers: Mapping[str, Array]) -> float:
    """The smallest share of finite elements among the outputs."""
    floats = [a.reshape(-1) for a in answers.values() if a.dtype.kind not in "biu" and a.size]
    counts = [sum(int(np.count_nonzero(np.isfinite(part))) for (part,) in stretches(a)) for a in floats]
    return min((n / a.size for n, a in zip(counts, floats, strict=True)), default=1.0)
