"""A small model, and a log with made-up times of its schedules; nothing is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotensor.api.models import ModelPlan, plan_model
from autotensor.base.machine import environment_versions, host_machine
from autotensor.graph.build import input, ops
from autotensor.resolve import safe_default
from autotensor.schedule.trace import Trace
from autotensor.search.machine.machine_entry import know_machine
from tuning_db import SessionKind, TrialStore
from tuning_db.records import Sample, Status, TrialRecord, Verification
from tuning_db.values import now

RIGHT = Verification(0.0, 1e-5, (0, 1), verdict=True)


def two_convolutions() -> ModelPlan:
    rng = np.random.default_rng(0)
    x = input((1, 16, 20, 20))
    y = ops.relu(ops.conv2d(x, rng.standard_normal((32, 16, 3, 3)).astype("float32"), padding=1))
    return plan_model(ops.relu(ops.conv2d(y, rng.standard_normal((32, 32, 3, 3)).astype("float32"))))


def tell(plan: ModelPlan, store: TrialStore, *, slow_s: float, default_s: float, race: bool = True) -> None:
    """A race or a batch in the log, with these times of the plain nest and the default of every task."""
    know_machine(store)
    machine, environment = host_machine().fingerprint, store.ensure_environment(environment_versions())
    store.ensure_target(plan.target.key(), plan.target.to_json())
    kind = SessionKind.RACE if race else SessionKind.SEARCH
    session = store.start_session(run_key="told", seed=0, machine=machine, environment=environment, kind=kind)
    for t in plan.tasks:
        store.ensure_workload(t.workload.key, t.name, t.workload.text, 1.0)
        row = TrialRecord(
            session=session.id,
            workload=t.workload.key,
            target=plan.target.key(),
            machine=machine,
            environment=environment,
            trace="{}",
            trace_hash="x",
            status=Status.OK,
            median_s=1.0,
        )
        for trace, seconds in ((Trace(), slow_s), (safe_default(t.workload, plan.target), default_s)):
            samples = tuple(Sample(seconds, "graph") for _ in range(5))
            told = replace(row, trace=trace.to_json(), trace_hash=trace.hash, median_s=seconds)
            store.add_trials([replace(told, samples=samples, verification=RIGHT, created=now())])
    store.end_session(session.id, "")
