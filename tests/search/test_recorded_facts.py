"""Facts about a run in the log, in addition to times: the user, the code, the command, and the origins of
candidates. All outputs that name the schedule in use name the same one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import run as call

import pytest
from fakes import TARGET, FakeMeasurer
from runs import PRODUCT, RATES, SMALL_PRODUCT, run
from zoo import log_cosh_pool

from autotensor.base.machine import host_machine
from autotensor.resolve import all_in_use, in_use, resolve
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.measuring.provenance import code_here, command_here, commit_of, host_here, user_here
from autotensor.te.workload import Workload
from tuning_db import RACES, Conditions, SessionKind, TrialStore, connect
from tuning_db.values import now

UNFORESEEN = log_cosh_pool(18, 32)  # no rule makes it
HERE = host_machine().fingerprint


@pytest.fixture(scope="module")
def store() -> TrialStore:
    store = connect(":memory:")
    run([PRODUCT, UNFORESEEN], 120, store, patience=False)
    return store


def test_children_know_their_parents_and_how_they_were_made(store: TrialStore) -> None:
    rows = store.trials(session=store.sessions(SessionKind.SEARCH)[0].id)
    measured = {(t.workload, t.trace_hash): t.round or 0 for t in rows}
    children = [t for t in rows if t.made_by == "descent"]
    assert len(children) > 5
    for child in children:
        assert child.parents
        for parent in child.parents:
            assert measured[child.workload, parent.trace_hash] < (child.round or 0)
            assert parent.how in ("neighbour", "transplanted")
    assert {len(t.parents) for t in rows if t.made_by in ("default", "random", "drafted")} == {0}


def test_a_trace_is_its_sketch_with_decisions(store: TrialStore, tmp_path: Path) -> None:
    log = connect(tmp_path / "log.db")
    run([SMALL_PRODUCT], 16, log)
    with closing(sqlite3.connect(tmp_path / "log.db")) as db:
        assert db.execute("SELECT COUNT(*), COUNT(trace) FROM trial").fetchone() == (log.count(), 0)
    for row in log.trials():
        assert Trace.from_json(row.trace).hash == row.trace_hash


def test_who_measured_and_with_which_code(store: TrialStore) -> None:
    host, code = host_here(), code_here()
    assert {(t.host, t.code) for t in store.trials()} == {(host.uuid, code.key)}
    (opening,) = store.openings()
    assert (opening.host, opening.code) == (host.uuid, code.key)
    assert (opening.command, opening.user_name, opening.pid) == (command_here(), user_here(), os.getpid())
    (known,) = [r for r in store.runs() if r.tasks]
    assert {t["workload"] for t in known.tasks} == {PRODUCT.key, UNFORESEEN.key}
    assert store.hosts()[0].name == host.name
    assert store.codes()[0].sources == code.sources


@pytest.mark.parametrize("said", ["guessed", "measured"])
def test_a_session_says_whether_its_rates_were_measured(said: str) -> None:
    store = connect(":memory:")
    run([SMALL_PRODUCT], 8, store, rates=replace(RATES, guessed=said == "guessed"))
    (session,) = store.sessions(SessionKind.SEARCH)
    assert session.options["rates"] == said


def test_every_start_of_the_command_is_kept() -> None:
    store = connect(":memory:")
    for trials in (16, 24):
        run([PRODUCT], trials, store)
    assert len(store.sessions(SessionKind.SEARCH)) == 1
    assert len(store.openings()) == 2


def test_the_commit_is_read_without_git(tmp_path: Path) -> None:
    words = [
        "git",
        "-C",
        str(tmp_path),
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ]
    call([*words, "init", "-q"], check=True)
    (tmp_path / "a").write_text("a")
    call([*words, "add", "a"], check=True)
    call([*words, "commit", "-qm", "a"], check=True)
    head = call([*words, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert commit_of(tmp_path) == head
    call([*words, "worktree", "add", "-q", str(tmp_path / "other"), "-b", "other"], check=True)
    assert commit_of(tmp_path / "other") == head
    call([*words, "pack-refs", "--all"], check=True)
    assert commit_of(tmp_path) == head
    assert commit_of(tmp_path / "nowhere") == ""


class Disturbed(FakeMeasurer):
    """Other processes time or compile during every second batch."""

    def measure(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:
        found = super().measure(workload, traces, repeat, gated)
        how = Conditions.BESIDE if len(self.calls) % 2 else Conditions.ALONE
        return [replace(r, conditions=how, note="noted") for r in found]


def test_a_disturbed_time_is_not_stored_as_a_clean_one() -> None:
    store = connect(":memory:")
    run([PRODUCT], 32, store, Disturbed())
    rows = store.trials(session=store.sessions(SessionKind.SEARCH)[0].id)
    assert {(t.conditions, (t.round or 0) % 2) for t in rows} == {
        (Conditions.BESIDE, 0),
        (Conditions.ALONE, 1),
    }
    assert {t.note for t in rows} == {"noted"}


def test_everything_names_the_schedule_that_is_used(store: TrialStore) -> None:
    for workload in (PRODUCT, UNFORESEEN):
        task = (workload.key, TARGET.key(), HERE)
        standing, used = store.standing(*task), in_use(store, task)
        assert standing is not None
        assert used is not None
        assert standing.trial == used.id == resolve(workload, TARGET, store).trial
        assert standing.seconds == used.median_s
    assert {r.id for r in all_in_use(store, HERE)} == {s.trial for s in store.standings(HERE)}


def test_what_is_newer_than_the_race_and_surely_faster_is_used(store: TrialStore) -> None:
    task = (PRODUCT.key, TARGET.key(), HERE)
    used = in_use(store, task)
    assert used is not None
    other = connect(":memory:")
    run([PRODUCT], 24, other)
    used = in_use(other, task)
    assert used is not None
    assert used.median_s is not None
    search = other.sessions(SessionKind.SEARCH)[0].id
    rows = [
        t for t in other.trials(session=search) if t.trace_hash not in other.met(*task, [t.trace_hash], RACES)
    ]
    lucky = replace(
        rows[0], session=other.start_session(
            run_key="later", seed=0, machine=HERE, environment=rows[0].environment
        ).id, round=None, median_s=used.median_s / 2, created=now(), id=None,
    )  # fmt: skip
    other.add_trials([lucky])
    found = in_use(other, task)
    assert found is not None
    assert found.trace_hash == lucky.trace_hash
    assert found.id == resolve(PRODUCT, TARGET, other).trial
