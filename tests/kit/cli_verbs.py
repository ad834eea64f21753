"""A folder in which every verb of `autotensor` prints something, and the arguments of each verb."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from cli_tools import add_trials, cli, mlp_plan, record
from commits import COMMITS, add_races
from made_up_runs import add_run

from tuning_db import connect

QUANTISED = Path(__file__).parents[1] / "api" / "quantised"
LOG = "log.db"
RUNS = "runs.db"  # a run with a race and an end; races at two commits, the second of which is no slower
VERBS: dict[str, list[str]] = {  # the name in docs/command-line.md → words for this folder
    "tune": ["tune", "mlp", "--trials", "2", "--cost-model", "prior", "--threads", "1", "--out", "new.atm"],
    "compile": ["compile", "mlp", "--out", "again.atm"],
    "compile --emit c": ["compile", "mlp.atm", "--emit", "c", "--out", "library"],
    "run": ["run", "mlp.atm"],
    "bench": ["bench", "mlp.atm", "--repeat", "3"],
    "verify": ["verify", "mlp.atm", "--against", "float64"],
    "compare": [
        "compare", str(QUANTISED / "float.onnx"), str(QUANTISED / "qoperator.onnx"), "--data", "x.npz",
    ],
    "models": ["models"],
    "tasks": ["tasks", "mlp"],
    "show": ["show", "mlp/0", "--as", "te"],
    "show FILE.atm": ["show", "mlp.atm"],
    "explain TASK": ["explain", "mlp/0"],
    "explain TRIAL": ["explain", "3", "--steps"],
    "explain MODEL --plot": ["explain", "mlp", "--plot", "mlp.png"],
    "report": ["report", "mlp", "--db", RUNS],
    "watch": ["watch", "mlp", "--db", RUNS],
    "db path": ["db", "path"],
    "db list": ["db", "list"],
    "db machines": ["db", "machines"],
    "db best": ["db", "best"],
    "db failures": ["db", "failures"],
    "db runs": ["db", "runs"],
    "db run": ["db", "run", "run"],
    "db lineage": ["db", "lineage", "3"],
    "db history": ["db", "history", "mlp/0"],
    "db compare": ["db", "compare", *COMMITS, "--db", RUNS],
    "db regressions": ["db", "regressions", *COMMITS, "--db", RUNS],
    "db commits": ["db", "commits", "--db", RUNS],
    "db schema": ["db", "schema", "trial"],
    "db prune": ["db", "prune", "--keep", "1"],
    "db compact": ["db", "compact", "--db", "other.db"],
    "db sql": ["db", "sql", "SELECT id, made_by, median_s, trace_hash FROM trial"],
    "db export": ["db", "export", "other.jsonl"],
    "db import": ["db", "import", "trials.jsonl"],
    "db merge": ["db", "merge", "other.db"],
    "db check": ["db", "check"],
    "db upgrade": ["db", "upgrade"],
    "db export-tuned": ["db", "export-tuned", "--to", "tuned"],
    "db shipped": ["db", "shipped"],
    "doctor": ["doctor"],
}  # fmt: skip


def filled(folder: Path) -> Path:
    """The folder, with a log of made-up times, a compiled model and data in it."""
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        _fill(folder)
    return folder


def enter(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make it the current folder, and its log the one that verbs take."""
    patch.chdir(folder)
    patch.setenv("AUTOTENSOR_DB", LOG)


def _fill(folder: Path) -> None:
    plan = mlp_plan()
    with connect(folder / LOG) as store:
        record(store, plan.tasks[0].workload)
        add_trials(store, plan.tasks[1].workload, [3e-5, 1e-5, 2e-5])
        add_trials(store, plan.tasks[2].workload, [1e-9], fingerprint="elsewhere", cpu="Faster CPU 9000")
    with connect(folder / RUNS) as store:
        add_run(store, plan.search_tasks(), 60, "mlp")
        for commit, seconds in zip(COMMITS, (1e-4, 0.8e-4), strict=True):
            add_races(store, commit, {"w": seconds}, random.Random(1))
    x = np.random.default_rng(2).standard_normal((8, 3, 12, 12)).astype(np.float32)
    np.savez(folder / "x.npz", x=x)
    (folder / "tuned").mkdir()
    for words in (
        ["compile", "mlp"],
        ["db", "export", "trials.jsonl"],
        ["db", "merge", LOG, "--db", "other.db"],
    ):
        said = cli(*words)
        assert said.code == 0, said.err
