"""`autotensor db schema [TABLE]`: every column of a log, its unit, its meaning."""

from __future__ import annotations

from typing import Annotated

import typer

from autotensor.base.errors import InputError
from autotensor.base.registry import suggest
from autotensor.cli.options import AsCsv, AsJson, example, new_app
from autotensor.cli.output import say
from autotensor.cli.questions.answers import put_answer

app = new_app()

HEADS = ("table", "column", "unit", "meaning")


@app.command("schema", epilog=example("autotensor db schema trial", "autotensor db schema --markdown"))
def schema(
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table or view.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all tables as Markdown, as in docs/tuning-log.md.")
    ] = False,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the tables and views of a log: every column, its unit, its meaning.

    → names the table that a row number refers to. Times are ISO 8601 text in UTC.
    """
    from tuning_db import dictionary

    if markdown:
        say(dictionary.markdown().rstrip())
        return
    found = dictionary.described()
    names = tuple(dict.fromkeys(d.table for d in found))
    if table is not None and table not in names:
        raise InputError(f"a log has no table {table!r}.", fix=suggest(table, names))
    rows = [(d.table, d.column, d.unit, d.meaning) for d in found if table in (None, d.table)]
    put_answer(HEADS, rows, json, csv)
