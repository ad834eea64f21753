"""Makes a tuning log of any size from a real log, and measures how long the log's verbs take on it.

    python benchmarks/logs/big_log.py make REAL.db BIG.db 1000000     rows, written by the log's own writer
    python benchmarks/logs/big_log.py double BIG.db                   twice as many rows
    python benchmarks/logs/big_log.py time BIG.db                     the look-ups of daily use, warm

Rows repeat the real log's rows with new names: other hashes, scattered times, ten machines, twenty
environments, and runs of 400 trials with one race each. In half of the runs, one task is the same workload.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import tuning_db
from autotensor.insight.report.figures import figures
from autotensor.insight.report.run_rows import find_run
from tuning_db import Machine, Round, Run, Session, SessionKind, Standing, TrialRecord, TrialStore
from tuning_db.records import RACES

RUN = 400  # trials of a run
OF_ROUND = 8
MACHINES, ENVIRONMENTS = 10, 20
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def key(kind: str, number: int) -> str:
    return sha256(f"{kind} {number}".encode()).hexdigest()[:32]


def make(real: str, out: str, count: int, seed: int = 7) -> None:
    """Makes the log. Raises StoreError if the real log has no trials."""
    for end in ("", "-wal", "-shm"):
        Path(out + end).unlink(missing_ok=True)
    rng = random.Random(seed)
    with tuning_db.connect(real, readonly=True) as source, tuning_db.connect(out) as store:
        rows = [t for t in source.trials() if t.round is not None]
        machines = things_referred_to(source, store, max(len(source.workloads()), min(3000, count // 500)))
        store.put_sketches(source.sketches())
        made, clock = 0, BEGAN
        while made < count:
            machine = rng.randrange(MACHINES)
            clock += timedelta(minutes=3)
            made += add_run(store, rng, rows, machines[machine], clock)


def things_referred_to(source: TrialStore, store: TrialStore, workloads: int) -> list[str]:
    """Stores workloads, targets, machines and environments. Returns the machines' fingerprints."""
    known = source.workloads()
    for n in range(workloads):
        w = known[n % len(known)]
        store.put_workload(replace(w, key=w.key if n < len(known) else key("workload", n)))
    store.put_target(source.targets()[0])
    here = source.machines()[0]
    for n in range(ENVIRONMENTS):
        store.ensure_environment(dict(source.environments()[0].versions) | {"run": f"{n}"})
    return [
        store.ensure_machine(
            here if n == 0 else Machine(key("machine", n), f"CPU {n}", here.features, here.cores, here.caches)
        )
        for n in range(MACHINES)
    ]


