"""Damaged logs and full disks raise only StoreErrors, and stored rows stay."""

from __future__ import annotations

import random
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tuning_db import StoreError, connect

Start = Callable[..., "subprocess.Popen[str]"]


def use_everything(path: Path, author: Any) -> str:
    """Opens the log, reads everything and writes. Returns the error; "" if there is none. Only StoreErrors
    are caught."""
    try:
        with connect(path) as store:
            said = []
            verbs: list[Callable[[], object]] = [
                lambda: store.best("w", "t", "zen4", k=3),
                lambda: store.best_foreign("w", "t", "other"),
                store.trials,
                store.failures,
                lambda: [store.progress(s.id) for s in store.sessions()],
                lambda: [store.rounds(s.id) for s in store.sessions()],
                lambda: store.calibration("zen4"),
                store.workloads,
                store.machines,
                store.open_intents,
                lambda: store.add_trials([(a := author(store)).trial("new"), a.trial("bad", None)]),
            ]
            for verb in verbs:
                try:
                    verb()
                except StoreError as error:
                    said.append(str(error))
            said += store.check().problems
            return "; ".join(said)
    except StoreError as error:
        return str(error)


def damage(data: bytes, rng: random.Random) -> bytes:
    match rng.randrange(4):
        case 0:
            return data[: rng.randrange(len(data))]
        case 1:
            start = rng.randrange(len(data))
            return data[:start] + bytes(rng.randbytes(min(512, len(data) - start))) + data[start + 512 :]
        case _:
            broken = bytearray(data)
            for _ in range(rng.choice((1, 10, 200))):
                broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(broken)


def break_many(log: Path, author: Any, copies: int, seed: int) -> None:
    rng = random.Random(seed)
    whole = log.read_bytes()
    noticed = 0
    for n in range(copies):
        path = log.with_name(f"broken{n}.db")
        path.write_bytes(damage(whole, rng))
        noticed += bool(use_everything(path, author))
        for left in log.parent.glob(f"{path.name}*"):
            left.unlink()
    assert noticed > copies // 4


def test_healthy_log_has_nothing_to_say(log: Path, author: Any) -> None:
    assert use_everything(log, author) == ""


def test_hundred_broken_logs(log: Path, author: Any) -> None:
    break_many(log, author, copies=100, seed=0)


@pytest.mark.slow
def test_two_thousand_broken_logs(log: Path, author: Any) -> None:
    break_many(log, author, copies=2000, seed=1)


def test_broken_log_says_how_to_mend_it(log: Path) -> None:
    data = bytearray(log.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 200] = b"\xff" * 200
    log.write_bytes(data)
    with pytest.raises(StoreError, match=r"log\.db' is damaged: .*Move it away and restore a backup"):
        connect(log).trials()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE trial SET decisions = 'no json' WHERE id = 2", "is damaged"),
        ("UPDATE trial SET created = 'yesterday' WHERE id = 2", "is damaged"),
        ("UPDATE trial SET median_s = 'fast' WHERE id = 2", "is damaged"),
        ("UPDATE trial SET median_s = 9e999 WHERE id = 2", "is damaged"),
        ("UPDATE trial SET status = 'GREAT', median_s = NULL WHERE id = 2", "is damaged: 'GREAT'"),
        ("UPDATE trial SET trace = CAST(x'ff00ff' AS TEXT) WHERE id = 2", "is damaged|failed"),
        ("UPDATE trial SET max_error = 5 WHERE id = 2", "above tolerance"),
        ("UPDATE trial SET samples = '[[-1.0,null]]' WHERE id = 2", "finite number of at least 0"),
        ("DELETE FROM tuning_db_version", "schema version is unreadable"),
        ("DROP TABLE parent", "is damaged|failed"),
    ],
)
def test_value_that_cannot_be(log: Path, change: str, message: str) -> None:
    with closing(sqlite3.connect(log)) as db:
        db.execute(change)
        db.commit()

    def read() -> None:
        with connect(log) as store:
            assert not store.check().ok
            store.trials()

    with pytest.raises(StoreError, match=message):
        read()


def test_check_names_broken_references(log: Path) -> None:
    with closing(sqlite3.connect(log)) as db:
        db.execute("DELETE FROM machine")
        db.commit()
    with connect(log) as store:
        report = store.check()
    assert "row 1 of trial refers to a missing row of machine" in report.problems


def test_file_that_vanishes_while_open(log: Path) -> None:
    with connect(log) as store:
        log.unlink()
        log.mkdir()
        store.count()  # the open connection still has its file


FILL_UP = """
import resource, sys
import tuning_db, importlib.util
spec = importlib.util.spec_from_file_location("writer", sys.argv[2])
writer = importlib.util.module_from_spec(spec); spec.loader.exec_module(writer)
store = tuning_db.connect(sys.argv[1])
a = writer.Author(store)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    for i in range(1000):
        store.add_trials([a.trial(f"f{i}", None, error="x" * 5000)])
        print(f"f{i}")
except tuning_db.StoreError as e:
    print(e)
    print(store.count())  # reading still works
store.close()
"""


def test_full_disk_is_said_and_nothing_acknowledged_is_lost(log: Path, python: Start) -> None:
    """A file size limit: writing fails below SQLite, as on a full disk."""
    process = python("-c", FILL_UP, log, Path(__file__).with_name("writer.py"))
    out, err = process.communicate(timeout=240)
    assert err == ""
    *acknowledged, said, count = out.splitlines()
    assert "full disk" in said
    assert "log.db" in said
    assert len(acknowledged) >= 10
    with connect(log) as store:
        assert store.check().ok
        assert set(acknowledged) <= {t.trace_hash for t in store.trials()}
        assert store.count() == int(count) == 40 + len(acknowledged)


def test_database_that_may_not_grow(log: Path, author: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning_db import engine

    connect_as_before = engine.connect_sqlite

    def connect_small(uri: str, foreign_keys: bool = True) -> sqlite3.Connection:
        connection = connect_as_before(uri, foreign_keys)
        connection.execute("PRAGMA max_page_count = 60")
        return connection

    monkeypatch.setattr(engine, "connect_sqlite", connect_small)
    with connect(log) as store:
        a = author(store)
        stored = 40

        def fill() -> None:
            nonlocal stored
            for i in range(200):
                stored += store.add_trials([a.trial(f"f{i}", None, error="x" * 5000)])

        with pytest.raises(StoreError, match=r"log\.db' could not grow: the disk is full\. Free some space"):
            fill()
        assert store.count() == stored
        assert store.check().ok


def test_log_held_by_another_process(log: Path, monkeypatch: pytest.MonkeyPatch, author: Any) -> None:
    from tuning_db import engine

    monkeypatch.setattr(engine, "BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(log)) as holder, connect(log) as store:
        holder.execute("BEGIN IMMEDIATE")
        assert store.count() == 40  # readers do not wait
        with pytest.raises(StoreError, match="stayed locked by another process"):
            author(store)
        holder.rollback()
        author(store)
