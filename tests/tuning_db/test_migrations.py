"""Schema versions: creating and migrating agree, old logs are upgraded, a kill leaves old or new.

`fixtures/v1.sql` is a log as version 1 wrote it. It is never written again; with version 2 comes v2.sql.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tuning_db import StoreError, connect, migrations

Start = Callable[..., "subprocess.Popen[str]"]
FIXTURES = Path(__file__).parent / "fixtures"

V0002 = '''
"""Schema version 2, for the test: one more column on trial, made by rebuilding the table."""
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0002", "0001", None, None


def upgrade():
    views = op.get_bind().execute(sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'view'")).all()
    for name, _ in views:
        op.execute(f"DROP VIEW {name}")
    with op.batch_alter_table("trial", recreate="always") as table:
        table.add_column(sa.Column("note", sa.Text, nullable=False, server_default="none"))
    for _, sql in views:
        op.execute(sql)
    PAUSE
'''


def dump_schema(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        pragmas = {p: str(db.execute(f"PRAGMA {p}").fetchone()) for p in ("application_id", "user_version")}
    return pragmas | {name: re.sub(r"\s+", " ", sql) for name, sql in rows}


def restore(path: Path, dump: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript((FIXTURES / dump).read_text())
    return path


@pytest.fixture
def version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program as it will be with a second schema version."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "v0002_note.py").write_text(V0002.replace("PAUSE", ""))
    monkeypatch.setattr(migrations, "FOLDER", folder)
    monkeypatch.setattr(migrations, "HEAD", 2)
    return folder


def test_head_is_the_newest_migration() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(migrations.FOLDER))
    assert scripts.get_current_head() == migrations.revision(migrations.HEAD)


def test_creating_and_migrating_give_the_same_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning_db import engine

    connect(tmp_path / "created.db").close()
    monkeypatch.setattr(engine, "create_tables", migrations.upgrade)
    connect(tmp_path / "migrated.db").close()
    created, migrated = dump_schema(tmp_path / "created.db"), dump_schema(tmp_path / "migrated.db")
    version_table = migrations.VERSION_TABLE  # alembic spells its own table a little differently
    assert created.pop(version_table)
    assert migrated.pop(version_table)
    assert created == migrated


def test_opening_a_current_log_loads_no_alembic(log: Path, python: Start) -> None:
    script = (
        "import sys, tuning_db; assert 'sqlalchemy' not in sys.modules\n"
        "tuning_db.connect(sys.argv[1]).close(); assert 'alembic' not in sys.modules\n"
        "tuning_db.connect(sys.argv[1] + '2').close(); assert 'alembic' not in sys.modules\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('autotensor', 'numpy')]"
    )
    _, err = python("-c", script, log).communicate(timeout=60)
    assert err == ""


@pytest.mark.parametrize("dump", sorted(p.name for p in FIXTURES.glob("v*.sql")))
def test_log_of_every_version_opens_with_the_same_rows(tmp_path: Path, dump: str) -> None:
    with connect(restore(tmp_path / "old.db", dump)) as store:
        assert store.check().ok
        assert store.check().schema_version == migrations.HEAD
        assert [t.trace_hash for t in store.best("w", "t", "zen4", k=9)] == ["b", "a"]
        assert [g.signature for g in store.failures()] == ["kernel 'k' needs # bytes"]
        (session,) = store.sessions()
        assert (session.run_key, session.seed, session.stop_reason) == ("run", 1, "done")
        assert [s.seconds for s in store.trials()[0].samples] == pytest.approx([0.0018, 0.002, 0.0022])
        assert store.rounds(session.id)[0].notes == {"rng": (1, 2)}
        assert [i.trace_hash for i in store.open_intents()] == ["hangs"]
        assert store.calibration("zen4")["peak"].value == 1e11


def test_old_log_is_backed_up_and_upgraded(tmp_path: Path, version_2: Path) -> None:
    path = restore(tmp_path / "old.db", "v1.sql")
    with connect(path) as store:
        assert store.check().ok
        assert store.check().schema_version == 2
        assert store.count() == 3
        assert len(store.trials()[0].samples) == 3
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT DISTINCT note FROM trial").fetchall() == [("none",)]
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert len(db.execute("SELECT * FROM v_best").fetchall()) == 1
    (backup,) = tmp_path.glob("old.db.v1.*.backup")
    with closing(sqlite3.connect(backup)) as db:
        assert db.execute("SELECT version_num FROM tuning_db_version").fetchone() == ("0001",)
        assert db.execute("SELECT COUNT(*) FROM trial").fetchone() == (3,)
    connect(path).close()
    assert len(list(tmp_path.glob("*.backup"))) == 1


def test_old_log_is_not_upgraded_when_readonly(tmp_path: Path, version_2: Path) -> None:
    path = restore(tmp_path / "old.db", "v1.sql")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"has schema version 1; 2 is needed\. Open it once for writing"):
        connect(path, readonly=True)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.backup"))


def test_upgrade_that_fails_changes_nothing(tmp_path: Path, version_2: Path) -> None:
    (version_2 / "versions" / "v0002_note.py").write_text(V0002.replace("PAUSE", "raise ValueError('oh')"))
    path = restore(tmp_path / "old.db", "v1.sql")
    before = dump_schema(path)
    with pytest.raises(StoreError):
        connect(path)
    assert dump_schema(path) == before


def test_upgrade_that_is_killed_leaves_the_old_log(tmp_path: Path, version_2: Path, python: Start) -> None:
    pause = "import time; print('halfway', flush=True); time.sleep(60)"
    (version_2 / "versions" / "v0002_note.py").write_text(V0002.replace("PAUSE", pause))
    path = restore(tmp_path / "old.db", "v1.sql")
    before = dump_schema(path)
    script = (
        "import sys, pathlib; from tuning_db import connect, migrations\n"
        "migrations.FOLDER = pathlib.Path(sys.argv[2]); migrations.HEAD = 2; connect(sys.argv[1])"
    )
    process = python("-c", script, path, version_2)
    assert process.stdout is not None
    assert process.stdout.readline() == "halfway\n"
    process.kill()
    process.communicate()
    assert dump_schema(path) == before
    (version_2 / "versions" / "v0002_note.py").write_text(V0002.replace("PAUSE", ""))
    with connect(path) as store:
        assert store.check().schema_version == 2
        assert store.count() == 3


def write_fixture(path: Path, author: Any) -> None:
    """How v1.sql was made: `python test_migrations.py` once, at version 1."""
    from datetime import UTC, datetime

    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with connect(path) as store:
        a = author(store)
        store.put_calibration("zen4", {"peak": 1e11})
        store.start_round(a.session, "w", "t", 0, {"rng": [1, 2]})
        store.mark_intent(a.intent("hangs"))
        trials = [a.trial("a", 2e-3, round=0), a.trial("b", 1e-3), a.trial("c", None)]
        from dataclasses import replace

        store.add_trials([replace(t, created=when) for t in trials])
        store.end_session(a.session, "done")
    with closing(sqlite3.connect(path)) as db:
        head = "".join(
            f"PRAGMA {p} = {db.execute(f'PRAGMA {p}').fetchone()[0]};\n"
            for p in ("application_id", "user_version")
        )
        FIXTURES.mkdir(exist_ok=True)
        (FIXTURES / f"v{migrations.HEAD}.sql").write_text(head + "\n".join(db.iterdump()) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from writer import Author

    write_fixture(Path(sys.argv[1]), Author)
