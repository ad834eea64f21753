"""`autotensor explain TASK|TRIAL|MODEL`: the log's trials of a task, and why a schedule is fast or slow.

TASK                                    its fastest trials and its failures
TRIAL, or TASK with --default           one schedule: predicted and measured time, loops, caches, model
… --steps, --ablate                     the loops after each step; the gain of each step
TASK|MODEL --plot FILE.png              how the search went
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotensor.cli.find import find, log_there
from autotensor.cli.options import AsJson, Db, Machine, example, grouped, new_app
from autotensor.cli.output import put_json

app = new_app()


@app.command(
    epilog=example(
        "autotensor explain resnet50/4",
        "autotensor explain 17 --steps",
        "autotensor explain resnet50/4 --ablate",
        "autotensor explain resnet50 --plot resnet50.png",
    )
)
@grouped
def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TASK|TRIAL|MODEL",
            help="MODEL/N as `tasks` lists them, a workload's key, a trial's number; with --plot a model.",
        ),
    ],
    *,
    default: Annotated[
        bool, typer.Option("--default", help="Explain the default schedule of a task.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Print the loops after each step.")] = False,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Measure the schedule without each of its steps.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw how the search went, and its predictions."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Number of fastest trials to print.")] = 10,
    machine: Machine,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Print a task's trials in the log, or explain the time of one schedule.

    For a TASK, it prints the fastest trials on this machine. stack: vectors that an innermost loop carries
    through the stack; spills: vector moves to or from the stack. For a TRIAL, it prints predicted and
    measured time, loops, caches, and the cost model's part. --default explains the default schedule of a
    task; --steps and --ablate without it explain the schedule in use.
    """
    from autotensor.api.log import open_existing

    where = machine.chosen()
    with open_existing(db) as store:
        if plot is not None:
            if default or steps or ablate:
                raise typer.BadParameter("it cannot be combined with other options.", param_hint="'--plot'")
            from autotensor.cli.explaining.search_pictures import plot as draw

            draw(what, plot, where, log_there(store), json)
            return
        found = find(_no_model(what), store)
        if found.trial is None and not (default or steps or ablate):
            from autotensor.cli.explaining.task_trials import explain_task

            explain_task(found, top, where, log_there(store), json)
            return
        from autotensor.cli.explaining.why import explained

        document = explained(found, default, where, store, db, steps=steps, ablate=ablate)
    if json:
        put_json(document)
    else:
        from autotensor.cli.explaining.why_text import print_schedule

        print_schedule(document)


def _no_model(what: str) -> str:
    """Raises InputError for the bare name of a model, which has many tasks."""
    from autotensor.base.errors import InputError
    from autotensor.models import MODELS

    if what in MODELS:
        raise InputError(
            f"{what!r} is a model; one of its tasks is needed, or --plot FILE.png.",
            fix=f"`autotensor tasks {what}` lists them.",
        )
    return what
