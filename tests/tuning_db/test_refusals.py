"""Files that are not a usable log are refused in one clear sentence, and stay exactly as they were."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tuning_db import StoreError, connect

Start = Callable[..., "subprocess.Popen[str]"]


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def assert_refused(path: Path, message: str, readonly: bool | None = None) -> None:
    before = contents(path.parent)
    for mode in (False, True) if readonly is None else (readonly,):
        with pytest.raises(StoreError, match=message) as caught:
            connect(path, readonly=mode)
        assert caught.value.fix
        assert "\n" not in str(caught.value)
    assert contents(path.parent) == before


def make_sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_text_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("to do\n" * 100)
    assert_refused(path, "is not a tuning log: it is not a SQLite database")


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert_refused(tmp_path / "d", "is a directory")


def test_device_is_not_a_regular_file() -> None:
    with pytest.raises(StoreError, match="is not a regular file"):
        connect("/dev/null")


@pytest.mark.parametrize("wal", [False, True])
def test_database_of_another_program(tmp_path: Path, wal: bool) -> None:
    path = tmp_path / "browser.db"
    make_sqlite(path, "PRAGMA journal_mode=WAL" if wal else "SELECT 1", "CREATE TABLE trial (x)")
    assert_refused(path, "is an SQLite database of another program")


def test_database_of_another_program_with_an_open_wal(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE trial (x)")
        db.commit()
        assert_refused(path, "is an SQLite database of another program")


def test_newer_log(log: Path) -> None:
    make_sqlite(log, "PRAGMA user_version = 99", "UPDATE tuning_db_version SET version_num = '0099'")
    assert_refused(log, r"has schema version 99; this program reads only 2\. Upgrade autotensor")


def test_newer_log_whose_upgrade_is_still_in_the_wal(log: Path) -> None:
    with closing(sqlite3.connect(log)) as db:  # stays open: closing would move the WAL into the file
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("PRAGMA user_version = 99")
        db.execute("UPDATE tuning_db_version SET version_num = '0099'")
        db.commit()
        before = log.read_bytes()
        with pytest.raises(StoreError, match="has schema version 99"):
            connect(log)
        with pytest.raises(StoreError, match="has schema version 99"):
            connect(log, readonly=True)
        assert log.read_bytes() == before


def test_newer_version_only_in_the_table(log: Path) -> None:
    make_sqlite(log, "UPDATE tuning_db_version SET version_num = '0003'", "PRAGMA user_version = 2")
    assert_refused(log, "has schema version 3", readonly=False)


def test_cut_header(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "cut"
    path.mkdir()
    (path / "log.db").write_bytes(log.read_bytes()[:50])
    assert_refused(path / "log.db", "is damaged: its header is cut off")


def test_missing_and_empty_file_read_only(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.db", "does not exist", readonly=True)
    (tmp_path / "empty.db").touch()
    assert_refused(tmp_path / "empty.db", "is empty", readonly=True)


def test_empty_file_becomes_a_log(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with connect(tmp_path / "empty.db") as store:
        assert store.check().ok


def test_missing_directory_is_made(tmp_path: Path) -> None:
    with connect(tmp_path / "a" / "b" / "log.db") as store:
        assert store.check().ok


def test_directory_below_a_file_cannot_be_made(log: Path) -> None:
    with pytest.raises(StoreError, match="cannot make directory"):
        connect(log / "below" / "log.db")


def test_not_a_url_and_no_driver() -> None:
    with pytest.raises(StoreError, match="is not a database URL"):
        connect("http//:x://y")
    with pytest.raises(StoreError, match=r"'nosuchdb://user:.*@host/db' names an unsupported kind of"):
        connect("nosuchdb://user:secret@host/db")
    with pytest.raises(StoreError, match=r"SQLite file .* or on a PostgreSQL server .*psycopg") as said:
        connect("mysql://user:secret@host/db")
    assert "MySQLdb" not in str(said.value)
    with pytest.raises(StoreError, match=r"unsupported kind of database\. Did you mean postgresql://\? A"):
        connect("postgres://user@host/db")
    with pytest.raises(StoreError, match=r"names an unknown driver\. Write postgresql://USER@HOST/NAME"):
        connect("postgresql+nosuch://user@host/db")


def test_password_is_not_shown() -> None:
    with pytest.raises(StoreError) as caught:
        connect("postgresql+nosuchdriver://user:secret@host/db")
    assert "secret" not in str(caught.value)


def test_url_and_path_name_the_same_log(log: Path) -> None:
    with connect(f"sqlite:///{log}") as store:
        assert store.count() == 40
    with connect(str(log)) as store:
        assert store.count() == 40


def test_names_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "a b#?%20&é.db"
    connect(path).close()
    with connect(path, readonly=True) as store:
        assert store.count() == 0
    assert path.exists()


def test_readonly_log_reads_and_refuses_to_write(log: Path, author: Any) -> None:
    before = log.read_bytes()
    with connect(log, readonly=True) as store:
        assert store.count() == 40
        assert store.best("w", "t", "zen4")[0].median_s == 2e-3
        with pytest.raises(StoreError, match="is read-only"):
            author(store)
    assert log.read_bytes() == before


AS_NOBODY = (
    "import os, sys, tuning_db, tuning_db.store\n"
    "path = sys.argv[1]\n"
    "if os.getuid() == 0: os.setuid(65534)\n"
    "try:\n"
    "    with tuning_db.connect(path, readonly=sys.argv[2] == 'ro') as s: print('count', s.count())\n"
    "except tuning_db.StoreError as e: print(e)\n"
)


@pytest.fixture
def public(log: Path) -> Iterator[Path]:
    """The log in a place that another user can reach: all users may enter every folder above it."""
    folder = Path(tempfile.mkdtemp())
    copy = Path(shutil.copy(log, folder / "log.db"))
    folder.chmod(0o755)
    copy.chmod(0o644)
    yield copy
    folder.chmod(0o755)
    shutil.rmtree(folder)


def ask(python: Start, path: Path, mode: str) -> str:
    out, err = python("-c", AS_NOBODY, path, mode).communicate(timeout=240)
    assert err == ""
    return out.strip()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
class TestPermissions:
    def test_readonly_directory(self, public: Path, python: Start) -> None:
        public.parent.chmod(0o555)
        public.chmod(0o666)
        before = contents(public.parent)
        assert "directory" in (said := ask(python, public, "rw"))
        assert "is read-only" in said
        assert ask(python, public, "ro") == "count 40"  # enough for inference
        assert contents(public.parent) == before

    def test_readonly_file(self, public: Path, python: Start) -> None:
        public.parent.chmod(0o777)
        public.chmod(0o444)
        assert "is read-only. Make it writable, or only read from it." in ask(python, public, "rw")
        assert ask(python, public, "ro") == "count 40"

    def test_unreadable_file(self, public: Path, python: Start) -> None:
        public.chmod(0o000)
        assert "cannot read tuning log" in ask(python, public, "rw")
        assert "Permission denied" in ask(python, public, "ro")


def test_network_file_system_is_warned_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning_db import engine

    monkeypatch.setattr(engine, "_file_system", lambda folder: "nfs4")
    with pytest.warns(RuntimeWarning, match="is on a network file system"):
        connect(tmp_path / "log.db").close()
