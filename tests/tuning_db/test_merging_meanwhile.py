"""Merging under disturbance: it is killed, another merge runs, other processes write, a server goes away."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server
from whole_logs import Open, contents, trial, unordered, write

from tuning_db import connect
from tuning_db.exchange import merging, transfer

KILLED = """
import os, signal, sys, tuning_db
from tuning_db.exchange import merging, transfer
merging.RANGE, left = 7, [int(sys.argv[3])]
def or_die(real):
    def step(*values):
        left[0] -= 1
        found = real(*values)
        if left[0] < 0:  # with what it did not yet committed
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return step
for name in ("_map_keys", "_trials", "_standings", "_applications", "_remember"):
    setattr(merging, name, or_die(getattr(merging, name)))
into, source = map(tuning_db.connect, sys.argv[1:3])
transfer.merge(into, source)
"""


@pytest.mark.parametrize("steps", [0, 1, 2, 5, -3, -2, -1])
@pytest.mark.sample(2)
def test_a_merge_that_was_killed_is_completed(
    tmp_path: Path, python: Callable[..., subprocess.Popen[str]], steps: int
) -> None:
    """After this number of steps, or this number of steps before the end."""
    with connect(tmp_path / "source.db") as source, connect(tmp_path / "whole.db") as whole:
        write(source, 1, sessions=6)
        transfer.merge(whole, source)
        expected, total = contents(whole), source.count()
    connect(tmp_path / "into.db").close()
    before_end = -(-total // 7) + 4 + steps
    steps = before_end if steps < 0 else steps
    child = python("-c", KILLED, tmp_path / "into.db", tmp_path / "source.db", steps)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    with connect(tmp_path / "into.db") as into, connect(tmp_path / "source.db") as source:
        assert into.check().ok
        known = into.count()
        assert known == min(total, 7 * max(0, steps - 1))
        found = transfer.merge(into, source)
        assert (found.new, found.known) == (total - known, known)
        assert contents(into) == expected
        assert into.check().ok


MERGED = """
import pathlib, sys, time, tuning_db
from tuning_db.exchange import merging, transfer
merging.RANGE = 7
with tuning_db.connect(sys.argv[1]) as into, tuning_db.connect(sys.argv[2]) as source:
    print("ready", flush=True)
    while not pathlib.Path(sys.argv[3]).exists():
        time.sleep(0.001)
    print(transfer.merge(into, source).new)
"""


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.postgres)])
@pytest.mark.sample(1)
def test_two_merges_at_once(
    tmp_path: Path, open_log: Open, python: Callable[..., subprocess.Popen[str]], kind: str
) -> None:
    into = open_log(kind)
    address = into.place
    if kind == "server":
        engine: Any = into._opened.read  # type: ignore[attr-defined]
        address = engine.url.render_as_string(hide_password=False)
    children = []
    for seed in (1, 2):
        with connect(tmp_path / f"source{seed}.db") as source:
            write(source, seed, sessions=8)
        children.append(python("-c", MERGED, address, tmp_path / f"source{seed}.db", tmp_path / "go"))
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    said = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    assert sum(int(out) for out, _ in said) == into.count()
    assert into.check().ok
    with connect(":memory:") as alone:
        for seed in (1, 2):
            with connect(tmp_path / f"source{seed}.db") as source:
                transfer.merge(alone, source)
        assert unordered(into) == unordered(alone)


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.postgres)])
@pytest.mark.sample(1)
def test_others_write_meanwhile(open_log: Open, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """To the log that grows, and to the one that is read."""
    monkeypatch.setattr(merging, "RANGE", 20)
    into, source = open_log(kind), open_log("file")
    write(source, 1, sessions=8, trials=60)
    write(into, 2)
    session = into.sessions()[0]
    there = source.sessions()[0]
    done = threading.Event()
    waits: list[float] = []

    def writer() -> None:
        for n in range(10**6):
            if done.is_set():
                return
            began = time.monotonic()
            into.add_trials([replace(trial(session, ("w0", "t0"), f"mine {n}", "h0", "c0"), round=None)])
            waits.append(time.monotonic() - began)
            source.add_trials([replace(trial(there, ("w1", "t1"), f"theirs {n}", "h0", "c0"), round=None)])

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        while not waits:
            time.sleep(0.001)
        before = len(waits)
        transfer.merge(into, source)
        during = len(waits) - before
    finally:
        done.set()
        thread.join()
    assert during >= 10, during
    transfer.merge(into, source)
    assert into.check().ok
    assert len(into.trials(session=session.id, workload_key="w0")) >= len(waits)
    assert {t.trace_hash for t in source.trials()} <= {t.trace_hash for t in into.trials()}


PLAIN = """
SELECT MAX(id) FROM trial WHERE id NOT IN (SELECT child_id FROM parent)
AND id NOT IN (SELECT trial_id FROM apply_event) AND id NOT IN (SELECT COALESCE(trial_id, 0) FROM standing)"""


@pytest.mark.postgres
def test_numbers_given_before_others_commit_are_not_lost(open_log: Open) -> None:
    source, target = open_log("server"), open_log("file")
    write(source, 1)
    engine: Any = source._opened.write  # type: ignore[attr-defined]
    with engine.connect() as slow, slow.begin():
        late = "SELECT nextval(pg_get_serial_sequence('trial', 'id'))"
        number = slow.exec_driver_sql(late).scalar_one()
        write(source, 3)
        transfer.merge(target, source)
        slow.exec_driver_sql(f"UPDATE trial SET id = {number} WHERE id = ({PLAIN})")
    with connect(":memory:") as fresh:
        transfer.merge(fresh, source)
        assert transfer.merge(target, source).new == 0
        assert unordered(target) == unordered(fresh)


@pytest.mark.postgres
@pytest.mark.parametrize("away", ["into", "source"])
def test_a_server_that_goes_away_is_waited_for(
    server: Server, open_log: Open, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr(merging, "RANGE", 7)
    here, there = open_log("file"), open_log("server")
    into, source = (there, here) if away == "into" else (here, there)
    write(source, 1)
    real, calls = merging._trials, []

    def trials(work: merging.Merging, low: int, high: int) -> int:
        calls.append(low)
        if len(calls) == 3:
            server.stop(crash=True)
            threading.Timer(0.5, server.start).start()
        return real(work, low, high)

    monkeypatch.setattr(merging, "_trials", trials)
    found = transfer.merge(into, source)
    assert (found.new, found.known) == (source.count(), 0)
    assert contents(into) == contents(source)
    assert into.check().ok
