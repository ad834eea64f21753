"""The trial store in dicts: the same contract as `store.py`, for tests and for tuning without a log.

Everything is lost when the process ends. One lock makes every verb atomic.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from tuning_db.contract import (
    RACE,
    TrialStore,
    as_calibrations,
    as_statuses,
    closed,
    other_text,
    summarise,
    unknown,
)
from tuning_db.records import (
    Calibration,
    CheckReport,
    Environment,
    FailureGroup,
    ForeignTrial,
    Intent,
    Machine,
    Progress,
    Round,
    Session,
    Status,
    TargetRecord,
    TrialRecord,
    Workload,
    distinct_traces,
    error_signature,
    now,
)

_TrialKey = tuple[str, str, str, str]  # session, workload, target, trace hash


class MemoryStore(TrialStore):
    """A tuning log that lives as long as this object."""

    def __init__(self) -> None:
        self.place = ":memory:"
        self._lock = threading.RLock()
        self._closed = False
        self._workloads: dict[str, Workload] = {}
        self._targets: dict[str, TargetRecord] = {}
        self._machines: dict[str, Machine] = {}
        self._environments: dict[str, Environment] = {}
        self._sessions: dict[str, Session] = {}
        self._rounds: dict[tuple[str, str, str, int], Round] = {}
        self._intents: dict[_TrialKey, Intent] = {}
        self._trials: dict[_TrialKey, TrialRecord] = {}
        self._calibrations: dict[str, list[Calibration]] = {}
        self._applications: dict[int, list[str]] = {}

    def put_workload(self, workload: Workload) -> str:
        with self._open():
            if self._workloads.setdefault(workload.key, workload).text != workload.text:
                raise other_text(self.place, workload.key)
            return workload.key

    def put_target(self, target: TargetRecord) -> str:
        with self._open():
            return self._targets.setdefault(target.key, target).key

    def ensure_machine(self, machine: Machine) -> str:
        with self._open():
            return self._machines.setdefault(machine.fingerprint, machine).fingerprint

    def put_environment(self, environment: Environment) -> str:
        with self._open():
            return self._environments.setdefault(environment.key, environment).key

    def workloads(self) -> tuple[Workload, ...]:
        with self._open():
            return tuple(self._workloads.values())

    def targets(self) -> tuple[TargetRecord, ...]:
        with self._open():
            return tuple(self._targets.values())

    def machines(self) -> tuple[Machine, ...]:
        with self._open():
            return tuple(self._machines.values())

    def environments(self) -> tuple[Environment, ...]:
        with self._open():
            return tuple(self._environments.values())

    def put_session(self, session: Session) -> bool:
        with self._open():
            self._need("machine", self._machines, session.machine)
            self._need("environment", self._environments, session.environment)
            return self._sessions.setdefault(session.id, session) is session

    def end_session(self, session: str, reason: str) -> None:
        with self._open():
            self._need("session", self._sessions, session)
            self._sessions[session] = replace(self._sessions[session], ended=now(), stop_reason=reason)

    def reopen_session(self, session: str) -> Session:
        with self._open():
            self._need("session", self._sessions, session)
            self._sessions[session] = replace(self._sessions[session], ended=None, stop_reason=None)
            return self._sessions[session]

    def find_session(self, run_key: str) -> Session | None:
        found = [s for s in self.sessions() if s.run_key == run_key]
        return found[-1] if found else None

    def sessions(self) -> tuple[Session, ...]:
        with self._open():
            return tuple(sorted(self._sessions.values(), key=lambda s: s.started))

    def put_rounds(self, rounds: Sequence[Round]) -> None:
        with self._open():
            for r in rounds:
                self._need_task(r.session, r.workload, r.target)
            for r in rounds:
                key = (r.session, r.workload, r.target, r.index)
                known = self._rounds.get(key, r)
                self._rounds[key] = replace(known, notes=r.notes)

    def rounds(self, session: str) -> tuple[Round, ...]:
        with self._open():
            return tuple(r for key, r in sorted(self._rounds.items()) if key[0] == session)

    def mark_intents(self, intents: Sequence[Intent]) -> None:
        with self._open():
            for i in intents:
                self._need_task(i.session, i.workload, i.target)
            for i in intents:
                if i.unique_key in self._trials:
                    continue
                known = self._intents.pop(i.unique_key, None)
                self._intents[i.unique_key] = replace(i, attempts=known.attempts + 1) if known else i

    def open_intents(self, session: str | None = None) -> tuple[Intent, ...]:
        with self._open():
            intents = sorted(self._intents.values(), key=lambda i: i.started)
            return tuple(i for i in intents if session in (None, i.session))

    def drop_intents(self, session: str, trace_hashes: Collection[str] | None = None) -> int:
        with self._open():
            dropped = [
                key
                for key, i in self._intents.items()
                if i.session == session and (trace_hashes is None or i.trace_hash in trace_hashes)
            ]
            for key in dropped:
                del self._intents[key]
            return len(dropped)

    def add_trials(self, trials: Sequence[TrialRecord]) -> int:
        with self._open():
            for t in trials:
                self._need_task(t.session, t.workload, t.target)
                self._need("machine", self._machines, t.machine)
                self._need("environment", self._environments, t.environment)
                if t.round is not None:
                    key = (t.session, t.workload, t.target, t.round)
                    self._need("round", self._rounds, key, shown=t.round)
            before = len(self._trials)
            for t in trials:
                self._intents.pop(t.unique_key, None)
                self._trials.setdefault(t.unique_key, replace(t, id=len(self._trials) + 1))
            return len(self._trials) - before

    def best(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[TrialRecord, ...]:
        return distinct_traces(_fastest(self.trials(workload_key, target_key, machine_fingerprint)), k)

    def best_foreign(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[ForeignTrial, ...]:
        return tuple(
            ForeignTrial(machine, trial)
            for machine in self.machines()
            if machine.fingerprint != machine_fingerprint
            for trial in self.best(workload_key, target_key, machine.fingerprint, k)
        )

    def trials(
        self,
        workload_key: str | None = None,
        target_key: str | None = None,
        machine: str | None = None,
        session: str | None = None,
        status: Status | Collection[Status] | None = None,
        limit: int | None = None,
        after: int = 0,
        newest: bool = False,
        before: datetime | None = None,
    ) -> tuple[TrialRecord, ...]:
        statuses = as_statuses(status)
        with self._open():
            found = tuple(
                t
                for t in self._trials.values()
                if workload_key in (None, t.workload)
                and target_key in (None, t.target)
                and machine in (None, t.machine)
                and session in (None, t.session)
                and (statuses is None or t.status in statuses)
                and (t.id or 0) > after
                and (before is None or t.created < before)
            )
            if limit is None:
                return found
            return found[max(0, len(found) - limit) :] if newest else found[:limit]

    def last_race(
        self, workload_key: str, target_key: str, machine_fingerprint: str
    ) -> tuple[TrialRecord, ...]:
        rows = self.trials(workload_key, target_key, machine_fingerprint)
        raced = {t.session for t in rows}
        races = [s.id for s in self.sessions() if s.id in raced and s.run_key.startswith(RACE)]
        return tuple(t for t in rows if races and t.session == races[-1])

    def trial(self, id: int) -> TrialRecord:
        found = self.trials(after=id - 1, limit=1)
        if not found or found[0].id != id:
            raise unknown(self.place, "trial", id, "`trials()` gives those that there are.")
        return found[0]

    def count(
        self,
        workload_key: str | None = None,
        target_key: str | None = None,
        machine: str | None = None,
        session: str | None = None,
        status: Status | Collection[Status] | None = None,
    ) -> int:
        return len(self.trials(workload_key, target_key, machine, session, status))

    def failures(
        self, workload_key: str | None = None, session: str | None = None
    ) -> tuple[FailureGroup, ...]:
        failed = [t for t in self.trials(workload_key, session=session) if t.status is not Status.OK]
        counts = Counter((t.status, error_signature(t.error)) for t in failed)
        first = {(t.status, error_signature(t.error)): t.id or 0 for t in reversed(failed)}
        groups = [FailureGroup(*key, count, first[key]) for key, count in counts.items()]
        return tuple(sorted(groups, key=lambda g: (-g.count, g.example)))

    def progress(self, session: str) -> tuple[Progress, ...]:
        done = self.trials(session=session)
        return summarise([(t.workload, t.target, t.status, t.median_s if t.verified else None) for t in done])

    def put_calibration(self, fingerprint: str, values: Mapping[str, float] | Sequence[Calibration]) -> None:
        with self._open():
            self._need("machine", self._machines, fingerprint)
            kept = self._calibrations.setdefault(fingerprint, [])
            known = {(c.name, c.measured) for c in kept}
            kept.extend(c for c in as_calibrations(values) if (c.name, c.measured) not in known)

    def calibration(self, fingerprint: str) -> Mapping[str, Calibration]:
        return {c.name: c for c in self.calibrations(fingerprint)}

    def calibrations(self, fingerprint: str) -> tuple[Calibration, ...]:
        with self._open():
            return tuple(sorted(self._calibrations.get(fingerprint, ()), key=lambda c: c.measured))

    def record_apply(self, trial: int, used_by: str) -> None:
        self.trial(trial)
        with self._open():
            self._applications.setdefault(trial, []).append(used_by)

    def applications(self, trial: int) -> tuple[str, ...]:
        with self._open():
            return tuple(self._applications.get(trial, ()))

    def check(self) -> CheckReport:
        with self._open():
            return CheckReport(schema_version=0, trials=len(self._trials))

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise closed(self.place)
            yield

    def _need(self, kind: str, known: Collection[object], key: object, shown: object = None) -> None:
        if key not in known:
            raise unknown(self.place, kind, key if shown is None else shown)

    def _need_task(self, session: str, workload: str, target: str) -> None:
        self._need("session", self._sessions, session)
        self._need("workload", self._workloads, workload)
        self._need("target", self._targets, target)


def _fastest(trials: Iterable[TrialRecord]) -> Iterator[TrialRecord]:
    return iter(sorted((t for t in trials if t.verified), key=lambda t: (t.median_s or 0.0, t.id or 0)))
