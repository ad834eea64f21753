"""`at.verify`: takes a model, a file or a graph, and checks all its kernels and then the whole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.api.log import Log, open_existing
from autotensor.api.models import ModelPlan, as_graph, link_model, plan_model, resolved
from autotensor.api.verifying.checked_kernels import as_model
from autotensor.api.verifying.distances import distances
from autotensor.api.verifying.failing_case import write_case
from autotensor.api.verifying.onnx_reference import beside_onnx, onnx_results
from autotensor.api.verifying.report import Report
from autotensor.api.verifying.run import Run
from autotensor.base.counted import counted
from autotensor.base.errors import ArtifactError, InputError
from autotensor.graph.ir import Graph, GraphNode
from autotensor.runtime.call_extents import at_extents
from autotensor.runtime.extents import OpenShapes
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import OPEN_SHAPES, Artifact
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape
from autotensor.runtime.sample_arrays import sample_inputs
from autotensor.runtime.variants import best_here
from tuning_db import TrialStore

Array = np.ndarray[Any, Any]


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
    """Runs a model kernel by kernel, compares each kernel with its reference, and names the first wrong one.

    model: a compiled function, the path of an `.atm` or `.onnx` file, or a graph, which is compiled first
    with schedules of the log.
    against: "float64" also follows the rounding through the whole model. An `.onnx` file or a graph gives the
    weights before they are prepared. The model's results are also compared with those that another program
    gives for the `.onnx` file.
    inputs: the model's inputs; None: random inputs from `seed`. A model with run-time extents is then checked
    twice, at their least and at their greatest values. The report is of the last check, or of the first one
    that finds a mistake. script: where to write a script, with its data next to it, that shows the first
    wrong kernel.
    Raises ArtifactError for files that cannot be loaded, are for another processor, or lack the needed facts.
    """
    with open_existing(db) as store:
        artifact, plan = _compiled(model, target, store)
        onnx = against if isinstance(against, str | Path) and str(against) != "float64" else None
        if isinstance(against, Graph):
            plan = plan_model(against, artifact.target)
        elif onnx is not None:
            plan = plan_model(_onnx_graph(onnx), artifact.target)
        for arrays in _calls(artifact, inputs, seed):
            report = check(
                artifact,
                plan,
                inputs=arrays,
                seed=seed,
                threads=threads,
                drift=against is not None,
                onnx=onnx,
                store=store,
                script=None if script is None else Path(script),
            )
            if not report.is_right:
                break
        return report


def _calls(artifact: Artifact, inputs: Sequence[Array] | None, seed: int) -> list[Sequence[Array] | None]:
    """The inputs of each call that is checked; None for samples at the greatest extents."""
    if inputs is not None or OPEN_SHAPES not in artifact.meta:
        return [inputs]
    least = at_extents(artifact, OpenShapes.of(artifact.meta[OPEN_SHAPES]).least())
    return [_samples(Module(least), seed), None]


def _compiled(
    model: Module | Graph | GraphNode | Sequence[GraphNode] | str | Path,
    target: str | None,
    store: TrialStore | None,
) -> tuple[Artifact, ModelPlan | None]:
    """The code of a model, and the plan that it was made from, if known."""
    if isinstance(model, ByShape):
        raise InputError(
            f"{model.name} has {counted(len(model.modules), 'function')}, one for each set of shapes; verify "
            "takes one.",
            fix="Verify each of them: [at.verify(m) for m in f.modules].",
        )
    if isinstance(model, Module):
        return model.ready, None
    if isinstance(model, str | Path):
        if not str(model).endswith(".onnx"):
            return _only(Path(model)), None
        model = _onnx_graph(model)
    if not isinstance(model, Graph | GraphNode | tuple | list):
        raise InputError(
            f"a {type(model).__name__} cannot be verified kernel by kernel.",
            fix="Give a compiled model for CPUs, a graph, or the path of an .atm or .onnx file.",
        )
    plan = plan_model(as_graph(model), target)
    return link_model(plan, {key: r.trace for key, r in resolved(plan, store).items()}), plan


def _only(path: Path) -> Artifact:
    found = best_here(artifacts.load_all(path))
    if len(found) != 1:
        raise InputError(
            f"{path} holds {len(found)} functions, one for each set of shapes; verify takes one.",
            fix=f"Verify each of them: [at.verify(m) for m in at.load({str(path)!r}).modules].",
        )
    return found[0]


def _onnx_graph(path: str | Path) -> Graph:
    from autotensor.api.from_onnx import from_onnx

    found = from_onnx(path)
    assert isinstance(found, Graph), "no shape with symbols is asked for"
    return found


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
    """`verify` for compiled code. plan: the plan from which it was made; the plan has the weights before they
    are prepared."""
    began = time.monotonic()
    refuse_devices(artifact)
    artifact = _of_call(artifact, inputs)
    module = Module(artifact, threads=threads)
    arrays = list(inputs) if inputs is not None else _samples(module, seed)
    whole = module(*(a.copy() for a in arrays))
    if artifact.role("constant", "prepared") and module._prepare_each_call:
        module = module.bind(**_constants_of(module, arrays))
        arrays = [a for a, s in zip(arrays, artifact.args, strict=False) if s.role == "input"]
    run = Run(
        as_model(replace(artifact, values={**artifact.values, **module.ready.values})),
        plan,
        arrays,
        module.threads,
        store,
        drift or onnx is not None,
    )
    checks = run.checks()
    first = next((c for c in checks if not c.is_right), None)
    complaints = [] if first is not None else run.as_a_whole(whole)
    ours = whole if isinstance(whole, tuple) else (whole,)
    places = [(n, a) for n, a in enumerate(artifact.args) if a.role == "output"]
    names = [spec.name for _, spec in places]
    far = []
    if run.wide is not None:
        far += distances(names, ours, "float64", [run.wide.view(spec, (n, 0)) for n, spec in places])
    if onnx is not None:
        who, theirs = onnx_results(onnx, arrays)
        far += distances(names, ours, who, theirs)
        if first is None:
            complaints += beside_onnx(run, onnx, who, theirs, ours)
    written, unwritten = None, ""
    if first is not None and script is not None and run.case is not None:
        try:
            write_case(script, run.case, first.complaint, module.threads)
            written = script
        except (OSError, ArtifactError) as error:  # the verdict counts, with or without a script
            unwritten = f"the script {script} could not be written: {_reason(error)}"
    return Report(
        artifact.name,
        tuple(checks),
        tuple(complaints),
        time.monotonic() - began,
        written,
        unwritten,
        tuple(far),
    )


def _reason(error: OSError | ArtifactError) -> str:
    if isinstance(error, ArtifactError):
        return error.what.rstrip(".")
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


def refuse_devices(artifact: Artifact) -> None:
    """Raises ArtifactError unless the artifact is for CPUs."""
    if artifact.target.kind != "llvm":
        raise ArtifactError(
            f"{artifact.name} is compiled for {artifact.target.kind!r}; kernels are verified on CPUs.",
            fix="Compile the model for this processor to see whether its graph is right.",
        )


def _of_call(artifact: Artifact, inputs: Sequence[Array] | None) -> Artifact:
    """The artifact for inputs of these shapes; if there are none, for the greatest extents."""
    if OPEN_SHAPES not in artifact.meta:
        return artifact
    shapes = OpenShapes.of(artifact.meta[OPEN_SHAPES])
    if inputs is None:
        return at_extents(artifact, shapes.greatest())
    free = [a.name for a in artifact.role("input", "constant") if a.name not in artifact.values]
    found = {name: np.shape(array) for name, array in zip(free, inputs, strict=False)}
    return at_extents(artifact, shapes.values(artifact.name, found))


def _samples(module: Module, seed: int) -> list[Array]:
    return list(sample_inputs(module.args, module.artifact.index_range, seed))


def _constants_of(module: Module, arrays: Sequence[Array]) -> dict[str, Array]:
    given = zip((a for a in module.args if a.role != "output"), arrays, strict=False)
    return {a.name: array for a, array in given if a.role == "constant"}
