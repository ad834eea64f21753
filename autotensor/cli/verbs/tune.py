"""`autotensor tune MODEL`: search, and keep a runnable .atm file up to date while searching."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotensor.cli.main import NOTHING
from autotensor.cli.options import (
    AsJson,
    Batch,
    Db,
    Force,
    Given,
    ModelName,
    NoShipped,
    NumericsText,
    Seed,
    Shapes,
    TargetText,
    Threads,
    Weights,
    duration_s,
    example,
    new_app,
    share_of,
    target_of,
)
from autotensor.cli.output import put_json, say, table, tell
from autotensor.insight.units import gflops, micros, millis, percent

if TYPE_CHECKING:
    from autotensor.api.model_tuning import ModelReport
    from autotensor.search.options import TuneOptions
    from autotensor.search.report import TaskReport

app = new_app()
LEAST_TIME = "1m"  # in which the largest built-in model gets some trials

EPILOG = example(
    "autotensor tune mlp --trials 64",
    "autotensor tune resnet --effort quick",
    "autotensor tune resnet --trials 2000 --deadline 15m",
    "autotensor tune resnet18 --weights resnet18.safetensors --out photos.atm",
)


@app.command(epilog=EPILOG)
def tune(
    ctx: typer.Context,
    model: ModelName,
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most candidates to measure, over all tasks.")
    ] = 1000,
    effort: Annotated[
        str,
        typer.Option(
            metavar="quick|normal|full",
            help="quick: two batches of 8 trials for each heavy task (90 % of the time), a minute at most. "
            "normal: every task, until a batch promises less than 0.05 % of the model's time. full: every "
            "task until its limit, its space or high confidence; longer final races.",
        ),
    ] = "normal",
    until_gain_below: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="End when no task's next batch is expected to save this share of the model's time: 1%, "
            "0.005. Default: as --effort says.",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Be done, model written, after so long: 90s, 3m, 1h30m."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew instead of continuing this run.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.atm", help="The model file. Default: ./MODEL.atm."),
    ] = None,
    weights: Weights = None,
    batch: Batch = 1,
    shape: Shapes = None,
    input: Given = None,
    cost_model: Annotated[
        str, typer.Option(metavar="xgb|prior|random", help="What ranks candidates.")
    ] = "xgb",
    seed: Seed = 0,
    threads: Threads = None,
    target: TargetText = None,
    numerics: NumericsText = None,
    db: Db = None,
    no_shipped: NoShipped = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Search for fast schedules of a model on this machine.

    A runnable .atm file is there within seconds and gets better as the search goes on; Ctrl-C, SIGTERM or
    --deadline leave the best so far; the exit code is 3 if there was no time for a single trial. Every trial
    is kept in the tuning log: the same command again measures nothing, more trials continue, --fresh starts
    anew. A file that holds another model, or this one for another target, batch or weights, stays as it is
    unless --force is given.
    """
    deadline_s = None if deadline is None else duration_s(deadline)
    least = None if until_gain_below is None else share_of(until_gain_below, "'--until-gain-below'")
    if effort not in ("quick", "normal", "full"):
        raise typer.BadParameter(
            f"{effort!r} is no effort. Known: quick, normal, full.", param_hint="'--effort'"
        )
    if cost_model not in ("xgb", "prior", "random"):
        raise typer.BadParameter(
            f"{cost_model!r} is no cost model. Known: xgb, prior, random.", param_hint="'--cost-model'"
        )
    from dataclasses import replace

    from autotensor.api.log import log_name, open_log
    from autotensor.api.model_tuning import tune_model
    from autotensor.api.models import check_target, plan_model
    from autotensor.base.deadline import Deadline
    from autotensor.cli.inputs import build_graph, check_known, check_replaced, facts, place_of
    from autotensor.cli.interrupts import Interrupts
    from autotensor.insight.progress import Progress
    from autotensor.search.options import TuneOptions
    from autotensor.search.report import LATE

    options = TuneOptions(
        trials=trials,
        seed=seed,
        model=cost_model,
        effort=effort,
        until_gain_below=least,
        fresh=fresh,
        deadline_s=deadline_s,
    )
    until = Deadline.after(options.limit_s)
    chosen = check_target(target_of(target, threads, numerics))
    graph = build_graph(model, batch, weights, shape, input)
    path = place_of(out, graph, batch)
    with open_log(db):  # what is wrong with it is said before anything is compiled
        pass
    (tell if json else say)(f"Log: {log_name(db)}   model file: {path}")
    stop, began = Interrupts(), time.time()
    try:
        with stop:
            plan = replace(plan_model(graph, chosen), facts=facts(model, weights))
            check_replaced(path, plan, force)
            check_known(path, plan, db, force)
            tell(f"Compiling {len(plan.tasks)} tasks as known so far; then {path} can be run.")
            with Progress(trials, options.limit_s) as progress:
                report = tune_model(
                    plan,
                    options,
                    db=db,
                    path=path,
                    listener=progress.hear,
                    stopped=stop.asked,
                    progress=False,
                    deadline=until,
                )
    except KeyboardInterrupt:
        written = path.is_file() and path.stat().st_mtime >= began
        tell(f"\nStopped at once; {path} {'has the best until then' if written else 'was not written'}.")
        raise typer.Exit(stop.code or 128 + signal.SIGINT) from None
    document = describe(report, model, db, progress.statuses, options)
    document["interrupted"] = stop.asked()
    if stop.asked():
        document["reason"] = "it was interrupted"
    if json:
        put_json(document)
    else:
        print_report(document)
    if stop.asked():
        tell(f"Stopped; {path} has the best so far. Continue with: {again(ctx)}")
        raise typer.Exit(stop.code)
    if report.tuning.reason == LATE and not report.tuning.trials:
        tell(
            f"Nothing was measured: {deadline} were over before the first trial. {path} has what was known "
            f"before; give more time, --deadline {LEAST_TIME} say."
        )
        raise typer.Exit(NOTHING)


