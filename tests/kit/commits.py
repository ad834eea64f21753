"""A log of races at two commits, with drift, noise and outliers like those of real machines. Nothing is
measured."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tuning_db import Code, Machine, Sample, SessionKind, Status, TrialRecord, TrialStore, Verification

COMMITS = ("aaaa1111", "bbbb2222")
SAMPLES = 15  # of each contestant of a final race


def samples(rng: random.Random, seconds: float, drift: float, count: int = SAMPLES) -> tuple[Sample, ...]:
    """Samples of a kernel with these seconds, in a session in which the machine is slower by this factor.

    The noise is 1 %, and 0.7 % for the reference kernel. Every twentieth sample is disturbed, together with
    its reference.
    """
    found = []
    for _ in range(count):
        disturbed = drift * (rng.uniform(1.1, 1.5) if rng.random() < 0.05 else 1.0)
        reference = 2e-3 * disturbed * rng.lognormvariate(0.0, 0.007)
        found.append(Sample(seconds * disturbed * rng.lognormvariate(0.0, 0.01), "hot", reference))
    return tuple(found)


def add_races(
    store: TrialStore,
    commit: str,
    seconds: Mapping[str, float],
    rng: random.Random,
    machine: str = "zen3",
    count: int = SAMPLES,
    target: tuple[str, str] = ("t", "{}"),
    **changes: object,
) -> str:
    """A run at a commit that raced two schedules of each task, the default twice as slow; gives its key.

    seconds: those of the better schedule, by workload key. Sessions differ by up to 5 %, as days of a machine
    do, and by 0.3 % for each task, as places in memory do.
    """
    store.ensure_machine(Machine(machine, f"CPU {machine}"))
    environment = store.ensure_environment({"python": "3"})
    store.put_code(Code(commit, "0.1", commit))
    store.ensure_target(*target)
    run = f"run of {commit} on {machine}"
    session = store.start_session(
        run_key=run, seed=0, machine=machine, environment=environment, kind=SessionKind.RACE
    )
    drift = rng.uniform(0.95, 1.05)
    trials = []
    for key, best in seconds.items():
        store.ensure_workload(key, f"task {key}", key, 1e6)
        for trace, factor in (("default", 2.0), ("tuned", 1.0)):
            of_place = factor * rng.lognormvariate(0.0, 0.003)
            taken = samples(rng, best * of_place, drift, count)
            row = {
                "session": session.id, "workload": key, "target": target[0], "machine": machine,
                "environment": environment, "trace": "[]", "trace_hash": f"{key} {trace}",
                "status": Status.OK, "median_s": sorted(s.seconds for s in taken)[count // 2],
                "samples": taken, "verification": Verification(1e-7, 1e-5, (0,), True), "made_by": trace,
                "code": commit, "source_sha": f"{key} {trace} {commit}",
            }  # fmt: skip
            trials.append(TrialRecord(**row | changes))  # type: ignore[arg-type]
    store.add_trials(trials)
    store.end_session(session.id, "raced")
    return run
