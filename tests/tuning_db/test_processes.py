"""Several processes on one log, and processes that are killed while they write."""

from __future__ import annotations

import gc
import random
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tuning_db import Round, connect

Start = Callable[..., "subprocess.Popen[str]"]


def write_together(writers: Start, path: Path, processes: int, trials: int) -> None:
    started = [writers(path, f"p{n}", trials) for n in range(processes)]
    ends = [(p.communicate(timeout=280), p.returncode) for p in started]
    assert [(code, err) for (_, err), code in ends] == [(0, "")] * processes
    acknowledged = {line for (out, _), _ in ends for line in out.split() if line != "ready"}
    assert len(acknowledged) == processes * trials
    with connect(path) as store:
        stored = [t.trace_hash for t in store.trials()]
        assert sorted(stored) == sorted(acknowledged)  # none lost, none twice
        assert store.open_intents() == ()
        assert store.check().ok


def test_four_processes_create_and_write_one_log(tmp_path: Path, writers: Start) -> None:
    write_together(writers, tmp_path / "log.db", processes=4, trials=15)


@pytest.mark.slow
def test_ten_processes_write_200_trials_each_while_two_read(
    tmp_path: Path, writers: Start, python: Start
) -> None:
    path = tmp_path / "log.db"
    connect(path).close()
    reader = (
        "import sys, time, tuning_db\n"
        "store = tuning_db.connect(sys.argv[1], readonly=True)\n"
        "while store.count() < 2000: store.best('w', 't', 'zen4'); time.sleep(0.02)\n"
        "store.close()"
    )
    readers = [python("-c", reader, path) for _ in range(2)]
    write_together(writers, path, processes=10, trials=200)
    for r in readers:
        _, err = r.communicate(timeout=240)
        assert (r.returncode, err) == (0, "")


def kill_at_random_moments(path: Path, writers: Start, kills: int, rng: random.Random) -> None:
    acknowledged: set[str] = set()
    for n in range(kills):
        process = writers(path, f"k{n}", 100_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        out, err = process.communicate()
        assert err == ""
        acknowledged.update(line for line in out.splitlines(keepends=True) if line.endswith("\n"))
    with connect(path) as store:
        assert store.check().ok
        stored = {t.trace_hash + "\n" for t in store.trials()}
        assert acknowledged <= stored
        assert acknowledged
        # what was in flight when its process died is remembered, and nothing else: at most one each
        assert len(store.open_intents()) <= kills
        assert not {i.trace_hash + "\n" for i in store.open_intents()} & stored


def test_killed_writer_loses_nothing_acknowledged(tmp_path: Path, writers: Start) -> None:
    kill_at_random_moments(tmp_path / "log.db", writers, kills=5, rng=random.Random(0))


@pytest.mark.slow
def test_hundred_killed_writers_lose_nothing_acknowledged(tmp_path: Path, writers: Start) -> None:
    kill_at_random_moments(tmp_path / "log.db", writers, kills=100, rng=random.Random(1))


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1])
def test_kill_while_creating_leaves_a_log_that_opens(tmp_path: Path, python: Start, delay_s: float) -> None:
    path = tmp_path / "log.db"
    script = "import sys, tuning_db.store; print(1, flush=True); tuning_db.connect(sys.argv[1])"
    process = python("-W", "ignore", "-c", script, path)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay_s)
    process.kill()
    process.communicate()
    with connect(path) as store:
        assert store.check().ok


def test_hang_is_remembered_after_a_kill(tmp_path: Path, python: Start, author: Any) -> None:
    path = tmp_path / "log.db"
    with connect(path) as store:
        a = author(store)
        a.begin(a.intent("hangs"))
    with connect(path) as store:
        (intent,) = store.open_intents(a.session)
        again = replace(intent, started=intent.started + timedelta(seconds=1))
        store.begin_rounds([Round(a.session, "w", "t", 0)], [again])
        assert [(i.trace_hash, i.attempts) for i in store.open_intents(a.session)] == [("hangs", 2)]


def test_store_survives_a_fork_of_its_process(tmp_path: Path, python: Start) -> None:
    script = (
        "import os, sys; sys.argv[0] = ''\n"
        "from tuning_db import Machine, connect\n"
        "store = connect(sys.argv[1]); store.ensure_machine(Machine('parent'))\n"
        "child = os.fork()\n"
        "if not child: store.ensure_machine(Machine('child')); store.close(); os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "store.ensure_machine(Machine('after'))\n"
        "print(*(m.fingerprint for m in store.machines())); assert store.check().ok; store.close()"
    )
    process = python("-c", script, tmp_path / "log.db")
    out, err = process.communicate(timeout=240)
    assert (out, err) == ("parent child after\n", "")


PRUNE = """
import sys, tuning_db
from tuning_db.upkeep import pruning
pruning.RANGE = 20
with tuning_db.connect(sys.argv[1]) as store:
    print("ready", flush=True)
    store.prune(5)
"""


def prune_with_kills(path: Path, python: Start, author: Any, kills: int, rng: random.Random) -> None:
    """After each kill, the log is intact and has all rows that must stay. Pruning again completes the
    work."""
    with connect(path) as store:
        by = author(store)
        store.add_trials([by.trial(f"t{n}", 1e-3 + 1e-6 * n) for n in range(2000)])
        store.end_session(by.session, "done")
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with connect(copy) as store:
        store.prune(5)
        stays = {t.trace_hash for t in store.trials()}
    sizes = [2000]
    for _ in range(kills):
        process = python("-c", PRUNE, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.4))
        process.kill()
        process.communicate()
        with connect(path) as store:
            assert store.check().ok
            left = {t.trace_hash for t in store.trials()}
            assert stays <= left
            sizes.append(len(left))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 2000  # something was killed in the middle, or at the end
    with connect(path) as store:
        store.prune(5)
        assert {t.trace_hash for t in store.trials()} == stays


def test_a_killed_prune_loses_nothing_that_is_used(tmp_path: Path, python: Start, author: Any) -> None:
    prune_with_kills(tmp_path / "log.db", python, author, kills=4, rng=random.Random(2))


@pytest.mark.slow
def test_killed_prunes(tmp_path: Path, python: Start, author: Any) -> None:
    for n in range(5):
        prune_with_kills(tmp_path / f"log{n}.db", python, author, kills=5, rng=random.Random(n))


def test_a_log_that_is_dropped_closes_its_connections(tmp_path: Path) -> None:
    """Python 3.13 warns about each connection that is left open."""
    store = connect(tmp_path / "log.db")
    raw = store._opened.read.raw_connection()
    connection: Any = raw.dbapi_connection
    raw.close()  # back into the pool
    connection.execute("SELECT 1")
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")
