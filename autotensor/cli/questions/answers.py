"""The answer to a question to the log: one table, as text, as JSON with a version, or as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from autotensor.cli.output import put_json, table

VERSION = 1  # of the JSON; another one where a column changes its meaning or goes

AsCsv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values on standard output.")]


def put_answer(heads: Sequence[str], rows: Sequence[Sequence[object]], json: bool, as_csv: bool) -> None:
    """Print rows under their heads: `{"version": …, "rows": [{head: value}]}` as JSON, a line each as CSV."""
    if json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other; give one.")
    if json:
        put_json({"version": VERSION, "rows": [dict(zip(heads, row, strict=True)) for row in rows]})
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([heads, *rows])
    else:
        table(heads, rows)
