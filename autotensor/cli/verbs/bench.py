"""`autotensor bench MODEL|FILE.atm`: latency, and the time of each kernel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.cli.options import (
    AsJson,
    FixedSource,
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

    from autotensor.runtime.arrays import Array
    from autotensor.runtime.files.artifact import Artifact
    from autotensor.runtime.kernel_times import KernelTime

app = new_app()


@app.command(
    epilog=example(
        "autotensor bench resnet50.atm",
        "autotensor bench mlp --threads 1 --repeat 100 --json",
        "autotensor bench resnet50.atm --trace resnet50.json",
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
    json: AsJson = False,
) -> None:
    """Time inferences of random input on an otherwise idle machine, then each kernel within the model.

    Waits until tuning runs finish their batch. The scripts in benchmarks/ compare with other programs.
    """
    from autotensor.base.deadline import NEVER
    from autotensor.base.errors import InputError
    from autotensor.cli.inputs import check_place, open_module, sample_arrays
    from autotensor.cli.model_files.onnx_parts import InParts
    from autotensor.runtime.device.module import DeviceModule
    from autotensor.runtime.kernel_times import kernel_times
    from autotensor.runtime.native.threads import current
    from autotensor.runtime.timing_lock import timing_by

    if trace is not None:
        check_place(trace)
    module = open_module(model, source, machine, log)
    if trace is not None and isinstance(module, InParts):
        raise InputError("a model that runs in parts has no timeline.", fix="Leave out --trace.")
    arrays = sample_arrays(module, seed)
    kernels: list[KernelTime] = []
    flops = 0.0
    with timing_by(NEVER):
        for _ in range(3):
            module(*arrays)
        if isinstance(module, InParts):
            samples = sorted(module.time(arrays, repeat))
        else:
            samples = sorted(module.time(arrays, repeat=repeat, min_seconds=0.0))
            kernels = kernel_times(module.ready, arrays, module.threads)
            flops = float(module.artifact.meta.get("flops", 0))
            if trace is not None:
                write_trace(trace, module.ready, arrays, module.threads, log.db)
    found: dict[str, Any] = {
        "model": module.name,
        "threads": module.threads,
        "provider": module.device.name if isinstance(module, DeviceModule) else str(current()),
        "repeat": repeat,
        "median_s": quantile(samples, 0.5),
        "p10_s": quantile(samples, 0.1),
        "p90_s": quantile(samples, 0.9),
        "flops": flops,
        "kernels": _merged(kernels),
    }
    if json:
        put_json({**found, "samples_s": samples})
        return
    rate = gflops(flops, found["median_s"])
    say(
        f"{module.name}: median {millis(found['median_s'])}, 10 % below {millis(found['p10_s'])}, 90 % below "
        f"{millis(found['p90_s'])} ({repeat} inferences, {module.threads} threads of {found['provider']}"
        f"{f', {rate} GFLOP/s' if rate != '-' else ''})"
    )
    if kernels:
        total = sum(k["total_s"] for k in found["kernels"])
        say()
        table(
            ("kernel", "times", "share", "us each", "GFLOP/s"),
            [
                (k["name"], k["count"], percent(k["total_s"] / total), micros(k["total_s"] / k["count"]),
                 gflops(k["flops"] * k["count"], k["total_s"]))
                for k in found["kernels"]
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
    tell(f"{path}: {len(clock.kernels)} kernels and their threads; open it in ui.perfetto.dev.")


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
