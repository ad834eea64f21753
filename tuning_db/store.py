"""The trial store in SQL: the verbs of `contract.py`.

Reading order: `_read`/`_write` (one transaction each, errors translated, busy and absent servers tried
again: see outage.py), then any verb. What
several verbs ask, and how rows become records, is in `queries.py`; nothing of SQLAlchemy leaves these two
files. Keys are turned into row ids inside a transaction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, TypeVar
from weakref import finalize

from sqlalchemy import Connection, delete, func, select, update

from tuning_db import models as m
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
from tuning_db.engine import (
    FOREIGN_ERRORS,
    IN_MEMORY,
    explain,
    is_busy,
    open_engine,
    pragma,
    schema_version,
)
from tuning_db.errors import StoreError
from tuning_db.outage import Outage, Patience, is_away
from tuning_db.queries import (
    DROP_INTENT,
    PLAIN_COLUMNS,
    ROUND_OF,
    SESSIONS,
    TASK,
    TRIAL_OF,
    TRIALS,
    Ids,
    chunks,
    columns_of,
    fastest,
    filtered,
    insert,
    insert_new,
    joined,
    of_tasks,
    row_of,
    session_from,
    trials_from,
    upsert_intent,
    upsert_round,
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
    error_signature,
    now,
)

T = TypeVar("T")
LAUNCH = ("trace", "worker_pid", "boot_id", "started", "attempts")  # of an intent
ATTEMPTS = 3  # of a transaction that met a lock or a deadlock; each has waited for the busy timeout already


class SqlStore(TrialStore):
    """A tuning log in SQLite or PostgreSQL."""

    def __init__(self, url_or_path: str | os.PathLike[str], readonly: bool = False) -> None:
        self._opened = open_engine(url_or_path, readonly)
        self.place = self._opened.place
        self._closed = False
        self._outage = Outage()
        self._pid = os.getpid()
        if self.place in IN_MEMORY:
            finalize(self, self._opened.read.dispose)  # such a log may be forgotten without being closed

    # --- transactions ---

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, writing=False)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, writing=True)

    def _run(self, work: Callable[[Connection], T], writing: bool) -> T:
        if self._closed:
            raise closed(self.place)
        engine = self._opened.write if writing else self._opened.read
        if os.getpid() != self._pid and self.place not in IN_MEMORY:  # forked: the parent's connections
            engine.dispose(close=False)
            self._pid = os.getpid()
        attempt, patience = 1, Patience(self.place)
        while True:
            began = time.monotonic()
            try:
                with engine.begin() as connection:
                    found = work(connection)
                self._outage.end(began)
                return found
            except StoreError:
                raise
            except FOREIGN_ERRORS as error:
                if not self._opened.is_sqlite and is_away(error):
                    if patience.wait(error, tell=self._outage.notice()):
                        continue
                elif is_busy(error) and attempt < ATTEMPTS:
                    attempt += 1
                    continue
                raise explain(error, self.place, writing) from error

    def _all(self, make: Callable[..., T], q: Any) -> tuple[T, ...]:
        """A record of each row."""
        return self._read(lambda c: tuple(make(*row) for row in c.execute(q)))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._opened.read.dispose()

    # --- things that trials refer to ---

    def put_workload(self, workload: Workload) -> str:
        def work(c: Connection) -> str:
            if insert_new(c, m.Workload, row_of(workload)) is None:
                known = c.execute(select(m.Workload.text).where(m.Workload.key == workload.key)).scalar()
                if known != workload.text:
                    raise other_text(self.place, workload.key)
            return workload.key

        return self._write(work)

    def put_target(self, target: TargetRecord) -> str:
        self._write(lambda c: insert_new(c, m.Target, row_of(target)))
        return target.key

    def ensure_machine(self, machine: Machine) -> str:
        self._write(lambda c: insert_new(c, m.Machine, row_of(machine)))
        return machine.fingerprint

    def put_environment(self, environment: Environment) -> str:
        self._write(lambda c: insert_new(c, m.Environment, row_of(environment)))
        return environment.key

    def workloads(self) -> tuple[Workload, ...]:
        return self._all(Workload, columns_of(Workload, m.Workload).order_by(m.Workload.id))

    def targets(self) -> tuple[TargetRecord, ...]:
        return self._all(TargetRecord, columns_of(TargetRecord, m.Target).order_by(m.Target.id))

    def machines(self) -> tuple[Machine, ...]:
        return self._all(Machine, columns_of(Machine, m.Machine).order_by(m.Machine.id))

    def environments(self) -> tuple[Environment, ...]:
        return self._all(Environment, columns_of(Environment, m.Environment).order_by(m.Environment.id))

    # --- sessions and rounds ---

    def put_session(self, session: Session) -> bool:
        def work(c: Connection) -> bool:
            ids = Ids(c, self.place)
            row = {
                "uuid": session.id,
                "run_key": session.run_key,
                "seed": str(session.seed),
                "options": session.options,
                "machine_id": ids.of(m.Machine.fingerprint, session.machine),
                "environment_id": ids.of(m.Environment.key, session.environment),
                "started": session.started,
                "ended": session.ended,
                "stop_reason": session.stop_reason,
            }
            return insert_new(c, m.Session, row) is not None

        return self._write(work)

    def end_session(self, session: str, reason: str) -> None:
        self._write(lambda c: self._set_end(c, session, ended=now(), stop_reason=reason))

    def reopen_session(self, session: str) -> Session:
        def work(c: Connection) -> Session:
            self._set_end(c, session, ended=None, stop_reason=None)
            return session_from(*c.execute(SESSIONS.where(m.Session.uuid == session)).one())

        return self._write(work)

    def _set_end(self, c: Connection, session: str, **values: Any) -> None:
        if not c.execute(update(m.Session).where(m.Session.uuid == session).values(values)).rowcount:
            raise unknown(self.place, "session", session)

    def find_session(self, run_key: str) -> Session | None:
        latest = (m.Session.started.desc(), m.Session.id.desc())
        q = SESSIONS.where(m.Session.run_key == run_key).order_by(*latest).limit(1)
        return next(iter(self._all(session_from, q)), None)

    def sessions(self) -> tuple[Session, ...]:
        q = SESSIONS.order_by(m.Session.started, m.Session.id)
        return self._all(session_from, q)

    def put_rounds(self, rounds: Sequence[Round]) -> None:
        def work(c: Connection) -> None:
            ids = Ids(c, self.place)
            for r in rounds:
                row = ids.task(r.session, r.workload, r.target)
                row |= {"number": r.index, "notes": r.notes, "started": r.started}
                c.execute(upsert_round(c.dialect.name), row)

        self._write(work)

    def rounds(self, session: str) -> tuple[Round, ...]:
        n = m.Round
        q = select(m.Session.uuid, m.Workload.key, m.Target.key, n.number, n.notes, n.started)
        q = of_tasks(q, n).where(m.Session.uuid == session)
        q = q.order_by(m.Workload.key, m.Target.key, n.number)
        return self._all(Round, q)

    # --- intents ---

    def mark_intents(self, intents: Sequence[Intent]) -> None:
        def work(c: Connection) -> None:
            ids = Ids(c, self.place)
            for i in intents:
                row = ids.task(i.session, i.workload, i.target) | {"trace_hash": i.trace_hash}
                if c.execute(TRIAL_OF, row).first() is None:
                    row |= {name: getattr(i, name) for name in LAUNCH}
                    c.execute(upsert_intent(c.dialect.name), row)

        self._write(work)

    def open_intents(self, session: str | None = None) -> tuple[Intent, ...]:
        n = m.Intent
        q = select(
            m.Session.uuid, m.Workload.key, m.Target.key,
            n.trace_hash, n.trace, n.worker_pid, n.boot_id, n.started, n.attempts,
        )  # fmt: skip
        q = of_tasks(q, n).order_by(n.started, n.id)
        if session is not None:
            q = q.where(m.Session.uuid == session)
        return self._all(Intent, q)

    def drop_intents(self, session: str, trace_hashes: Collection[str] | None = None) -> int:
        def work(c: Connection) -> int:
            owner = select(m.Session.id).where(m.Session.uuid == session).scalar_subquery()
            q = delete(m.Intent).where(m.Intent.session_id == owner)
            if trace_hashes is None:
                return c.execute(q).rowcount
            return sum(
                c.execute(q.where(m.Intent.trace_hash.in_(part))).rowcount
                for part in chunks(list(trace_hashes))
            )

        return self._write(work)

    # --- trials ---

    def add_trials(self, trials: Sequence[TrialRecord]) -> int:
        tries = count(1)

        def work(c: Connection) -> int:
            ids, again = Ids(c, self.place), next(tries) > 1
            return sum(self._add_trial(c, ids, t, again) for t in trials)

        return self._write(work) if trials else 0

    def _add_trial(self, c: Connection, ids: Ids, t: TrialRecord, again: bool) -> bool:
        """Whether it is new. again: it may be there already, by a try whose answer was lost."""
        key = ids.task(t.session, t.workload, t.target) | {"trace_hash": t.trace_hash}
        c.execute(DROP_INTENT, key)
        row = key | {
            "round_id": self._round_id(c, t, key),
            "machine_id": ids.of(m.Machine.fingerprint, t.machine),
            "environment_id": ids.of(m.Environment.key, t.environment),
            "status": t.status.value,
            "error_signature": "" if t.status is Status.OK else error_signature(t.error),
        }
        row |= {name: getattr(t, name) for name in PLAIN_COLUMNS}
        trial_id = insert_new(c, m.Trial, row)
        if trial_id is None:
            known = c.execute(TRIAL_OF, key).first()
            return again and known is not None and known.created == t.created
        if t.samples:
            rows = [{"trial_id": trial_id, "number": i, **row_of(s)} for i, s in enumerate(t.samples)]
            c.execute(insert(c.dialect.name, m.Sample), rows)
        if t.verification is not None:
            c.execute(insert(c.dialect.name, m.Verification), row_of(t.verification) | {"trial_id": trial_id})
        return True

    def _round_id(self, c: Connection, t: TrialRecord, key: Mapping[str, Any]) -> int | None:
        if t.round is None:
            return None
        task = {name: key[name] for name in TASK}
        found: int | None = c.execute(ROUND_OF, task | {"number": t.round}).scalar()
        if found is None:
            raise unknown(self.place, "round", t.round)
        return found

    def best(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[TrialRecord, ...]:
        return self._read(lambda c: fastest(c, workload_key, target_key, machine_fingerprint, k))

    def best_foreign(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[ForeignTrial, ...]:
        others = [machine for machine in self.machines() if machine.fingerprint != machine_fingerprint]

        def work(c: Connection) -> tuple[ForeignTrial, ...]:
            return tuple(
                ForeignTrial(machine, trial)
                for machine in others
                for trial in fastest(c, workload_key, target_key, machine.fingerprint, k)
            )

        return self._read(work)

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
        q = filtered(TRIALS, workload_key, target_key, machine, session, as_statuses(status))
        if before is not None:
            q = q.where(m.Trial.created < before)
        q = q.where(m.Trial.id > after).order_by(m.Trial.id.desc() if newest else m.Trial.id).limit(limit)
        found = self._read(lambda c: tuple(trials_from(c, c.execute(q).all())))
        return found[::-1] if newest else found

    def last_race(
        self, workload_key: str, target_key: str, machine_fingerprint: str
    ) -> tuple[TrialRecord, ...]:
        task = (workload_key, target_key, machine_fingerprint, None, None)
        races = filtered(joined(select(m.Session.uuid)), *task).where(m.Session.run_key.startswith(RACE))
        q = races.order_by(m.Session.started.desc(), m.Session.id.desc()).limit(1)
        session: str | None = self._read(lambda c: c.execute(q).scalar())
        return () if session is None else self.trials(workload_key, target_key, session=session)

    def trial(self, id: int) -> TrialRecord:
        found = self._read(lambda c: tuple(trials_from(c, c.execute(TRIALS.where(m.Trial.id == id)).all())))
        if not found:
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
        all_trials = joined(select(func.count()))
        q = filtered(all_trials, workload_key, target_key, machine, session, as_statuses(status))
        return self._read(lambda c: int(c.execute(q).scalar_one()))

    def failures(
        self, workload_key: str | None = None, session: str | None = None
    ) -> tuple[FailureGroup, ...]:
        count, first = func.count(), func.min(m.Trial.id)
        failed = tuple(s for s in Status if s is not Status.OK)
        q = joined(select(m.Trial.status, m.Trial.error_signature, count, first))
        q = filtered(q, workload_key, None, None, session, failed)
        q = q.group_by(m.Trial.status, m.Trial.error_signature).order_by(count.desc(), first)
        return self._all(lambda status, *rest: FailureGroup(Status(status), *rest), q)

    def progress(self, session: str) -> tuple[Progress, ...]:
        q = joined(
            select(m.Workload.key, m.Target.key, m.Trial.status, m.Trial.median_s, m.Verification.verdict)
        )
        q = q.outerjoin(m.Verification, m.Verification.trial_id == m.Trial.id)
        q = q.where(m.Session.uuid == session).order_by(m.Trial.id)

        def work(c: Connection) -> tuple[Progress, ...]:
            return summarise([(w, g, Status(s), t if v else None) for w, g, s, t, v in c.execute(q)])

        return self._read(work)

    # --- rates of a machine; trials in use ---

    def put_calibration(self, fingerprint: str, values: Mapping[str, float] | Sequence[Calibration]) -> None:
        rates = as_calibrations(values)

        def work(c: Connection) -> None:
            owner = Ids(c, self.place).of(m.Machine.fingerprint, fingerprint)
            for rate in rates:
                c.execute(insert(c.dialect.name, m.Calibration), row_of(rate) | {"machine_id": owner})

        self._write(work)

    def calibration(self, fingerprint: str) -> Mapping[str, Calibration]:
        return {rate.name: rate for rate in self.calibrations(fingerprint)}

    def calibrations(self, fingerprint: str) -> tuple[Calibration, ...]:
        rate = m.Calibration
        q = columns_of(Calibration, rate).join(m.Machine, m.Machine.id == rate.machine_id)
        q = q.where(m.Machine.fingerprint == fingerprint).order_by(rate.measured, rate.id)
        return self._all(Calibration, q)

    def record_apply(self, trial: int, used_by: str) -> None:
        applied = now()

        def work(c: Connection) -> None:
            if not c.execute(select(m.Trial.id).where(m.Trial.id == trial)).first():
                raise unknown(self.place, "trial", trial, "`trials()` gives those that there are.")
            row = {"trial_id": trial, "used_by": used_by, "applied": applied}
            if not c.execute(select(m.ApplyEvent.id).filter_by(**row)).first():
                c.execute(insert(c.dialect.name, m.ApplyEvent), row)

        self._write(work)

    def applications(self, trial: int) -> tuple[str, ...]:
        q = select(m.ApplyEvent.used_by).where(m.ApplyEvent.trial_id == trial).order_by(m.ApplyEvent.id)
        return self._read(lambda c: tuple(c.execute(q).scalars()))

    # --- the log itself ---

    def check(self) -> CheckReport:
        def work(c: Connection) -> CheckReport:
            version = schema_version(c, self.place) or 0
            problems: list[str] = []
            if self._opened.is_sqlite:
                problems += [str(row[0]) for row in pragma(c, "integrity_check") if row[0] != "ok"]
                broken = pragma(c, "foreign_key_check")
                problems += [
                    f"row {row[1]} of {row[0]} refers to a missing row of {row[2]}" for row in broken
                ]
            total = int(c.execute(select(func.count()).select_from(m.Trial)).scalar_one())
            try:
                for part in chunks([int(i) for i in c.execute(select(m.Trial.id)).scalars()]):
                    for _ in trials_from(c, c.execute(TRIALS.where(m.Trial.id.in_(part))).all()):
                        pass
            except (ValueError, TypeError) as error:
                problems.append(f"unreadable trial: {error}")
            return CheckReport(version, total, tuple(problems))

        try:
            return self._read(work)
        except StoreError as error:
            if self._closed:
                raise
            return CheckReport(schema_version=0, trials=0, problems=(error.what,))
