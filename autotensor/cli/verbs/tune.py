"""`autotensor tune MODEL`: search, and keep a runnable .atm file up to date while searching."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotensor.base.counted import counted
from autotensor.cli.main import NOTHING
from autotensor.cli.options import (
    AsJson,
    FixedSource,
    Force,
    Log,
    ModelName,
    NumericMachine,
    Seed,
    duration_s,
    example,
    grouped,
    new_app,
    share_of,
)
from autotensor.cli.output import put_json, say, tell

if TYPE_CHECKING:
    from autotensor.api.model_tuning import ModelReport
    from autotensor.api.models import ModelPlan
    from autotensor.base.deadline import Deadline
    from autotensor.base.target import Target
    from autotensor.cli.interrupts import Interrupts
    from autotensor.search.options import TuneOptions
    from autotensor.search.report import TuneReport

app = new_app()
LEAST_TIME = "1m"  # enough for some trials of the largest built-in model

EPILOG = example(
    "autotensor tune mlp --trials 64",
    "autotensor tune resnet --effort quick",
    "autotensor tune resnet --trials 2000 --deadline 15m",
    "autotensor tune resnet18 --weights resnet18.safetensors --out photos.atm",
)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The extent and the parts of the search."""

    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most candidates to measure, in all tasks together.")
    ] = 1000
    effort: Annotated[
        str,
        typer.Option(
            metavar="quick|normal|full",
            help="quick: two batches of 8 trials for each heavy task (90 % of the time), a minute at most. "
            "normal: every task, until a batch promises less than 0.05 % of the model's time. full: every "
            "task until its limit, its space or high confidence; longer final races.",
        ),
    ] = "normal"
    until_gain_below: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="End when no task's next batch is expected to save this share of the model's time, e.g. 1% "
            "or 0.005. Default: set by --effort.",
        ),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End, with the model written, within this time: 90s, 3m, 1h30m."),
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again; do not continue this run.")] = False

    cost_model: Annotated[
        str,
        typer.Option(metavar="NAME", help="Ranks candidates: xgb, prior, random, or a name from a package."),
    ] = "xgb"
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Proposes candidates: tuner, uniform, or a name from a package. Default: depends on "
            "--cost-model.",
        ),
    ] = None
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The figure to minimise: median (seconds), or a name from a package."
        ),
    ] = "median"

    def checked(self, seed: int) -> TuneOptions:
        """Options of the search. Raises BadParameter for a bad value."""
        deadline_s = None if self.deadline is None else duration_s(self.deadline)
        gain = self.until_gain_below
        least = None if gain is None else share_of(gain, "'--until-gain-below'")
        from autotensor.base.errors import InputError
        from autotensor.search.options import TuneOptions

        try:
            return TuneOptions(
                self.trials,
                seed,
                self.cost_model,
                policy=self.policy,
                metric=self.metric,
                effort=self.effort,
                until_gain_below=least,
                fresh=self.fresh,
                deadline_s=deadline_s,
            )
        except InputError as wrong:
            raise typer.BadParameter(str(wrong)) from wrong


