"""Between the search and the log: results become trial records, and records become measured candidates.

A run is one session. Its races are in another session (`races.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from autotensor.base.doors import inside
from autotensor.base.machine import environment_versions
from autotensor.resolve import Metric, median_s
from autotensor.schedule.sketch import Sketch
from autotensor.search.events import Waiting
from autotensor.search.machine.lease import leased, surely_gone
from autotensor.search.machine.machine_entry import (
    NOBODY,
    Witness,
    boot_id,
    introduce,
    know_machine,
    work_here,
)
from autotensor.search.measuring.measure_request import MeasureResult, Who
from autotensor.search.metric import figure_of
from autotensor.search.races import Races
from autotensor.search.run import TuningRun
from autotensor.search.task import Candidate, Task
from autotensor.search.task_ends import note_task_ends, task_ends
from schedules.prior.rates import Rates
from tuning_db import TrialStore
from tuning_db.answers import Claim
from tuning_db.records import (
    Intent,
    Round,
    Run,
    Sample,
    Session,
    SessionKind,
    Status,
    TrialRecord,
    Verification,
)
from tuning_db.records import Sketch as SketchRecord

if TYPE_CHECKING:
    from autotensor.search.propose.policy import Policy

# launches of a candidate without a result; after this many, the candidate is assumed to end the run
MOST_LAUNCHES = 3
ALL_FINISHED = "all tasks are finished"  # reason for ending while trials are left


@dataclass(frozen=True, slots=True)
class Proposed:
    """The candidates of one round of a task."""

    task: Task
    index: int  # index of the round
    candidates: Sequence[Candidate]


@dataclass(slots=True)
class Journal:
    """Writes one session of one machine. Every method is one transaction."""

    store: TrialStore
    session: Session
    environment: str
    seeds: tuple[int, ...]
    residency: str
    ended_before: str = ""  # why the continued run ended before, if it ended
    witness: Witness = NOBODY  # the host and code of this process
    _texts: set[str] = field(default_factory=set)  # hashes of the sketches that this journal has written
    # other measuring processes that this journal has written to the log
    _others: dict[Who, Witness] = field(default_factory=dict)
    races: Races = field(init=False)
    repeats: Races = field(init=False)  # the same races, repeated on other machines of the class

    def __post_init__(self) -> None:
        s = self.session
        self.races, self.repeats = (
            Races(self.store, s.machine, s.run_key, SessionKind.RACE, s.id, s.seed) for _ in range(2)
        )

    def begin(self, batches: Sequence[Proposed]) -> None:
        """Records rounds and their candidates before they run, so that they are in the log after a crash."""
        self._write_down([c.sketch for b in batches for c in b.candidates])
        session = self.session.id
        self.store.begin_rounds(
            [Round(session, b.task.workload.key, b.task.target.key(), b.index) for b in batches],
            [self._intent(b.task, c) for b in batches for c in b.candidates],
            self.session.owner,
        )

    def _intent(self, task: Task, c: Candidate) -> Intent:
        return Intent(
            session=self.session.id,
            workload=task.workload.key,
            target=task.target.key(),
            trace_hash=c.trace_hash,
            trace=c.trace_text,
            worker_pid=os.getpid(),
            boot_id=boot_id(),
            sketch_hash=c.sketch.hash,
            decisions=plain_decisions(c),
            host=self.witness.host,
        )

    def _write_down(self, sketches: Sequence[Sketch]) -> None:
        """Stores the texts of sketches, so that the traces of their candidates need not be stored."""
        new = {s.hash: s for s in sketches if s.hash not in self._texts}
        self.store.put_sketches([SketchRecord(h, s.text) for h, s in new.items()])
        self._texts |= new.keys()

    def finish(
        self, batches: Sequence[Proposed], results: Sequence[Sequence[MeasureResult]]
    ) -> list[list[TrialRecord]]:
        """Stores measured batches. Returns the trials of each batch."""
        rows = [
            [self._record(b.task, b.index, c, r) for c, r in zip(b.candidates, found, strict=True)]
            for b, found in zip(batches, results, strict=True)
        ]
        self.store.add_trials([row for batch in rows for row in batch])
        return rows

    def forget(self, candidates: Sequence[Candidate]) -> None:
        """Removes the records of `begin` for candidates that will not be measured."""
        self.store.drop_intents(self.session.id, [c.trace_hash for c in candidates])

    def bury(self) -> int:
        """Stores as aborted the candidates that were launched MOST_LAUNCHES times and never finished, so that
        they are not launched again. Returns their number."""
        dead = [i for i in self.store.open_intents(self.session.id) if i.attempts >= MOST_LAUNCHES]
        return self.store.add_trials([self._buried(i) for i in dead])

    def _buried(self, i: Intent) -> TrialRecord:
        return TrialRecord(
            session=i.session,
            workload=i.workload,
            target=i.target,
            machine=self.session.machine,
            environment=self.environment,
            trace=i.trace,
            trace_hash=i.trace_hash,
            sketch_hash=i.sketch_hash,
            decisions=i.decisions,
            status=Status.ABORTED,
            error=f"launched {i.attempts} times, and each time the whole run ended before it did",
            host=self.witness.host,
            code=self.witness.code,
        )

    def race(
        self, contestants: Sequence[TrialRecord], results: Sequence[MeasureResult], repeated: bool = False
    ) -> tuple[TrialRecord, ...]:
        """Stores the times of trials that were measured again, side by side. Returns the stored records.

        repeated: this is the second time that the race is held, on another machine of the class.
        """
        return (self.repeats if repeated else self.races).add(
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
                conditions=r.conditions,
                note=r.note,
                host=self._witness(r).host,
                code=self._witness(r).code,
            )
            for t, r in zip(contestants, results, strict=True)
        )

    def end(self, reason: str, of_tasks: Mapping[str, str] | None = None) -> None:
        """Ends the session. of_tasks: why each task got no more trials, by the workload's key."""
        note_task_ends(self.store, self.session.id, of_tasks or {})
        self.store.end_session(self.session.id, reason)
        self.races.end(reason)
        self.repeats.end(reason)

    def earlier_ends(self) -> dict[str, str]:
        """Why the searches of tasks ended before, by the workload's key, as far as the log has it."""
        return task_ends(self.store, self.session.id)

    def _witness(self, r: MeasureResult) -> Witness:
        """The host and code of the process that measured. Another process is added to the log."""
        if r.who is None:
            return self.witness
        if r.who not in self._others:
            self._others[r.who] = introduce(self.store, self.session.machine, r.who.host, r.who.code)
        return self._others[r.who]

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
            trace=c.trace_text,
            trace_hash=c.trace_hash,
            status=r.status,
            median_s=median(r.seconds) if r.ok else None,
            samples=self._samples(r),
            verification=self._verification(r),
            build_s=r.build_seconds,
            error=r.error,
            sketch_hash=c.sketch.hash,
            decisions=plain_decisions(c),
            parents=c.parents,
            made_by=c.made_by,
            predicted=c.predicted,
            assembly=dict(r.asm),
            source_sha=r.source_sha,
            conditions=r.conditions,
            note=r.note,
            host=self._witness(r).host,
            code=self._witness(r).code,
            round=index,
        )


