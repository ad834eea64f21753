"""The sentences of `autotensor tune` at its end: where its times come from, and why nothing was measured."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from cli_tools import cli, mlp_plan

from autotensor.api.models import default_traces, plan_model
from autotensor.cli.inputs import build_graph
from autotensor.cli.tune_report import of_deadline, times
from autotensor.cli.verbs.tune import why_nothing
from autotensor.graph.lock_file import write_lock
from autotensor.search.report import LATE, TaskReport, TuneReport


def test_times_of_a_race_are_not_taken_for_those_of_the_search() -> None:
    raced, alone = ({"raced": r, "share_of_peak": None} for r in (True, False))
    assert "the schedule in the file, timed side by side in the task's last race. If both" in times((raced,))
    assert "(2 tasks without a race: in the search)" in times((raced, alone, alone))
    assert "the schedule in the file, timed in the search. If both" in times((alone,))


def test_a_rate_above_the_peak_is_explained() -> None:
    below, above = ({"raced": True, "share_of_peak": s} for s in (0.99, 1.37))
    assert "Above 100 % of peak: the method (Winograd) has fewer operations" in times((below, above))
    assert "peak" not in times((below,))


def test_a_task_that_crashed_is_not_blamed_on_the_deadline() -> None:
    tasks = mlp_plan().search_tasks()
    rows = [TaskReport(t, None, None, None, 0, 0, LATE) for t in tasks]
    late = "the deadline of 5s came before the first trial"
    assert why_nothing(TuneReport(tuple(rows), 0, 0, 0.0, LATE), 5.0) == late
    rows[0] = replace(rows[0], reason="its reference died by SIGSEGV")
    assert why_nothing(TuneReport(tuple(rows), 0, 0, 0.0, LATE), 5.0) == (
        f"{tasks[0].label}: its reference died by SIGSEGV; for the other tasks, {late}"
    )


def test_the_time_of_a_deadline_is_accounted_for() -> None:
    seconds = {"given": 60.0, "before": 14.2, "search": 21.0, "after": 9.0, "left": 15.8}
    assert of_deadline(seconds) == (
        "Of the 60 s of the deadline, 14 s passed before the first trial (compiling, calibration, waiting "
        "for other programs), 21 s in the search, and 9 s in races in the model and linking; of the reserve "
        "for these, 16 s were left."
    )


def test_a_lock_has_the_schedules_of_all_tasks(tmp_path: Path) -> None:
    plan, lock, out = plan_model(build_graph("mlp")), tmp_path / "mlp.lock", tmp_path / "mlp.atm"
    write_lock(lock, plan.tasks, plan.target, default_traces(plan))
    words = ("tune", "mlp", "--lock", str(lock), "--out", str(out), "--db", str(tmp_path / "log.db"))
    said = cli(*words)
    assert said.code == 0, said.err
    _, head, time, *_ = said.out.splitlines()
    assert head == f"Note: all schedules are those of {lock}."
    assert re.fullmatch(r"mlp: [0-9.]+ ms\.", time)
    document = json.loads(cli(*words, "--json").out)
    assert (document["tasks"], document["trials"], document["target"]) == ([], 0, plan.target.key())
    assert out.is_file()
