"""A run that is interrupted, killed or repeated loses nothing and measures nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from cli_tools import calibrated_log, finish, start

import autotensor as at
from autotensor.api.model_tuning import NOTHING_FASTER
from autotensor.api.models import plan_model
from autotensor.cli.options import target_of
from autotensor.compiler import compile_trace
from autotensor.graph.partition import KernelTask
from autotensor.models import MODELS
from autotensor.resolve import relative_time, safe_default
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.object_cache import default_cache
from autotensor.schedule.trace import Trace
from tuning_db import SessionKind, StoreError, connect
from tuning_db.answers import distinct_traces

TRIALS = 8
# one thread: on a busy machine two wait for each other's time slices; prior: XGBoost takes seconds to import
TUNE = ("tune", "small_cnn", "--threads", "1", "--cost-model", "prior", "--db", "log.db")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTENSOR_NO_SHIPPED", "1")  # what is shipped was measured elsewhere
    calibrated_log(tmp_path / "log.db")
    return tmp_path


def count(log: Path) -> int:
    """Trials that count: not the final races, which have sessions of their own."""
    with connect(log, readonly=True) as store:
        return sum(store.count(session=s.id) for s in store.sessions(SessionKind.SEARCH))


def acknowledged(folder: Path) -> set[tuple[str, ...]]:
    with connect(folder / "log.db", readonly=True) as store:
        assert store.check().problems == ()
        return {(t.session, t.workload, t.target, t.trace_hash) for t in store.trials()}


def check_model(folder: Path) -> None:
    """The model on disk runs and is right."""
    model = at.load(folder / "small_cnn.atm", threads=1)
    x = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    expected = at.compile_model(MODELS.get("small_cnn").build(), db=":memory:")(x)
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-5)


def check_uses(folder: Path, notes: list[str]) -> None:
    """The log records the trials from which the model was built, unless the model with defaults was faster.

    If defaults won the races of all tasks, they may be trials or not.
    """
    with connect(folder / "log.db", readonly=True) as store:
        used = {path for t in store.trials() if t.id is not None for path in store.applications(t.id)}
    defaults_won = all(n.startswith(NOTHING_FASTER.partition("{")[0]) for n in notes)
    assert used in [*([set()] if notes else []), *([{str(folder / "small_cnn.atm")}] if defaults_won else [])]


def test_the_same_command_again_measures_nothing(folder):
    words = (*TUNE, "--trials", TRIALS, "--json")
    first = finish(start(*words, cwd=folder))
    assert first.code == 0, first.err
    done = json.loads(first.out)
    assert (done["trials"], done["reused"]) == (TRIALS, 0)
    check_uses(folder, done["notes"])
    before = acknowledged(folder)
    again = json.loads(finish(start(*words, cwd=folder)).out)
    assert (again["trials"], again["reused"]) == (TRIALS, TRIALS)
    assert acknowledged(folder) == before
    assert [t["trials"] for t in again["tasks"]] == [t["trials"] for t in sorted_like(done, again)]
    more = json.loads(finish(start(*TUNE, "--trials", TRIALS + 4, "--json", cwd=folder)).out)
    assert (more["trials"], more["reused"]) == (TRIALS + 4, TRIALS)
    assert acknowledged(folder) > before
    check_model(folder)


def sorted_like(one, other):
    found = {t["key"]: t for t in one["tasks"]}
    return [found[t["key"]] for t in other["tasks"]]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_interrupting_leaves_a_model_and_a_hint(folder, name, code):
    process = start(*TUNE, "--trials", 500, cwd=folder)
    deadline = time.monotonic() + 60
    while count(folder / "log.db") == 0:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(getattr(signal, name))
    said = finish(process)
    assert said.code == code, said.err
    assert "Stopping after this batch; once more stops at once." in said.err
    (hint,) = (line.split("Continue with: ")[1] for line in said.err.splitlines() if "Continue with" in line)
    assert set(hint.split()) == {*TUNE, "autotensor", "--trials", "500"}
    assert said.out.startswith("Log: log.db   model file: small_cnn.atm\n")
    assert "task " in said.out
    assert "it was interrupted" in said.out
    assert gone(children)
    check_model(folder)


def test_second_interrupt_ends_at_once(folder):
    process = start(*TUNE, "--trials", 500, cwd=folder)
    deadline = time.monotonic() + 60
    while count(folder / "log.db") == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = finish(process)
    assert time.monotonic() - began < 6
    assert said.code == 130
    assert "Traceback" not in said.err
    assert gone(children)
    assert acknowledged(folder)
    check_model(folder)


def test_json_has_nothing_else_on_standard_output(folder):
    said = finish(start(*TUNE, "--trials", 3, "--json", cwd=folder))
    assert json.loads(said.out)["file"] == "small_cnn.atm"
    assert "Log: log.db" in said.err


def gone(children: list[psutil.Process], timeout_s: float = 60.0) -> bool:
    _, alive = psutil.wait_procs(children, timeout=timeout_s)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def schedules_of(folder: Path) -> dict[str, str]:
    """By workload, the symbol of its kernel in the model on disk."""
    return {k["workload"]: k["symbol"] for k in artifacts.load(folder / "small_cnn.atm").meta["kernels"]}


def check_schedules(folder: Path) -> None:
    """Every kernel of the model on disk is the default kernel, or was faster than it in a race."""
    linked = schedules_of(folder)
    with connect(folder / "log.db", readonly=True) as store:
        for task in plan_model(MODELS.get("small_cnn").build(), target_of(None, 1)).tasks:
            default = safe_default(task.workload, target_of(None, 1))
            if linked[task.workload.key] == symbol(task, default):
                continue
            rows = [t for t in store.trials(task.workload.key) if t.verified and t.median_s is not None]
            # a race compares sample by sample; after it, a trial of another session may beat its winner
            beaten = [t for t in rows if t.trace_hash == default.hash]
            beaten += [t for t in rows if any(relative_time(t, d).middle < 1 for d in beaten)]
            faster = [t for t in rows if any(relative_time(t, other).middle < 1 for other in beaten)]
            found = {symbol(task, Trace.from_json(t.trace)) for t in distinct_traces(faster, len(faster))}
            assert linked[task.workload.key] in found, f"{task.name} is no faster than its default"


def symbol(task: KernelTask, trace: Trace) -> str:
    """The entry of a task's kernel under a trace."""
    made = compile_trace(task.workload.dag, trace, target_of(None, 1), task.name, cache=default_cache())
    return made.entry


