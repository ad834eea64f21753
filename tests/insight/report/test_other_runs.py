"""Runs that lack something: names of tasks, races, an end, or readable records."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from cli_tools import add_trials, add_two_machines, cli, mlp_plan

from autotensor.api.log_handle import log
from autotensor.base.machine import host_machine
from autotensor.insight.report.figures import Figures
from autotensor.insight.report.findings import findings
from tuning_db import connect
from tuning_db.records import Run


def figures_of(path: Path, run: str) -> Figures:
    """And the page, where it can be made."""
    with log(str(path)) as handle:
        report = handle.report(run)
    assert len(report.findings) == 3
    try:
        import altair  # noqa: F401
    except ImportError:
        return report.figures
    assert "</html>" in report.html()
    return report.figures


def test_a_run_that_was_stored_without_tasks(tmp_path):
    path = tmp_path / "log.db"
    with connect(path) as store:
        add_two_machines(store, mlp_plan())
    here = figures_of(path, f"run {host_machine().fingerprint}")
    (task,) = here.tasks
    assert len(task.history.points) == 3
    assert task.result is not None
    assert (task.result.raced, task.result.winner_s, task.result.default_s) == ("", 1e-5, None)
    assert here.ended == ""
    assert here.share(task) == 1.0
    there = figures_of(path, "run elsewhere")
    assert there.processor == "Faster CPU 9000"
    assert there.tasks[0].history.points[0].seconds == 1e-9
    assert [c.kind for c in there.rules] == ["no rule of today"]  # no sketch was recorded


def test_a_task_that_was_not_tried_yet_has_no_share(tmp_path):
    path, (first, second, *_) = tmp_path / "log.db", mlp_plan().tasks
    with connect(path) as store:
        (row, *_) = add_trials(store, first.workload, [3e-5])
        store.ensure_workload(second.workload.key, second.workload.name, second.workload.text, 1.0)
        tasks = tuple(
            {"workload": t.workload.key, "target": row.target, "weight": 2.0} for t in (first, second)
        )
        store.put_run(Run(store.sessions()[0].run_key, "half", tasks=tasks))
    found = figures_of(path, "half")
    assert [len(t.history.points) for t in found.tasks] == [1, 0]
    assert [t.after_s for t in found.tasks] == [6e-5, None]
    assert [found.share(t) for t in found.tasks] == [None, None]
    assert found.fall is None


def test_a_task_whose_computation_is_not_stored_is_left_out(tmp_path):
    path, (first, *_) = tmp_path / "log.db", mlp_plan().tasks
    with connect(path) as store:
        add_trials(store, first.workload, [3e-5])
        tasks = ({"workload": first.workload.key, "name": "named"}, {"workload": "0" * 32})
        store.put_run(Run(store.sessions()[0].run_key, "half", tasks=tasks))
    assert [t.name for t in figures_of(path, "half").tasks] == ["named"]


def test_a_computation_of_another_version_has_no_limits(tmp_path):
    path = tmp_path / "log.db"
    with connect(path) as store:
        add_trials(store, mlp_plan().tasks[0].workload, [3e-5, 2e-5])
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE workload SET text = ?", ('{"version": 99}',))
        database.commit()
    (task,) = figures_of(path, "run").tasks
    assert task.limits is None
    assert task.bound_s is None
    assert "rates allow" not in findings(figures_of(path, "run"))[0].detail


def test_without_runs_there_is_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "log.db"
    connect(path).close()
    for verb in ("report", "watch"):
        said = cli(verb, "--db", path)
        assert (said.code, said.err) == (
            1,
            "autotensor: the log has no runs. Tune first, or name another log.\n",
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTENSOR_DB", str(tmp_path / "none.db"))
    assert "there is no tuning log" in cli("report").err
    assert not (tmp_path / "report.html").exists()
