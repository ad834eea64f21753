"""`autotensor db prune` and `db compact` make a log smaller; trials in use are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from autotensor.base.counted import counted
from autotensor.cli.options import AsCsv, AsJson, Db, example, new_app
from autotensor.cli.output import put_json, say, tell
from autotensor.cli.questions.answers import put_answer, short, whole
from autotensor.cli.questions.reading import reading
from autotensor.insight.units import size

app = new_app()

HEADS = ("workload", "name", "trials", "gone")
SHOWN = {"key": short("workload"), "task": lambda row: row["name"][:40]} | {h: whole(h) for h in HEADS[2:]}


@app.command("prune", epilog=example("autotensor db prune --keep 50", "autotensor db prune --older 90 --yes"))
def prune(
    keep: Annotated[
        int, typer.Option("--keep", min=1, metavar="N", help="Trials to keep of each task on each machine.")
    ] = 100,
    older: Annotated[
        float | None, typer.Option("--older", min=0, metavar="DAYS", help="Delete only older trials.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, nothing is deleted.")] = False,
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete trials that are no longer needed; without --yes, only count them.

    These trials are kept: the fastest, defaults, races, trials in use or built into a file, trials of
    unfinished runs, an example of every failure, and all ancestors of these.
    """
    from autotensor.api.log import open_log
    from autotensor.resolve import DEFAULT
    from autotensor.search.shipped_knowledge import MADE_BY
    from tuning_db.values import now

    before = None if older is None else now() - timedelta(days=older)
    with reading(db):
        pass  # raises if there is no log
    with open_log(db) as store:
        found = store.prune(keep, before, (DEFAULT, MADE_BY), dry_run=not yes)
    put_answer(HEADS, [(p.workload, p.name, p.trials, p.gone) for p in found], json, csv, SHOWN)
    counts = f"{sum(p.gone for p in found)} of {counted(sum(p.trials for p in found), 'trial')}"
    tell(f"{counts} were deleted; `autotensor db compact` frees their disk space." if yes else
         f"{counts} would be deleted. Nothing was deleted: that needs --yes.")  # fmt: skip


@app.command("compact", epilog=example("autotensor db compact"))
def compact(db: Db = None, json: AsJson = False) -> None:
    """Rewrite a log without gaps, to free disk space.

    Other processes wait until it is done. A file needs as much free space as its new size.
    """
    from autotensor.api.log import open_log

    with reading(db):
        pass  # raises if there is no log
    with open_log(db) as store:
        before, after = store.compact()
        place = store.place
    put_json({"log": place, "bytes_before": before, "bytes": after}) if json else say(
        f"{place}: {size(before)} before, {size(after)} now."
    )
