"""Schema versions: creating and migrating give the same tables, old logs are upgraded, and a kill leaves the
old or the new version.

`fixtures/v1.sql` is a log as version 1 wrote it. It is never written again; with version 3 comes v2.sql.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server

from tuning_db import SessionKind, StoreError, connect, migrations

Start = Callable[..., "subprocess.Popen[str]"]
FIXTURES = Path(__file__).parent / "fixtures"

V0003 = '''
"""Schema version 3, for the test: one more column on trial, made by rebuilding the table."""
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "0003", "0002", None, None


def upgrade():
    views = op.get_bind().execute(sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'view'")).all()
    for name, _ in views:
        op.execute(f"DROP VIEW {name}")
    with op.batch_alter_table("trial", recreate="always") as table:
        table.add_column(sa.Column("remark", sa.Text, nullable=False, server_default="none"))
    for _, sql in views:
        op.execute(sql)
    PAUSE
'''


def dump_schema(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        pragmas = {p: str(db.execute(f"PRAGMA {p}").fetchone()) for p in ("application_id", "user_version")}
    return pragmas | {name: re.sub(r"\s+", " ", sql) for name, sql in rows}


def restore(path: Path, *dumps: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for dump in dumps:
            db.executescript((FIXTURES / dump).read_text())
    return path


def questions() -> Any:
    spec = importlib.util.spec_from_file_location("tuning_db_v1_questions", FIXTURES / "make_v1.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def upgrade_to(c: Any, version: str) -> None:
    """Makes a database of an older version, as its program did."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    (file,) = (migrations.FOLDER / "versions").glob(f"v{version}_*.py")
    spec = importlib.util.spec_from_file_location(f"tuning_db_v{version}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with Operations.context(MigrationContext.configure(c)):
        module.upgrade()
    c.exec_driver_sql("CREATE TABLE tuning_db_version (version_num VARCHAR(32) PRIMARY KEY)")
    c.exec_driver_sql(f"INSERT INTO tuning_db_version VALUES ('{version}')")


def copy_rows(db: sqlite3.Connection, c: Any) -> None:
    """All rows of version 1 to a server, with their numbers."""
    from sqlalchemy import MetaData

    tables = MetaData()
    tables.reflect(c)
    for table in tables.sorted_tables:
        if table.name == migrations.VERSION_TABLE:
            continue
        names = [column.name for column in table.columns]
        rows = [
            dict(zip(names, row, strict=True))
            for row in db.execute(f"SELECT {', '.join(names)} FROM {table.name}")
        ]
        for row in rows:
            row |= {"verdict": bool(row["verdict"])} if "verdict" in row else {}
        if rows:
            c.execute(table.insert(), rows)
        if "id" in names:
            c.exec_driver_sql(
                f"SELECT setval('{table.name}_id_seq', {max((r['id'] for r in rows), default=0) + 1}, false)"
            )


@pytest.fixture
def version_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program as it will be with a third schema version."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "v0003_note.py").write_text(V0003.replace("PAUSE", ""))
    monkeypatch.setattr(migrations, "FOLDER", folder)
    monkeypatch.setattr(migrations, "HEAD", 3)
    return folder


def test_head_is_the_newest_migration() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(migrations.FOLDER))
    assert scripts.get_current_head() == migrations.revision(migrations.HEAD)


def test_creating_and_migrating_give_the_same_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning_db import schema

    connect(tmp_path / "created.db").close()
    monkeypatch.setattr(schema, "create_tables", migrations.upgrade)
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
        "assert 'sqlalchemy.dialects.postgresql' not in sys.modules\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('autotensor', 'numpy')]"
    )
    _, err = python("-c", script, log).communicate(timeout=240)
    assert err == ""


@pytest.mark.parametrize("dump", sorted(p.name for p in FIXTURES.glob("v?.sql")))
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


def test_every_old_answer_is_unchanged(tmp_path: Path) -> None:
    """Races of all kinds, failures, unverified times, tiny doubles, text that is not ASCII."""
    answers = json.loads((FIXTURES / "v1_races.json").read_text())
    with connect(restore(tmp_path / "old.db", "v1_races.sql")) as store:
        assert store.check().ok
        trials = answers.pop("trials")
        assert json.loads(json.dumps(questions().whole(store))) == trials
        assert json.loads(json.dumps(questions().ask(store))) == answers
        kinds = {s.id: (s.kind, s.run_key, s.of) for s in store.sessions(machine="here")}
        assert kinds == {
            "here search": (SessionKind.SEARCH, "0a1b", None),
            "here race": (SessionKind.RACE, "0a1b", "here search"),
            "here model": (SessionKind.MODEL, "model", None),
            "here end": (SessionKind.END, "end:77", None),
            "here other": (SessionKind.SEARCH, "9f", None),
        }
        assert [p.trace_hash for t in store.trials("w1", session="here search") for p in t.parents] == [
            "w1-0"
        ] * 3
        assert {s.race for s in store.standings()} == {"here model", "there model"}
        assert {s.trial for s in store.standings()} == {None}  # no winner was recorded


