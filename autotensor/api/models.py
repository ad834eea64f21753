"""Whole models: a graph becomes groups, groups become tasks, winners are linked into one function.

    graph ─optimize─▶ groups ─tasks─▶ traces (log or default) ─compile, link─▶ Module

The functions that compile a model for a user are in model_compiling.py, those that tune it in
model_tuning.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotensor.api.log import Log, open_existing
from autotensor.base import log
from autotensor.base.counted import counted
from autotensor.base.errors import ArtifactError, InputError, TargetError
from autotensor.base.source_hash import source_digest
from autotensor.base.target import GPU_KINDS, HALVES, Target, parse
from autotensor.codegen.c.resources import refuse_unfit
from autotensor.compiler import made_of
from autotensor.compiling.compile_jobs import Job, compile_jobs
from autotensor.graph.groups import Group, group_of
from autotensor.graph.in_place_values import overlapping_arguments, updating_groups
from autotensor.graph.ir import Apply, Graph, GraphNode
from autotensor.graph.joined_groups import joined
from autotensor.graph.linking.link_groups import link
from autotensor.graph.partition import KernelTask, own_outputs, partition
from autotensor.graph.partition import tasks as tasks_of
from autotensor.graph.rules import GPU_PASSES, OPEN_PASSES, PASSES, Pass, optimize_for
from autotensor.graph.symbols.find_quotients import sampled
from autotensor.graph.symbols.followed_constants import with_formulas
from autotensor.graph.symbols.generalise import Cut, OpenLayout, UnknownExtent, check_others, generalised
from autotensor.graph.symbols.graph_families import GraphFamily
from autotensor.graph.symbols.open_graphs import OpenGraph
from autotensor.graph.symbols.samples import Samples
from autotensor.resolve import Metric, Resolved, median_s, resolve, safe_default
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import default_cache, object_key
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.provenance import version_here
from autotensor.search.task import Task
from autotensor.te.tensor import Tensor
from autotensor.te.workload import Workload
from schedules.bfloat16_gain import pays_in_bfloat16
from schedules.generate import is_one_nest
from tuning_db import TrialStore

LINKED = ("llvm", *GPU_KINDS)  # kinds of targets for which models are linked


@dataclass(frozen=True)
class ModelPlan:
    """A model cut into groups; `tasks` are the distinct computations among them."""

    graph: Graph
    groups: tuple[Group, ...]
    tasks: tuple[KernelTask, ...]
    target: Target
    # entries of the artifact's meta, e.g. the origin of the weights
    facts: Mapping[str, Any] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)  # outputs that are written over inputs, by name
    opened: OpenLayout | None = None  # for a model whose extents are known only at run time

    def __repr__(self) -> str:
        groups, tasks = counted(len(self.groups), "group"), counted(len(self.tasks), "task")
        return f"ModelPlan({self.graph.name}: {groups}, {tasks}; {self.target.key()})"

    def search_tasks(self, inside: Mapping[str, float] | None = None) -> list[Task]:
        """The tasks to search, at the greatest values of run-time extents.

        inside: seconds of all runs of each workload in one inference.
        """
        known = inside or {}
        return [
            Task(t.workload.at_greatest, self.target, float(t.weight), t.name, known.get(t.workload.key))
            for t in self.tasks
        ]


def plan_model(
    model: Graph | GraphFamily | OpenGraph | GraphNode | Sequence[GraphNode],
    target: str | Target | None = None,
    name: str = "model",
    updates: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> ModelPlan:
    """Optimises a graph and cuts it into groups.

    updates: outputs that are to be written over inputs, by name; the model then changes these arguments.
    facts: further entries for the compiled file's meta.
    `plan.tasks` are the distinct kernels, by the order in which they run. Raises as `compile_model` does.
    """
    chosen = check_target(parse(target))
    model = ready_model(model)
    if isinstance(model, OpenGraph) and model.is_bounded:
        model = model.family(model.shapes)
    if isinstance(model, GraphFamily):
        return _plan_family(model, chosen, dict(facts or {}))
    graph = as_graph(model, name)
    if updates:
        ready, groups = updating_groups(_ready(graph, chosen), updates)
    else:
        ready, groups = _cut(graph, chosen, lambda w: is_one_nest(w.dag, chosen))
    return ModelPlan(ready, groups, tasks_of(groups), chosen, dict(facts or {}), dict(updates or {}))


def _plan_family(family: GraphFamily, target: Target, facts: Mapping[str, Any]) -> ModelPlan:
    """One plan for all numbers of a family's symbols."""
    if target.kind != "llvm":
        raise TargetError(
            f"target {target.kind!r} takes shapes that are numbers; those of model {family.name!r} are known "
            "at run time.",
            fix="Compile it for a CPU, or the graph of one choice: family.at({…}).",
        )
    try:
        return _plan_samples(family, target, facts)
    except UnknownExtent:  # of a kernel, because nodes with such extents have wide samples
        return _plan_samples(family, target, facts, wide=True)


