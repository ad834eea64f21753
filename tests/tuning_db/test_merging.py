"""Merging in SQL gives the same as merging record by record. A second merge changes nothing, and no row is
lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from whole_logs import BEGAN, SKETCH, Open, contents, trial, unordered, write

from tuning_db import Intent, Round, SessionKind, Sketch, StoreError, TrialStore, connect
from tuning_db.exchange import merging, transfer


def one_by_one(into: TrialStore, source: TrialStore) -> None:
    """The meaning of merging: records, each stored by a verb."""
    lines = [transfer.to_json(record) for record in transfer._records(source, None)]
    transfer._store(into, map(transfer.from_json, lines))


PAIRS = [
    ("file", "file"), ("file", "memory"), ("memory", "file"), ("memory", "memory"),
    pytest.param("server", "file", marks=pytest.mark.postgres),
    pytest.param("file", "server", marks=pytest.mark.postgres),
]  # fmt: skip


@pytest.mark.parametrize(("into", "source"), PAIRS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(6)
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
@pytest.mark.sample(5)
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
    """The tests above would find a fault."""
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
@pytest.mark.sample(10)
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
    """The schedule in use stays until the later race and its trials have arrived."""
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
