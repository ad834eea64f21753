"""Pruning and looking at many sessions at once, in memory, in a file and on a server.

An oracle that reads records computes separately which trials pruning must keep.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection
from whole_logs import written_log

from tuning_db import (
    Code,
    Intent,
    Machine,
    Parent,
    Round,
    Sample,
    SessionKind,
    Standing,
    Status,
    StoreError,
    TrialRecord,
    TrialStore,
    Verification,
    connect,
)
from tuning_db.answers import By
from tuning_db.exchange.transfer import import_jsonl, merge
from tuning_db.records import RACES
from tuning_db.upkeep import pruning

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MACHINES, WORKLOADS, MAKERS = ("zen3", "zen5"), ("u", "v", "w"), ("default", "bred", "drafted")


def drawn(rng: random.Random, number: int, session: str, machine: str, environment: str) -> TrialRecord:
    """A trial of any outcome, made from none, one or two earlier trials, sometimes of another workload."""
    ok = rng.random() < 0.8
    seconds = rng.uniform(1e-5, 1e-3)
    parents = tuple(
        Parent(f"trace {rng.randrange(number)}", "mutated", rng.choice(("", *WORKLOADS)))
        for _ in range(rng.choice((0, 1, 1, 2)) if number else 0)
    )
    return TrialRecord(
        session=session, workload=rng.choice(WORKLOADS), target="t", machine=machine, environment=environment,
        trace="[]", trace_hash=f"trace {number}", parents=parents, made_by=rng.choice(MAKERS[1:]),
        status=Status.OK if ok else rng.choice((Status.RUN_ERROR, Status.BUILD_ERROR)),
        median_s=seconds if ok else None, samples=(Sample(seconds, "hot", 2e-3),) if ok else (),
        verification=Verification(1e-7, 1e-5, (), True) if ok and rng.random() < 0.9 else None,
        error=None if ok else f"kernel {rng.choice('ab')} failed", created=BEGAN + timedelta(hours=number),
    )  # fmt: skip


def fill(store: TrialStore, rng: random.Random, count: int = 120) -> None:
    """Sessions on two machines: searches with an end, one without; a race each, of some of their trials."""
    for w in WORKLOADS:
        store.ensure_workload(w, f"task {w}", w, 1e6)
    store.ensure_target("t", "{}")
    environment = store.ensure_environment({"python": "3"})
    number = 0
    for n, machine in enumerate((*MACHINES, *MACHINES)):
        store.ensure_machine(Machine(machine))
        search = store.start_session(run_key=f"run {n}", seed=0, machine=machine, environment=environment)
        rows = [drawn(rng, number + i, search.id, machine, environment) for i in range(count // 4)]
        rows[0] = replace(rows[0], made_by="default")
        number += len(rows)
        store.add_trials(rows)
        race = store.start_session(
            run_key=f"run {n}", seed=0, machine=machine, environment=environment, kind=SessionKind.RACE
        )
        raced = [replace(r, session=race.id, id=None) for r in rows if r.verified][:3]
        store.add_trials(raced)
        winner = store.trial_id(race.id, raced[0].workload, "t", raced[0].trace_hash)
        store.put_standing(Standing(raced[0].workload, "t", machine, race.id, winner, raced[0].median_s))
        store.end_session(race.id, "raced")
        if n != 3:
            store.end_session(search.id, "all trials are spent")
    used = rng.choice([t for t in store.trials() if t.verified])
    store.record_apply(used.id or 0, "mlp.atm")


def needed(
    store: TrialStore, keep: int, before: datetime | None = None, makers: tuple[str, ...] = ()
) -> set[int]:
    """The numbers of the trials that must stay, computed without SQL."""
    trials = {t.id or 0: t for t in store.trials()}
    sessions = {s.id: s for s in store.sessions()}
    ranks: dict[tuple[str, str], list[tuple[float, int]]] = {}
    examples: dict[tuple[str, ...], int] = {}
    first: dict[tuple[str, str, str], int] = {}
    for id, t in trials.items():
        if t.verified:
            ranks.setdefault((t.workload, t.machine), []).append((t.median_s or 0.0, id))
        kind = (t.error or "").replace("kernel ", "")
        examples.setdefault((t.workload, t.machine, t.status.value, kind), id)
        first.setdefault((t.workload, t.machine, t.trace_hash), id)
    stays = {id for ranked in ranks.values() for _, id in sorted(ranked)[:keep]} | set(examples.values())
    stays |= {max(trials)}
    for id, t in trials.items():
        session = sessions[t.session]
        if session.kind in RACES or session.ended is None or t.made_by in makers or store.applications(id):
            stays.add(id)
        if before is not None and t.created >= before:
            stays.add(id)
    near = stays
    while near:
        children = [trials[id] for id in near]
        near = {
            first[place]
            for t in children
            for p in t.parents
            if (place := (p.workload or t.workload, t.machine, p.trace_hash)) in first
        } - stays
        stays = stays | near
    return stays


def answers(store: TrialStore) -> tuple[object, ...]:
    """The answers about trials in use, and about failures."""
    examples = {(f.status, f.signature, f.example) for f in store.failures()}
    used = set(store.leaders()), set(store.standings()), store.all_applications()
    return (*used, store.sessions(), examples)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(4)
def test_what_is_needed_stays_and_nothing_else(
    store: TrialStore, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "RANGE", 7)  # several ranges
    rng = random.Random(seed)
    fill(store, rng)
    keep, before = rng.randint(1, 3), rng.choice((None, BEGAN + timedelta(hours=60)))
    makers = rng.choice(((), ("default",)))
    stays, all_of_it = needed(store, keep, before, makers), store.count()
    known = answers(store)
    told = store.prune(keep, before, makers, dry_run=True)
    assert store.count() == all_of_it == sum(p.trials for p in told)
    assert store.prune(keep, before, makers) == told
    left = store.trials()
    assert {t.id for t in left} == stays
    assert 0 < sum(p.gone for p in told) == all_of_it - len(stays)
    assert store.check().problems == ()
    assert answers(store) == known
    assert sum(p.gone for p in store.prune(keep, before, makers)) == 0
    before_s, after_s = store.compact()
    assert 0 < after_s <= before_s
    assert store.trials() == left


def test_what_is_written_meanwhile_is_not_touched(store: TrialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the trials to delete are chosen, a session is opened again, and a child of such a trial is
    stored."""
    if store.place == ":memory:":
        pytest.skip("its one connection is busy: nobody writes meanwhile")
    fill(store, random.Random(7))
    doomed = [store.trial(id) for id in sorted({t.id or 0 for t in store.trials()} - needed(store, 1))]
    reopened = doomed[-1]
    parent = next(t for t in doomed if t.session != reopened.session)
    end_of_range = pruning._end_of_range

    def after_others_wrote(c: Connection, low: int) -> int:
        if low == 0:
            with connect(store.place) as other:
                session = next(s for s in other.sessions() if s.id == reopened.session)
                of_it = {"machine": session.machine, "environment": session.environment, "owner": "me"}
                assert other.claim(run_key=session.run_key, seed=0, **of_it).session.id == session.id
                made_from = (Parent(parent.trace_hash, "mutated"),)
                other.add_trials([replace(parent, trace_hash="child", parents=made_from, id=None)])
        return end_of_range(c, low)

    monkeypatch.setattr(pruning, "_end_of_range", after_others_wrote)
    store.prune(1)
    left = {t.id for t in store.trials()}
    assert {t.id for t in doomed if t.session == reopened.session} <= left
    assert parent.id in left
    assert not left & {t.id for t in doomed if t.session != reopened.session and t.id != parent.id}
    assert store.check().problems == ()


