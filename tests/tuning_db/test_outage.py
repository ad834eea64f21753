"""A PostgreSQL server goes away and comes back: no row is lost, and none is stored twice."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import Server, running
from sqlalchemy import create_engine, event, text

from tuning_db import StoreError, TrialStore, connect, outage, schema
from tuning_db.records import Intent, Machine, Round, Status, TrialRecord
from tuning_db.store import SqlStore

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed() -> Iterator[Server]:
    with running() as found:
        yield found


@pytest.fixture
def server(installed: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An empty database on a server that runs."""
    monkeypatch.setattr(schema, "_reached", set())
    installed.empty()
    yield installed
    installed.stop()
    installed.start()


def execute(server: Server, statement: str) -> None:
    other = create_engine(server.url)
    with other.begin() as connection:
        connection.execute(text(statement))
    other.dispose()


def session(store: SqlStore) -> TrialRecord:
    """A trial of a new session, to be replaced in parts."""
    machine = store.ensure_machine(Machine("m"))
    environment = store.ensure_environment({"python": "3"})
    store.ensure_workload("w", "w", "{}", 1.0)
    store.ensure_target("t", "{}")
    made = store.start_session(run_key="r", seed=0, machine=machine, environment=environment)
    return TrialRecord(
        session=made.id, workload="w", target="t", machine=machine, environment=environment,
        trace="[]", trace_hash="0", status=Status.ABORTED,
    )  # fmt: skip


def begin(store: TrialStore, intent: Intent) -> None:
    store.begin_rounds([Round(intent.session, intent.workload, intent.target, 0)], [intent])


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("away_s", [1.5, pytest.param(60.0, marks=pytest.mark.slow)])
def test_writers_wait_for_the_server(
    server: Server, crash: bool, away_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Four threads write while the server is away. Every row is stored once, and one line reports the
    outage."""
    with connect(server.url) as store, caplog.at_level(logging.WARNING, "autotensor.log"):
        trial, going, wrote, failed = session(store), [True], [0] * 4, []

        def write(n: int) -> None:
            try:
                while going[0] or wrote[n] < 10:
                    h = f"{n}/{wrote[n]}"
                    begin(store, Intent(trial.session, "w", "t", h, "[]"))
                    assert store.add_trials([replace(trial, trace_hash=h)]) == 1
                    wrote[n] += 1
            except BaseException as error:
                failed.append(error)
                raise

        writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for w in writers:
            w.start()
        time.sleep(0.5)
        server.stop(crash)
        time.sleep(away_s)
        server.start()
        time.sleep(0.5)
        going[0] = False
        for w in writers:
            w.join(60)
        assert not failed
        found = [t.trace_hash for t in store.trials(limit=100_000)]
        assert len(found) == len(set(found)) == sum(wrote)
        assert store.open_intents() == ()
    lines = [r.getMessage() for r in caplog.records if "is away" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("the server of the tuning log 'postgresql+psycopg://tester@127.0.0.1:")
    assert lines[0].endswith("; trying for 10 minutes.")


def test_one_thread_tells_of_an_outage() -> None:
    """A transaction from before the outage, or of a process that has not ended yet, does not count as
    ended."""
    seen, now = outage.Outage(), time.monotonic()
    assert [seen.notice() for _ in range(4)] == [True, False, False, False]
    seen.end(now - 5)
    seen.end(time.monotonic())
    assert not seen.notice()
    seen.end(time.monotonic() + outage.ENDING_S)
    assert seen.notice()


def test_a_commit_whose_answer_was_lost_is_not_made_twice(server: Server) -> None:
    """The server commits, and the connection breaks before the server's answer."""
    with connect(server.url) as store:
        trial = session(store)
        losses, armed = [], [False]

        @event.listens_for(store._opened.mark, "commit")
        @event.listens_for(store._opened.write, "commit")
        def lose(connection) -> None:
            if not armed[0]:
                return
            armed[0] = False
            connection.connection.dbapi_connection.commit()
            pid = connection.connection.dbapi_connection.info.backend_pid
            execute(server, f"SELECT pg_terminate_backend({pid})")
            time.sleep(0.05)
            losses.append(pid)

        def losing(work):
            armed[0] = True
            return work()

        intent = Intent(trial.session, "w", "t", "0", "[]")
        losing(lambda: begin(store, intent))
        assert [i.attempts for i in store.open_intents()] == [1]
        begin(store, replace(intent, started=trial.created))
        assert [i.attempts for i in store.open_intents()] == [2]
        assert losing(lambda: store.add_trials([trial])) == 1
        assert store.add_trials([trial]) == 0  # the same again is not new
        assert len(store.trials()) == 1
        (id_,) = (t.id for t in store.trials())
        losing(lambda: store.record_apply(id_, "f.atm"))
        assert store.applications(id_) == ("f.atm",)
        store.record_apply(id_, "f.atm")  # another time
        assert len(store.applications(id_)) == 2
        losing(lambda: store.put_calibration("m", {"clock": 3e9}))
        assert len(store.calibrations("m")) == 1
        assert len(losses) == 4


def test_a_server_that_stays_away_is_one_sentence(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "AWAY_S", 1.0)
    with connect(server.url) as store:
        server.stop()
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"^database 'postgres.* Check that it runs and is reachable\.$"):
            store.count()
        assert time.monotonic() - began < 10


def test_one_that_was_never_reached_is_refused_at_once(server: Server) -> None:
    server.stop()
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"Check that it runs and is reachable\.$"):
        connect(server.url)
    assert time.monotonic() - began < 5


def test_a_log_that_was_open_before_is_waited_for(server: Server) -> None:
    connect(server.url).close()
    server.stop()
    threading.Timer(1.0, server.start).start()
    with connect(server.url) as store:
        assert store.count() == 0


TUNE = """
import sys, autotensor as at
from autotensor.models import MODELS
graph = MODELS.get("mlp").build()
options = at.TuneOptions(trials=int(sys.argv[2]), seed=int(sys.argv[3]))
report = at.tune_model(at.plan_model(graph), options, db=sys.argv[1], progress=False)
print(report.tuning.trials)
"""


@pytest.mark.slow
@pytest.mark.parametrize("away_s", [60.0])
def test_four_tunes_outlive_an_outage(server: Server, away_s: float, tmp_path: Path) -> None:
    with connect(server.url):
        pass
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOTENSOR_CACHE_DIR": str(tmp_path)}
    tunes = [
        subprocess.Popen(
            [sys.executable, "-c", TUNE, server.url, "48", str(seed)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path,
        )
        for seed in range(4)
    ]  # fmt: skip
    with connect(server.url) as store:
        until = time.monotonic() + 300
        while store.count() < 8:
            assert time.monotonic() < until
            time.sleep(0.5)
    server.stop()
    time.sleep(away_s)
    server.start()
    said = [t.communicate(timeout=600) for t in tunes]
    assert [t.returncode for t in tunes] == [0] * 4, [err[-500:] for _, err in said]
    with connect(server.url) as store:
        trials = store.trials()
        assert len({t.unique_key for t in trials}) == len(trials)
        own = [t for t in trials if not t.made_by.startswith("race")]
        assert len(own) >= sum(int(out.split()[-1]) for out, _ in said)
        assert store.open_intents() == ()
        assert store.check().ok
    assert all(err.count("is away") == 1 for _, err in said)
