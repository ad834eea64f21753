"""Runs a model's kernels one after the other, each on the arrays that it gets in the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autotensor.api.models import ModelPlan
from autotensor.api.verifying.checked_kernels import Place, Step, overlap, place_of, steps_of, trial_of
from autotensor.api.verifying.failing_case import Case
from autotensor.api.verifying.float64_run import Wide
from autotensor.api.verifying.kernel_verdict import bits, judged, same_bits
from autotensor.api.verifying.recovered_constants import prepared_dag, preparing_dag, recovered
from autotensor.api.verifying.report import KernelCheck
from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArtifactError, TensorError
from autotensor.graph.ir import Constant
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.kernel_times import KernelClock
from autotensor.search.measuring.checks import compare, output_bounds
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.tolerance import scale
from tuning_db import TrialStore

Array = np.ndarray[Any, Any]

REPEATS = 3  # runs of every kernel; all results must have the same bits
POISON = 0xFF  # a NaN in every float type, -1 in integers


@dataclass(frozen=True, slots=True)
class _Answer:
    """A kernel's results for some arrays."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    exact: Mapping[str, Array]  # the reference's results, in float64
    error: float  # largest error, in units of the tolerance
    complaint: str
    beside: str


def _like(array: Array, rng: np.random.Generator) -> Array:
    """Random numbers of about the size and sign of the array's numbers. An array of integers, which may be
    indices, is returned unchanged."""
    if array.dtype.kind in "biu":
        return array
    with np.errstate(all="ignore"):
        values = array.astype(np.float64)
        values = values[np.isfinite(values)]
        middle, width = (float(values.mean()), float(values.std())) if values.size else (0.0, 0.0)
        drawn = middle + (width or 1.0) * rng.standard_normal(array.shape)
        is_positive = values.size > 0 and float(values.min()) >= 0
        made: Array = np.asarray(np.abs(drawn) if is_positive else drawn).astype(array.dtype)
    return made


