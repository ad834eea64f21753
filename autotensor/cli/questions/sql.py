"""`autotensor db sql "SELECT …"`: any question in SQL."""

from __future__ import annotations

from typing import Annotated

import typer

from autotensor.base.errors import InputError
from autotensor.cli.options import AsCsv, AsJson, Db, example, new_app
from autotensor.cli.questions.answers import put_answer
from autotensor.cli.questions.reading import reading

app = new_app()


@app.command("sql", epilog=example('autotensor db sql "SELECT name, median_s FROM v_best" --csv'))
def sql(
    query: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT in the database's own SQL.")],
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Query a log in SQL. The query cannot change the log."""
    with reading(db) as store:
        heads, rows = store.ask(query)
    twice = next((h for h in heads if heads.count(h) > 1), None)
    if json and twice is not None:
        raise InputError(f"two columns of the result are named {twice!r}.", fix="Rename one with AS.")
    put_answer(heads, [[_plain(value) for value in row] for row in rows], json, csv)


def _plain(value: object) -> object:
    """A value for JSON: bytes in hexadecimal; times and other types of a server as text."""
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, int | float | str | list | dict) else str(value)
