"""Variants of autotensor, each without one ingredient, and models built with a variant.

    with without(VARIANTS["no-fusion"]): …        until the end of the block, the ingredient is off
    build("no-packing", graph, path, …)           tuned and compiled to a file; arrays that it needs at every
                                                  call are next to it, in `path.npz`

Every variant uses existing switches: numerics and features of the target, the list of passes, the list of
rules, which values are constant, how candidates are ranked, the number of trials. The variant `full` changes
no switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.api.model_tuning import tune_model
from autotensor.api.models import ModelPlan, default_traces, link_model
from autotensor.base import switches
from autotensor.base.target import Target, parse
from autotensor.graph import joined_groups, partition
from autotensor.graph.build import input as graph_input
from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.ir import Apply, Constant, Graph, GraphNode, Input
from autotensor.graph.rules import PASSES, optimize
from autotensor.runtime.files import artifact_file as artifact
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.state import Stage, State
from autotensor.schedule.trace import Trace
from autotensor.search.options import TuneOptions
from schedules import generate
from schedules.registry import Extension, SketchRule

Array = np.ndarray[Any, np.dtype[Any]]

GENERAL = ("constants", "inline", "epilogue", "pointwise", "tile_general")
WIDE = ("avx512", "evex512", "avx10")  # prefixes of features with registers of 512 bits


@dataclass(frozen=True)
class Variant:
    """The differences from `full`."""

    about: str
    strict: bool = False  # strict numerics
    narrow: bool = False  # only AVX2
    trials: float = 1.0  # share of --trials; 0: default schedules
    model: str = "xgb"
    threads: int | None = None
    fuse: bool = True
    join: bool = True  # join products with the operators in front of them
    fold: bool = True  # fold batch norms into weights
    known: str = "all"  # values that may be computed beforehand: "all", "graph" (not by kernels), "nothing"
    panels: bool = True  # arrange operands for the kernels that read them
    rules: tuple[str, ...] | None = None  # only these rules
    search: bool = True  # False: no schedule at all, the loops as they are written


VARIANTS = {
    "full": Variant("everything: tuned, XGBoost and prior, Winograd where it wins"),
    "no-tuning": Variant("default schedules, nothing measured", trials=0),
    "no-xgboost": Variant("candidates ranked by the analytic model only", model="prior"),
    "chance": Variant("candidates drawn at random, neither model", model="random"),
    "no-winograd": Variant("strict numerics: direct convolutions only", strict=True),
    "no-fusion": Variant("bias, shortcut and relu in kernels of their own", fuse=False),
    "no-joining": Variant("products in kernels of their own, what stands in front in others", join=False),
    "no-folding": Variant("batch norms computed, not folded into weights", fold=False),
    "no-packing": Variant("folded weights given at every call: nothing packed", known="graph"),
    "no-constants": Variant("weights given at every call: nothing folded or packed", known="nothing"),
    "no-panels": Variant("operands read where they lie: none is arranged in panels", panels=False),
    "general-rules": Variant("sketches of the general rules only, no knowledge of kernels", rules=GENERAL),
    "no-schedule": Variant("loops as the formulas say, compiled by LLVM", trials=0, search=False),
    "avx2": Variant("256-bit vectors, 16 registers", narrow=True),
    "one-thread": Variant("one thread", threads=1),
}


def build(
    variant: Variant, graph: Graph, out: Path, *, trials: int = 0, threads: int = 1, seed: int = 0
) -> dict[str, Any]:
    """Tunes and compiles the graph with the variant, into the file `out`. Returns the numbers of trials and
    tasks."""
    with without(variant), switches.override(no_shipped=True):
        plan, extra = plan_of(graph, variant, target_of(variant, variant.threads or threads))
        spent = 0
        if share := round(trials * variant.trials):
            options = TuneOptions(trials=share, seed=seed, model=variant.model)
            spent = tune_model(plan, options, db=out.with_suffix(".db"), path=out).tuning.trials
        else:
            plain = {t.workload.key: Trace() for t in plan.tasks}
            artifact.save(out, link_model(plan, default_traces(plan) if variant.search else plain))
    if extra:
        np.savez(out.with_suffix(".npz"), **extra)  # type: ignore[arg-type]
    return {"trials": spent, "tasks": len(plan.tasks)}


@contextmanager
def without(variant: Variant) -> Iterator[None]:
    """Inside the block, the variant's ingredients are off: epilogues, fronts, rules, panels. Only one thread
    may use this."""
    epilogue, joined, rules = partition.MAX_EPILOGUE, joined_groups.MOST, generate.RULES
    kept = [r for r in rules if variant.rules is None or r.name in variant.rules]
    try:
        partition.MAX_EPILOGUE = epilogue if variant.fuse else 0
        joined_groups.MOST = joined if variant.fuse and variant.join else 1
        generate.RULES = tuple(kept if variant.panels else map(_without_panels, kept))
        yield
    finally:
        partition.MAX_EPILOGUE = epilogue
        joined_groups.MOST = joined
        generate.RULES = rules


def _without_panels(rule: SketchRule) -> SketchRule:
    """The rule's sketches, with all tensors in their own layouts."""

    def expand(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
        return tuple(
            replace(e, steps=tuple(s for s in e.steps if not isinstance(s, Layout)))
            for e in rule.expand(state, stage, target)
        )

    return replace(rule, expand=expand)


def target_of(variant: Variant, threads: int) -> Target:
    """The target: this machine, without the features and numerics that the variant lacks."""
    target = parse(f"llvm -threads={threads} -numerics={'strict' if variant.strict else 'fast'}")
    if not variant.narrow:
        return target
    features = target.features.split(",")
    kept = [f for f in features if not f[1:].startswith(WIDE)]
    gone = [f"-{f[1:]}" for f in features if f[0] == "+" and f[1:].startswith(WIDE)]
    return replace(target, features=",".join([*kept, *gone]), vector_bytes=32, vector_registers=16)


def plan_of(graph: Graph, variant: Variant, target: Target) -> tuple[ModelPlan, dict[str, Array]]:
    """The model in groups, and the arrays that it needs at every call, by name."""
    extra: dict[str, Array] = {}
    if variant.known == "nothing":
        graph, extra = weights_as_inputs(graph)
    ready = optimize(graph, tuple(p for p in PASSES if variant.fold or p.name != "fold batch norm"))
    if variant.known == "graph":
        ready, extra = weights_as_inputs(ready)
    ready = partition.own_outputs(ready)
    groups = partition.partition(ready)
    return ModelPlan(ready, groups, partition.tasks(groups), target), extra


def weights_as_inputs(graph: Graph) -> tuple[Graph, dict[str, Array]]:
    """The graph with every constant array as an argument, and those arrays by name."""
    new: dict[GraphNode, GraphNode] = {}
    made: list[Input] = []
    given: dict[str, Array] = {}
    for node in graph.nodes:
        if isinstance(node, Constant) and node.array.ndim:
            made.append(graph_input(node.shape, node.dtype, f"weight_{len(made)}"))
            new[node], given[made[-1].name] = made[-1], node.array
        elif isinstance(node, Apply):
            new[node] = with_inputs(node, tuple(new.get(x, x) for x in node.inputs))
    outputs = tuple(new.get(o, o) for o in graph.outputs)
    return replace(graph, inputs=(*graph.inputs, *made), outputs=outputs), given