@dataclass(slots=True)
class Run:
    """A model's kernels and memory, and the findings so far."""

    artifact: Artifact
    plan: ModelPlan | None
    arrays: list[Array]
    threads: int
    store: TrialStore | None
    drifts: bool  # whether to follow a float64 run
    case: Case | None = None  # the first wrong kernel
    clock: KernelClock = field(init=False)
    steps: list[Step] = field(init=False)
    wide: Wide | None = field(init=False)
    asked: set[str] = field(default_factory=set)  # symbols of kernels that ran on random arrays
    made: dict[tuple[int, Place], Array] = field(default_factory=dict)  # steps' results, until last read

    def __post_init__(self) -> None:
        self.steps = steps_of(self.artifact, self.store)
        self.clock = KernelClock(self.artifact, self.arrays, self.threads)
        self.wide = Wide(self.clock.memory) if self.drifts else None
        if self.wide is not None:
            for n, spec in enumerate(self.artifact.args):
                if spec.role == "input":
                    self.wide.view(spec, (n, 0))[...] = self.view(spec, (n, 0))

    def checks(self) -> list[KernelCheck]:
        return [self._check(step) for step in self.steps]

    def view(self, spec: ArgSpec, slot: tuple[int, int]) -> Array:
        """An argument of a kernel, in the model's memory."""
        raw = self.clock.memory[slot[0]].reshape(-1).view(np.uint8)[slot[1] : slot[1] + spec.bytes]
        return raw.view(dtype_of(spec.dtype).numpy).reshape(spec.shape)

    # -- one kernel ----------------------------------------------------------------------------------------

    def _check(self, step: Step) -> KernelCheck:
        own = {a.name: self.view(a, s).copy() for a, s in step.places("input")}
        overwritten = self._overwritten(step)
        drawn = [] if step.symbol in self.asked else self._ask_more(step, own)
        self.asked.add(step.symbol)
        answer = self._ask(step, own)  # runs last: the next kernels read its results in memory
        found = KernelCheck(
            number=step.number,
            name=step.name,
            workload=step.workload.key,
            error=max(a.error for a in (answer, *drawn)),
            complaint=overwritten or answer.complaint or self._misprepared(step),
            beside=answer.beside,
            drift=self._drift(step, answer.outputs),
            trial=trial_of(step, self.store),
            trace="" if step.trace is None else step.trace.to_python(),
        )
        shown = answer
        for other in drawn:
            if other.complaint and not found.complaint:
                found, shown = replace(found, complaint=f"on random arrays, {other.complaint}"), other
        if found.complaint and self.case is None:
            self.case = self._case(step, shown, found.trial)
        self._put_right(step, answer.exact if found.complaint else None)
        return found

    def _ask(self, step: Step, inputs: Mapping[str, Array]) -> _Answer:
        """The kernel's results for these arrays, and the expected ones.

        Raises TensorError, and runs nothing, if the kernel would read outside of an array.
        """
        self._place(step, inputs)
        read = {a.name: self.view(a, s).copy() for a, s in step.places("input")}
        dag, arrays, beside = self._question(step, read)
        exact = evaluate(dag, arrays, np.float64)
        outputs, complaint = self._run(step, read)
        verdict = judged(step, dag, arrays, outputs, exact)
        return _Answer(read, outputs, exact, verdict.ratio, verdict.complaint or complaint, beside)

    def _ask_more(self, step: Step, own: Mapping[str, Array]) -> list[_Answer]:
        """Judges the kernel on random arrays as well, because its own arrays may hold zeros that hide a
        mistake. Does nothing if random arrays would be indices out of bounds."""
        rng = np.random.default_rng([step.number, 1])
        try:
            return [self._ask(step, {name: _like(array, rng) for name, array in own.items()})]
        except TensorError:
            return []

    def _case(self, step: Step, answer: _Answer, trial: int | None) -> Case:
        read = [
            *step.places("prepared"),
            *(p for p in step.places("constant") if p[0].name in step.constants),
        ]
        return Case(
            model=self.artifact,
            symbol=step.symbol,
            name=step.name,
            args=step.args,
            inputs=answer.inputs,
            values={a.name: self.view(a, s) for a, s in read},
            wanted={a.name: answer.exact[a.name].reshape(a.shape) for a, _ in step.places("output")},
            constants=tuple(sorted(step.constants)),
            trial=trial,
        )

    def _run(self, step: Step, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], str]:
        """The kernel's results, and a complaint about races and about writes outside of the results."""
        writes = [place_of(a, s) for a, s in step.places("output", "workspace") if not a.per_thread]
        self._place(step, inputs)
        before = {n: self.clock.memory[n].reshape(-1).view(np.uint8).copy() for n in self._writable()}
        results: list[dict[str, Array]] = []
        complaint = ""
        for _ in range(REPEATS):
            self._place(step, inputs)
            self.clock.launch(step.number)
            results.append({a.name: self.view(a, s).copy() for a, s in step.places("output")})
        for name, first in results[0].items():
            other = next((r[name] for r in results[1:] if not same_bits(first, r[name])), None)
            if other is not None:
                count = int((bits(first) != bits(other)).any(axis=-1).sum())
                complaint = f"output {name!r}: run again on the same arrays, it gives {count} other elements"
        for n, old in before.items():
            now = self.clock.memory[n].reshape(-1).view(np.uint8)
            changed = now != old
            for arg, start, stop in writes:
                if arg == n:
                    changed[start:stop] = False
            if changed.any():
                at = int(changed.argmax())
                where = self.artifact.args[n].name
                complaint = f"it writes to byte {at} of {where}, where none of its results or workspaces lies"
                now[changed] = old[changed]
        return results[0], complaint

    def _writable(self) -> list[int]:
        return [
            n
            for n, a in enumerate(self.artifact.args)
            if a.role in ("input", "output") or (a.role == "workspace" and not a.per_thread)
        ]

    def _place(self, step: Step, inputs: Mapping[str, Array]) -> None:
        """Fills the memory of the kernel's results; then restores its inputs, which may share this memory."""
        for spec, slot in step.places("output", "workspace"):
            if spec.per_thread:
                self.clock.memory[slot[0]].reshape(-1).view(np.uint8)[...] = POISON
            else:
                self.view(spec, slot).reshape(-1).view(np.uint8)[...] = POISON
        for spec, slot in step.places("input"):
            if self.clock.memory[slot[0]].flags.writeable:
                self.view(spec, slot)[...] = inputs[spec.name]

    def _overwritten(self, step: Step) -> str:
        """A complaint if an input of the kernel was overwritten after another kernel made it; else ""."""
        complaint = ""
        for spec, slot in step.places("input"):
            maker = step.reads.get(spec.name)
            if maker is None:
                continue
            here = place_of(spec, slot)
            for (by, place), written in self.made.items():
                if by != maker or not overlap(place, here):
                    continue
                part = written[here[1] - place[1] : here[2] - place[1]]
                if part.size == spec.bytes and not np.array_equal(part, self._raw(here)):
                    complaint = (
                        f"input {spec.name!r}: kernel {self._culprit(maker, step.number, here)} has "
                        "written over it since it was made"
                    )
        return complaint

    def _culprit(self, after: int, before: int, place: Place) -> str:
        """The last kernel between two that may write to a place."""
        for step in reversed(self.steps[after + 1 : before]):
            if any(overlap(place_of(a, s), place) for a, s in step.places("output", "workspace")):
                return f"{step.number}, {step.name},"
        return f"{after}, {self.steps[after].name},"

    def _raw(self, place: Place) -> Array:
        return self.clock.memory[place[0]].reshape(-1).view(np.uint8)[place[1] : place[2]]

    def _put_right(self, step: Step, exact: Mapping[str, Array] | None) -> None:
        """Writes the reference's results over those of a wrong kernel. Keeps results up to the last read."""
        for spec, slot in step.places("output"):
            if exact is not None:
                with np.errstate(all="ignore"):
                    self.view(spec, slot)[...] = exact[spec.name].reshape(spec.shape)
            self.made[step.number, place_of(spec, slot)] = self._raw(place_of(spec, slot)).copy()
        needed = {maker for later in self.steps[step.number + 1 :] for maker in later.reads.values()}
        self.made = {key: kept for key, kept in self.made.items() if key[0] in needed}

    # -- what it should compute ----------------------------------------------------------------------------

    def _question(self, step: Step, inputs: Mapping[str, Array]) -> tuple[ComputeDAG, dict[str, Array], str]:
        """The kernel's computation, the arrays it reads, and the reference."""
        dag = step.dag
        arrays = {**inputs, **self._known(step)}
        missing = [b.name for b in dag.inputs if b.name not in arrays]
        if not missing:
            return dag, arrays, "float64"
        prepared = {a.name: self.view(a, s) for a, s in step.places("prepared")}
        if step.trace is None:
            raise ArtifactError(
                f"{self.artifact.name}: kernel {step.name!r} has constants that only its schedule could "
                "tell, and the file keeps none.",
                fix="Compile it again, or give the model it was made from: --against FILE.onnx.",
            )
        state = step.trace.replay(step.workload.dag)
        found = recovered(state, prepared, missing)
        if found is not None:
            return dag, arrays | found, "float64"
        return step.in_call(prepared_dag(state)), arrays | prepared, "float64, from prepared constants"

    def _misprepared(self, step: Step) -> str:
        """A complaint if weights were prepared wrongly; "" if they are right or their originals unknown."""
        dag = None if step.trace is None else preparing_dag(step.trace.replay(step.workload.dag))
        known = self._known(step)
        if dag is None or any(b.name not in known for b in dag.inputs):
            return ""
        exact = evaluate(dag, known, np.float64)
        bounds = output_bounds(dag)
        for spec, slot in step.places("prepared"):
            if spec.name in bounds:
                want = exact[spec.name].reshape(spec.shape)
                verdict = compare(self.view(spec, slot), want, bounds[spec.name])
                if verdict.complaint:
                    return f"its weights were prepared wrongly, {spec.name!r}: {verdict.complaint}"
        return ""

    def _known(self, step: Step) -> dict[str, Array]:
        """The constants before they are prepared, from the plan or from the file."""
        if self.plan is not None and self._is_of_plan(step, self.plan):
            group = self.plan.groups[step.number]
            shapes = {b.name: b.shape for b in group.workload.dag.inputs}
            bound = zip(group.arg_names, group.inputs, strict=False)
            return {n: x.array.reshape(shapes[n]) for n, x in bound if isinstance(x, Constant)}
        there = {n for n, a in enumerate(self.artifact.args) if a.name in self.artifact.values}
        return {a.name: self.view(a, s) for a, s in step.places("constant") if s[0] in there}

    def _is_of_plan(self, step: Step, plan: ModelPlan) -> bool:
        """Whether the plan has the same step at the same index."""
        return len(plan.groups) == len(self.steps) and plan.groups[step.number].workload == step.workload

    # -- the whole -----------------------------------------------------------------------------------------

    def _drift(self, step: Step, outputs: Mapping[str, Array]) -> float | None:
        """The largest difference between the kernel's results and those of a float64 run of the model so far,
        relative to the largest element; None without such a run."""
        if self.wide is None:
            return None
        wide = {a.name: self.wide.view(a, s).copy() for a, s in step.places("input")}
        dag, arrays, _ = self._question(step, wide)
        exact = evaluate(dag, arrays, np.float64)
        worst = 0.0
        for spec, slot in step.places("output"):
            values = exact[spec.name].reshape(spec.shape)
            self.wide.view(spec, slot)[...] = values
            if values.dtype.kind == "f" and values.size:
                finite = np.isfinite(values)
                largest = scale(values[finite])
                with np.errstate(all="ignore"):
                    apart = np.abs(outputs[spec.name].reshape(spec.shape).astype(np.float64) - values)[finite]
                worst = max(worst, float(apart.max(initial=0.0)) / largest if largest else 0.0)
        return worst

    def results(self) -> list[Array]:
        """The model's results from running its kernels one by one."""
        return [m for m, a in zip(self.clock.memory, self.artifact.args, strict=True) if a.role == "output"]

    def as_a_whole(self, whole: Any) -> list[str]:
        """Results that have other bits when the model runs as a whole."""
        together = whole if isinstance(whole, tuple) else (whole,)
        names = [a.name for a in self.artifact.args if a.role == "output"]
        return [
            f"result {name!r} has other bits when the model runs as a whole than kernel by kernel: its "
            "kernels do not wait for each other where they must"
            for name, a, b in zip(names, self.results(), together, strict=True)
            if not same_bits(a, b)
        ]
