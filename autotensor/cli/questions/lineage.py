"""`autotensor db lineage TRIAL`: the parents of a candidate, how they were combined, and their parents."""

from __future__ import annotations

from typing import Annotated

import typer

from autotensor.cli.find import no_trial
from autotensor.cli.options import AsCsv, AsJson, Db, example, new_app
from autotensor.cli.questions.answers import put_answer
from autotensor.cli.questions.reading import reading

app = new_app()

HEADS = ("trial", "made_by", "status", "median_s", "how", "parent", "parent_trace")


@app.command("lineage", epilog=example("autotensor db lineage 17", "autotensor db lineage 17 --csv"))
def lineage(
    trial: Annotated[int, typer.Argument(metavar="TRIAL", help="A trial's number.")],
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List a trial, its parents, their parents, and so on.

    Each line is one parent of a trial; a trial without parents has one line. A parent has no number if its
    trace was never tried on that machine.
    """
    from autotensor.api.log_handle import log
    from tuning_db import StoreError

    with reading(db), log(db) as handle:
        try:
            family = handle.lineage(trial)
        except StoreError as error:
            raise no_trial(trial) from error
    numbers = {(t.workload, t.trace_hash): t.id for t in family}
    rows: list[tuple[object, ...]] = []
    for t in family:
        own = (t.id, t.made_by, t.status.value, t.median_s)
        rows += [
            (*own, p.how, numbers.get((p.workload or t.workload, p.trace_hash)), p.trace_hash)
            for p in t.parents
        ] or [(*own, None, None, None)]
    put_answer(HEADS, rows, json, csv)