def double(log: str) -> None:
    """Copies every trial, with another hash and another time."""
    with closing(sqlite3.connect(log)) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(trial)") if row[1] != "id"]
        others = {"trace_hash": "lower(hex(randomblob(12)))", "source_sha": "lower(hex(randomblob(32)))",
                  "median_s": "median_s * (0.8 + 0.4 * abs(random() % 1000) / 1000.0)"}  # fmt: skip
        values = ", ".join(others.get(name, name) for name in names)
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"INSERT INTO trial ({', '.join(names)}) SELECT {values} FROM trial")
        db.execute("UPDATE task_count SET n = 2 * n")
        db.commit()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def add_run(
    store: TrialStore, rng: random.Random, rows: list[TrialRecord], machine: str, started: datetime
) -> int:
    """Adds a search of 400 trials on up to 20 tasks, and its race."""
    workloads = [w.key for w in WORKLOADS(store)]
    tasks = rng.sample(workloads, min(20, len(workloads)))
    if rng.random() < 0.5:
        tasks[0] = workloads[0]
    environment = ENVIRONMENT_KEYS(store)[rng.randrange(ENVIRONMENTS)]
    target = rows[0].target
    run = f"{rng.getrandbits(128):032x}"
    search, race = (
        Session(f"{rng.getrandbits(128):032x}", run, 0, {}, machine, environment, started, kind=kind)
        for kind in (SessionKind.SEARCH, SessionKind.RACE)
    )
    store.put_run(Run(run, "synthetic", tasks=tuple({"workload": t} for t in tasks)))
    store.put_session(search)
    store.put_session(replace(race, of=search.id))
    made: list[TrialRecord] = []
    rounds: dict[tuple[str, int], Round] = {}
    for _ in range(RUN // OF_ROUND):
        task = rng.choice(tasks)
        index = sum(w == task for w, _ in rounds)
        rounds[task, index] = Round(search.id, task, target, index)
        for _ in range(OF_ROUND):
            made.append(another(rng, rng.choice(like(store, rows, task)), search, task, index, started))
    store.put_rounds(list(rounds.values()))
    winners = [t for task in set(t.workload for t in made) for t in islice(verified(made, task), 5)]
    raced = [replace(t, session=race.id, round=None) for t in winners]
    store.add_trials(made)
    store.add_trials(raced)
    for task in {t.workload for t in raced}:
        best = min((t for t in raced if t.workload == task), key=lambda t: t.median_s or 0.0)
        id = store.trial_id(race.id, task, target, best.trace_hash)
        store.put_standing(Standing(task, target, machine, race.id, id, best.median_s))
    for session in (search, race):
        store.end_session(session.id, "all trials are spent")
    return len(made) + len(raced)


def verified(rows: list[TrialRecord], task: str) -> Iterator[TrialRecord]:
    mine = (t for t in rows if t.verified and t.workload == task)
    return iter(sorted(mine, key=lambda t: t.median_s or 0.0))


_cached: dict[str, Any] = {}


def WORKLOADS(store: TrialStore) -> Any:
    return _cached.setdefault("workloads", store.workloads())


def like(store: TrialStore, rows: list[TrialRecord], task: str) -> list[TrialRecord]:
    """The real log's rows for the computation that a workload repeats."""
    if "like" not in _cached:
        known = list(dict.fromkeys(t.workload for t in rows))
        names = {w.key: w.text for w in WORKLOADS(store)}
        by_text = {names[key]: [t for t in rows if t.workload == key] for key in known}
        _cached["like"] = {key: by_text.get(text, rows) for key, text in names.items()}
    found: list[TrialRecord] = _cached["like"][task]
    return found


def ENVIRONMENT_KEYS(store: TrialStore) -> Any:
    return _cached.setdefault("environments", [e.key for e in store.environments()])


def another(
    rng: random.Random, t: TrialRecord, session: Session, task: str, index: int, created: datetime
) -> TrialRecord:
    f = 0.7 + 0.6 * rng.random()
    return replace(
        t,
        session=session.id,
        workload=task,
        machine=session.machine,
        environment=session.environment,
        trace_hash=f"{rng.getrandbits(96):024x}",
        source_sha=f"{rng.getrandbits(256):064x}",
        median_s=None if t.median_s is None else t.median_s * f,
        samples=tuple(replace(s, seconds=s.seconds * f) for s in t.samples),
        round=index,
        created=created,
        host=None,
        code=None,
        id=None,
    )


def timed(work: Callable[[], Any], repeat: int = 15) -> tuple[float, float]:
    """The milliseconds of the first run, and the median of the following runs."""
    seconds = []
    for _ in range(repeat + 1):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds[0] * 1e3, statistics.median(seconds[1:]) * 1e3


def look_ups(address: str) -> dict[str, Any]:
    began = time.perf_counter()
    store = tuning_db.connect(address)
    opened = (time.perf_counter() - began) * 1e3
    w, g, h = store.workloads()[0].key, store.targets()[0].key, store.machines()[0].fingerprint
    hashes = [t.trace_hash for t in store.best(w, g, h, k=6)]
    session = store.sessions(SessionKind.SEARCH, h)[-1].id
    verbs: dict[str, Callable[[], Any]] = {
        "best": lambda: store.best(w, g, h),
        "best_foreign": lambda: store.best_foreign(w, g, h),
        "last_race": lambda: store.last_race(w, g, h),
        "standing": lambda: store.standing(w, g, h),
        "met": lambda: store.met(w, g, h, hashes, RACES),
        "met none": lambda: store.met(w, g, h, ["0"]),
        "count task": lambda: store.count(w, g, h),
        "count": lambda: store.count(),
        "failures": lambda: store.failures(),
        "task_counts": lambda: store.task_counts(),
        "standings here": lambda: store.standings(h),
        "progress": lambda: store.progress(session),
        "trials of a session": lambda: store.trials(session=session),
        "sessions here": lambda: store.sessions(machine=h),
        "figures of a report": lambda: figures(store, find_run(store, None)),
        "newest 4000 here": lambda: store.trials(target_key=g, machine=h, limit=4000, newest=True),
    }
    found: dict[str, Any] = {"trials": store.count(), "of the task": store.count(w, g, h), "open ms": opened}
    for name, verb in verbs.items():
        first, warm = timed(verb, 3 if "4000" in name or "report" in name else 15)
        found[name] = {"first_ms": round(first, 2), "warm_ms": round(warm, 2)}
    store.close()
    found["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return found


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    verbs = parser.add_subparsers(required=True)
    maker = verbs.add_parser("make")
    maker.add_argument("real")
    maker.add_argument("out")
    maker.add_argument("count", type=int)
    maker.set_defaults(run=lambda a: make(a.real, a.out, a.count))
    doubler = verbs.add_parser("double")
    doubler.add_argument("log")
    doubler.set_defaults(run=lambda a: double(a.log))
    timer = verbs.add_parser("time")
    timer.add_argument("log")
    timer.set_defaults(run=lambda a: print(json.dumps(look_ups(a.log), indent=1)))
    asked = parser.parse_args()
    began = time.perf_counter()
    asked.run(asked)
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