# done before, stopped, killed; ended by Python itself when it had not got as far as to listen
ENDS = (0, 130, 143, -signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM)


class Heard(threading.Thread):
    """Reads what a process says on standard error while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._pipe = process.stderr
        self.start()

    def run(self) -> None:
        assert self._pipe is not None
        self.lines.extend(iter(self._pipe.readline, ""))

    @property
    def can_be_run(self) -> bool:
        return any(line == "small_cnn.atm can be run.\n" for line in self.lines)


def kill_at_random(folder: Path, kills: int, seed: int) -> None:
    """End a tuning run `kills` times, one way or another: nothing that was acknowledged may be lost, nobody
    left behind, and once the file can be run it can be run at any moment."""
    rng = random.Random(seed)
    known: set[tuple[str, ...]] = set()
    budget = min(60, TRIALS + 4 * kills)
    words = (*TUNE, "--trials", budget)
    for _ in range(kills):
        process = start(*words, "--deadline", "60s", cwd=folder)
        heard = Heard(process)
        stop = time.monotonic() + rng.uniform(0.5, 6.0)
        children: dict[int, psutil.Process] = {}
        while time.monotonic() < stop and process.poll() is None:
            try:
                children |= {c.pid: c for c in psutil.Process(process.pid).children(recursive=True)}
                known |= acknowledged(folder)
            except (psutil.NoSuchProcess, StoreError):
                pass
            time.sleep(0.05)
        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        assert process.wait(timeout=240) in ENDS
        heard.join()
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        assert gone(list(children.values())), "orphans"
        found = acknowledged(folder)
        assert known <= found, "lost trials"
        known = found
        if heard.can_be_run or (folder / "small_cnn.atm").exists():
            check_model(folder)
            check_schedules(folder)
    said = finish(start(*words, "--json", cwd=folder), timeout_s=300)  # a deadline is not in its key
    assert said.code == 0, said.err
    report = json.loads(said.out)
    # tasks may be done before the budget is spent: small_cnn's have some 40 candidates worth measuring
    assert report["trials"] == budget or (
        report["reason"].startswith("no task promises to save") and report["trials"] > budget // 2
    )
    assert known <= acknowledged(folder)
    assert count(folder / "log.db") == report["trials"]
    check_schedules(folder)


def test_killed_at_random_moments(folder):
    kill_at_random(folder, kills=4, seed=int.from_bytes(os.urandom(4), "big"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_fifty_random_moments(folder, seed):
    kill_at_random(folder, kills=10, seed=seed)
