"""`autotensor bench MODEL|FILE.atm`: latency, and the time of each kernel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.base.counted import counted
from autotensor.cli.options import (
    AsJson,
    FixedSource,
    Force,
    Log,
    Machine,
    ModelOrFile,
    Seed,
    example,
    grouped,
    new_app,
)
from autotensor.cli.output import put_json, say, table
from autotensor.insight.units import gflops, micros, millis, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autotensor.cli.model_files.atm_calls import Call
    from autotensor.runtime.arrays import Array
    from autotensor.runtime.files.artifact import Artifact
    from autotensor.runtime.kernel_times import KernelTime

app = new_app()


@app.command(
    epilog=example(
        "autotensor bench resnet50.atm",
        "autotensor bench mlp --threads 1 --repeat 100 --json",
        "autotensor bench resnet50.atm --trace resnet50.json",
        "autotensor bench net.atm --batch 1..8   # at 1, 2, 4 and 8 of its batches",
    )
)
@grouped
def bench(
    model: ModelOrFile,
    *,
    repeat: Annotated[int, typer.Option(min=3, metavar="N", help="Timed inferences.")] = 30,
    source: FixedSource,
    seed: Seed = 0,
    machine: Machine,
    log: Log,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write a timeline of kernels and threads, for ui.perfetto.dev."
        ),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Time inferences of random input on an otherwise idle machine, then each kernel within the model.

    A compiled file with run-time extents is timed at the least and the greatest of those that --batch and
    --shape do not choose. Waits until tuning runs finish their batch. The scripts in benchmarks/ compare with
    other programs.
    """
    from autotensor.base.deadline import NEVER
    from autotensor.base.errors import InputError
    from autotensor.cli.inputs import is_file, open_module, sample_arrays
    from autotensor.cli.model_files.atm_calls import Call, calls_of
    from autotensor.cli.model_files.onnx_parts import InParts
    from autotensor.cli.output_files import TIMELINE, check_output, files_of_log
    from autotensor.runtime.timing_lock import timing_by

    if trace is not None:
        check_output(trace, TIMELINE, force, {"the model": model, **files_of_log(log.db)})
    module = open_module(model, source, machine, log)
    if isinstance(module, InParts):
        if trace is not None:
            raise InputError("a model that runs in parts has no timeline.", fix="Leave out --trace.")
        calls = [Call(module, module.args, {})]  # type: ignore[arg-type]  # timed like a function
    else:
        calls = calls_of(module, source if is_file(model) else None)
    found: list[dict[str, Any]] = []
    with timing_by(NEVER):
        for call in calls:
            arrays = sample_arrays(call.function, call.args, seed)
            file = trace if call is calls[-1] else None
            found.append(_timed(call, arrays, repeat, file, log.db))
    if json:
        several = [{k: v for k, v in one.items() if k in _OF_A_CALL} for one in found]
        put_json({**found[-1], "calls": several} if calls[-1].said else _without(found[-1], "at", "extents"))
        return
    for one in found:
        _say_time(one)
    if found[-1]["kernels"]:
        say()
        if len(found) > 1:
            say(f"Kernels at {found[-1]['at']}:")
        _print_kernels(found[-1]["kernels"])
        if calls[-1].extents != calls[-1].greatest:
            say("The kernels' names tell the greatest extents.")


_OF_A_CALL = ("at", "extents", "median_s", "p10_s", "p90_s", "flops")


def _without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in names}


