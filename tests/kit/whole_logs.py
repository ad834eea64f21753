"""Random logs with rows of every kind, from a seed; and the whole contents of a log, to compare two logs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    TrialRecord,
    TrialStore,
    Verification,
)
from tuning_db.exchange.transfer import export_jsonl

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SKETCH = '{"version":1,"steps":[["Split","i",[{"hole":"tile","index":0}]]]}'
WORKLOADS, TARGETS, MACHINES, ENVIRONMENTS = 4, 2, 3, 3

Open = Callable[[str], TrialStore]  # an empty log: "file", "memory" or "server"


def written_log(store: TrialStore, path: Path) -> int:
    """Exports a log to a file of JSON lines. Returns the number of trials."""
    with path.open("wb") as file:
        return export_jsonl(store, file)


def write(store: TrialStore, seed: int, sessions: int = 4, trials: int = 8) -> None:
    """A log with rows of every kind. Two such logs agree in the rows of a session that both have, but each
    may lack some. Each numbers its rows in its own order."""
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
    """A search and its race, as far as this log has them."""
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
    """The same for the same hash in every log, because a trial is measured once."""
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
    """All records without their numbers; the trials of a session are in order."""

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
    """The same, if the trials of a session came from several logs."""
    found = contents(store)
    return found | {"trials": sorted(found["trials"])}
