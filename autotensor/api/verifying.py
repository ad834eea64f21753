"""Where a number went wrong: a model run kernel by kernel, each beside a float64 reference of its own.

    inputs ─▶ kernel 0 ─▶ kernel 1 ─▶ kernel 2 ─▶ …       the model's own code, on the model's own memory
                 │           │           │
              float64     float64     float64             its computation by NumPy, on what this kernel read
                 ▼           ▼           ▼
               right       wrong       right              kernel 1 is named, and not those after it

Every element of every result is looked at. What a kernel must write is filled with NaN before, so that what
it leaves out is seen; all other memory must stay as it was; a kernel that gives other bits when it is run
again has a race. After a wrong kernel its results are put right, so that the next one is asked a fair
question. Last, the model runs as a whole and must give the bits that its kernels gave one by one.

Start reading at `verify`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.api.log import Log, open_existing
from autotensor.api.models import ModelPlan, as_graph, link_model, plan_model, resolved
from autotensor.api.verify_case import Case, write_case
from autotensor.api.verify_constants import prepared_dag, preparing_dag, recovered
from autotensor.api.verify_steps import Place, Step, as_model, overlap, place_of, steps_of, trial_of
from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArtifactError, AutotensorError, InputError, TensorError
from autotensor.graph.ir import Constant, Graph, GraphNode
from autotensor.runtime import artifact as artifacts
from autotensor.runtime.artifact import ArgSpec, Artifact
from autotensor.runtime.kernel_times import KernelClock
from autotensor.runtime.module import Module
from autotensor.runtime.samples import sample_inputs
from autotensor.schedule.algorithm import algorithm_tolerance
from autotensor.search.checks import Verdict, compare, compare_wide, output_bounds
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate
from autotensor.te.tolerance import coarsest_rounding, scale, term_sizes
from tuning_db import TrialStore

Array = np.ndarray[Any, Any]

REPEATS = 3  # runs of every kernel; results of all must be the same bits
POISON = 0xFF  # a NaN in every float type, -1 in integers
ROUNDING_ROOM = 10.0  # times the error of our own rounding that another program's may be away from ours
LEAST_ROOM = 1e-6  # of the largest element: where our own error happens to be nothing


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """What came out for one kernel of a model."""

    number: int  # in the order in which they run
    name: str
    workload: str  # key; "" if not known
    error: float  # the largest of all elements, in units of what is allowed
    complaint: str = ""  # empty: it is right
    beside: str = "float64"  # what it was compared with
    drift: float | None = None  # of its result from that of a whole run in float64, over its largest element
    trial: int | None = None  # of the log, that found its schedule
    trace: str = ""  # the calls of its schedule

    @property
    def is_right(self) -> bool:
        return not self.complaint


@dataclass(frozen=True, slots=True)
class Report:
    """All kernels of a model, and the model as a whole."""

    model: str
    kernels: tuple[KernelCheck, ...]
    complaints: tuple[str, ...]  # about the whole, not about one kernel
    seconds: float
    script: Path | None = None  # shows the first wrong kernel

    @property
    def first(self) -> KernelCheck | None:
        """The first kernel that differs."""
        return next((k for k in self.kernels if not k.is_right), None)

    @property
    def is_right(self) -> bool:
        return self.first is None and not self.complaints

    def __str__(self) -> str:
        if self.first is not None:
            first = self.first
            return f"{self.model}: kernel {first.number}, {first.name}, is wrong: {first.complaint}"
        if self.complaints:
            return f"{self.model}: {self.complaints[0]}"
        return f"{self.model}: all {len(self.kernels)} kernels are right ({self.seconds:.0f} s)."


def verify(
    model: Module | Graph | GraphNode | Sequence[GraphNode] | str | Path,
    against: str | Path | Graph | None = None,
    *,
    inputs: Sequence[Array] | None = None,
    seed: int = 0,
    threads: int | None = None,
    target: str | None = None,
    db: Log = None,
    script: str | Path | None = None,
) -> Report:
    """Runs a model kernel by kernel beside its references; says which is the first that differs.

    model: a compiled function, the path of an `.atm` or `.onnx` file, or a graph, which is compiled first
    with what the log knows.
    against: "float64" follows rounding through the whole model as well; an `.onnx` file, or a graph, gives
    the weights as they were before they were prepared, and the file's results by another program.
    inputs: of the model; random ones of `seed` else. script: where to write a script, with its data beside
    it, that shows the first wrong kernel.
    Raises ArtifactError for files that cannot be loaded, are for another processor, or tell too little.
    """
    with open_existing(db) as store:
        artifact, plan = _compiled(model, target, store)
        onnx = against if isinstance(against, str | Path) and str(against) != "float64" else None
        if isinstance(against, Graph):
            plan = plan_model(against, artifact.target)
        elif onnx is not None:
            plan = plan_model(_onnx_graph(onnx), artifact.target)
        return check(
            artifact,
            plan,
            inputs=inputs,
            seed=seed,
            threads=threads,
            drift=against is not None,
            onnx=onnx,
            store=store,
            script=None if script is None else Path(script),
        )


def _compiled(
    model: Module | Graph | GraphNode | Sequence[GraphNode] | str | Path,
    target: str | None,
    store: TrialStore | None,
) -> tuple[Artifact, ModelPlan | None]:
    """The code of a model, and what it was made from if that is known."""
    if isinstance(model, Module):
        return replace(model.artifact, values=model._values), None
    if isinstance(model, str | Path):
        if not str(model).endswith(".onnx"):
            return loaded(Path(model)), None
        model = _onnx_graph(model)
    if not isinstance(model, Graph | GraphNode | tuple | list):
        raise InputError(
            f"a {type(model).__name__} cannot be verified kernel by kernel.",
            fix="Give a compiled model for CPUs, a graph, or the path of an .atm or .onnx file.",
        )
    plan = plan_model(as_graph(model), target)
    return link_model(plan, {key: r.trace for key, r in resolved(plan, store).items()}), plan


def loaded(path: Path) -> Artifact:
    found = artifacts.load_all(path)
    if len(found) != 1:
        raise InputError(
            f"{path} holds {len(found)} compiled functions, one for each shape; one is verified at a time.",
            fix="Save the one in question alone: at.compile_model(...).save(...).",
        )
    return found[0]


def _onnx_graph(path: str | Path) -> Graph:
    from autotensor.api.onnx_models import from_onnx

    return from_onnx(path)


def check(
    artifact: Artifact,
    plan: ModelPlan | None = None,
    *,
    inputs: Sequence[Array] | None = None,
    seed: int = 0,
    threads: int | None = None,
    drift: bool = False,
    onnx: str | Path | None = None,
    store: TrialStore | None = None,
    script: Path | None = None,
) -> Report:
    """`verify` for code that is at hand. plan: what it was made from, for weights as they were given."""
    began = time.monotonic()
    if artifact.target.kind != "llvm":
        raise ArtifactError(
            f"{artifact.name} is compiled for {artifact.target.kind!r}; kernels are verified on CPUs.",
            fix="Compile the model for this processor to see whether its graph is right.",
        )
    module = Module(artifact, threads=threads)
    arrays = list(inputs) if inputs is not None else _samples(module, seed)
    whole = module(*(a.copy() for a in arrays))
    if artifact.role("constant", "prepared") and module._prepare_each_call:
        module = module.bind(**_constants_of(module, arrays))
        arrays = [a for a, s in zip(arrays, artifact.args, strict=False) if s.role == "input"]
    run = _Run(
        as_model(replace(artifact, values=module._values)),
        plan,
        arrays,
        module.threads,
        store,
        drift or onnx is not None,
    )
    checks = run.checks()
    first = next((c for c in checks if not c.is_right), None)
    complaints = [] if first is not None else run.as_a_whole(whole)
    if onnx is not None and first is None:
        complaints += run.beside_onnx(onnx, arrays, whole)
    if first is not None and script is not None and run.case is not None:
        write_case(script, run.case, first.complaint, module.threads)
    return Report(
        artifact.name,
        tuple(checks),
        tuple(complaints),
        time.monotonic() - began,
        script if first is not None and run.case is not None else None,
    )


def _samples(module: Module, seed: int) -> list[Array]:
    return list(sample_inputs(module.args, module.artifact.index_range, seed))


def _constants_of(module: Module, arrays: Sequence[Array]) -> dict[str, Array]:
    given = zip((a for a in module.args if a.role != "output"), arrays, strict=False)
    return {a.name: array for a, array in given if a.role == "constant"}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a kernel made of some arrays."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    exact: Mapping[str, Array]  # the reference's results, in float64
    error: float  # in units of what is allowed
    complaint: str
    beside: str


def _like(array: Array, rng: np.random.Generator) -> Array:
    """Random numbers of the size and sign of an array's; integers, which may be indices, are its own."""
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
class _Run:
    """A model's kernels and memory, and what has been seen of them so far."""

    artifact: Artifact
    plan: ModelPlan | None
    arrays: list[Array]
    threads: int
    store: TrialStore | None
    drifts: bool  # whether to follow a float64 run
    case: Case | None = None  # of the first wrong kernel
    clock: KernelClock = field(init=False)
    steps: list[Step] = field(init=False)
    wide: _Wide | None = field(init=False)
    asked: set[str] = field(default_factory=set)  # symbols of kernels that have met random arrays
    made: dict[tuple[int, Place], Array] = field(default_factory=dict)  # what steps wrote, until read last

    def __post_init__(self) -> None:
        self.steps = steps_of(self.artifact, self.store)
        self.clock = KernelClock(self.artifact, self.arrays, self.threads)
        self.wide = _Wide(self.clock.memory) if self.drifts else None
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
        answer = self._ask(step, own)  # last, for the next kernels read what it leaves in memory
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
        """What the kernel makes of these arrays, beside what it should.

        Raises TensorError, and runs nothing, for arrays with which it would read outside of others.
        """
        self._place(step, inputs)
        read = {a.name: self.view(a, s).copy() for a, s in step.places("input")}
        dag, arrays, beside = self._question(step, read)
        exact = evaluate(dag, arrays, np.float64)
        outputs, complaint = self._run(step, read)
        verdict = _judged(step, dag, arrays, outputs, exact)
        return _Answer(read, outputs, exact, verdict.ratio, verdict.complaint or complaint, beside)

    def _ask_more(self, step: Step, own: Mapping[str, Array]) -> list[_Answer]:
        """The same of random arrays of the size of its own, which may hold zeros that hide a mistake. Nothing
        where these would be indices outside."""
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
        """The kernel's results, and what it did wrong besides."""
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
            other = next((r[name] for r in results[1:] if not _same_bits(first, r[name])), None)
            if other is not None:
                count = int((_bits(first) != _bits(other)).any(axis=-1).sum())
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
        """Fills what the kernel writes; then its inputs are what they were, those in the same bytes too."""
        for spec, slot in step.places("output", "workspace"):
            if spec.per_thread:
                self.clock.memory[slot[0]].reshape(-1).view(np.uint8)[...] = POISON
            else:
                self.view(spec, slot).reshape(-1).view(np.uint8)[...] = POISON
        for spec, slot in step.places("input"):
            if self.clock.memory[slot[0]].flags.writeable:
                self.view(spec, slot)[...] = inputs[spec.name]

    def _overwritten(self, step: Step) -> str:
        """Whether what the kernel reads is no longer what was written there for it."""
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
        """Writes the reference's results over those of a wrong kernel; keeps all until they are read last."""
        for spec, slot in step.places("output"):
            if exact is not None:
                with np.errstate(all="ignore"):
                    self.view(spec, slot)[...] = exact[spec.name].reshape(spec.shape)
            self.made[step.number, place_of(spec, slot)] = self._raw(place_of(spec, slot)).copy()
        needed = {maker for later in self.steps[step.number + 1 :] for maker in later.reads.values()}
        self.made = {key: kept for key, kept in self.made.items() if key[0] in needed}

    # -- what it should compute ----------------------------------------------------------------------------

    def _question(self, step: Step, inputs: Mapping[str, Array]) -> tuple[ComputeDAG, dict[str, Array], str]:
        """What the kernel is to compute, from which arrays, and what that is compared with."""
        dag = step.workload.dag
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
        state = step.trace.replay(dag)
        found = recovered(state, prepared, missing)
        if found is not None:
            return dag, arrays | found, "float64"
        return prepared_dag(state), arrays | prepared, "float64, from prepared constants"

    def _misprepared(self, step: Step) -> str:
        """Whether weights that are known as they were given have been prepared wrongly."""
        if self.plan is None or step.trace is None or not self._is_of_plan(step, self.plan):
            return ""
        dag = preparing_dag(step.trace.replay(step.workload.dag))
        if dag is None:
            return ""
        exact = evaluate(dag, self._known(step), np.float64)
        bounds = output_bounds(dag)
        for spec, slot in step.places("prepared"):
            if spec.name in exact:
                want = exact[spec.name].reshape(spec.shape)
                verdict = compare(self.view(spec, slot), want, bounds[spec.name])
                if verdict.complaint:
                    return f"its weights were prepared wrongly, {spec.name!r}: {verdict.complaint}"
        return ""

    def _known(self, step: Step) -> dict[str, Array]:
        """Constants as they were given: of the plan, or kept in the file."""
        if self.plan is not None and self._is_of_plan(step, self.plan):
            group = self.plan.groups[step.number]
            shapes = {b.name: b.shape for b in group.workload.dag.inputs}
            bound = zip(group.arg_names, group.inputs, strict=False)
            return {n: x.array.reshape(shapes[n]) for n, x in bound if isinstance(x, Constant)}
        return {a.name: self.view(a, s) for a, s in step.places("constant") if a.name in step.constants}

    def _is_of_plan(self, step: Step, plan: ModelPlan) -> bool:
        """Whether the plan has this step, in this place."""
        return len(plan.groups) == len(self.steps) and plan.groups[step.number].workload == step.workload

    # -- the whole -----------------------------------------------------------------------------------------

    def _drift(self, step: Step, outputs: Mapping[str, Array]) -> float | None:
        """How far the kernel's results are from those of a float64 run of the model so far."""
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
        """The model's results, as its kernels gave them one by one."""
        return [m for m, a in zip(self.clock.memory, self.artifact.args, strict=True) if a.role == "output"]

    def as_a_whole(self, whole: Any) -> list[str]:
        """What differs when the model runs as one piece."""
        together = whole if isinstance(whole, tuple) else (whole,)
        names = [a.name for a in self.artifact.args if a.role == "output"]
        return [
            f"result {name!r} has other bits when the model runs as a whole than kernel by kernel: its "
            "kernels do not wait for each other where they must"
            for name, a, b in zip(names, self.results(), together, strict=True)
            if not _same_bits(a, b)
        ]

    def beside_onnx(self, path: str | Path, arrays: Sequence[Array], whole: Any) -> list[str]:
        """What differs from what another program makes of the ONNX file."""
        from autotensor.api.verify_onnx import onnx_results

        assert self.wide is not None
        who, theirs = onnx_results(path, arrays)
        ours = whole if isinstance(whole, tuple) else (whole,)
        found = []
        places = [(n, a) for n, a in enumerate(self.artifact.args) if a.role == "output"]
        if len(theirs) != len(places):
            return [f"{who} gives {len(theirs)} results for {path}, {self.artifact.name} has {len(places)}"]
        for (n, spec), mine, other in zip(places, ours, theirs, strict=True):
            if mine.shape != other.shape:
                found.append(
                    f"result {spec.name!r} has shape {mine.shape}; {who} gives {other.shape} for {path}"
                )
                continue
            if mine.dtype.kind != "f":
                if not np.array_equal(mine, other):
                    found.append(f"result {spec.name!r} differs from what {who} gives for {path}")
                continue
            exact = self.wide.view(spec, (n, 0))
            rounding = compare_wide(mine, exact, 1.0).error
            allowed = ROUNDING_ROOM * max(rounding, LEAST_ROOM)
            verdict = compare_wide(mine, other, allowed)
            if verdict.complaint:
                found.append(
                    f"result {spec.name!r} differs from what {who} gives for {path}: {verdict.complaint}"
                )
        return found