@contextmanager
def opened_journal(run: TuningRun, key: str, rates: Rates) -> Iterator[Journal]:
    """The session of a run key, leased inside the block: a new session, or the earlier one, continued.

    Its options record whether the rates of the prior were measured or guessed.

    If another process works on the run, this process waits for it as long as there is time. Raises WorkedOn
    if the other process has not ended by then.
    """
    store, options = run.store, run.options
    environment = store.ensure_environment(environment_versions())
    for task in run.tasks:
        w = task.workload
        store.ensure_workload(w.key, task.label, w.text, float(w.dag.flops()))
        store.ensure_target(task.target.key(), task.target.to_json())
    machine = know_machine(store, run.where)

    def claim(owner: str) -> Claim:
        return store.claim(
            run_key=key,
            seed=options.seed,
            machine=machine,
            environment=environment,
            owner=owner,
            options=options.plain() | {"rates": "guessed" if rates.guessed else "measured"},
            fresh=options.fresh,
            gone=surely_gone,
        )

    def say(other: str) -> None:
        run.listener(Waiting(other))

    with leased(store, claim, run.deadline.left_s, run.stopped, say) as found:
        store.put_run(what_is_asked(run, key))
        yield Journal(
            store,
            found.session,
            environment,
            run.seeds,
            run.residency,
            found.ended_before,
            work_here(store, found.session.id),
        )


def what_is_asked(run: TuningRun, key: str) -> Run:
    """The run in readable terms, for the log."""
    tasks = tuple(
        {"workload": t.workload.key, "target": t.target.key(), "weight": t.weight, "name": t.label}
        for t in run.tasks
    )
    return Run(key, run.model, run.model_hash, tasks)


def run_key(tasks: Sequence[Task], target_key: str, options: Mapping[str, Any], seed: int) -> str:
    """The key of a run, from tasks, target, options and seed. The number of trials is not part of it."""
    weights = sorted((t.workload.key, t.weight) for t in tasks)
    text = json.dumps([weights, target_key, sorted(options.items()), seed])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def retell(tuner: Policy, rows: Sequence[TrialRecord], metric: Metric = median_s) -> int:
    """Gives earlier trials to a tuner as one round. Returns the number of trials that the tuner could use.

    Rows are skipped if this version's rules do not make their sketches.
    """
    candidates = [tuner.candidate(row.sketch_hash, decisions_of(row), row.made_by) for row in rows]
    told = [(c, figure_of(row, metric)) for c, row in zip(candidates, rows, strict=True) if c is not None]
    with inside("search policy", type(tuner), "in tell"):
        tuner.tell([c for c, _ in told], [t for _, t in told])
    return len(told)


def plain_decisions(c: Candidate) -> dict[str, list[int]]:
    """Decisions in the form of the log; `decisions_of` is the inverse."""
    return {k: list(v) for k, v in c.decisions.items()}


def decisions_of(row: TrialRecord) -> dict[str, tuple[int, ...]]:
    return {str(k): tuple(int(x) for x in v) for k, v in row.decisions.items()}
