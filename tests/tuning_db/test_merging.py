"""Merging in SQL gives what record by record gives; again it gives nothing; nothing is lost on the way."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from postgres_server import Server, running

from tuning_db import (
    Application,
    Calibration,
    Code,
    Conditions,
    Host,
    Machine,
    Opening,
    Parent,
    Round,
    Run,
    Sample,
    Session,
    SessionKind,
    Sketch,
    Standing,
    Status,
    StoreError,
    TrialRecord,
    TrialStore,
    Verification,
    connect,
    transfer,
)

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SKETCH = '{"version":1,"steps":[["Split","i",[{"hole":"tile","index":0}]]]}'


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


def write(store: TrialStore, seed: int, sessions: int = 4) -> None:
    """A log with everything in it; two seeds share workloads, targets, machines and some sessions."""
    rng = random.Random(seed)
    for n in range(rng.randint(2, 4)):
        store.ensure_workload(f"w{n}", f"product {n}", f'{{"n": {n}}}', 1e6)
        store.ensure_target(f"t{n % 2}", "{}")
    machines = [store.ensure_machine(Machine(f"m{n}", "CPU")) for n in rng.sample(range(4), 2)]
    environment = store.ensure_environment({"python": f"3.{rng.randint(10, 12)}"})
    store.put_code(Code(f"c{seed}", "0.1", "abc", True))
    store.put_sketches([Sketch("known", SKETCH)] if rng.random() < 0.8 else [])
    for machine in machines:
        store.put_host(Host(f"h{machine}", machine, machine, BEGAN + timedelta(hours=seed)))
        store.put_calibration(machine, [Calibration("peak", rng.random(), "FLOP/s", measured=BEGAN)])
    for n in range(sessions):
        write_session(
            store, rng, f"{rng.choice(('shared', seed))}-{n}", rng.choice(machines), environment, seed
        )


def write_session(
    store: TrialStore, rng: random.Random, name: str, machine: str, environment: str, seed: int
) -> None:
    started = BEGAN + timedelta(seconds=crc32(name.encode()) % 10**7)
    store.put_run(Run(f"run {name}", rng.choice(("", "mlp"))))
    search = Session(f"s {name}", f"run {name}", seed, {}, machine, environment, started)
    race = replace(search, id=f"r {name}", kind=SessionKind.RACE, of=search.id)
    for session in (search, race):
        store.put_session(session)
    store.put_opening(Opening(search.id, f"h{machine}", f"c{seed}", "tune mlp", "ada", 7, "b", started))
    task = (rng.choice(store.workloads()).key, rng.choice(store.targets()).key)
    store.put_rounds([Round(search.id, *task, 0, {}, started)])
    rows = [trial(rng, search, task, f"{name}/{rng.randrange(12)}", machine, seed) for _ in range(8)]
    raced = [replace(t, session=race.id, round=None) for t in rows if t.verified]
    store.add_trials(rows)
    store.add_trials(raced)
    if raced and rng.random() < 0.8:
        winner = store.trial_id(race.id, *task, rng.choice(raced).trace_hash)
        store.put_standing(
            Standing(*task, machine, race.id, winner, 1e-3, 2e-3, started + timedelta(hours=1))
        )
    if rng.random() < 0.5:
        store.put_applications([Application(search.id, *task, rows[0].trace_hash, f"{seed}.atm", BEGAN)])
    if rng.random() < 0.7:
        store.end_session(search.id, "done")


def trial(
    rng: random.Random, session: Session, task: tuple[str, str], hash: str, machine: str, seed: int
) -> TrialRecord:
    """The same for the same hash, whoever writes it: a trial is measured once."""
    rng = random.Random(hash)
    works, tile = rng.random() < 0.7, rng.randint(1, 64)
    return TrialRecord(
        session=session.id, workload=task[0], target=task[1], machine=machine,
        environment=session.environment,
        trace=SKETCH.replace('{"hole":"tile","index":0}', str(tile)),
        trace_hash=hash, sketch_hash="known", decisions={"tile": [tile]},
        status=Status.OK if works else Status.BUILD_ERROR,
        median_s=rng.random() if works else None,
        samples=(Sample(rng.random(), "hot", 1e-3), Sample(1e-300, "hot")) if works else (),
        verification=Verification(1e-7, 1e-5, (0, 1), True) if works else None,
        error=None if works else f"needs {tile} bytes",
        parents=(Parent("p", "mutated"), Parent("q", "refitted", task[0])) if rng.random() < 0.5 else (),
        conditions=rng.choice((None, *Conditions)), note="", created=BEGAN, round=0,
    )  # fmt: skip


def contents(store: TrialStore) -> dict[str, Any]:
    """All records, however they are numbered."""

    def winner(s: Standing) -> Any:
        hash = None if s.trial is None else store.trial(s.trial).trace_hash
        return (s.workload, s.target, s.machine, s.race, hash, s.seconds, s.default_s, s.updated)

    def named(t: TrialRecord) -> tuple[str, ...]:
        return (t.session, t.workload, t.target, t.trace_hash)

    return {
        "workloads": sorted(w.key for w in store.workloads()),
        "machines": sorted(m.fingerprint for m in store.machines()),
        "hosts": sorted((h.uuid, h.seen) for h in store.hosts()),
        "codes": sorted(c.key for c in store.codes()),
        "sketches": sorted((s.hash, s.text) for s in store.sketches()),
        "runs": sorted(r.key for r in store.runs()),
        "sessions": sorted(
            (s.id, s.run_key, s.kind, s.of or "", s.stop_reason or "") for s in store.sessions()
        ),
        "openings": sorted((o.session, o.host, o.code) for o in store.openings()),
        "rates": {m.fingerprint: store.calibrations(m.fingerprint) for m in store.machines()},
        "rounds": sorted(
            (r.session, r.workload, r.index) for s in store.sessions() for r in store.rounds(s.id)
        ),
        "trials": sorted(((named(t), repr(replace(t, id=None))) for t in store.trials()), key=lambda t: t[0]),
        "counts": sorted(map(repr, store.task_counts())),
        "standings": sorted(map(winner, store.standings()), key=repr),
        "applications": sorted(map(repr, store.all_applications())),
    }


def one_by_one(into: TrialStore, source: TrialStore) -> None:
    """What merging means."""
    transfer._store(into, transfer._records(source, None))


Open = Callable[[str], TrialStore]


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


PAIRS = [
    ("file", "file"), ("file", "memory"), ("memory", "file"), ("memory", "memory"),
    pytest.param("server", "file", marks=pytest.mark.postgres),
    pytest.param("file", "server", marks=pytest.mark.postgres),
]  # fmt: skip


@pytest.mark.parametrize(("into", "source"), PAIRS)
@pytest.mark.parametrize("seed", range(2))
def test_it_gives_what_record_by_record_gives(open_log: Open, into: str, source: str, seed: int) -> None:
    target, other, oracle = open_log(into), open_log(source), open_log("memory")
    write(other, 2 * seed + 1)
    for store in (target, oracle):
        write(store, 2 * seed)
    before = target.count()
    found = transfer.merge(target, other)
    one_by_one(oracle, other)
    assert contents(target) == contents(oracle)
    assert target.check().ok
    assert found.new == target.count() - before
    assert transfer.merge(target, other).new == 0
    assert contents(target) == contents(oracle)


def test_what_came_later_arrives_behind_the_watermark(open_log: Open) -> None:
    target, source = open_log("file"), open_log("file")
    write(source, 1)
    transfer.merge(target, source)
    old = source.trials()[0]
    source.record_apply(old.id or 0, "later.atm")
    open_ = [s for s in source.sessions() if s.stop_reason is None]
    source.end_session(open_[0].id, "ended later")
    write(source, 3)
    assert transfer.merge(target, source).known == 0
    assert contents(target) == contents(source)


def test_copies_that_went_on_by_themselves_lose_nothing(tmp_path: Path) -> None:
    with connect(tmp_path / "a.db") as a:
        write(a, 1)
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with connect(tmp_path / "a.db") as a, connect(tmp_path / "b.db") as b, connect(":memory:") as into:
        write(a, 3, sessions=9)
        write(b, 5, sessions=2)
        with connect(":memory:") as oracle:
            for source in (a, b):
                one_by_one(oracle, source)
            for source in (a, b, a):
                transfer.merge(into, source)
            assert contents(into) == contents(oracle)
        transfer.merge(a, b)  # of one name, and not one log
        assert {t.trace_hash for t in b.trials()} <= {t.trace_hash for t in a.trials()}


def test_a_log_is_not_merged_with_itself(tmp_path: Path) -> None:
    with connect(tmp_path / "a.db") as a, connect(tmp_path / "a.db") as again:
        write(a, 1)
        before = contents(a)
        with pytest.raises(StoreError, match=r"is one log and not two\. Name another log"):
            transfer.merge(a, again)
        assert contents(a) == before


def test_another_text_under_a_known_key_is_refused(open_log: Open) -> None:
    a, b = open_log("file"), open_log("file")
    write(a, 1)
    b.ensure_workload("w0", "product", "{}", 1.0)
    with pytest.raises(StoreError, match="already holds workload 'w0' with another text"):
        transfer.merge(a, b)


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.15])
def test_a_merge_that_was_killed_is_completed(
    tmp_path: Path, python: Callable[..., subprocess.Popen[str]], moment: float
) -> None:
    with connect(tmp_path / "source.db") as source:
        write(source, 1, sessions=20)
    with connect(tmp_path / "whole.db") as whole, connect(tmp_path / "source.db") as source:
        transfer.merge(whole, source)
        expected = contents(whole)
    connect(tmp_path / "into.db").close()
    script = (
        "import sys, tuning_db; from tuning_db import merging, transfer; merging.RANGE = 7\n"
        "into, source = map(tuning_db.connect, sys.argv[1:])\n"
        "print('go', flush=True); transfer.merge(into, source)"
    )
    child = python("-c", script, tmp_path / "into.db", tmp_path / "source.db")
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    time.sleep(moment)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with connect(tmp_path / "into.db") as into, connect(tmp_path / "source.db") as source:
        assert into.check().ok
        transfer.merge(into, source)
        assert contents(into) == expected
        assert into.check().ok


def test_a_forgotten_column_is_found(open_log: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above find a fault: here a column is forgotten."""
    from tuning_db import merging

    monkeypatch.setattr(merging, "TRIAL", tuple(c for c in merging.TRIAL if c != "samples"))
    target, source, oracle = open_log("memory"), open_log("memory"), open_log("memory")
    write(source, 1)
    transfer.merge(target, source)
    one_by_one(oracle, source)
    assert contents(target)["trials"] != contents(oracle)["trials"]


def test_the_source_is_left_as_it_is(tmp_path: Path) -> None:
    with connect(tmp_path / "source.db") as source:
        write(source, 1)
    with closing(sqlite3.connect(tmp_path / "source.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = (tmp_path / "source.db").read_bytes()
    with connect(tmp_path / "into.db") as into, connect(tmp_path / "source.db", readonly=True) as source:
        transfer.merge(into, source)
    assert (tmp_path / "source.db").read_bytes() == before