def _judged(
    step: Step,
    dag: ComputeDAG,
    arrays: Mapping[str, Array],
    outputs: Mapping[str, Array],
    exact: Mapping[str, Array],
) -> Verdict:
    """The worst of a kernel's results, by the rules of the search."""
    own = None if step.trace is None else _algorithm_tolerance(step)
    bounds = output_bounds(step.workload.dag, own)
    worst = Verdict(0.0, 0.0)
    for spec, _ in step.places("output"):
        got, want = outputs[spec.name], exact[spec.name].reshape(spec.shape)
        if own is not None and got.dtype.kind not in "biu":
            verdict = compare_wide(got, want, own)
        else:
            verdict = compare(got, want, bounds[spec.name])
            terms = 0.0
            if verdict.complaint and np.isfinite(verdict.error):  # perhaps its terms cancel
                terms = term_sizes(dag, arrays).get(spec.name, 0.0)
                verdict = compare(got, want, bounds[spec.name], terms)
            if verdict.complaint and want.dtype.kind == "f":  # perhaps it magnifies roundings, as sin(100 x)
                near = _nearest(got, want, _swing(dag, arrays, exact)[spec.name].reshape(spec.shape))
                verdict = compare(got, near, bounds[spec.name], terms)
        if verdict.complaint:
            return replace(verdict, complaint=f"output {spec.name!r}: {verdict.complaint}")
        if verdict.ratio >= worst.ratio:
            worst = verdict
    return worst


