"""Runs in a log as the tuner leaves them: searched, raced, ended. Times are made up, nothing is measured.

Every option of a decision has a factor of its own. So some schedules are better than others for a reason, and
children of the best ones are better still.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cli_tools import know

from autotensor.base.machine import host_machine
from autotensor.schedule.sketch import Option, Sketch
from autotensor.search.task import Task
from schedules.generate import generate
from tuning_db import TrialStore
from tuning_db.records import (
    Code,
    Host,
    Opening,
    Parent,
    Round,
    Run,
    Sample,
    Session,
    SessionKind,
    Standing,
    Status,
    TrialRecord,
    Verification,
)

BEGAN = datetime(2026, 11, 1, 8, tzinfo=UTC)
FAILURES = (
    (Status.REJECTED, "its register tile lies on the stack: 12 vectors are carried round the loop"),
    (Status.WRONG_RESULT, "element (3, 7) is 0.25, not 0.5"),
    (Status.WRONG_RESULT, "element (1, 9) is 0.75, not 1.5"),
    (Status.RUN_TIMEOUT, "it ran longer than 0.4 s"),
)
FAILED = 0.12  # of the trials
OF_ROUND = 8
RACED, SAMPLES = 4, 9


def add_run(
    store: TrialStore, tasks: Sequence[Task], trials: int, model: str, seed: int = 0,
    began: datetime = BEGAN, slower: float = 1.0,
) -> Run:  # fmt: skip
    """A run with this total number of trials. slower: a factor on the times of all its winners."""
    rng = random.Random(seed)
    machine = host_machine().fingerprint
    know(store, machine)
    store.put_host(Host("h1", "anvil", machine))
    store.put_code(Code("c1", "0.1.0", "abcdef0123456789"))
    environment = store.ensure_environment({"python": "3.11", "autotensor": "0.1.0"})
    target = tasks[0].target
    store.ensure_target(target.key(), target.to_json())
    entries = []
    for t in tasks:
        w = t.workload
        store.ensure_workload(w.key, w.name, w.text, float(w.dag.flops()))
        entries.append({"workload": w.key, "target": target.key(), "weight": t.weight, "name": t.label})
    run = Run(f"{rng.getrandbits(128):032x}", model, tasks=tuple(entries))
    store.put_run(run)
    clock = iter(began + timedelta(minutes=n) for n in range(9))

    def session(kind: SessionKind, key: str = run.key, **other: Any) -> Session:
        return store.start_session(
            run_key=key, seed=seed, machine=machine, environment=environment, kind=kind, started=next(clock),
            **other,
        )  # fmt: skip

    search = session(SessionKind.SEARCH)
    command = f"__main__.py tune {model} --trials {trials}"
    store.put_opening(Opening(search.id, "h1", "c1", command, "ada", started=began))
    race = session(SessionKind.RACE, of=search.id)
    inside, default_s = {}, 0.0
    for t in tasks:
        rows = searched(store, search, t, max(4, trials // len(tasks)), rng)
        first, best = raced(store, race, rows, slower, rng)
        inside[t.workload.key] = 1.1 * t.weight * best
        default_s += 1.1 * t.weight * first
    outcome = {"default_s": default_s, "tuned_s": sum(inside.values()), "inside": inside}
    end = session(SessionKind.END, f"end:{run.key}", options=outcome)
    for s in (search, race, end):
        store.put_session(
            replace(s, ended=s.started + timedelta(seconds=50), stop_reason="all trials are spent")
        )
    return run


def searched(store: TrialStore, s: Session, task: Task, count: int, rng: random.Random) -> list[TrialRecord]:
    """The search of a task: its default, drafts, and from then on neighbours of the best."""
    sketches = generate(task.workload.dag, task.target)
    base_s = 1e-6 + 2.0 * task.workload.dag.flops() / 1e11
    factors: dict[tuple[str, Option], float] = {}
    rows: dict[str, TrialRecord] = {}
    for n in range(4 * count):
        if len(rows) == count:
            break
        sketch, decisions, made_by, parents = _candidate(len(rows), sketches, list(rows.values()), rng)
        trace = sketch.fill(decisions)
        if trace.hash in rows:
            continue
        seconds = base_s * (1.0 + 0.1 * sketches.index(sketch)) * (1.0 + 0.02 * rng.random())
        for choice in decisions.items():
            seconds *= factors.setdefault(choice, 0.8 + 0.6 * rng.random())
        failure = rng.choice(FAILURES) if n and rng.random() < FAILED else None
        outcome = _timed(seconds, rng) if failure is None else {"status": failure[0], "error": failure[1]}
        rows[trace.hash] = TrialRecord(
            session=s.id, workload=task.workload.key, target=task.target.key(), machine=s.machine,
            environment=s.environment, trace=trace.to_json(), trace_hash=trace.hash,
            sketch_hash=sketch.hash, decisions=decisions, made_by=made_by, parents=parents,
            round=len(rows) // OF_ROUND, host="h1", code="c1", conditions="alone",
            predicted=seconds * (0.8 + 0.4 * rng.random()) if n else None,
            assembly={"fma": 8 + len(rows) % 5, "spills": len(rows) % 3, "loads": 20},
            created=s.started + timedelta(seconds=len(rows)), **outcome,
        )  # fmt: skip
    numbers = sorted({r.round or 0 for r in rows.values()})
    store.put_rounds([Round(s.id, task.workload.key, task.target.key(), n) for n in numbers])
    store.add_trials(list(rows.values()))
    return list(rows.values())


def _candidate(
    number: int, sketches: Sequence[Sketch], rows: Sequence[TrialRecord], rng: random.Random
) -> tuple[Sketch, Mapping[str, Option], str, tuple[Parent, ...]]:
    best = min((r for r in rows if r.verified), key=lambda r: r.median_s or 0.0, default=None)
    if best is None or number == 0:
        return sketches[0], sketches[0].defaults(), "default", ()
    kin = next(s for s in sketches if s.hash == best.sketch_hash)
    open_holes = [h for h in kin.holes if len(h.options) > 1]
    if number < OF_ROUND or not open_holes or rng.random() < 0.3:
        sketch = rng.choice(sketches)
        return sketch, sketch.random(rng), "random" if rng.random() < 0.3 else "drafted", ()
    hole = rng.choice(open_holes)
    decisions = {k: tuple(v) for k, v in best.decisions.items()} | {hole.name: rng.choice(hole.options)}
    return kin, decisions, "descent", (Parent(best.trace_hash, "neighbour"),)


def _timed(seconds: float, rng: random.Random, count: int = 3) -> dict[str, Any]:
    samples = tuple(
        Sample(seconds * (1.0 + 0.03 * rng.random()), "graph", 1e-4 * (1.0 + 0.1 * rng.random()))
        for _ in range(count)
    )
    middle = sorted(s.seconds for s in samples)[count // 2]
    right = Verification(1e-7, 1e-5, (0, 1), True)
    return {"status": Status.OK, "median_s": middle, "samples": samples, "verification": right}


def raced(
    store: TrialStore, s: Session, rows: Sequence[TrialRecord], slower: float, rng: random.Random
) -> tuple[float, float]:
    """The race of a task's best and its default; gives the default's seconds, and the least."""
    good = sorted((r for r in rows if r.verified), key=lambda r: r.median_s or 0.0)
    met = [rows[0], *(r for r in good if r is not rows[0])][:RACED]
    factors = {rows[0].trace_hash: 1.0}
    again = [
        replace(
            r, session=s.id, round=None,
            **_timed((r.median_s or 0.0) * factors.get(r.trace_hash, slower), rng, SAMPLES),
        )
        for r in met
    ]  # fmt: skip
    store.add_trials(again)
    best = min(again, key=lambda r: r.median_s or 0.0)
    id = store.trial_id(s.id, best.workload, best.target, best.trace_hash)
    first = again[0].median_s
    store.put_standing(Standing(best.workload, best.target, s.machine, s.id, id, best.median_s, first))
    return first or 0.0, best.median_s or 0.0
