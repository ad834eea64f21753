"""Fixtures for tests of the trial store: an author of trials, logs, a server, and writers in processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server
from whole_logs import Open

from tuning_db import TrialStore, connect

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def _load_author() -> Any:
    spec = importlib.util.spec_from_file_location("tuning_db_test_writer", HERE / "writer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Author


@pytest.fixture(scope="session")
def author() -> Any:
    """The class `Author` of writer.py."""
    return _load_author()


@pytest.fixture
def log(tmp_path: Path, author: Any) -> Path:
    """A closed log with 40 trials of one session, every fourth of them failed."""
    path = tmp_path / "log.db"
    with connect(path) as store:
        a = author(store)
        store.put_calibration("zen4", {"peak": 1e11})
        a.begin(notes={"rng": [1, 2, 3]})
        store.add_trials([a.trial(f"t{i}", 1e-3 * (i + 1) if i % 4 else None) for i in range(40)])
    return path


@pytest.fixture
def python() -> Callable[..., subprocess.Popen[str]]:
    """Start `python *args` as a plain child (never forked) that finds the packages under test."""

    def start(*args: object) -> subprocess.Popen[str]:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        }
        return subprocess.Popen(
            [sys.executable, *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    return start


@pytest.fixture
def writers(python: Callable[..., subprocess.Popen[str]]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts writer.py; processes that still run at the end of the test are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(path: Path, name: str, count: int) -> subprocess.Popen[str]:
        started.append(python(HERE / "writer.py", path, name, count))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def open_log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    opened = []

    def open_(kind: str) -> TrialStore:
        if kind == "server":
            found: Server = request.getfixturevalue("server")
            found.empty()
            opened.append(connect(found.url))
        else:
            opened.append(connect(":memory:" if kind == "memory" else tmp_path / f"{len(opened)}.db"))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()