@pytest.mark.slow
def test_a_hundred_thousand_trials_are_upgraded(tmp_path: Path) -> None:
    answers = json.loads((FIXTURES / "v1_large.json").read_text())
    with connect(restore(tmp_path / "old.db", "v1_races.sql", "v1_large.sql")) as store:
        assert store.count() == 100_072
        assert json.loads(json.dumps(questions().ask(store))) == answers
    assert len(list(tmp_path.glob("old.db.v1.*.backup"))) == 1


def test_a_torn_log_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """Pages in the middle of the trials are lost. The upgrade finds this, and changes nothing."""
    path = restore(tmp_path / "old.db", "v1_races.sql")
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trial'").fetchone()
        db.execute("PRAGMA journal_mode = DELETE")
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = b"\xaa" * 4096
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"old\.db' is damaged: .*\. Move it away and restore a backup"):
        connect(path)
    assert path.read_bytes() == bytes(data)


def indexes(server: Server) -> dict[str, str]:
    import psycopg

    with psycopg.connect(server.url.replace("+psycopg", "")) as c:
        return dict(
            c.execute(
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
                " AND tablename <> 'tuning_db_version'"
            ).fetchall()
        )


@pytest.mark.postgres
def test_old_log_on_a_server_is_upgraded(server: Server) -> None:
    from sqlalchemy import create_engine

    server.empty()
    engine = create_engine(server.url)
    with engine.begin() as c:
        upgrade_to(c, "0001")
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript((FIXTURES / "v1_races.sql").read_text())
            copy_rows(db, c)
    engine.dispose()
    answers = json.loads((FIXTURES / "v1_races.json").read_text())
    with connect(server.url) as store:
        migrated = indexes(server)
        assert store.check().ok
        trials = answers.pop("trials")
        assert json.loads(json.dumps(questions().whole(store))) == trials
        assert json.loads(json.dumps(questions().ask(store))) == answers
        new = store.start_session(
            run_key="k", seed=0, machine="here", environment=store.environments()[0].key
        )
        old = store.trials(limit=1)[0]
        store.add_trials([replace(old, session=new.id, round=None, id=None)])
        assert store.trials(session=new.id)[0].id == 73  # numbers go on where they ended
    server.empty()
    connect(server.url).close()
    assert indexes(server) == migrated
    assert "WHERE (verdict AND " in migrated["ix_trial_best"]


def test_old_log_is_backed_up_and_upgraded(tmp_path: Path, version_3: Path) -> None:
    path = restore(tmp_path / "old.db", "v1.sql")
    with connect(path) as store:
        assert store.check().ok
        assert store.check().schema_version == 3
        assert store.count() == 3
        assert len(store.trials()[0].samples) == 3
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT DISTINCT remark FROM trial").fetchall() == [("none",)]
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert len(db.execute("SELECT * FROM sample").fetchall()) == 6
    (backup,) = tmp_path.glob("old.db.v1.*.backup")
    with closing(sqlite3.connect(backup)) as db:
        assert db.execute("SELECT version_num FROM tuning_db_version").fetchone() == ("0001",)
        assert db.execute("SELECT COUNT(*) FROM trial").fetchone() == (3,)
    connect(path).close()
    assert len(list(tmp_path.glob("*.backup"))) == 1


def test_old_log_is_not_upgraded_when_readonly(tmp_path: Path, version_3: Path) -> None:
    path = restore(tmp_path / "old.db", "v1.sql")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"has schema version 1; 3 is needed\. Open it once for writing"):
        connect(path, readonly=True)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.backup"))


def test_upgrade_that_fails_changes_nothing(tmp_path: Path, version_3: Path) -> None:
    (version_3 / "versions" / "v0003_note.py").write_text(V0003.replace("PAUSE", "raise ValueError('oh')"))
    path = restore(tmp_path / "old.db", "v1.sql")
    before = dump_schema(path)
    with pytest.raises(StoreError):
        connect(path)
    assert dump_schema(path) == before


def test_upgrade_that_is_killed_leaves_the_old_log(tmp_path: Path, version_3: Path, python: Start) -> None:
    pause = "import time; print('halfway', flush=True); time.sleep(60)"
    (version_3 / "versions" / "v0003_note.py").write_text(V0003.replace("PAUSE", pause))
    path = restore(tmp_path / "old.db", "v1.sql")
    before = dump_schema(path)
    script = (
        "import sys, pathlib; from tuning_db import connect, migrations\n"
        "migrations.FOLDER = pathlib.Path(sys.argv[2]); migrations.HEAD = 3; connect(sys.argv[1])"
    )
    process = python("-c", script, path, version_3)
    assert process.stdout is not None
    assert process.stdout.readline() == "halfway\n"
    process.kill()
    process.communicate()
    assert dump_schema(path) == before
    (version_3 / "versions" / "v0003_note.py").write_text(V0003.replace("PAUSE", ""))
    with connect(path) as store:
        assert store.check().schema_version == 3
        assert store.count() == 3


def write_fixture(path: Path, author: Any) -> None:
    """How v1.sql was made: `python test_migrations.py` once, at version 1."""
    from datetime import UTC, datetime

    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with connect(path) as store:
        a = author(store)
        store.put_calibration("zen4", {"peak": 1e11})
        a.begin(a.intent("hangs"), notes={"rng": [1, 2]})
        trials = [a.trial("a", 2e-3, round=0), a.trial("b", 1e-3), a.trial("c", None)]
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
