"""Following a run by its log: on a terminal, in lines, until it is over or Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Never

import pytest
from cli_tools import ROOT, cli, finish, know, mlp_plan, start
from made_up_runs import add_run, searched
from rich.text import Text

from autotensor.base.machine import host_machine
from autotensor.cli.watching import follow_on_terminal, picture
from autotensor.insight.watched_run import WatchedRun
from autotensor.search.task import Task
from tuning_db import Session, TrialStore, connect
from tuning_db.records import Code, Host, Run


@pytest.fixture
def tasks() -> list[Task]:
    return mlp_plan().search_tasks()


@pytest.fixture
def held(tmp_path: Path, tasks: list[Task]) -> Iterator[tuple[TrialStore, Session]]:
    """A run that is still running, with eight trials of its first task."""
    machine = host_machine().fingerprint
    with connect(tmp_path / "log.db") as store:
        know(store, machine)
        store.put_host(Host("h1", "anvil", machine))
        store.put_code(Code("c1", "0.1.0"))
        store.ensure_target(tasks[0].target.key(), tasks[0].target.to_json())
        for t in tasks:
            store.ensure_workload(t.workload.key, t.workload.name, t.workload.text, 1.0)
        entries = [{"workload": t.workload.key, "name": t.label, "weight": t.weight} for t in tasks]
        store.put_run(Run("r1", "mlp", tasks=tuple(entries)))
        environment = store.ensure_environment({"python": "3"})
        claim = store.claim(run_key="r1", seed=0, machine=machine, environment=environment, owner="me")
        searched(store, claim.session, tasks[0], 8, random.Random(0))
        yield store, claim.session


def test_a_picture_fits_and_shows_every_task(held, tasks):
    store, session = held
    w = WatchedRun(store, store.runs()[0])
    assert w.look()
    searched(store, session, tasks[1], 16, random.Random(1))
    assert w.look()
    assert {t.workload for t in w.new} == {tasks[1].workload.key}
    for width, height in ((80, 24), (60, 12), (200, 60)):
        lines = picture(w, width, height).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) < height
    assert all(t.label in "\n".join(lines) for t in tasks)
    assert "2 of 3 tasks have a time" in lines


def test_what_is_shown_is_the_logs(tmp_path, tasks):
    with connect(tmp_path / "log.db") as store:
        run = add_run(store, tasks, 60, "mlp")
        w = WatchedRun(store, run)
        assert not w.look()
        search = store.sessions()[0]
        assert w.standing == "ended: all trials are spent"
        known = store.progress(search.id)
        assert {k: t.best_s for k, t in w.tasks.items()} == {p.workload: p.best_s for p in known}
        assert sum(w.statuses.values()) == store.count(session=search.id)
        for p in known:
            assert w.tasks[p.workload].best_s == p.curve[-1][1]
        assert w.model_s is not None
        assert w.model_s[1] == pytest.approx(sum(t.weight * (t.best_s or 0.0) for t in w.tasks.values()))


def test_a_run_that_is_over_is_one_line(tmp_path, tasks):
    with connect(tmp_path / "log.db") as store:
        add_run(store, tasks, 24, "mlp")
        trials = store.count(session=store.sessions()[0].id)
    said = cli("watch", "--db", tmp_path / "log.db")
    assert said.code == 0
    assert re.fullmatch(r"\d\d:\d\d:\d\d mlp: \d+ trials, .*; ended: all trials are spent, 0:50\n", said.out)
    document = json.loads(cli("watch", "mlp", "--db", tmp_path / "log.db", "--json").out)
    assert document["model"] == "mlp"
    assert sum(document["statuses"].values()) == trials


def test_lines_come_while_others_write_and_end_with_the_run(held, tasks, tmp_path):
    store, session = held
    process = start("watch", "--db", tmp_path / "log.db", "--every", "0.1", cwd=tmp_path)
    assert process.stdout is not None
    assert "mlp: " in process.stdout.readline()
    searched(store, session, tasks[1], 8, random.Random(1))
    time.sleep(1.0)
    store.end_session(session.id, "the deadline is reached")
    said = finish(process)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1].split("; ")[1].startswith("ended: the deadline is reached")


def test_ctrl_c_ends_without_a_word(held, tmp_path):
    process = start("watch", "--db", tmp_path / "log.db", "--every", "0.1", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert (said.code, said.err) == (0, "")


def test_an_interrupt_in_the_first_drawing_leaves_no_cursor_hidden(held, monkeypatch, capsys):
    store, _ = held

    class Interrupted(Text):
        def __rich_console__(self, *_: object) -> Never:
            raise KeyboardInterrupt

    monkeypatch.setattr("rich.text.Text", Interrupted)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, for rich
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(KeyboardInterrupt):
        follow_on_terminal(WatchedRun(store, store.runs()[0]), every_s=0.1)
    assert capsys.readouterr().out.endswith("\x1b[?25h")


def test_a_terminal_gets_its_cursor_back(held, tmp_path):
    ours, theirs = pty.openpty()
    words = ["watch", "--db", str(tmp_path / "log.db"), "--every", "0.1"]
    command = [sys.executable, "-m", "autotensor", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(
        command, stdout=theirs, stdin=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    shown = read_until(ours, b"dense")
    process.send_signal(signal.SIGINT)
    shown += read_until(ours, b"\x1b[?25h")
    assert process.wait(60) == 0
    os.close(ours)
    assert b"\x1b[?25l" in shown
    assert b"running" in shown
    assert b"Traceback" not in shown


def read_until(descriptor: int, wanted: bytes, timeout_s: float = 60.0) -> bytes:
    found = b""
    end = time.monotonic() + timeout_s
    with contextlib.suppress(OSError):  # the other end is closed
        while wanted not in found and time.monotonic() < end:
            if select.select([descriptor], [], [], 0.5)[0]:
                found += os.read(descriptor, 4096)
    assert wanted in found, found
    return found
