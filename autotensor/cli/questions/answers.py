"""Prints the result of a log query: one table, as text, as JSON with a version, or as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotensor.cli.output import put_json, table

VERSION = 1  # version of the JSON; it grows when a column changes its meaning or is removed

Row = Mapping[str, Any]
SHORT = 12  # characters of a hash that people read


def put_answer(
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    json: bool,
    as_csv: bool,
    shown: Mapping[str, Callable[[Row], object]] | None = None,
) -> None:
    """Print rows under their heads: `{"version": …, "rows": [{head: value}]}` as JSON, a line each as CSV.

    shown: columns of the text table, each computed from a row; if None, the rows are shown unchanged.
    """
    if json:
        put_json({"version": VERSION, "rows": [dict(zip(heads, row, strict=True)) for row in rows]})
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([heads, *rows])
    elif shown is None:
        table(heads, rows)
    else:
        named = [dict(zip(heads, row, strict=True)) for row in rows]
        table(list(shown), [[value(row) for value in shown.values()] for row in named])


def short(head: str) -> Callable[[Row], object]:
    """The first digits of a hash."""
    return lambda row: row[head] and row[head][:SHORT]


def whole(head: str) -> Callable[[Row], object]:
    return lambda row: row[head]


def minute(head: str) -> Callable[[Row], object]:
    """A time without seconds."""
    return lambda row: row[head] and row[head][:16]