def _plan_samples(
    family: GraphFamily, target: Target, facts: Mapping[str, Any], wide: bool = False
) -> ModelPlan:
    """The plan that follows from samples, which lie apart if they must or if `wide`."""
    decided: list[bool] = []  # decisions at the greatest extents, repeated for all other extents

    def decide(workload: Workload) -> bool:
        decided.append(is_one_nest(workload.dag, target))
        return decided[-1]

    family, samples, graphs = sampled(family, wide)
    first, *others = with_formulas(graphs)
    cuts = {0: _cut(first, target, decide, OPEN_PASSES)}

    def joined_cuts(some: Samples, numbers: Sequence[int]) -> tuple[tuple[Group, ...], OpenLayout]:
        for n in numbers:
            if n not in cuts:
                cuts[n] = _cut(others[n - 1], target, _repeated(decided), OPEN_PASSES)
        return generalised(family.name, some, [cuts[n] for n in numbers])

    few, numbers = samples.few()
    try:
        groups, opened = joined_cuts(few, numbers)
    except UnknownExtent:
        groups, opened = joined_cuts(samples, range(len(graphs)))
    check_others(family, samples, graphs, opened)
    return ModelPlan(cuts[0][0], groups, tasks_of(groups), target, facts, opened=opened)


def _repeated(decided: Sequence[bool]) -> Callable[[Workload], bool]:
    """Repeats earlier decisions in the same order."""
    again = iter(decided)
    return lambda _: next(again, False)


def _ready(graph: Graph, target: Target, passes: tuple[Pass, ...] | None = None) -> Graph:
    chosen = passes or (GPU_PASSES if target.is_gpu else PASSES)

    def pays(product: Apply) -> bool:
        return pays_in_bfloat16(group_of((product,), rounded=False).workload.dag, target)

    return own_outputs(optimize_for(target.numerics, graph, chosen, pays, target.keep_float32))


def _cut(
    graph: Graph,
    target: Target,
    is_worth_it: Callable[[Workload], bool],
    passes: tuple[Pass, ...] | None = None,
) -> Cut:
    """The graph after the passes, and its groups. is_worth_it: says whether a workload should be one
    kernel."""
    ready = _ready(graph, target, passes)
    groups = partition(ready, windows=not target.is_gpu)
    if target.kind == "llvm":  # joined groups compute blocks of rows, which fit into a core's caches
        groups = joined(ready, groups, is_worth_it)
    return ready, groups


def check_target(target: Target) -> Target:
    """The target, if it runs whole models. Raises TargetError."""
    if target.kind not in LINKED:
        raise TargetError(
            f"target {target.kind!r} cannot run whole models.",
            fix=f"Take one of {', '.join(LINKED)}; single kernels are compiled by at.build.",
        )
    if target.is_gpu and target.numerics in HALVES:
        raise TargetError(
            f"numerics {target.numerics!r} are of processors, and the target is {target.kind!r}.",
            fix="A model that is written in 16 bits keeps its types there.",
        )
    return target


def as_graph(model: Graph | OpenGraph | GraphNode | Sequence[GraphNode], name: str = "model") -> Graph:
    """The graph itself, or a graph of the output nodes, with its inputs in order of creation."""
    model = ready_model(model)
    if isinstance(model, Graph):
        return model
    if isinstance(model, OpenGraph):
        raise InputError(
            f"model {model.name!r} has open extents.",
            fix="Give them: graph.at(shapes), shapes by input; at.compile_model takes it as it is.",
        )
    from autotensor.graph.ir import Input, topological

    outputs = tuple(model) if isinstance(model, (list, tuple)) else (model,)
    if not outputs:
        raise InputError(f"model {name!r} has no outputs.")
    for o in outputs:
        if not isinstance(o, GraphNode):
            raise InputError(
                f"a model is made of graph nodes, got {type(o).__name__}.",
                fix="Start from autotensor.input(shape).",
            )
    inputs = sorted((n for n in topological(outputs) if isinstance(n, Input)), key=lambda n: n.serial)
    return Graph(tuple(inputs), outputs, name)


def ready_model(model: Any) -> Any:
    """The model; an exported torch program becomes a graph first. Raises InputError for other models that
    must be read by a function first, and names that function."""
    kinds = {f"{k.__module__.partition('.')[0]}.{k.__name__}" for k in type(model).__mro__}
    if "torch.ExportedProgram" in kinds:
        from autotensor.api.from_torch import from_torch

        return from_torch(model)
    if "torch.Module" in kinds:
        raise InputError(
            f"{type(model).__name__} is a torch module, which must be read with example inputs first.",
            fix="at.compile_model(at.from_torch(module, (x,))).",
        )
    if "onnx.ModelProto" in kinds or isinstance(model, (str, Path)):
        raise InputError(
            f"a model is made of graph nodes, got {type(model).__name__}.",
            fix="Read a file by at.from_onnx(file); autotensor.models.MODELS.get(name).build() is a model "
            "that comes along.",
        )
    if isinstance(model, Tensor):
        raise InputError(
            "a model is made of graph nodes, got a tensor of te.",
            fix="at.build([A, B, C]) compiles it; at.call(function, x) takes a te function into a model.",
        )
    return model


