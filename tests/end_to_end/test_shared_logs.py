"""Logs that several runs write, that come from several machines, or that are damaged."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_tools import add_trials, calibrated_log, cli, finish, start

import autotensor as at
from autotensor.models import MODELS
from autotensor.resolve import resolve
from tuning_db import SessionKind, connect


@pytest.fixture(scope="module")
def plan():
    return at.plan_model(MODELS.get("mlp").build())


# -- several writers -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_tunes_on_one_log(tmp_path):
    """0 lock errors, 0 lost trials; the four share one log and one machine-wide timing lock."""
    trials, log = 16, tmp_path / "log.db"
    runs = []
    for seed in range(4):
        (tmp_path / str(seed)).mkdir()
        words = (
            "tune",
            "small_cnn",
            "--threads",
            1,
            "--trials",
            trials,
            "--seed",
            seed,
            "--json",
            "--db",
            log,
        )
        runs.append(start(*words, cwd=tmp_path / str(seed)))  # not calibrated before: all four want to
    found = [finish(r, timeout_s=600) for r in runs]
    for said in found:
        assert said.code == 0, said.err
        assert "locked" not in said.err
        assert json.loads(said.out)["trials"] == trials
    with connect(log, readonly=True) as store:
        runs = store.sessions(SessionKind.SEARCH)  # the others hold the final races
        assert [store.count(session=s.id) for s in runs] == [trials] * 4
        assert store.check().problems == ()
        assert store.open_intents() == ()


# -- several machines ------------------------------------------------------------------------------------


def test_merged_log_never_applies_a_foreign_row_silently(tmp_path, plan):
    log = calibrated_log(tmp_path / "mine.db")
    here, elsewhere, nowhere = (t.workload for t in plan.tasks)
    with connect(log) as store:
        mine = add_trials(store, here, [5e-5, 4e-5])
    for n, cpu in enumerate(("Zen 9", "Lake 12", "Cortex")):
        with connect(tmp_path / f"{n}.db") as store:
            add_trials(store, here, [1e-6, 2e-6, 3e-6], fingerprint=f"machine {n}", cpu=cpu)
            if n < 2:
                add_trials(store, elsewhere, [1e-6 * (n + 1)], fingerprint=f"machine {n}", cpu=cpu)
        assert cli("db", "merge", tmp_path / f"{n}.db", "--db", log).code == 0
    with connect(log, readonly=True) as store:
        found = resolve(here, plan.target, store)
        assert (found.source, found.seconds, found.trace.hash) == ("log", 4e-5, mine[1].trace_hash)
        foreign = resolve(elsewhere, plan.target, store)
        assert foreign.source == "default"
        assert "Zen 9" in foreign.note
        assert resolve(nowhere, plan.target, store).note == ""
    said = json.loads(cli("compile", "mlp", "--db", log, "-o", tmp_path / "m.atm", "--json").out)
    assert said["tasks"] == {"log": 1, "shipped": 0, "default": 2}
    assert said["notes"] == ["the log has schedules for this from Zen 9, which were not measured here"]
    assert [t["best_s"] for t in json.loads(cli("tasks", "mlp", "--db", log, "--json").out)] == [
        4e-5,
        None,
        None,
    ]
    assert len(json.loads(cli("db", "best", "--db", log, "--json").out)) == 1


def test_unverified_rows_are_never_applied(tmp_path, plan):
    workload = plan.tasks[0].workload
    with connect(tmp_path / "log.db") as store:
        add_trials(store, workload, [1e-9], verified=False)
        assert resolve(workload, plan.target, store).source == "default"


def test_other_threads_are_another_target(tmp_path, plan):
    workload = plan.tasks[0].workload
    with connect(tmp_path / "log.db") as store:
        add_trials(store, workload, [1e-9], target=plan.target.with_threads(7))
        assert resolve(workload, plan.target, store).source == "default"
        assert resolve(workload, plan.target.with_threads(7), store).source == "log"


# -- damaged logs ----------------------------------------------------------------------------------------


def damaged(data: bytes, rng: random.Random) -> bytes:
    match rng.randrange(4):
        case 0:
            return data[: rng.randrange(len(data))]
        case 1:
            at_ = rng.randrange(len(data))
            return data[:at_] + rng.randbytes(512) + data[at_ + 512 :]
        case _:
            broken = bytearray(data)
            for _ in range(rng.choice((1, 10, 200))):
                broken[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return bytes(broken)


def break_logs(folder: Path, plan, copies: int, seed: int) -> None:
    """Every verb that reads a damaged log answers, or refuses with one sentence; none changes the file."""
    log = folder / "log.db"
    with connect(log) as store:
        for t in plan.tasks:
            add_trials(store, t.workload, [2e-5, 1e-5])
    with closing(sqlite3.connect(log)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole, rng, refused = log.read_bytes(), random.Random(seed), 0
    verbs = [
        *(("db", "check"), ("db", "list"), ("db", "best"), ("db", "failures")),
        *(("tasks", "mlp"), ("explain", "mlp/0"), ("show", "1", "--as", "trace")),
        ("db", "export", folder / "x.jsonl"),
    ]
    for n in range(copies):
        path = folder / f"broken{n}.db"
        path.write_bytes(damaged(whole, rng))
        before = path.read_bytes()
        for words in verbs:
            said = cli(*words, "--db", path)
            assert said.code in (0, 1), said
            assert "Traceback" not in said.err
            assert "internal error" not in said.err, (words, said.err)
            if said.code and said.err:
                assert len(said.err.strip().splitlines()) == 1, said.err
            refused += said.code
        assert path.read_bytes() == before
        for left in folder.glob(f"{path.name}*"):
            left.unlink()
    assert refused > copies // 4


def test_damaged_logs(tmp_path, plan):
    break_logs(tmp_path, plan, copies=8, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundred_damaged_logs(tmp_path, plan):
    break_logs(tmp_path, plan, copies=100, seed=2)