def test_nothing_is_kept_of_no_trials(store: TrialStore) -> None:
    assert store.prune(1) == ()
    with pytest.raises(StoreError, match="0 trials of a task cannot be kept"):
        store.prune(0)


def test_a_merge_does_not_bring_back_what_went(store: TrialStore, tmp_path: Path) -> None:
    with connect(tmp_path / "other.db") as other:
        fill(other, random.Random(3))
        assert merge(store, other).new == other.count()
        gone = sum(p.gone for p in store.prune(1))
        assert gone > 0
        left = store.trials()
        assert merge(store, other).new == 0  # its rows were read before
        assert store.trials() == left
        exported = tmp_path / "all.jsonl"
        written_log(other, exported)
        assert import_jsonl(store, exported).new == gone  # a file knows of no such thing


def test_a_log_that_was_pruned_is_merged_again(store: TrialStore, tmp_path: Path) -> None:
    """A log that merged it before gets all new trials, although the row at which it stopped was deleted."""
    fill(store, random.Random(4))
    with connect(tmp_path / "team.db") as team:
        merge(team, store)
        known = team.count()
        store.prune(1)
        last = store.trials(limit=1, newest=True)[0]
        store.add_trials([replace(last, trace_hash="new", id=None)])
        assert merge(team, store).new == 1
        assert team.count() == known + 1
        assert team.check().ok