SWINGS = 8  # of inputs, by one rounding each; the chance that none shows how a result swings is tiny
SWING_ROOM = 8.0  # a kernel rounds more often than once: as many times as `te.tolerance` allows a body


def _swing(dag: ComputeDAG, arrays: Mapping[str, Array], exact: Mapping[str, Array]) -> dict[str, Array]:
    """How far each element goes when every number that is read is moved by one rounding, at random."""
    eps, rng = coarsest_rounding(dag), np.random.default_rng(0)
    found = {b.name: np.zeros(exact[b.name].shape) for b in dag.outputs}
    wide = {n: a.astype(np.float64) if a.dtype.kind not in "biu" else a for n, a in arrays.items()}
    for _ in range(SWINGS):
        moved = {
            n: a * (1.0 + eps * rng.choice((-1.0, 1.0), a.shape)) if a.dtype.kind == "f" else a
            for n, a in wide.items()
        }
        for name, values in evaluate(dag, moved, np.float64).items():
            if name in found:
                with np.errstate(all="ignore"):
                    apart = np.abs(values.astype(np.float64) - exact[name].astype(np.float64))
                found[name] = np.fmax(found[name], apart)
    return {name: SWING_ROOM * far for name, far in found.items()}


def _nearest(got: Array, want: Array, far: Array) -> Array:
    """What is nearest to a result and no farther from the wanted one than it swings."""
    with np.errstate(all="ignore"):
        moved = want + np.clip(got.astype(np.float64) - want, -far, far)
    return np.where(np.isfinite(moved), moved, want)


