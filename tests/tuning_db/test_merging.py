"""Merging in SQL gives what record by record gives; again it gives nothing; nothing is lost on the way."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server, running

from tuning_db import (
    Application,
    Calibration,
    Code,
    Conditions,
    Host,
    Intent,
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
)
from tuning_db.exchange import merging, transfer

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SKETCH = '{"version":1,"steps":[["Split","i",[{"hole":"tile","index":0}]]]}'
WORKLOADS, TARGETS, MACHINES, ENVIRONMENTS = 4, 2, 3, 3


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as found:
        yield found


def write(store: TrialStore, seed: int, sessions: int = 4, trials: int = 8) -> None:
    """A log with everything in it. What two logs both hold of a session is the same, but not all of it is in
    both; each numbers its rows in its own order."""
    rng = random.Random(seed)
    for n in shuffled(rng, WORKLOADS):
        store.ensure_workload(f"w{n}", f"product {n}", f'{{"n": {n}}}', 1e6)
    for n in shuffled(rng, TARGETS):
        store.ensure_target(f"t{n}", f'{{"threads": {n}}}')
    for n in shuffled(rng, MACHINES):
        store.ensure_machine(Machine(f"m{n}", f"CPU {n}", ("fma",), n))
        store.put_host(Host(f"h{n}", f"host {n}", f"m{n}", BEGAN + timedelta(hours=seed)))
        at = BEGAN + timedelta(days=rng.randrange(3))
        store.put_calibration(f"m{n}", [Calibration("peak", 1e11 + at.day, "FLOP/s", (1.0,), at)])
    for n in shuffled(rng, ENVIRONMENTS):
        store.ensure_environment({"python": f"3.{n}"})
        store.put_code(Code(f"c{n}", f"0.{n}", "abc", bool(n % 2), "sources"))
    store.put_sketches([Sketch("s0", SKETCH)] if rng.random() < 0.8 else [])
    for n in rng.sample(range(2 * sessions), sessions):
        write_session(store, rng, n, seed, trials)


def shuffled(rng: random.Random, count: int) -> list[int]:
    return rng.sample(range(count), count)


def write_session(store: TrialStore, rng: random.Random, number: int, seed: int, trials: int) -> None:
    """A search and its race, as far as this log knows them."""
    fixed = random.Random(number)
    place, versions = fixed.randrange(MACHINES), fixed.randrange(ENVIRONMENTS)
    task = (f"w{fixed.randrange(WORKLOADS)}", f"t{fixed.randrange(TARGETS)}")
    environments = {e.versions["python"]: e.key for e in store.environments()}
    started = BEGAN + timedelta(seconds=1000 * number)
    run = Run(f"run {number}", f"model {number}", "hash", ({"workload": task[0]},), {"n": number}, "a note")
    store.put_run(replace(run, model=rng.choice(("", run.model)), note=rng.choice(("", run.note))))
    search = Session(
        f"search {number}", run.key, number, {"trials": 64}, f"m{place}", environments[f"3.{versions}"],
        started, *(rng.choice(((None, None), (started + timedelta(hours=1), "done")))),
    )  # fmt: skip
    race = replace(search, id=f"race {number}", kind=SessionKind.RACE, of=search.id)
    for session in (search, race):
        store.put_session(session)
    opened = started + timedelta(seconds=seed)
    store.put_opening(Opening(search.id, f"h{place}", f"c{versions}", "tune mlp", "ada", 7, "boot", opened))
    store.put_rounds([Round(search.id, *task, n, {"n": n}, started) for n in range(2)])
    hashes = rng.sample([f"{number}/{n}" for n in range(2 * trials)], trials)
    rows = [trial(search, task, hash, f"h{place}", f"c{versions}") for hash in hashes]
    raced = [replace(t, session=race.id, round=None) for t in rows if t.verified]
    store.add_trials(rows)
    store.add_trials(raced)
    if raced and rng.random() < 0.8:
        winner = rng.choice(raced)
        at = started + timedelta(minutes=1 + seed)
        store.put_standing(
            Standing(
                *task, search.machine, race.id, store.trial_id(race.id, *task, winner.trace_hash),
                winner.median_s, 2.0 * seed, at,
            )
        )  # fmt: skip
    if rng.random() < 0.5:
        store.put_applications([Application(search.id, *task, hashes[0], f"{seed}.atm", BEGAN)])


def trial(session: Session, task: tuple[str, str], hash: str, host: str, code: str) -> TrialRecord:
    """The same for the same hash, whoever writes it: a trial is measured once."""
    rng = random.Random(hash)
    works, tile = rng.random() < 0.7, rng.randint(1, 64)
    parents = (Parent("p", "mutated"), Parent("q", "refitted", f"w{rng.randrange(WORKLOADS)}"))
    return TrialRecord(
        session=session.id, workload=task[0], target=task[1], machine=session.machine,
        environment=session.environment, host=rng.choice((None, host)), code=rng.choice((None, code)),
        trace=SKETCH.replace('{"hole":"tile","index":0}', str(tile)), trace_hash=hash,
        sketch_hash=rng.choice(("", "s0", "s0", f"of {hash[-1]}")), decisions={"tile": [tile]},
        status=Status.OK if works else rng.choice((Status.BUILD_ERROR, Status.CRASHED)),
        median_s=rng.random() if works else None,
        samples=(Sample(rng.random(), "hot", 1e-3), Sample(1e-300, rng.choice(("hot", "cold")))) if works
        else (),
        verification=Verification(1e-7, 1e-5, (0, 1), rng.random() < 0.9) if works else None,
        error=None if works else f"needs {tile} bytes\nof the stack",
        parents=rng.choice(((), parents[:1], parents)), made_by="bred", predicted=rng.random(),
        build_s=0.1, assembly={"fma": tile}, source_sha="ab", metrics=rng.choice(({}, {"joules": 1.5})),
        numerics=rng.choice(("", "fast")), extents=rng.choice(({}, {"n": 7})),
        conditions=rng.choice((None, *Conditions)), note=rng.choice(("", "hot day")), created=BEGAN,
        round=rng.choice((None, 0, 1)),
    )  # fmt: skip


def contents(store: TrialStore) -> dict[str, Any]:
    """All records, however they are numbered; the trials of a session in their order."""

    def winner(s: Standing) -> Any:
        return replace(s, trial=None), None if s.trial is None else store.trial(s.trial).trace_hash

    def told(records: Any) -> list[str]:
        return sorted(map(repr, records))

    trials = sorted(store.trials(), key=lambda t: (t.session, t.id))
    return {
        "workloads": told(store.workloads()),
        "targets": told(store.targets()),
        "machines": told(store.machines()),
        "hosts": told(store.hosts()),
        "codes": told(store.codes()),
        "environments": told(store.environments()),
        "sketches": told(store.sketches()),
        "runs": told(store.runs()),
        "sessions": told(store.sessions()),
        "openings": told(store.openings()),
        "rates": told((m.fingerprint, store.calibrations(m.fingerprint)) for m in store.machines()),
        "rounds": told(r for s in store.sessions() for r in store.rounds(s.id)),
        "trials": [repr(replace(t, id=None)) for t in trials],
        "counts": told(store.task_counts()),
        "standings": told(map(winner, store.standings())),
        "applications": told(store.all_applications()),
    }


def unordered(store: TrialStore) -> dict[str, Any]:
    """The same where the trials of a session came out of several logs."""
    found = contents(store)
    return found | {"trials": sorted(found["trials"])}


def one_by_one(into: TrialStore, source: TrialStore) -> None:
    """What merging means: records, each stored by a verb."""
    lines = [transfer.to_json(record) for record in transfer._records(source, None)]
    transfer._store(into, map(transfer.from_json, lines))


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
@pytest.mark.parametrize("seed", range(3))
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
    assert found.new + found.known == other.count()
    assert transfer.merge(target, other).new == 0
    assert contents(target) == contents(oracle)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("range_", [1, 7, 10_000])
def test_ranges_of_any_size_give_the_same(
    open_log: Open, monkeypatch: pytest.MonkeyPatch, seed: int, range_: int
) -> None:
    monkeypatch.setattr(merging, "RANGE", range_)
    target, other, oracle = open_log("file"), open_log("file"), open_log("memory")
    write(other, 100 + seed)
    write(target, 200 + seed)
    write(oracle, 200 + seed)
    transfer.merge(target, other)
    one_by_one(oracle, other)
    assert contents(target) == contents(oracle)
    assert target.check().ok


def test_the_order_of_merging_does_not_matter(open_log: Open) -> None:
    sources = [open_log("file") for _ in range(3)]
    for seed, source in enumerate(sources):
        write(source, seed)
    found = []
    for order in permutations(sources):
        target = open_log("memory")
        for source in (*order, order[0]):
            transfer.merge(target, source)
        found.append(unordered(target))
        assert target.check().ok
    assert all(each == found[0] for each in found)


def is_noticed(open_log: Open) -> bool:
    """Whether the tests above would notice a fault."""
    target, source, oracle = open_log("memory"), open_log("memory"), open_log("memory")
    write(source, 1)
    one_by_one(oracle, source)
    try:
        transfer.merge(target, source)
        return contents(target) != contents(oracle)
    except StoreError:
        return True


def test_nothing_is_noticed_where_nothing_is_wrong(open_log: Open) -> None:
    assert not is_noticed(open_log)


@pytest.mark.parametrize(
    "table", ["workload", "target", "machine", "environment", "host", "code", "sketch", "run", "session"]
)
def test_a_wrong_map_is_noticed(open_log: Open, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """All rows of a table become one of them."""
    real = merging._map

    def wrong(work: merging.Merging, name: str, rows: str) -> None:
        real(work, name, rows)
        if name == table:
            work.run(f"UPDATE map_{name} SET new = (SELECT MAX(new) FROM map_{name})")

    monkeypatch.setattr(merging, "_map", wrong)
    assert is_noticed(open_log)


@pytest.mark.parametrize("column", [c for c in merging.TRIAL if c[0] != "@"])
def test_a_forgotten_column_is_noticed(open_log: Open, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    monkeypatch.setattr(merging, "TRIAL", tuple(c for c in merging.TRIAL if c != column))
    assert is_noticed(open_log)


def test_what_came_later_arrives_behind_the_watermark(open_log: Open) -> None:
    target, source = open_log("file"), open_log("file")
    write(source, 1)
    transfer.merge(target, source)
    source.record_apply(source.trials()[0].id or 0, "later.atm")
    open_ = [s for s in source.sessions() if s.stop_reason is None]
    source.end_session(open_[0].id, "ended later")
    race = next(s for s in source.standings() if s.trial is not None)
    others = [t for t in source.trials(race.workload, race.target, session=race.race) if t.id != race.trial]
    source.put_standing(replace(race, trial=others[0].id, updated=race.updated + timedelta(days=1)))
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
        transfer.merge(b, a)
        assert unordered(a) == unordered(b) == unordered(into)
        write(b, 7, sessions=1)
        transfer.merge(a, b)
        assert unordered(a) == unordered(b)


def test_a_log_whose_last_numbers_were_given_again_is_read_whole(tmp_path: Path) -> None:
    with connect(tmp_path / "into.db") as into:
        with connect(tmp_path / "source.db") as source:
            write(source, 1)
            transfer.merge(into, source)
        with closing(sqlite3.connect(tmp_path / "source.db")) as db, db:  # pruned, as no verb does yet
            last = db.execute("SELECT MAX(id) FROM trial").fetchone()[0]
            for table, column in (
                ("parent", "child_id"),
                ("standing", "trial_id"),
                ("apply_event", "trial_id"),
            ):
                db.execute(f"DELETE FROM {table} WHERE {column} > ?", (last - 20,))
            db.execute("DELETE FROM trial WHERE id > ?", (last - 20,))
        with connect(tmp_path / "source.db") as source:
            write(source, 9)
            transfer.merge(into, source)
            named = {(t.session, t.trace_hash) for t in into.trials()}
            assert named >= {(t.session, t.trace_hash) for t in source.trials()}


def test_numbers_far_apart_take_no_time(tmp_path: Path, open_log: Open) -> None:
    with connect(tmp_path / "source.db") as source:
        write(source, 1)
    with closing(sqlite3.connect(tmp_path / "source.db")) as db, db:
        db.execute("UPDATE trial SET id = 1000000000000 WHERE id = (SELECT MAX(id) FROM trial "
                   "WHERE id NOT IN (SELECT child_id FROM parent))")  # fmt: skip
    target = open_log("file")
    with connect(tmp_path / "source.db") as source:
        assert transfer.merge(target, source).new == source.count()


def test_a_sketch_of_another_text_leaves_the_traces_as_they_are(open_log: Open) -> None:
    """The text holds the version of the language of traces, its hash does not."""
    target, source = open_log("file"), open_log("file")
    write(source, 1)
    newer = SKETCH.replace('"version":1', '"version":2')
    target.put_sketches([Sketch("s0", newer)])
    source.put_sketches([Sketch("s0", SKETCH)])
    transfer.merge(target, source)
    assert contents(target)["trials"] == contents(source)["trials"]
    assert {s.text for s in target.sketches()} == {newer}


def test_what_has_its_trial_now_is_not_in_flight(open_log: Open) -> None:
    target, source = open_log("file"), open_log("file")
    for store in (target, source):
        write(store, 1)
    begun = next(s for s in source.sessions() if s.kind is SessionKind.SEARCH)
    new = trial(begun, ("w0", "t0"), "new", "h0", "c0")
    for hash in ("new", "other"):
        intent = Intent(begun.id, "w0", "t0", hash, "[]")
        target.begin_rounds([Round(begun.id, "w0", "t0", 7)], [intent])
    source.add_trials([replace(new, round=None, host=None, code=None)])
    transfer.merge(target, source)
    assert [i.trace_hash for i in target.open_intents()] == ["other"]


def test_a_lease_stays_in_its_log(open_log: Open) -> None:
    target, source = open_log("file"), open_log("file")
    write(source, 1)
    machine, environment = source.machines()[0].fingerprint, source.environments()[0].key
    mine = source.claim(run_key="k", seed=0, machine=machine, environment=environment, owner="me").session
    transfer.merge(target, source)
    (found,) = [s for s in target.sessions() if s.id == mine.id]
    assert (found.owner, found.lease_until) == ("", None)
    assert mine.owner == "me"


def test_a_race_that_began_meanwhile_comes_the_next_time(
    open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is used stays until the later race is there with its trials."""
    target, source = open_log("file"), open_log("file")
    write(source, 1)
    transfer.merge(target, source)
    old = next(s for s in target.standings() if s.trial is not None)
    real, began = merging.Merging.transaction, []

    def transaction(work: merging.Merging, writing: bool = True) -> Any:
        if not began:
            first = source.sessions()[0]
            race = replace(
                first, id="later", kind=SessionKind.MODEL, machine=old.machine,
                started=BEGAN + timedelta(days=99),
            )  # fmt: skip
            began.append(source.put_session(race))
            task = (old.workload, old.target)
            source.add_trials([replace(trial(race, task, "w", "h0", "c0"), round=None)])
        return real(work, writing)

    with monkeypatch.context() as patch:
        patch.setattr(merging.Merging, "transaction", transaction)
        transfer.merge(target, source)
    assert "later" in {s.id for s in target.sessions()}
    assert target.standing(old.workload, old.target, old.machine) == old
    transfer.merge(target, source)
    assert contents(target) == contents(source)


