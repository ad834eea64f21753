"""Whole models: a graph becomes groups, groups become tasks, winners are linked into one function.

    graph ─optimize─▶ groups ─tasks─▶ traces (log or default) ─compile, link─▶ Module

A tuning run writes the model as soon as the defaults are compiled, and again whenever enough has improved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from autotensor.api.in_model import BUDGET_S, race_in_model
from autotensor.api.log import Log, open_existing, open_log
from autotensor.base.errors import InputError
from autotensor.base.target import Target, parse
from autotensor.compiler import compile_trace
from autotensor.graph.in_place import updating_groups
from autotensor.graph.ir import Graph, GraphNode
from autotensor.graph.link import link
from autotensor.graph.partition import Group, KernelTask, own_outputs, partition
from autotensor.graph.partition import tasks as tasks_of
from autotensor.graph.rules import optimize
from autotensor.resolve import Resolved, gain, resolve, safe_default
from autotensor.runtime import artifact as artifacts
from autotensor.runtime.artifact import Artifact
from autotensor.runtime.cache import default_cache
from autotensor.runtime.lock import timing_lock
from autotensor.runtime.opening import Function, open_artifact
from autotensor.runtime.samples import sample_inputs
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, Improved, Listener
from autotensor.search.loop import TuneOptions, TuneReport
from autotensor.search.task import Task
from tuning_db import TrialStore

SAVE_EVERY_S = 20.0  # while tuning, a model is written at most so often: linking ResNet-50 takes a second


@dataclass(frozen=True)
class ModelPlan:
    """A model cut into groups; `tasks` are the distinct computations among them."""

    graph: Graph
    groups: tuple[Group, ...]
    tasks: tuple[KernelTask, ...]
    target: Target
    facts: Mapping[str, Any] = field(
        default_factory=dict
    )  # kept in the artifact's meta, e.g. whose weights these are
    updates: Mapping[str, str] = field(default_factory=dict)  # outputs that are written over inputs, by name

    def search_tasks(self) -> list[Task]:
        return [Task(t.workload, self.target, float(t.weight), t.name) for t in self.tasks]


@dataclass(frozen=True)
class ModelReport:
    """What tuning a model gave. Latencies are medians in seconds, measured interleaved at the end."""

    tuning: TuneReport
    module: Function
    default_s: float
    tuned_s: float
    path: Path | None = None
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        """The tasks, a line each, the run, and what it gave."""
        lines = [str(self.tuning), *(f"note: {n}" for n in self.notes)]
        if self.tuned_s != self.default_s:  # else the default schedules were kept, and a note says so
            how = gain(self.default_s, self.tuned_s, "with the default schedules")
            lines.append(f"{self.module.name}: {self.tuned_s * 1e3:.3g} ms, {how}")
        return "\n".join(lines)


def plan_model(
    model: Graph | GraphNode | Sequence[GraphNode],
    target: str | Target | None = None,
    name: str = "model",
    updates: Mapping[str, str] | None = None,
) -> ModelPlan:
    """Optimises a graph and cuts it into groups.

    updates: outputs that are to be written over inputs, by name; the model then changes these arguments.
    """
    graph = as_graph(model, name)
    ready = own_outputs(optimize(graph))
    if updates:
        ready, groups = updating_groups(ready, updates)
    else:
        groups = partition(ready)
    return ModelPlan(ready, groups, tasks_of(groups), parse(target), updates=dict(updates or {}))


def as_graph(model: Graph | GraphNode | Sequence[GraphNode], name: str = "model") -> Graph:
    """A graph from itself, or from output nodes; inputs in order of creation."""
    if isinstance(model, Graph):
        return model
    from autotensor.graph.ir import Input, topological

    outputs = tuple(model) if isinstance(model, (list, tuple)) else (model,)
    for o in outputs:
        if not isinstance(o, GraphNode):
            raise InputError(
                f"a model is made of graph nodes, got {type(o).__name__}.",
                fix="Start from autotensor.input(shape).",
            )
    inputs = sorted((n for n in topological(outputs) if isinstance(n, Input)), key=lambda n: n.serial)
    return Graph(tuple(inputs), outputs, name)


def compile_model(
    model: Graph | GraphNode | Sequence[GraphNode],
    trials: int = 0,
    target: str | Target | None = None,
    *,
    db: Log = None,
    seed: int = 0,
    name: str = "model",
    listener: Listener | None = None,
    progress: bool = True,
) -> Function:
    """A model as one function: NumPy in, NumPy out, one native call.

    trials: how many schedules to measure first; 0 takes what the tuning log knows, and defaults for the rest.
    progress: as in `tune`, while measuring.
    """
    if not hasattr(trials, "__index__") or trials < 0:
        raise InputError(f"trials is {trials!r}; it must be a whole number, not negative.")
    plan = plan_model(model, target, name)
    if trials:
        options = TuneOptions(trials=trials, seed=seed)
        return tune_model(plan, options, db=db, listener=listener, progress=progress).module
    with open_existing(db) as store:
        return open_artifact(link_model(plan, traces_from_log(plan, store)), threads=plan.target.num_cores)


def resolved(plan: ModelPlan, store: TrialStore | None) -> dict[str, Resolved]:
    """What is best known for every task, by workload key."""
    return {t.workload.key: resolve(t.workload, plan.target, store) for t in plan.tasks}


def traces_from_log(plan: ModelPlan, store: TrialStore | None) -> dict[str, Trace]:
    """The best known trace of every task."""
    return {key: r.trace for key, r in resolved(plan, store).items()}


def note_use(store: TrialStore, found: Iterable[Resolved], path: Path) -> None:
    """Tells the log which of its trials went into a file."""
    for r in found:
        if r.trial is not None:
            store.record_apply(r.trial, str(path.resolve()))


def link_model(
    plan: ModelPlan, traces: Mapping[str, Trace], compiled: dict[str, tuple[str, Artifact]] | None = None
) -> Artifact:
    """Compiles every task under its trace and links the model.

    compiled: artifacts of earlier calls by workload key, with the hash of their trace; updated.
    """
    known = compiled if compiled is not None else {}
    for t in plan.tasks:
        key = t.workload.key
        trace = traces[key]
        if key not in known or known[key][0] != trace.hash:
            known[key] = (
                trace.hash,
                compile_trace(t.workload.dag, trace, plan.target, t.name, cache=default_cache()),
            )
    artifacts_by_key = {k: a for k, (_, a) in known.items()}
    linked = link(plan.graph, plan.groups, artifacts_by_key, plan.target, plan.updates)
    return replace(linked, meta={**linked.meta, **plan.facts})


def default_traces(plan: ModelPlan) -> dict[str, Trace]:
    return {t.workload.key: safe_default(t.workload, plan.target) for t in plan.tasks}


def tune_model(
    plan: ModelPlan,
    options: TuneOptions,
    *,
    db: Log = None,
    path: str | Path | None = None,
    listener: Listener | None = None,
    stopped: Callable[[], bool] = lambda: False,
    progress: bool = True,
) -> ModelReport:
    """Tunes all tasks of a model and links the winners.

    path: where the model is written, at once with default schedules, and again, atomically, as it improves.
    progress: say on standard error how it goes: a bar on a terminal, a line per batch elsewhere.
    """
    from autotensor.api.tuning import run_tuning, shown

    with open_log(db) as store, shown(options, listener, progress) as heard:
        work = _Saver(plan, Path(path) if path is not None else None, traces_from_log(plan, store), heard)
        work.save()
        report = run_tuning(plan.search_tasks(), options, store, listener=work.hear, stopped=stopped)
        if not stopped():
            race_in_model(
                [t.workload for t in plan.tasks],
                plan.target,
                store,
                lambda traces: link_model(plan, traces),
                BUDGET_S if options.deadline_s is None else min(BUDGET_S, 0.1 * options.deadline_s),
            )
        best = resolved(plan, store)
        tuned = link_model(plan, {key: r.trace for key, r in best.items()}, work.compiled)
        default = link_model(plan, default_traces(plan), dict(work.compiled))
        default_s, tuned_s = race(plan, default, tuned)
        notes: tuple[str, ...] = ()
        if tuned_s > default_s:
            notes = (kept_defaults(default_s, tuned_s),)
            tuned, tuned_s, best = default, default_s, {}
        if work.path is not None:
            artifacts.save(work.path, tuned)
            note_use(store, best.values(), work.path)
    return ModelReport(
        report, open_artifact(tuned, threads=plan.target.num_cores), default_s, tuned_s, work.path, notes
    )


def kept_defaults(default_s: float, tuned_s: float) -> str:
    """Why a model got the default schedules after all.

    >>> kept_defaults(1.0, 1.002)
    'in the whole model the tuned schedules were as fast, within the noise; the default ones were kept'
    """
    how = gain(default_s, tuned_s)
    return f"in the whole model the tuned schedules were {how}; the default ones were kept"


class _Saver:
    """Keeps the model on disk up to date while tuning goes on."""

    def __init__(
        self, plan: ModelPlan, path: Path | None, traces: dict[str, Trace], listener: Listener | None
    ) -> None:
        self.plan = plan
        self.path = path
        self.traces = traces
        self.compiled: dict[str, tuple[str, Artifact]] = {}
        self.listener = listener
        self.saved = 0.0
        self.seconds: dict[str, float] = {}

    def save(self) -> None:
        if self.path is not None:
            artifacts.save(self.path, link_model(self.plan, self.traces, self.compiled))
        self.saved = time.monotonic()

    def hear(self, event: Event) -> None:
        if isinstance(event, Improved):
            key = event.task.workload.key
            if event.seconds < self.seconds.get(key, float("inf")):
                self.seconds[key] = event.seconds
                self.traces[key] = event.candidate.trace
        if self.path is not None and time.monotonic() - self.saved > SAVE_EVERY_S:
            self.save()
        if self.listener is not None:
            self.listener(event)


def race(plan: ModelPlan, *contestants: Artifact, rounds: int = 15) -> list[float]:
    """Median seconds of one inference of each, timed in turns with nothing else of ours running."""
    modules = [open_artifact(a, threads=plan.target.num_cores) for a in contestants]
    arrays = sample_inputs(contestants[0].args, contestants[0].index_range)
    with timing_lock():
        for m in modules:
            m(*arrays)
        samples: list[list[float]] = [[] for _ in modules]
        for _ in range(rounds):
            for m, mine in zip(modules, samples, strict=True):
                mine.extend(m.time(arrays, repeat=1, min_seconds=0.0))
    return [median(s) for s in samples]


__all__ = ["ModelPlan", "ModelReport", "compile_model", "plan_model", "tune_model"]
