"""Between the search and the log: results become trial records, records become told candidates.

A run is one session. Its races are in another (`races.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from autotensor.base.machine import environment_versions, host_machine
from autotensor.resolve import Metric, median_s
from autotensor.search.machine.machine_entry import session_here
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.metric import figure_of
from autotensor.search.races import Races
from autotensor.search.run import TuningRun
from autotensor.search.task import Candidate, Task
from tuning_db import TrialStore
from tuning_db.records import Intent, Sample, Session, TrialRecord, Verification

if TYPE_CHECKING:
    from autotensor.search.propose.policy import Policy

ALL_FINISHED = "all tasks are finished"  # why a run ended that had trials to spare


@dataclass(slots=True)
class Journal:
    """Writes one session of one machine. Every verb is one transaction."""

    store: TrialStore
    session: Session
    environment: str
    seeds: tuple[int, ...]
    residency: str
    ended_before: str = ""  # why the run that is continued ended, if it did
    races: Races = field(init=False)

    def __post_init__(self) -> None:
        self.races = Races(self.store, self.session.run_key, self.session.id, self.session.seed)

    def begin(self, task: Task, index: int, candidates: Sequence[Candidate]) -> None:
        """Notes the round and what is about to run, so that a crash leaves a trace of it."""
        workload, target = task.workload, task.target
        self.store.start_round(self.session.id, workload.key, target.key(), index)
        self.store.mark_intents(
            [
                Intent(
                    session=self.session.id,
                    workload=workload.key,
                    target=target.key(),
                    trace_hash=c.trace.hash,
                    trace=c.trace.to_json(),
                    worker_pid=os.getpid(),
                    boot_id=boot_id(),
                )
                for c in candidates
            ]
        )

    def finish(
        self, task: Task, index: int, candidates: Sequence[Candidate], results: Sequence[MeasureResult]
    ) -> Sequence[TrialRecord]:
        """Stores a measured batch; gives the trials."""
        rows = [self._record(task, index, c, r) for c, r in zip(candidates, results, strict=True)]
        self.store.add_trials(rows)
        return rows

    def forget(self, candidates: Sequence[Candidate]) -> None:
        """Takes back what `begin` noted: these will not be measured after all."""
        self.store.drop_intents(self.session.id, [c.trace.hash for c in candidates])

    def race(
        self, contestants: Sequence[TrialRecord], results: Sequence[MeasureResult]
    ) -> tuple[TrialRecord, ...]:
        """Stores how trials did that were measured again, side by side; gives them as stored."""
        return self.races.add(
            replace(
                t,
                status=r.status,
                median_s=median(r.seconds) if r.ok else None,
                samples=self._samples(r),
                verification=self._verification(r),
                build_s=r.build_seconds,
                error=r.error,
                assembly=dict(r.asm),
                source_sha=r.source_sha,
            )
            for t, r in zip(contestants, results, strict=True)
        )

    def end(self, reason: str) -> None:
        self.store.end_session(self.session.id, reason)
        self.races.end(reason)

    def _samples(self, r: MeasureResult) -> tuple[Sample, ...]:
        references = (*r.reference_seconds, *(None for _ in r.seconds))
        pairs = zip(r.seconds, references, strict=False)
        return tuple(Sample(s, self.residency, reference) for s, reference in pairs) if r.ok else ()

    def _verification(self, r: MeasureResult) -> Verification | None:
        if r.max_error is None or r.tolerance is None:
            return None
        return Verification(r.max_error, r.tolerance, self.seeds, verdict=r.ok)

    def _record(self, task: Task, index: int, c: Candidate, r: MeasureResult) -> TrialRecord:
        return TrialRecord(
            session=self.session.id,
            workload=task.workload.key,
            target=task.target.key(),
            machine=self.session.machine,
            environment=self.environment,
            trace=c.trace.to_json(),
            trace_hash=c.trace.hash,
            status=r.status,
            median_s=median(r.seconds) if r.ok else None,
            samples=self._samples(r),
            verification=self._verification(r),
            build_s=r.build_seconds,
            error=r.error,
            sketch_hash=c.sketch.hash,
            decisions={k: list(v) for k, v in c.decisions.items()},
            parents=c.parents,
            made_by=c.made_by,
            predicted=c.predicted,
            assembly=dict(r.asm),
            source_sha=r.source_sha,
            round=index,
        )


def open_journal(run: TuningRun, key: str) -> Journal:
    """The session of a run key: the earlier one continued, or a new one."""
    store, options = run.store, run.options
    environment = store.ensure_environment(environment_versions())
    for task in run.tasks:
        w = task.workload
        store.ensure_workload(w.key, task.label, w.text, float(w.dag.flops()))
        store.ensure_target(task.target.key(), task.target.to_json())
    earlier = None if options.fresh else store.find_session(key)
    ended_before = ""
    if earlier is not None and earlier.machine == host_machine().fingerprint:
        ended_before = earlier.stop_reason or ""
        session = store.reopen_session(earlier.id)
    else:
        session = session_here(store, key, options.plain(), options.seed)
    return Journal(store, session, environment, run.seeds, run.residency, ended_before=ended_before)


def run_key(tasks: Sequence[Task], target_key: str, options: Mapping[str, Any], seed: int) -> str:
    """Names a run by tasks, target, options and seed; the number of trials is not part of it."""
    weights = sorted((t.workload.key, t.weight) for t in tasks)
    text = json.dumps([weights, target_key, sorted(options.items()), seed])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def retell(tuner: Policy, rows: Sequence[TrialRecord], metric: Metric = median_s) -> int:
    """Tells a tuner what was measured before, as one round; gives the number of trials that it understood.

    Rows of sketches that today's rules no longer make say nothing to it.
    """
    candidates = [tuner.candidate(row.sketch_hash, decisions_of(row), row.made_by) for row in rows]
    told = [(c, figure_of(row, metric)) for c, row in zip(candidates, rows, strict=True) if c is not None]
    tuner.tell([c for c, _ in told], [t for _, t in told])
    return len(told)


def decisions_of(row: TrialRecord) -> dict[str, tuple[int, ...]]:
    return {str(k): tuple(int(x) for x in v) for k, v in row.decisions.items()}


def boot_id() -> str:
    """Changes with every start of the machine, so that a process id means something."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
