"""The reference of the tables lists exactly the existing columns, in the database's order."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tuning_db.dictionary import EVERYWHERE, MEANINGS, described, markdown

ROOT = Path(__file__).parents[2]


def test_every_column_is_described(log: Path) -> None:
    with closing(sqlite3.connect(log)) as db:
        names = db.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"
        )
        there = {
            name: [c[1] for c in db.execute(f"PRAGMA table_info({name})")] for (name,) in names.fetchall()
        }
    said: dict[str, list[str]] = {}
    for d in described():
        said.setdefault(d.table, []).append(d.column)
        assert d.meaning
    assert said == there


def test_nothing_is_described_that_is_not_there() -> None:
    known = {(d.table, d.column) for d in described()}
    assert {(table, column) for table, columns in MEANINGS.items() for column in columns} <= known
    assert set(EVERYWHERE) <= {column for _, column in known}


def test_what_is_in_seconds_says_so() -> None:
    for d in described():
        if d.column.endswith("_s") or d.column in ("seconds", "predicted"):
            assert d.unit == "s", d


def test_the_page_has_all_of_it() -> None:
    assert markdown() in (ROOT / "docs" / "tuning-log.md").read_text()
