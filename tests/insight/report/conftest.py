"""A made-up log with two runs of one model; adds this folder to the path."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_tools import mlp_plan
from made_up_runs import BEGAN, add_run

from autotensor.api.log_handle import log
from autotensor.insight.report.figures import Figures
from tuning_db import connect

sys.path.append(str(Path(__file__).parent))

Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second run is of half the trials, and its winners are slower by 20 %."""
    path = tmp_path_factory.mktemp("report") / "log.db"
    tasks = mlp_plan().search_tasks()
    with connect(path) as store:
        add_run(store, tasks, 120, "mlp")
        add_run(store, tasks, 60, "mlp", seed=1, began=BEGAN + timedelta(days=1), slower=1.2)
    return path


@pytest.fixture
def both(two_runs: Path) -> tuple[Figures, Figures]:
    """The first run and the second."""
    with log(str(two_runs)) as handle:
        first, second = (r.key for r in handle.runs(model="mlp"))
        report = handle.report(first, second)
    assert report.against is not None
    return report.figures, report.against


@pytest.fixture
def ask(two_runs: Path) -> Iterator[Ask]:
    """Rows of a SELECT on that log, by sqlite3 alone."""
    with closing(sqlite3.connect(two_runs)) as database:
        yield lambda sql, *values: database.execute(sql, values).fetchall()
