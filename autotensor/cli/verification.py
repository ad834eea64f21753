"""The inputs and the report of `autotensor verify`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from autotensor.api.log import open_existing
from autotensor.api.models import ModelPlan, plan_model
from autotensor.api.verifying.report import KernelCheck, Report
from autotensor.api.verifying.verify import check, loaded
from autotensor.base.errors import InputError
from autotensor.cli.inputs import build_graph, check_compiled, check_place, compile_known, is_file
from autotensor.cli.model_files.onnx_files import RunsInParts, is_onnx
from autotensor.cli.options import Log, Machine, Source
from autotensor.cli.output import say, table
from autotensor.cli.values import call_arrays, parted
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.sample_arrays import sample_inputs

FLOAT64 = "float64"


def checked(
    model: str,
    against: str | None,
    input: list[str] | None,
    script: Path | None,
    source: Source,
    seed: int,
    machine: Machine,
    log: Log,
) -> Report:
    """The verdict on every kernel."""
    parted(input or ())  # before anything is compiled
    if script is not None:
        check_place(script)
    onnx = None if against in (None, FLOAT64) else against
    artifact, plan = _compiled(model, source, machine, log)
    if onnx is not None:
        plan = _plan_of(onnx, source, artifact)
    with open_existing(log.db) as store:
        return check(
            artifact,
            plan,
            inputs=_read(artifact, input, seed) if input else None,
            seed=seed,
            threads=machine.threads,
            drift=against is not None,
            onnx=onnx,
            store=store,
            script=script or Path("wrong_kernel.py"),
        )


def _compiled(model: str, source: Source, machine: Machine, log: Log) -> tuple[Artifact, ModelPlan | None]:
    """The code to check, and its plan if that is known."""
    if is_file(model):
        check_compiled(model, source, machine)
        return loaded(Path(model)), None
    try:
        graph = build_graph(model, source)
    except RunsInParts as parts:
        raise InputError(
            f"{parts.what.rstrip('.')}: it runs in parts, which cannot be verified.",
            fix="Extract a part without loops (onnx.utils.extract_model), and verify that.",
        ) from parts
    plan = plan_model(graph, machine.chosen())
    return compile_known(plan, log).artifact, plan


def _plan_of(onnx: str, source: Source, artifact: Artifact) -> ModelPlan:
    if not is_onnx(onnx) or not Path(onnx).is_file():
        raise InputError(f"--against {onnx}: this is neither float64 nor an existing .onnx file.")
    return plan_model(build_graph(onnx, replace(source, weights=None)), artifact.target)


def _read(artifact: Artifact, texts: list[str], seed: int) -> list[Any]:
    wanted = list(artifact.role("input"))
    samples = sample_inputs(wanted, artifact.index_range, seed)
    arrays, _ = call_arrays(texts, wanted, samples, artifact.name)
    return arrays


def document(report: Report) -> dict[str, Any]:
    first = report.first
    return {
        "model": report.model,
        "right": report.is_right,
        "first_wrong": None if first is None else first.number,
        "complaints": list(report.complaints),
        "script": None if report.script is None else str(report.script),
        "seconds": report.seconds,
        "distances": [asdict(d) for d in report.distances],
        "kernels": [asdict(k) for k in report.kernels],
    }


def print_report(report: Report) -> None:
    drifts = any(k.drift is not None for k in report.kernels)
    heads = ("", "kernel", "error/allowed", *(["from float64"] if drifts else []), "verdict")
    table(heads, [_row(k, drifts) for k in report.kernels])
    say()
    for distance in report.distances:
        say(str(distance))
    first = report.first
    if first is None and not report.complaints:
        say(
            f"All {len(report.kernels)} kernels are right, and the model as a whole ({report.seconds:.0f} s)."
        )
    for complaint in report.complaints:
        say(f"Wrong: {complaint}.")
    if first is None:
        return
    say(f"Kernel {first.number}, {first.name}, is the first that is wrong: {first.complaint}.")
    say(
        "It was made by "
        + ("no trial that the log has." if first.trial is None else f"trial {first.trial} of the log.")
    )
    if first.trace:
        say("Its trace:")
        for line in first.trace.splitlines():
            say(f"  {line}")
    if report.script is not None:
        say(f"python {report.script} shows it.")


def _row(k: KernelCheck, drifts: bool) -> tuple[Any, ...]:
    drift = [] if not drifts else ["-" if k.drift is None else f"{k.drift:.1e}"]
    beside = "" if k.beside == FLOAT64 else f" ({k.beside})"
    return (k.number, k.name, f"{k.error:.2g}", *drift, ("right" if k.is_right else "WRONG") + beside)
