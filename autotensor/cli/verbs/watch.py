"""`autotensor watch [RUN]`: follows a run by its log, while it is tuned."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

from autotensor.cli.options import AsJson, Db, example, new_app

app = new_app()


@app.command(epilog=example("autotensor watch", "autotensor watch resnet50 --db team.db --every 5"))
def watch(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's key, its first digits, or a model."),
    ] = None,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Time between two updates.")
    ] = 1.0,
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Follow a run of another process until it ends. Ctrl-C ends the display; the run itself goes on.

    On a terminal a table is updated in place. Elsewhere a line is printed for new trials (--json: as JSON).
    """
    from autotensor.cli.questions.reading import reading
    from autotensor.cli.watching import follow_in_lines, follow_on_terminal
    from autotensor.insight.report.run_rows import find_run
    from autotensor.insight.watched_run import WatchedRun
    from tuning_db.values import now

    with reading(db) as store, suppress(KeyboardInterrupt):
        watched = WatchedRun(store, find_run(store, run))
        if sys.stdout.isatty() and not json:
            follow_on_terminal(watched, every)
        else:
            follow_in_lines(watched, every, json, now)
