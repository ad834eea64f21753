"""The inputs and the report of `autotensor verify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotensor.api.log import open_existing
from autotensor.api.models import ModelPlan, plan_model
from autotensor.api.verifying.report import KernelCheck, Report
from autotensor.api.verifying.verify import check, refuse_devices
from autotensor.base.errors import InputError
from autotensor.cli.inputs import build_graph, check_compiled, compile_known, is_file
from autotensor.cli.model_files.atm_calls import Call, calls_of
from autotensor.cli.model_files.onnx_files import RunsInParts, is_onnx
from autotensor.cli.options import Log, Machine, Source
from autotensor.cli.output import say, table
from autotensor.cli.output_files import SCRIPT, check_output, files_of_log
from autotensor.cli.values import call_arrays, parted
from autotensor.runtime.files import artifact_file
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.modules_by_shape import ByShape
from autotensor.runtime.open_artifact import Function, module_of
from autotensor.runtime.sample_arrays import sample_inputs
from autotensor.runtime.variants import best_here

FLOAT64 = "float64"


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on a model at one set of shapes."""

    call: Call
    report: Report


def checked(
    model: str,
    against: str | None,
    input: list[str] | None,
    script: Path | None,
    source: Source,
    seed: int,
    machine: Machine,
    log: Log,
) -> list[Checked]:
    """The verdicts at each set of shapes that the options choose, up to the first that is wrong."""
    parted(input or ())  # before anything is compiled
    if script is not None:
        _check_script(script, log)
    onnx = None if against in (None, FLOAT64) else against
    function, plan = _compiled(model, source, machine, log)
    found: list[Checked] = []
    with open_existing(log.db) as store:
        for call in calls_of(function, source if is_file(model) else None, input or ()):
            artifact = call.function.artifact
            report = check(
                artifact,
                plan if onnx is None else _plan_of(onnx, source, call, artifact),
                inputs=_arrays(call, input or (), seed),
                seed=seed,
                threads=machine.threads,
                drift=against is not None,
                onnx=onnx,
                store=store,
                script=script,
            )
            found.append(Checked(call, report))
            if not report.is_right:
                break
    return found


def _check_script(script: Path, log: Log) -> None:
    """Raises InputError unless the script, and the two files next to it, may be written."""
    if script.suffix != ".py":
        raise InputError(f"{script}: the script is a Python program.", fix=f"Name it {script.name}.py.")
    check_output(script, SCRIPT, None, files_of_log(log.db))
    if script.exists():  # it is an earlier script, and the files next to it are its data
        return
    for path in (script.with_suffix(ending) for ending in (".atm", ".npz")):
        if path.exists():
            raise InputError(
                f"{path} exists, and the script's data would replace it.", fix="Name another file."
            )


def _compiled(model: str, source: Source, machine: Machine, log: Log) -> tuple[Function, ModelPlan | None]:
    """The code to check, and its plan if that is known."""
    if is_file(model):
        check_compiled(model, source, machine)
        found = best_here(artifact_file.load_all(model))
        for artifact in found:
            refuse_devices(artifact)
        modules = [module_of(artifact, machine.threads) for artifact in found]
        return (modules[0] if len(modules) == 1 else ByShape(modules)), None
    try:
        graph = build_graph(model, source)
    except RunsInParts as parts:
        raise InputError(
            f"{parts.what.rstrip('.')}: it runs in parts, which cannot be verified.",
            fix="Extract a part without loops (onnx.utils.extract_model), and verify that.",
        ) from parts
    plan = plan_model(graph, machine.chosen())
    artifact = compile_known(plan, log).artifact
    refuse_devices(artifact)
    return module_of(artifact, machine.threads), plan


def _plan_of(onnx: str, source: Source, call: Call, artifact: Artifact) -> ModelPlan:
    """The plan of the .onnx file for the same shapes, or ranges of shapes."""
    if not is_onnx(onnx) or not Path(onnx).is_file():
        raise InputError(f"--against {onnx}: this is neither float64 nor an existing .onnx file.")
    shapes = [f"{a.name}={'x'.join(map(str, call.spelled(a)))}" for a in call.args if a.shape]
    return plan_model(
        build_graph(onnx, replace(source, weights=None, batch=None, shape=shapes)), artifact.target
    )


def _arrays(call: Call, texts: Sequence[str], seed: int) -> list[Any]:
    samples = sample_inputs(call.args, call.function.artifact.index_range, seed)
    arrays, _ = call_arrays(texts, call.args, samples, call.function.name)
    return arrays


def document(found: Sequence[Checked]) -> dict[str, Any]:
    """The last report, which is the wrong one if there is one; and the verdicts at all sets of shapes."""
    last = found[-1].call
    if not last.said:
        return _document(found[-1].report)
    calls = [{"at": c.call.said, "extents": c.call.extents, "right": c.report.is_right} for c in found]
    return {**_document(found[-1].report), "at": last.said, "extents": last.extents, "calls": calls}


def _document(report: Report) -> dict[str, Any]:
    first = report.first
    return {
        "model": report.model,
        "right": report.is_right,
        "first_wrong": None if first is None else first.number,
        "complaints": list(report.complaints),
        "script": None if report.script is None else str(report.script),
        "unwritten": report.unwritten,
        "seconds": report.seconds,
        "distances": [asdict(d) for d in report.distances],
        "kernels": [asdict(k) for k in report.kernels],
    }


def print_reports(found: Sequence[Checked]) -> None:
    for n, one in enumerate(found):
        if n:
            say()
        if one.call.said:
            say(f"At {one.call.said}:")
        _print_report(one.report)
    if found[-1].call.extents != found[-1].call.greatest:
        say("The kernels' names tell the greatest extents.")


def _print_report(report: Report) -> None:
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
    elif report.unwritten:
        say(f"{report.unwritten[0].upper()}{report.unwritten[1:]}.")
    else:
        say("`--script FILE.py` writes a script that shows it, with its data.")


def _row(k: KernelCheck, drifts: bool) -> tuple[Any, ...]:
    drift = [] if not drifts else ["-" if k.drift is None else f"{k.drift:.1e}"]
    beside = "" if k.beside == FLOAT64 else f" ({k.beside})"
    return (k.number, k.name, f"{k.error:.2g}", *drift, ("right" if k.is_right else "WRONG") + beside)