def again(ctx: typer.Context) -> str:
    """The command that continues this run."""
    words = ["autotensor", "tune", str(ctx.params["model"])]
    for name, value in ctx.params.items():
        given = str(ctx.get_parameter_source(name)).endswith("COMMANDLINE")
        if given and name not in ("model", "fresh", "json", "force"):
            words += [f"--{name.replace('_', '-')}", *(() if value is True else (str(value),))]
    return shlex.join(words)


def describe(
    report: ModelReport, model: str, db: str | None, statuses: Mapping[str, int], options: TuneOptions
) -> dict[str, Any]:
    """Everything that was found, as JSON data; seconds and operations a second."""
    from autotensor.api.log import log_name
    from autotensor.api.prediction import disagreement
    from autotensor.cli.rates import measured_peak

    tuning = report.tuning
    peak = measured_peak(db, tuning.tasks[0].task.target.num_cores)
    inside = {t.key: t.inside_s for t in report.times}
    return {
        "model": model,
        "file": None if report.path is None else str(report.path),
        "log": log_name(db),
        "target": tuning.tasks[0].task.target.key(),
        "seed": options.seed,
        "effort": options.effort,
        "until_gain_below": options.least_gain,
        "default_s": report.default_s,
        "tuned_s": report.tuned_s,
        "predicted_s": report.predicted_s,
        "disagreement": disagreement(report.times, report.tuned_s),
        "trials": tuning.trials,
        "reused": tuning.reused,
        "failures": sum(t.failures for t in tuning.tasks),
        "rejected": sum(t.rejected for t in tuning.tasks),
        "statuses": dict(statuses),
        "elapsed_s": tuning.elapsed_s,
        "seconds": tuning.shares,
        "reason": tuning.reason,
        "notes": list(report.notes),
        "peak_flops": peak,
        "inputs": [str(a) for a in report.module.args if a.role != "output"],
        "tasks": sorted((_task(t, inside, peak) for t in tuning.tasks), key=lambda t: -t["share"]),
    }


def _task(t: TaskReport, inside: Mapping[str, float], peak: float | None) -> dict[str, Any]:
    flops = float(t.task.workload.dag.flops())
    rate = flops / t.best_s if t.best_s else None
    return {
        "name": t.task.label,
        "key": t.task.workload.key,
        "weight": t.task.weight,
        "share": inside.get(t.task.workload.key, 0.0) / (sum(inside.values()) or 1.0),
        "default_s": t.default_s,
        "best_s": t.best_s,
        "flops": flops,
        "flops_per_s": rate,
        "share_of_peak": rate / peak if rate and peak else None,
        "trials": t.trials,
        "failures": t.failures,
        "rejected": t.rejected,
        "reason": t.reason,
    }


HEADS = (
    "task",
    "weight",
    "share",
    "before us",
    "after us",
    "GFLOP/s",
    "of peak",
    "trials",
    "stopped because",
)


def print_report(d: Mapping[str, Any]) -> None:
    table(HEADS, [_row(t) for t in d["tasks"]])
    say()
    failed = ", ".join(
        f"{n} {status}" for status, n in sorted(d["statuses"].items()) if status not in ("OK", "REJECTED")
    )
    trials = f"{d['trials']} trial{'s' * (d['trials'] != 1)}"
    say(
        f"{trials} ({d['reused']} from the log) in {d['elapsed_s']:.0f} s{_shares(d)}; "
        f"{d['failures']} failed{f' (now: {failed})' if failed else ''}, {d['rejected']} rejected unrun; "
        f"stopped because {d['reason']}."
    )
    for note in d["notes"]:
        say(f"Note: {note}.")
    say(
        f"{d['model']}: {latency(d['default_s'], d['tuned_s'])}; "
        f"its tasks add up to {millis(d['predicted_s'])}."
    )
    if d["disagreement"]:
        say(f"Note: {d['disagreement']}.")
    say(f"Use it: {use(d['file'], d['inputs'])}")


def use(file: str, inputs: Sequence[str]) -> str:
    """The line of Python that loads and calls a file; inputs: each with its type, `x: float32[1, 784]`."""
    from autotensor.ir.printer import identifier

    names, kinds = ", ".join(identifier(i.split(":")[0]) for i in inputs), "; ".join(inputs)
    return f"import autotensor as at; y = at.load({json.dumps(file, ensure_ascii=False)})({names})  # {kinds}"


def latency(default_s: float, tuned_s: float) -> str:
    """What tuning gave; equal times are one time: that of the default schedules, which were kept."""
    from autotensor.resolve import gain

    if default_s == tuned_s:
        return f"{millis(default_s)} with the default schedules"
    return f"{millis(default_s)} untuned, {millis(tuned_s)} tuned ({gain(default_s, tuned_s)})"


def _row(t: Mapping[str, Any]) -> Sequence[str]:
    return (
        t["name"],
        f"{t['weight']:g}",
        percent(t["share"]),
        micros(t["default_s"]),
        micros(t["best_s"]),
        gflops(t["flops"], t["best_s"]),
        percent(t["share_of_peak"] or None),
        str(t["trials"]),
        t["reason"],
    )


def _shares(d: Mapping[str, Any]) -> str:
    if not d["elapsed_s"] or d["trials"] == d["reused"]:
        return ""
    return " (" + ", ".join(f"{k} {percent(v / d['elapsed_s'])}" for k, v in d["seconds"].items()) + ")"
