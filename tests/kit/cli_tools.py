"""Helpers of the command line's tests: they run it in this process or in another one, and write logs without
measuring."""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shelves import traces

from autotensor.api.models import ModelPlan, plan_model
from autotensor.base.machine import host_machine
from autotensor.base.target import Target, default_threads, parse
from autotensor.cli.main import main
from autotensor.models import MODELS
from autotensor.te.workload import Workload
from schedules.generate import generate
from tuning_db import TrialStore, connect
from tuning_db.records import Machine, Sample, Status, TrialRecord, Verification

ROOT = Path(__file__).parents[2]
COUNT = 24  # trials that `record` writes: enough for a cost model
# made up, so that nothing needs to be calibrated
RATES = {
    "clock": 3e9, "flops.core": 1e11, "bandwidth.L2": 5e10, "bandwidth.L3": 4e10,
    "bandwidth.memory.core": 1.5e10,
}  # fmt: skip
for _threads in range(2, 1 + max(8, default_threads())):
    RATES |= {
        f"flops.t{_threads}": _threads * 1e11,
        f"bandwidth.memory.t{_threads}": 2e10,
        f"region.t{_threads}": 2e-6,
    }


@dataclass(frozen=True)
class Ran:
    """The answer of a command."""

    code: int
    out: str
    err: str


def cli(*words: object) -> Ran:
    """Run the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(w) for w in words])
    return Ran(code, out.getvalue(), err.getvalue())


def start(*words: object, cwd: Path, before: Sequence[object] = ()) -> subprocess.Popen[str]:
    """Start the command as a process of its own; `before` is a command that runs its arguments."""
    environment = {k: v for k, v in os.environ.items() if k != "AUTOTENSOR_DB"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*map(str, before), sys.executable, "-m", "autotensor.cli.main", *map(str, words)],
        cwd=cwd, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], timeout_s: float = 120.0) -> Ran:
    out, err = process.communicate(timeout=timeout_s)
    return Ran(process.returncode, out, err)


def calibrated_log(path: Path) -> Path:
    """An empty log with this machine's rates."""
    with connect(path) as store:
        know(store, host_machine().fingerprint)
    return path


def know(store: TrialStore, fingerprint: str, cpu: str = "") -> None:
    h = host_machine()
    store.ensure_machine(Machine(fingerprint, cpu or h.cpu_model, h.features, h.cores, h.caches, "cpu", ""))
    store.put_calibration(fingerprint, RATES)


def mlp_plan() -> ModelPlan:
    """The tasks of the smallest model."""
    return plan_model(MODELS.get("mlp").build())


def add_two_machines(store: TrialStore, plan: ModelPlan) -> None:
    """Three trials of the model's first task on this machine, and one of its second task on another, much
    faster machine."""
    add_trials(store, plan.tasks[0].workload, [3e-5, 1e-5, 2e-5])
    add_trials(store, plan.tasks[1].workload, [1e-9], fingerprint="elsewhere", cpu="Faster CPU 9000")


def add_trials(
    store: TrialStore,
    workload: Workload,
    seconds: list[float],
    *,
    fingerprint: str | None = None,
    cpu: str = "",
    target: Target | None = None,
    verified: bool = True,
) -> list[TrialRecord]:
    """Trials with these seconds and different traces; nothing is measured."""
    chosen = target or parse()
    machine = fingerprint or host_machine().fingerprint
    know(store, machine, cpu)
    environment = store.ensure_environment({"python": "3"})
    store.ensure_workload(workload.key, workload.name, workload.text, float(workload.dag.flops()))
    store.ensure_target(chosen.key(), chosen.to_json())
    session = store.start_session(run_key=f"run {machine}", seed=0, machine=machine, environment=environment)
    check = Verification(1e-7, 1e-5, (0, 1), True) if verified else None
    made = []
    for trace, s in zip(traces(workload, chosen, len(seconds)), seconds, strict=True):
        made.append(
            TrialRecord(
                session=session.id, workload=workload.key, target=chosen.key(), machine=machine,
                environment=environment, trace=trace.to_json(), trace_hash=trace.hash, status="OK",
                median_s=s, samples=(Sample(s, "hot"),) * 3, verification=check, made_by="test",
            )
        )  # fmt: skip
    store.add_trials(made)
    return made


def record(store: TrialStore, workload: Workload) -> None:
    """Trials 1 to COUNT: the default first, the tenth one a failure."""
    target, machine = parse(), host_machine().fingerprint
    know(store, machine)
    environment = store.ensure_environment({"python": "3"})
    store.ensure_workload(workload.key, workload.name, workload.text, float(workload.dag.flops()))
    store.ensure_target(target.key(), target.to_json())
    session = store.start_session(run_key="run", seed=0, machine=machine, environment=environment)
    sketch, rng = generate(workload.dag, target)[0], random.Random(0)
    found: dict[str, TrialRecord] = {}
    while len(found) < COUNT:
        decisions = sketch.random(rng) if found else sketch.defaults()
        trace = sketch.fill(decisions)
        seconds = 1e-4 * (1.0 + rng.random())
        row = TrialRecord(
            session=session.id, workload=workload.key, target=target.key(), machine=machine,
            environment=environment, trace=trace.to_json(), trace_hash=trace.hash, status=Status.OK,
            median_s=seconds, samples=(Sample(seconds, "graph"),) * 3,
            verification=Verification(1e-7, 1e-5, (0, 1), True), sketch_hash=sketch.hash,
            decisions={k: list(v) for k, v in decisions.items()},
            made_by="drafted" if found else "default", predicted=1.1e-4 if found else None,
            assembly={"spills": 3, "carried": 0, "fma": 48, "loads": 20, "loops": 2, "longest_loop": 70},
        )  # fmt: skip
        if len(found) == 9:
            row = replace(row, status=Status.CRASHED, median_s=None, samples=(), error="signal 11\nin t0")
        found.setdefault(trace.hash, row)
    store.add_trials(list(found.values()))
