"""Frequent questions use an index: no look-up and no filtered view reads all trials."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tuning_db import RACES, By, TrialStore, connect

LOOK_UPS: dict[str, Callable[[TrialStore], Any]] = {
    "best": lambda s: s.best("w", "t", "zen4", k=3),
    "best_foreign": lambda s: s.best_foreign("w", "t", "other"),
    "last_race": lambda s: s.last_race("w", "t", "zen4"),
    "standing": lambda s: s.standing("w", "t", "zen4"),
    "standings": lambda s: s.standings("zen4"),
    "overtaken": lambda s: s.overtaken("zen4", 0.97),
    "leaders": lambda s: s.leaders("zen4"),
    "met": lambda s: s.met("w", "t", "zen4", ["t1", "t2"], RACES),
    "count": lambda s: s.count("w", "t", "zen4"),
    "count all": lambda s: s.count(),
    "failures": lambda s: s.failures(),
    "task_counts": lambda s: s.task_counts(),
    "progress": lambda s: s.progress(s.sessions()[0].id),
    "trials of a session": lambda s: s.trials(session=s.sessions()[0].id),
    "trials of a trace": lambda s: s.trials("w", "t", "zen4", trace_hash="t1"),
    "history": lambda s: s.history("w", By.COMMIT),
    "who stands for a run": lambda s: s.finalists(run="run"),
    "who stands for a machine": lambda s: s.finalists(machine="zen4"),
    "newest here": lambda s: s.trials(target_key="t", machine="zen4", limit=10, newest=True),
}
VIEWS = {
    "v_best": "workload = 'w' AND target = 't' AND machine = 'zen4'",
    "v_progress": "session = 's'",
    "v_failures": "workload = 'w'",
    "v_runs": "run = 'run'",
    "v_lineage": "trial = 1",
    "sample": "trial_id = 1",
    "verification": "trial_id = 1",
}


def plan(db: sqlite3.Connection, statement: str, values: Any = ()) -> list[str]:
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def scans(lines: list[str]) -> list[str]:
    """Steps that read every trial. The views call the table `t`."""
    return [line for line in lines if line.startswith(("SCAN trial", "SCAN t ")) or line == "SCAN t"]


@pytest.mark.parametrize("name", sorted(LOOK_UPS))
def test_no_look_up_reads_all_trials(log: Path, name: str) -> None:
    asked: list[tuple[str, Any]] = []
    with connect(log) as store:
        event.listen(
            store._opened.read, "before_cursor_execute",  # type: ignore[attr-defined]
            lambda c, cursor, statement, values, *_: asked.append((statement, values)),
        )  # fmt: skip
        LOOK_UPS[name](store)
    selects = [(statement, values) for statement, values in asked if statement.startswith("SELECT")]
    assert selects
    with closing(sqlite3.connect(log)) as db:
        for statement, values in selects:
            assert scans(plan(db, statement, values)) == [], statement


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_a_filter_on_a_view_reaches_the_tables(log: Path, view: str) -> None:
    with closing(sqlite3.connect(log)) as db:
        assert scans(plan(db, f"SELECT * FROM {view} WHERE {VIEWS[view]}")) == []


def test_a_question_to_all_trials_is_noticed(log: Path) -> None:
    with closing(sqlite3.connect(log)) as db:
        assert scans(plan(db, "SELECT * FROM trial WHERE made_by = 'x'"))
        assert scans(plan(db, "SELECT * FROM trial t WHERE t.made_by = 'x'"))
