"""A log of an older version is read like any other: it is backed up and upgraded first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import autotensor as at
from autotensor.api.log import open_existing
from tuning_db import migrations

FIXTURES = Path(__file__).parents[1] / "tuning_db" / "fixtures"


def test_an_older_log_is_upgraded_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((FIXTURES / "v1_races.sql").read_text())
    with open_existing(path) as store:
        assert store is not None
        assert store.count() == 72
        assert store.check().schema_version == migrations.HEAD
    assert len(list(tmp_path.glob("old.db.v1.*.backup"))) == 1
    with at.log(str(path)) as log:
        assert len(log.trials(limit=5)) == 5
    assert len(list(tmp_path.glob("*.backup"))) == 1
