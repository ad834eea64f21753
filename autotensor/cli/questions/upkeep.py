"""`autotensor db prune` and `db compact`: a log made smaller, without what is used."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from autotensor.cli.options import AsJson, Db, example, new_app
from autotensor.cli.output import put_json, say, tell
from autotensor.cli.questions.answers import AsCsv, put_answer, short, whole
from autotensor.cli.questions.reading import reading
from autotensor.insight.units import size

app = new_app()

HEADS = ("workload", "name", "trials", "gone")
SHOWN = {"key": short("workload"), "task": lambda row: row["name"][:40]} | {h: whole(h) for h in HEADS[2:]}


@app.command("prune", epilog=example("autotensor db prune --keep 50", "autotensor db prune --older 90 --yes"))
def prune(
    keep: Annotated[
        int, typer.Option("--keep", min=1, metavar="N", help="The fastest of a task on a machine that stay.")
    ] = 100,
    older: Annotated[
        float | None, typer.Option("--older", min=0, metavar="DAYS", help="Only trials older than this go.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, nothing is deleted.")] = False,
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete trials that nothing needs; without --yes, say how many these are.

    What stays: the fastest, defaults, races, whatever is used or was built into a file, runs without an end,
    an example of every failure, and all that these were made from.
    """
    from autotensor.api.log import open_log
    from autotensor.resolve import DEFAULT
    from autotensor.search.shipped_knowledge import MADE_BY
    from tuning_db.values import now

    before = None if older is None else now() - timedelta(days=older)
    with reading(db):
        pass  # there is one
    with open_log(db) as store:
        found = store.prune(keep, before, (DEFAULT, MADE_BY), dry_run=not yes)
    put_answer(HEADS, [(p.workload, p.name, p.trials, p.gone) for p in found], json, csv, SHOWN)
    counts = f"{sum(p.gone for p in found)} of {sum(p.trials for p in found)} trials"
    tell(f"{counts} were deleted; `autotensor db compact` gives their space back." if yes else
         f"{counts} would be deleted. Nothing was: --yes does it.")  # fmt: skip


@app.command("compact", epilog=example("autotensor db compact"))
def compact(db: Db = None, json: AsJson = False) -> None:
    """Write a log anew without gaps, and give back the space.

    Others wait until it is done. A file needs as much free space as it will have.
    """
    from autotensor.api.log import open_log

    with reading(db):
        pass  # there is one
    with open_log(db) as store:
        before, after = store.compact()
        place = store.place
    put_json({"log": place, "bytes_before": before, "bytes": after}) if json else say(
        f"{place}: {size(before)} before, {size(after)} now."
    )