def test_a_log_is_not_merged_with_itself(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    with connect(tmp_path / "a.db") as a, connect(tmp_path / "link.db") as again, connect(":memory:") as b:
        write(a, 1)
        before = contents(a)
        for one, other in ((a, a), (a, again), (again, a), (b, b)):
            with pytest.raises(StoreError, match=r"cannot be merged into itself\. Name another log"):
                transfer.merge(one, other)
        assert contents(a) == before


def temporary(store: Any) -> int:
    with store._opened.read.connect() as c:
        return int(c.exec_driver_sql("SELECT COUNT(*) FROM sqlite_temp_master").scalar_one())


def test_another_text_under_a_known_key_is_refused(open_log: Open) -> None:
    a, b = open_log("file"), open_log("file")
    write(a, 1)
    before = contents(a)
    b.ensure_workload("w0", "product", "{}", 1.0)
    with pytest.raises(StoreError, match="already holds workload 'w0' with another text"):
        transfer.merge(a, b)
    assert contents(a) == before
    assert temporary(a) == 0


@pytest.mark.parametrize("source", ["file", "memory"])
def test_nothing_temporary_is_left(open_log: Open, source: str) -> None:
    target, other = open_log("memory"), open_log(source)
    write(other, 1)
    transfer.merge(target, other)
    assert temporary(target) == 0


def test_what_may_not_be_written_is_said(tmp_path: Path, open_log: Open) -> None:
    source = open_log("file")
    write(source, 1)
    connect(tmp_path / "into.db").close()
    with (
        connect(tmp_path / "into.db", readonly=True) as into,
        pytest.raises(StoreError, match="is read-only"),
    ):
        transfer.merge(into, source)


@pytest.mark.parametrize("into", ["file", "memory"])
def test_damage_is_blamed_on_the_log_that_has_it(tmp_path: Path, open_log: Open, into: str) -> None:
    path = tmp_path / "source.db"
    with connect(path) as source:
        write(source, 1, sessions=20, trials=30)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trial'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\xff" * size)
    target = open_log(into)
    with connect(path, readonly=True) as source, pytest.raises(StoreError, match=r"source\.db' is damaged"):
        transfer.merge(target, source)
    assert target.check().ok


KILLED = """
import os, signal, sys, tuning_db
from tuning_db.exchange import merging, transfer
merging.RANGE, left = 7, [int(sys.argv[3])]
def or_die(real):
    def step(*values):
        left[0] -= 1
        found = real(*values)
        if left[0] < 0:  # with what it did not yet committed
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return step
for name in ("_map_keys", "_trials", "_standings", "_applications", "_remember"):
    setattr(merging, name, or_die(getattr(merging, name)))
into, source = map(tuning_db.connect, sys.argv[1:3])
transfer.merge(into, source)
"""


@pytest.mark.parametrize("steps", [0, 1, 2, 5, -3, -2, -1])
def test_a_merge_that_was_killed_is_completed(
    tmp_path: Path, python: Callable[..., subprocess.Popen[str]], steps: int
) -> None:
    """After so many steps; or so many before its end."""
    with connect(tmp_path / "source.db") as source, connect(tmp_path / "whole.db") as whole:
        write(source, 1, sessions=6)
        transfer.merge(whole, source)
        expected, total = contents(whole), source.count()
    connect(tmp_path / "into.db").close()
    before_end = -(-total // 7) + 4 + steps
    steps = before_end if steps < 0 else steps
    child = python("-c", KILLED, tmp_path / "into.db", tmp_path / "source.db", steps)
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    with connect(tmp_path / "into.db") as into, connect(tmp_path / "source.db") as source:
        assert into.check().ok
        known = into.count()
        assert known == min(total, 7 * max(0, steps - 1))
        found = transfer.merge(into, source)
        assert (found.new, found.known) == (total - known, known)
        assert contents(into) == expected
        assert into.check().ok


MERGED = """
import pathlib, sys, time, tuning_db
from tuning_db.exchange import merging, transfer
merging.RANGE = 7
with tuning_db.connect(sys.argv[1]) as into, tuning_db.connect(sys.argv[2]) as source:
    print("ready", flush=True)
    while not pathlib.Path(sys.argv[3]).exists():
        time.sleep(0.001)
    print(transfer.merge(into, source).new)
"""


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.postgres)])
def test_two_merges_at_once(
    tmp_path: Path, open_log: Open, python: Callable[..., subprocess.Popen[str]], kind: str
) -> None:
    into = open_log(kind)
    address = into.place
    if kind == "server":
        engine: Any = into._opened.read  # type: ignore[attr-defined]
        address = engine.url.render_as_string(hide_password=False)
    children = []
    for seed in (1, 2):
        with connect(tmp_path / f"source{seed}.db") as source:
            write(source, seed, sessions=8)
        children.append(python("-c", MERGED, address, tmp_path / f"source{seed}.db", tmp_path / "go"))
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    said = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    assert sum(int(out) for out, _ in said) == into.count()
    assert into.check().ok
    with connect(":memory:") as alone:
        for seed in (1, 2):
            with connect(tmp_path / f"source{seed}.db") as source:
                transfer.merge(alone, source)
        assert unordered(into) == unordered(alone)


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.postgres)])
def test_others_write_meanwhile(open_log: Open, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """To the log that grows, and to the one that is read."""
    monkeypatch.setattr(merging, "RANGE", 20)
    into, source = open_log(kind), open_log("file")
    write(source, 1, sessions=8, trials=60)
    write(into, 2)
    session = into.sessions()[0]
    there = source.sessions()[0]
    done = threading.Event()
    waits: list[float] = []

    def writer() -> None:
        for n in range(10**6):
            if done.is_set():
                return
            began = time.monotonic()
            into.add_trials([replace(trial(session, ("w0", "t0"), f"mine {n}", "h0", "c0"), round=None)])
            waits.append(time.monotonic() - began)
            source.add_trials([replace(trial(there, ("w1", "t1"), f"theirs {n}", "h0", "c0"), round=None)])

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        while not waits:
            time.sleep(0.001)
        before = len(waits)
        transfer.merge(into, source)
        during = len(waits) - before
    finally:
        done.set()
        thread.join()
    assert during >= 10, during
    transfer.merge(into, source)
    assert into.check().ok
    assert len(into.trials(session=session.id, workload_key="w0")) >= len(waits)
    assert {t.trace_hash for t in source.trials()} <= {t.trace_hash for t in into.trials()}


PLAIN = """
SELECT MAX(id) FROM trial WHERE id NOT IN (SELECT child_id FROM parent)
AND id NOT IN (SELECT trial_id FROM apply_event) AND id NOT IN (SELECT COALESCE(trial_id, 0) FROM standing)"""


@pytest.mark.postgres
def test_numbers_given_before_others_commit_are_not_lost(open_log: Open) -> None:
    source, target = open_log("server"), open_log("file")
    write(source, 1)
    engine: Any = source._opened.write  # type: ignore[attr-defined]
    with engine.connect() as slow, slow.begin():
        late = "SELECT nextval(pg_get_serial_sequence('trial', 'id'))"
        number = slow.exec_driver_sql(late).scalar_one()
        write(source, 3)
        transfer.merge(target, source)
        slow.exec_driver_sql(f"UPDATE trial SET id = {number} WHERE id = ({PLAIN})")
    with connect(":memory:") as fresh:
        transfer.merge(fresh, source)
        assert transfer.merge(target, source).new == 0
        assert unordered(target) == unordered(fresh)


@pytest.mark.postgres
@pytest.mark.parametrize("away", ["into", "source"])
def test_a_server_that_goes_away_is_waited_for(
    server: Server, open_log: Open, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr(merging, "RANGE", 7)
    here, there = open_log("file"), open_log("server")
    into, source = (there, here) if away == "into" else (here, there)
    write(source, 1)
    real, calls = merging._trials, []

    def trials(work: merging.Merging, low: int, high: int) -> int:
        calls.append(low)
        if len(calls) == 3:
            server.stop(crash=True)
            threading.Timer(0.5, server.start).start()
        return real(work, low, high)

    monkeypatch.setattr(merging, "_trials", trials)
    found = transfer.merge(into, source)
    assert (found.new, found.known) == (source.count(), 0)
    assert contents(into) == contents(source)
    assert into.check().ok


def test_the_source_is_left_as_it_is(tmp_path: Path) -> None:
    with connect(tmp_path / "source.db") as source:
        write(source, 1)
    with closing(sqlite3.connect(tmp_path / "source.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = (tmp_path / "source.db").read_bytes()
    with connect(tmp_path / "into.db") as into, connect(tmp_path / "source.db", readonly=True) as source:
        transfer.merge(into, source)
    assert (tmp_path / "source.db").read_bytes() == before


def test_a_source_in_a_folder_where_nothing_can_be_made(
    tmp_path: Path, open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "share"
    with connect(folder / "source.db") as source:
        write(source, 1)
        expected = contents(source)
    target, may = open_log("file"), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and may(path, mode))
    with connect(folder / "source.db", readonly=True) as source:
        transfer.merge(target, source)
    assert contents(target) == expected
    assert [path.name for path in folder.iterdir()] == ["source.db"]