def test_an_intent_of_a_task_is_left(store: TrialStore) -> None:
    fill(store, random.Random(5))
    last = store.sessions(SessionKind.SEARCH)[-1]
    store.begin_rounds([Round(last.id, "u", "t", 0)], [Intent(last.id, "u", "t", "in flight", "[]")])
    store.prune(1)
    store.compact()
    assert [i.trace_hash for i in store.open_intents()] == ["in flight"]


# --- histories ---


def test_the_best_by_commit(store: TrialStore) -> None:
    fill(store, random.Random(6))
    for code in (Code("k1", "0.1", "abc"), Code("k2", "0.1", "abc", dirty=True)):
        store.put_code(code)
    one = next(t for t in store.trials("w", status=Status.OK) if t.verified)
    faster = [
        replace(one, code=code, trace_hash=f"of {code}", median_s=s)
        for code, s in (("k1", 1e-6), ("k2", 2e-6))
    ]
    store.add_trials(faster)
    by_commit = {(c.of, c.machine): c for c in store.history("w", By.COMMIT)}
    assert by_commit["abc", one.machine].best_s == 1e-6
    assert by_commit["k2", one.machine].trials == 1  # changes that no commit holds are none of it
    without = [t for t in store.trials("w") if t.verified and t.code is None and t.machine == one.machine]
    assert by_commit["", one.machine].trials == len(without)
    assert by_commit["", one.machine].since == min(t.created for t in without)
    best = min(without, key=lambda t: (t.median_s, t.id))
    assert by_commit["", one.machine].trial == best.id
    for by in By:
        chapters = store.history("w", by)
        assert sum(c.trials for c in chapters) == sum(t.verified for t in store.trials("w"))
        assert [c.since for c in chapters] == sorted(c.since for c in chapters)
    assert store.history("nothing") == ()


def test_who_stands_for_a_run_a_machine_or_a_commit(store: TrialStore) -> None:
    fill(store, random.Random(8))
    trials, sessions = store.trials(), {s.id: s for s in store.sessions()}
    for given, mine in (
        ({"machine": "zen5"}, lambda t: t.machine == "zen5"),
        ({"run": "run 1"}, lambda t: sessions[t.session].run_key == "run 1"),
        ({"codes": ["none"]}, lambda t: False),
        ({"session": trials[0].session}, lambda t: t.session == trials[0].session),
        ({}, lambda t: True),
    ):
        groups: dict[tuple[str, str], list[TrialRecord]] = {}
        for t in trials:
            if t.verified and mine(t):
                groups.setdefault((t.workload, t.machine), []).append(t)
        expected = set()
        for group in groups.values():
            raced = [t for t in group if sessions[t.session].kind is SessionKind.RACE]
            last = max((sessions[t.session].started for t in raced), default=None)
            of_last = [t for t in raced if sessions[t.session].started == last]
            expected.add(min(of_last or group, key=lambda t: (t.median_s, t.id)).id)
        assert {t.id for t in store.finalists(**given)} == expected  # type: ignore[arg-type]