@app.command(epilog=EPILOG)
@grouped
def tune(
    ctx: typer.Context,
    model: ModelName,
    *,
    search: SearchOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE.atm", help="The model file. Default: ./MODEL.atm."),
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take the schedules of this file, without a search; if it does not exist, write it at the "
            "end.",
        ),
    ] = None,
    source: FixedSource,
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A scheduler, as tls://HOST:8786: its workers of this machine's class search.",
        ),
    ] = None,
    seed: Seed = 0,
    machine: NumericMachine,
    log: Log,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Search for fast schedules of a model on this machine.

    A runnable .atm file exists within seconds and is replaced as the search improves; Ctrl-C, SIGTERM or
    --deadline leave the best so far. The exit code is 3 if there was no time for a single trial. Every trial
    is kept in the tuning log: if the same command is given again, it measures nothing. A larger --trials
    continues, --fresh starts again. A file that holds another model, or this one for another target, batch or
    weights, is replaced only with --force.
    """
    options = search.checked(seed)
    from autotensor.api.log import log_name, open_log
    from autotensor.api.models import plan_model
    from autotensor.base.deadline import Deadline
    from autotensor.cli.inputs import build_graph, check_known, check_replaced, facts, place_of
    from autotensor.cli.interrupts import Interrupts
    from autotensor.cli.tune_report import describe, print_report
    from autotensor.search.machine.probes import cpu_times, others_cores
    from autotensor.search.report import LATE

    until = Deadline.after(options.limit_s)
    target = _usable_target(machine, lock)
    graph = build_graph(model, source)
    path = place_of(out, graph, source)
    with open_log(log.db):  # errors of the log come before anything is compiled
        pass
    (tell if json else say)(f"Log: {log_name(log.db)}   model file: {path}")
    stop, began = Interrupts(), time.time()
    try:
        with stop:
            plan = plan_model(graph, target, facts=facts(model, source))
            check_replaced(path, [plan], force)
            check_known(path, plan, log, force)
            before = cpu_times()
            report, statuses = _tuned(plan, options, path, log, stop, until, lock, fleet)
            others = others_cores(before, cpu_times())
    except KeyboardInterrupt:
        written = path.is_file() and path.stat().st_mtime >= began
        tell(f"\nStopped at once; {path} {'has the best so far' if written else 'was not written'}.")
        raise typer.Exit(stop.code or 128 + signal.SIGINT) from None
    document = describe(report, model, plan.target, log.db, statuses, options, stop.asked(), others, until)
    put_json(document) if json else print_report(document)
    if stop.asked():
        tell(f"Stopped; {path} has the best so far. Continue with: {again(ctx)}")
        raise typer.Exit(stop.code)
    if report.tuning.reason == LATE and not report.tuning.trials:
        tell(
            f"Nothing was measured: {why_nothing(report.tuning, options.limit_s or 0.0)}. {path} has the "
            f"schedules that were known before; give more time, e.g. --deadline {LEAST_TIME}."
        )
        raise typer.Exit(NOTHING)


def why_nothing(report: TuneReport, deadline_s: float) -> str:
    """Why a run has no trials: its deadline, and the tasks that could not be measured at all."""
    from autotensor.search.effort import COVERED
    from autotensor.search.report import LATE

    broken = [f"{t.task.label}: {t.reason}" for t in report.tasks if t.reason not in (LATE, COVERED)]
    late = f"the deadline of {deadline_s:g}s came before the first trial"
    return "; ".join([*broken, f"for the other tasks, {late}"]) if broken else late


def _usable_target(machine: NumericMachine, lock: Path | None) -> Target:
    """The chosen target. Raises TargetError if it cannot run whole models, or if its device is not here."""
    from autotensor.api.models import check_target
    from autotensor.runtime.device.devices import device_of

    target = check_target(machine.chosen())
    if target.is_gpu and lock is None:
        device_of(target)
    return target


def _tuned(
    plan: ModelPlan,
    options: TuneOptions,
    path: Path,
    log: Log,
    stop: Interrupts,
    until: Deadline,
    lock: Path | None,
    fleet: str | None,
) -> tuple[ModelReport, Mapping[str, int]]:
    """The report, and the number of trials by status."""
    from autotensor.api.model_tuning import tune_model
    from autotensor.insight.progress import Progress

    tasks = counted(len(plan.tasks), "task")
    tell(f"Compiling {tasks} with the best known schedules; then {path} can be run.")
    with Progress(options.trials, options.limit_s) as progress:
        report = tune_model(
            plan,
            options,
            db=log.db,
            path=path,
            listener=progress.hear,
            stopped=stop.asked,
            progress=False,
            deadline=until,
            lock=lock,
            fleet=fleet,
        )
    return report, progress.statuses


def again(ctx: typer.Context) -> str:
    """The command that continues this run."""
    words = ["autotensor", "tune", str(ctx.params["model"])]
    for name, value in ctx.params.items():
        given = str(ctx.get_parameter_source(name)).endswith("COMMANDLINE")
        if given and name not in ("model", "fresh", "json", "force"):
            for each in value if isinstance(value, list | tuple) else (value,):
                words += [f"--{name.replace('_', '-')}", *(() if each is True else (str(each),))]
    return shlex.join(words)