def resolved(plan: ModelPlan, store: TrialStore | None, metric: Metric = median_s) -> dict[str, Resolved]:
    """The best known schedule for every task, by workload key."""
    return {t.workload.key: resolve(t.workload, plan.target, store, metric) for t in plan.tasks}


def traces_from_log(plan: ModelPlan, store: TrialStore | None) -> dict[str, Trace]:
    """The best known trace of every task."""
    found = resolved(plan, store)
    for note in sorted({r.note for r in found.values() if r.note}):
        log.at(1, f"{plan.graph.name}: {note}")
    return {key: r.trace for key, r in found.items()}


def note_use(store: TrialStore, found: Iterable[Resolved], path: Path) -> None:
    """Records in the log which of its trials were built into a file."""
    name = os.fsencode(path.resolve()).decode(errors="replace")  # valid text even if the locale is not UTF-8
    for r in found:
        if r.trial is not None:
            store.record_apply(r.trial, name)


Compiled = dict[tuple[str, str], Artifact]  # by workload key and hash of the trace
MADE_OF = "made_of"  # in the meta of a linked model: `model_made_of`
_HERE = Path(__file__).parent.parent
_LINKING = (_HERE / "graph", _HERE / "operators", Path(__file__))  # code that affects a linked model


def link_model(
    plan: ModelPlan,
    traces: Mapping[str, Trace],
    compiled: Compiled | None = None,
    prepared: bool = False,
    aside: bool = False,
) -> Artifact:
    """Compiles every task under its trace and links the model.

    compiled: artifacts of earlier calls; new ones are added. prepared: as for `link`. aside: as for
    `compile_jobs`.
    """
    known = compiled if compiled is not None else {}
    compile_tasks(plan, traces, known, aside)
    chosen = {key: known[key, trace.hash] for key, trace in traces.items()}
    linked = link(plan.graph, plan.groups, chosen, plan.target, plan.updates, prepared, plan.opened)
    return replace(
        linked,
        meta={**linked.meta, **plan.facts, MADE_OF: model_made_of(plan, traces), "version": version_here()},
    )


def linked(plan: ModelPlan, db: Log, aside: bool = False) -> Artifact:
    """The linked program of a plan, with the best known schedules. aside: as for `compile_jobs`."""
    with open_existing(db) as store:
        return link_model(plan, traces_from_log(plan, store), aside=aside)


def model_made_of(plan: ModelPlan, traces: Mapping[str, Trace]) -> str:
    """A hash of all inputs of `link_model`: the graph with its weights, each task's compiled code, and the
    code that links them. It is "" if one of these is unknown (`compiler.made_of`)."""
    graph, shared = plan.graph, _overlapping(plan)
    kernels = [
        made_of(w, traces[w.key], plan.target, name, shared.get(w.key, frozenset()))
        for w, name in ((t.workload, t.name) for t in plan.tasks)
    ]
    source = source_digest(_LINKING)
    if not source or not all(kernels):
        return ""
    names = [graph.name, [c.name for c in graph.constants]]  # names, which the graph's key leaves out
    symbols = [str(s) for s in plan.opened.symbols] if plan.opened else []
    around = json.dumps([names, sorted(plan.updates.items()), plan.facts, symbols], sort_keys=True)
    return object_key("model", source, graph.key, around, *kernels)


def held_in(path: Path, plan: ModelPlan, traces: Mapping[str, Trace]) -> Artifact | None:
    """The artifact at `path` if linking would give the same artifact; None if the model must be linked."""
    wanted = model_made_of(plan, traces) if path.is_file() else ""
    if not wanted:
        return None
    try:
        found = artifacts.load(path)
    except ArtifactError:  # damaged, or written by another program: it is written anew
        return None
    return found if found.meta.get(MADE_OF) == wanted else None


def compile_tasks(
    plan: ModelPlan, traces: Mapping[str, Trace], compiled: Compiled, aside: bool = False
) -> None:
    """Compiles every task under its trace and adds the result to `compiled`; tasks that are already there are
    skipped.

    aside: as for `compile_jobs`."""
    shared = _overlapping(plan)
    places = {(t.workload.key, traces[t.workload.key].hash): t for t in plan.tasks}
    jobs = {
        place: Job(t.workload, traces[place[0]], plan.target, t.name, shared.get(place[0], frozenset()))
        for place, t in places.items()
        if place not in compiled
    }
    made = compile_jobs(list(jobs.values()), default_cache(), aside)
    compiled |= {place: refuse_unfit(m) for place, m in zip(jobs, made, strict=True)}


def _overlapping(plan: ModelPlan) -> Mapping[str, frozenset[str]]:
    """By workload key, the arguments that may share memory."""
    return overlapping_arguments(plan.graph, plan.groups, plan.updates)


def default_traces(plan: ModelPlan) -> dict[str, Trace]:
    return {t.workload.key: safe_default(t.workload, plan.target) for t in plan.tasks}


__all__ = ["ModelPlan", "plan_model"]
