"""`autotensor db history TASK`: a task's best trials over time, by session, day, commit, machine or maker."""

from __future__ import annotations

from typing import Annotated

import typer

from autotensor.cli.find import find
from autotensor.cli.options import AsCsv, AsJson, Db, example, new_app
from autotensor.cli.questions.answers import minute, put_answer, short, whole
from autotensor.cli.questions.reading import reading
from autotensor.insight.units import micros
from tuning_db.answers import By

app = new_app()

HEADS = ("since", "machine", "target", "residency", "trials", "best_s", "trial")
SHOWN = {
    "since": minute("since"),
    "machine": short("machine"),
    "residency": whole("residency"),
    "trials": whole("trials"),
    "us": lambda row: micros(row["best_s"]),
    "trial": whole("trial"),
}


@app.command(
    "history", epilog=example("autotensor db history resnet50/3", "autotensor db history af8327 --by commit")
)
def history(
    task: Annotated[str, typer.Argument(metavar="TASK", help="MODEL/N, or a workload's key.")],
    by: Annotated[By, typer.Option("--by", help="How trials are grouped.")] = By.SESSION,
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the best trial of a task over time, one for each session, day, commit, machine or maker.

    Only verified trials count. Trials of different machines, targets or states of the caches (residency) are
    never in one group, because their times cannot be compared.
    """
    with reading(db) as store:
        chapters = store.history(find(task, store).workload.key, by)
    rows = [
        (c.of, c.since.isoformat(), c.machine, c.target, c.residency, c.trials, c.best_s, c.trial)
        for c in chapters
    ]
    put_answer((by.value, *HEADS), rows, json, csv, {by.value: short(by.value)} | SHOWN)
