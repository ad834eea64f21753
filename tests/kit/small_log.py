"""Small logs for the contract of a trial store. Start at `Task`, the smallest one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tuning_db import (
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
    SessionKind,
    Sketch,
    Standing,
    Status,
    TrialRecord,
    TrialStore,
    Verification,
)

RIGHT = Verification(max_error=1e-6, tolerance=1e-4, seeds=(1, 2), verdict=True)
WRONG = Verification(max_error=0.5, tolerance=1e-4, seeds=(1, 2), verdict=False)


@dataclass(frozen=True)
class Task:
    """A workload on a target in a session, to which a trial refers."""

    session: str
    machine: str
    environment: str
    workload: str = "w"
    target: str = "llvm 2 threads"

    def trial(self, trace_hash: str, seconds: float | None = 1e-3, **changes: Any) -> TrialRecord:
        ok = seconds is not None
        base = TrialRecord(
            session=self.session,
            workload=self.workload,
            target=self.target,
            machine=self.machine,
            environment=self.environment,
            trace=f'{{"version": 1, "steps": ["{trace_hash}"]}}',
            trace_hash=trace_hash,
            status=Status.OK if ok else Status.RUN_TIMEOUT,
            median_s=seconds,
            samples=tuple(Sample(seconds * f, "cold", 2e-3) for f in (0.9, 1.0, 1.2)) if ok else (),
            verification=RIGHT if ok else None,
            error=None if ok else "kernel 'k' ran 31.5 s\nstack",
            decisions={"C.i": (4, 8), "unroll": 16},
            parents=(Parent("p1", "crossed"), Parent("p2", "crossed", "w")),
            made_by="mutate_tile",
            predicted=0.7,
            build_s=0.05,
            assembly={"spills": 0, "fma": 448},
            source_sha="abc",
        )
        return replace(base, **changes)

    def intent(self, trace_hash: str, **changes: Any) -> Intent:
        base = Intent(self.session, self.workload, self.target, trace_hash, "{}", worker_pid=7, boot_id="b")
        return replace(base, **changes)


def a_task(store: TrialStore, fingerprint: str = "zen4", **names: str) -> Task:
    machine = store.ensure_machine(Machine(fingerprint, "Zen 4", ("avx512f", "fma"), 2, (32768, 1 << 20)))
    environment = store.ensure_environment({"llvmlite": "0.50", "python": "3.11"})
    session = store.start_session(
        run_key="run",
        seed=2**70,
        machine=machine,
        environment=environment,
        options={"trials": 64, "list": [1, [2]]},
    )
    task = Task(session.id, machine, environment, **names)
    store.ensure_workload(task.workload, "matmul", '{"canonical": 1}', 2.0e9)
    store.ensure_target(task.target, '{"threads": 2}')
    return task


def begin(store: TrialStore, task: Task, *intents: Intent, index: int = 0, **rest: Any) -> None:
    """A round of the task with these candidates."""
    store.begin_rounds([Round(task.session, task.workload, task.target, index, **rest)], intents)


def write_everything(store: TrialStore, task: Task) -> None:
    """One record at least of every kind."""
    begin(store, task, notes={"rng": [1]})
    store.put_calibration("zen4", {"peak": 1.2e11})
    store.put_host(Host("h", "box", "zen4"))
    store.put_code(Code("c", "0.1", "abc", True, "f00d"))
    store.put_sketches([Sketch("5e7c", '{"version": 1, "steps": [{"hole":"unroll","index":0}]}')])
    store.put_run(Run("run", "mlp", "hash", ({"workload": "w"},), {"for": ("paper", 1)}, "a note"))
    store.put_opening(Opening(task.session, "h", "c", "autotensor tune mlp", "ada", 7, "boot"))
    filled = {"sketch_hash": "5e7c", "decisions": {"unroll": (16,)}}
    more = {"conditions": Conditions.ALONE, "note": "hot", "host": "h", "code": "c", "numerics": "fast"}
    measured = {"metrics": {"joules": 1.5}, "extents": {"n": 7}, "trace": '{"version": 1, "steps": [16]}'}
    store.add_trials(
        [
            task.trial("a", round=0, **filled, **more, **measured),
            task.trial("b", None, sketch_hash="unknown"),
            task.trial("c", verification=WRONG),
        ]
    )
    (search,) = store.sessions()
    race = replace(search, id="race", kind=SessionKind.RACE, of=search.id)
    store.put_session(race)
    store.add_trials([replace(task.trial("a"), session="race")])
    winner = store.trial_id("race", task.workload, task.target, "a")
    store.put_standing(Standing(task.workload, task.target, "zen4", "race", winner, 1e-3, 2e-3))
    store.record_apply(winner or 0, "mlp.atm")
    store.end_session(task.session, "done")


def everything(store: TrialStore) -> dict[str, Any]:
    """All records. Sessions are without their owners."""
    sessions = store.sessions()
    return {
        "workloads": store.workloads(),
        "targets": store.targets(),
        "machines": store.machines(),
        "hosts": store.hosts(),
        "codes": store.codes(),
        "environments": store.environments(),
        "sketches": store.sketches(),
        "runs": store.runs(),
        "sessions": [replace(s, owner="", lease_until=None) for s in sessions],
        "openings": store.openings(),
        "rounds": [r for s in sessions for r in store.rounds(s.id)],
        "rates": [c for m in store.machines() for c in store.calibrations(m.fingerprint)],
        "trials": store.trials(),
        "counts": set(store.task_counts()),
        "standings": [(replace(s, trial=None), store.trial(s.trial or 0)) for s in store.standings()],
        "applications": store.all_applications(),
    }