def _algorithm_tolerance(step: Step) -> float | None:
    try:
        return None if step.trace is None else algorithm_tolerance(step.trace)
    except AutotensorError:  # an algorithm of a plug-in that is not here
        return None


class _Wide:
    """The model's memory in float64: an element at byte b of an array is at byte 4·b here."""

    SPREAD = 4  # an element of two bytes takes eight

    def __init__(self, memory: Sequence[Array]) -> None:
        self.sizes = [m.nbytes for m in memory]
        self.memory: dict[int, Array] = {}

    def view(self, spec: ArgSpec, slot: tuple[int, int]) -> Array:
        arg, offset = slot
        kind = dtype_of(spec.dtype)
        if arg not in self.memory:
            self.memory[arg] = np.zeros(self.SPREAD * self.sizes[arg] + 8, np.uint8)
        strides = []
        step = self.SPREAD * kind.bytes
        for n in reversed(spec.shape):
            strides.append(step)
            step *= n
        wide = np.dtype(np.float64) if kind.is_float else kind.numpy
        return np.ndarray(spec.shape, wide, self.memory[arg], self.SPREAD * offset, tuple(reversed(strides)))


def _bits(a: Array) -> Array:
    """[elements, bytes of one]"""
    return np.ascontiguousarray(a).reshape(-1, 1).view(np.uint8)


def _same_bits(a: Array, b: Array) -> bool:
    return bool(np.array_equal(_bits(a), _bits(b)))


__all__ = ["KernelCheck", "Report", "check", "verify"]
