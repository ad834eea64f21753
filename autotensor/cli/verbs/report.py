"""`autotensor report RUN [OTHER] -o FILE.html`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotensor.cli.options import AsJson, Db, Force, example, new_app

app = new_app()

RUN = "A run's key, a session of it, the first digits of either, or a model, which means its newest run."


@app.command(
    epilog=example(
        "autotensor report resnet50 -o resnet50.html",
        "autotensor report 3f9a 81c2 -o both.html",
        "autotensor report --json",
    )
)
def report(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=f"{RUN} Default: the newest run.")] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="Another run, shown on the same page.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page, complete in one file.")
    ] = Path("report.html"),
    db: Db = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Write a run as one HTML page: times before and after, convergence, failures, why the winners win.

    Two runs are shown side by side. --json prints the figures of the page instead, and writes no file.
    """
    from autotensor.api.log_handle import log
    from autotensor.cli.output import paragraph, put_json, say
    from autotensor.cli.output_files import PAGE, check_output, files_of_log
    from autotensor.insight.report.figures import document
    from autotensor.insight.units import size

    if not json:
        check_output(out, PAGE, force, files_of_log(db))
    with log(db) as handle:
        found = handle.report(run, other)
    if json:
        put_json([document(f) for f in (found.figures, found.against) if f is not None])
        return
    written = found.save(out)
    for line in str(found).splitlines():
        paragraph(line)
    say(f"{out}: {size(written)}.")
