"""How many trials several writers store, and how long the slowest writer waits. Each writer is a process,
like a search.

    python benchmarks/logs/log_writers.py REAL.db PLACE 8 5     eight writers, five seconds

A batch has the rows that a search writes for eight candidates: the round with its intents, then the trials.
The trials' rows are drawn from a real log.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace

import tuning_db
from tuning_db import Intent, Round, TrialRecord, TrialStore

OF_ROUND = 8


def write(real: str, place: str, seconds: float, number: int, start: float) -> dict[str, float]:
    """Writes until the time is over. Returns the number of trials, and the milliseconds of the batches."""
    with tuning_db.connect(real, readonly=True) as source, tuning_db.connect(place) as store:
        rows = [t for t in source.trials(limit=200) if t.verified]
        introduce(source, store)
        first = rows[0]
        session = store.start_session(
            run_key=f"writer {number}", seed=0, machine=first.machine, environment=first.environment
        )
        rng, index, waits = random.Random(number), 0, []
        while time.time() < start:
            time.sleep(0.001)
        while time.time() < start + seconds:
            base = rng.choice(rows)
            batch = [
                replace(
                    base, session=session.id, round=index, id=None, trace_hash=f"{rng.getrandbits(96):024x}"
                )
                for _ in range(OF_ROUND)
            ]
            began = time.perf_counter()
            one_batch(store, batch)
            waits.append(time.perf_counter() - began)
            index += 1
    waits.sort()
    places = {"p50_ms": waits[len(waits) // 2], "p99_ms": waits[int(len(waits) * 0.99)], "max_ms": waits[-1]}
    return {"trials": index * OF_ROUND} | {name: 1e3 * s for name, s in places.items()}


def introduce(source: TrialStore, store: TrialStore) -> None:
    for w in source.workloads():
        store.put_workload(w)
    for g in source.targets():
        store.put_target(g)
    for m in source.machines():
        store.ensure_machine(m)
    for e in source.environments():
        store.put_environment(e)
    for h in source.hosts():
        store.put_host(h)
    for c in source.codes():
        store.put_code(c)
    store.put_sketches(source.sketches())


def one_batch(store: TrialStore, batch: list[TrialRecord]) -> None:
    first = batch[0]
    store.begin_rounds(
        [Round(first.session, first.workload, first.target, first.round or 0)],
        [
            Intent(
                t.session, t.workload, t.target, t.trace_hash, t.trace, os.getpid(), "boot",
                sketch_hash=t.sketch_hash, decisions=t.decisions,
            )
            for t in batch
        ],
    )  # fmt: skip
    assert store.add_trials(batch) == len(batch)


def main(real: str, place: str, writers: int, seconds: float) -> None:
    tuning_db.connect(place).close()
    start = time.time() + 2.0 + 0.5 * writers
    words = [sys.executable, __file__, real, place, str(writers), str(seconds)]
    children = [
        subprocess.Popen([*words, str(n), str(start)], stdout=subprocess.PIPE, text=True)
        for n in range(writers)
    ]
    found = [json.loads(child.communicate()[0]) for child in children]
    total = sum(f["trials"] for f in found) / seconds
    slowest = {name: max(f[name] for f in found) for name in ("p50_ms", "p99_ms", "max_ms")}
    print(json.dumps({"writers": writers, "trials_per_s": round(total), **slowest}))


if __name__ == "__main__":
    if len(sys.argv) > 5:  # this process is one of the writers
        print(
            json.dumps(
                write(sys.argv[1], sys.argv[2], float(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
            )
        )
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