def _timed(
    call: Call, arrays: Sequence[Array], repeat: int, trace: Path | None, db: str | None
) -> dict[str, Any]:
    """The times of one call, and of its kernels."""
    from autotensor.cli.model_files.onnx_parts import InParts
    from autotensor.runtime.device.module import DeviceModule
    from autotensor.runtime.kernel_times import kernel_times
    from autotensor.runtime.native.threads import current

    kernels: list[KernelTime] = []
    flops = 0.0
    module = call.function
    for _ in range(3):
        module(*arrays)
    if isinstance(module, InParts):
        samples = sorted(module.time(arrays, repeat))
    else:
        samples = sorted(module.time(arrays, repeat=repeat, min_seconds=0.0))
        artifact = _of_call(call)
        kernels = kernel_times(artifact, arrays, module.threads)
        flops = float(artifact.meta.get("flops", 0))
        if trace is not None:
            write_trace(trace, artifact, arrays, module.threads, db)
    return {
        "model": module.name,
        "threads": module.threads,
        "provider": module.device.name if isinstance(module, DeviceModule) else str(current()),
        "repeat": repeat,
        "at": call.said,
        "extents": call.extents,
        "median_s": quantile(samples, 0.5),
        "p10_s": quantile(samples, 0.1),
        "p90_s": quantile(samples, 0.9),
        "flops": flops,
        "kernels": _merged(kernels),
        "samples_s": samples,
    }


def _of_call(call: Call) -> Artifact:
    """The compiled code, with the shapes and operations of the call."""
    ready = call.function.ready
    if not call.values:
        return ready
    from autotensor.api.verifying.checked_kernels import with_flops
    from autotensor.runtime.call_extents import at_extents

    return with_flops(at_extents(ready, call.values))


def _say_time(one: dict[str, Any]) -> None:
    rate = gflops(one["flops"], one["median_s"])
    where = one["at"] and f" at {one['at']}"
    say(
        f"{one['model']}{where}: median {millis(one['median_s'])}, 10 % below {millis(one['p10_s'])}, 90 % "
        f"below {millis(one['p90_s'])} ({one['repeat']} inferences, {counted(one['threads'], 'thread')} of "
        f"{one['provider']}{f', {rate} GFLOP/s' if rate != '-' else ''})"
    )


def _print_kernels(kernels: Sequence[dict[str, Any]]) -> None:
    total = sum(k["total_s"] for k in kernels)
    table(
        ("kernel", "times", "share", "us each", "GFLOP/s"),
        [
            (k["name"], k["count"], percent(k["total_s"] / total), micros(k["total_s"] / k["count"]),
             gflops(k["flops"] * k["count"], k["total_s"]))
            for k in kernels
        ],
    )  # fmt: skip


def write_trace(path: Path, model: Artifact, arrays: Sequence[Array], threads: int, db: str | None) -> None:
    """Write the timeline. Raises InputError for a file that is not a linked model."""
    from autotensor.base.errors import InputError
    from autotensor.cli.output import tell
    from autotensor.cli.rates import measured_peak
    from autotensor.insight.inference_timeline import inference_timeline
    from autotensor.runtime.kernel_times import kernel_clock

    clock = kernel_clock(model, arrays, threads)
    if not clock.kernels:
        raise InputError(f"{model.name} has no separate kernels.", fix="Leave out --trace.")
    timeline = inference_timeline(clock, model.name, measured_peak(db, model.target))
    timeline.save(path)
    tell(f"{path}: {counted(len(clock.kernels), 'kernel')} and their threads; open it in ui.perfetto.dev.")


def quantile(ordered: list[float], share: float) -> float:
    """The value below which `share` of the samples lie.

    >>> quantile([1.0, 2.0, 3.0], 0.5)
    2.0
    """
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _merged(kernels: list[KernelTime]) -> list[dict[str, Any]]:
    """One entry per workload, the most expensive first."""
    from autotensor.runtime.kernel_times import by_workload

    first = {k.workload: k for k in reversed(kernels)}
    count = Counter(k.workload for k in kernels)
    totals = by_workload((k.workload, k.seconds) for k in kernels)
    return [
        {"name": first[w].name, "workload": w, "flops": first[w].flops, "count": count[w], "total_s": total}
        for w, total in sorted(totals.items(), key=lambda item: -item[1])
    ]
