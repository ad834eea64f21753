"""`autotensor verify MODEL|FILE.atm`: every kernel beside its reference; names the first that differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.cli.options import (
    AsJson,
    Inputs,
    Log,
    Machine,
    ModelOrFile,
    Seed,
    Source,
    example,
    grouped,
    new_app,
)
from autotensor.cli.output import put_json, say, table

if TYPE_CHECKING:
    from autotensor.api.models import ModelPlan
    from autotensor.api.verifying.report import KernelCheck, Report
    from autotensor.runtime.files.artifact import Artifact

app = new_app()
FLOAT64 = "float64"


@app.command(
    epilog=example(
        "autotensor verify resnet50.atm",
        "autotensor verify resnet50.atm --against resnet50.onnx",
        "autotensor verify bert_base --against float64",
    )
)
@grouped
def verify(
    model: ModelOrFile,
    *,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.onnx|float64",
            help="float64: how far rounding has gone after each kernel, too. FILE.onnx: the file's own "
            "weights, and its results by onnxruntime, too.",
        ),
    ] = None,
    input: Inputs = None,
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.py",
            help="Shows the first wrong kernel; its data beside it. Default: ./wrong_kernel.py.",
        ),
    ] = None,
    source: Source,
    seed: Seed = 0,
    machine: Machine,
    log: Log,
    json: AsJson = False,
) -> None:
    """Run a model kernel by kernel, each beside a float64 reference that is fed the same arrays.

    Names the first kernel that differs, the trial and the trace that made it, and writes a script that
    shows it. The exit code is 1 if anything is wrong.
    """
    from autotensor.api.log import open_existing
    from autotensor.api.verifying.verify import check
    from autotensor.cli.inputs import check_place
    from autotensor.cli.values import parted

    parted(input or ())  # before anything is compiled
    path = Path("wrong_kernel.py") if script is None else script
    if script is not None:
        check_place(path)
    onnx = None if against in (None, FLOAT64) else against
    artifact, plan = _compiled(model, source, machine, log)
    if onnx is not None:
        plan = _plan_of(onnx, source, artifact)
    arrays = _read(artifact, input, seed) if input else None
    with open_existing(log.db) as store:
        report = check(
            artifact,
            plan,
            inputs=arrays,
            seed=seed,
            threads=machine.threads,
            drift=against is not None,
            onnx=onnx,
            store=store,
            script=path,
        )
    if json:
        put_json(_document(report))
    else:
        _print(report)
    if not report.is_right:
        raise typer.Exit(1)


def _compiled(model: str, source: Source, machine: Machine, log: Log) -> tuple[Artifact, ModelPlan | None]:
    """The code that is to be checked, and what it was made from if that is known."""
    from autotensor.api.models import plan_model
    from autotensor.api.verifying.verify import loaded
    from autotensor.base.errors import InputError
    from autotensor.cli.inputs import build_graph, check_compiled, compile_known, is_file
    from autotensor.cli.onnx_files import RunsInParts

    if is_file(model):
        check_compiled(model, source, machine)
        return loaded(Path(model)), None
    try:
        graph = build_graph(model, source)
    except RunsInParts as parts:
        raise InputError(
            f"{parts.what.rstrip('.')}: it runs in parts, which are not verified.",
            fix="Cut out what has no loops (onnx.utils.extract_model), and verify that.",
        ) from parts
    plan = plan_model(graph, machine.chosen())
    return compile_known(plan, log).module.artifact, plan


def _plan_of(onnx: str, source: Source, artifact: Artifact) -> ModelPlan:
    from autotensor.api.models import plan_model
    from autotensor.base.errors import InputError
    from autotensor.cli.inputs import build_graph
    from autotensor.cli.onnx_files import is_onnx

    if not is_onnx(onnx) or not Path(onnx).is_file():
        raise InputError(f"--against {onnx}: it is neither an .onnx file that is there nor float64.")
    return plan_model(build_graph(onnx, replace(source, weights=None)), artifact.target)


def _read(artifact: Artifact, texts: list[str], seed: int) -> list[Any]:
    from autotensor.cli.values import call_arrays
    from autotensor.runtime.sample_arrays import sample_inputs

    wanted = list(artifact.role("input"))
    samples = sample_inputs(wanted, artifact.index_range, seed)
    arrays, _ = call_arrays(texts, wanted, samples, artifact.name)
    return arrays


def _document(report: Report) -> dict[str, Any]:
    from dataclasses import asdict

    first = report.first
    return {
        "model": report.model,
        "right": report.is_right,
        "first_wrong": None if first is None else first.number,
        "complaints": list(report.complaints),
        "script": None if report.script is None else str(report.script),
        "seconds": report.seconds,
        "kernels": [asdict(k) for k in report.kernels],
    }


def _print(report: Report) -> None:
    drifts = any(k.drift is not None for k in report.kernels)
    heads = ("", "kernel", "error/allowed", *(["from float64"] if drifts else []), "verdict")
    table(heads, [_row(k, drifts) for k in report.kernels])
    say()
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
