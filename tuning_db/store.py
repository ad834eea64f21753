"""The trial store in SQL: the verbs of `contract.py`.

Reading order: `_read`/`_write` (one transaction each, errors translated, busy and absent servers tried
again: see outage.py), then any verb. What several verbs ask, and how rows become records, is in `queries.py`;
how many trials are written at once in `batches.py`; nothing of SQLAlchemy leaves these files. Keys are turned
into row ids inside a transaction, and remembered (`keys.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4
from weakref import finalize

from sqlalchemy import Connection, Engine, bindparam, delete, func, or_, select, text, update

from tuning_db import models as m
from tuning_db.batches import store_round, store_trials
from tuning_db.contract import (
    LEASE_S,
    TrialStore,
    as_calibrations,
    as_kinds,
    as_statuses,
    closed,
    nobody_is,
    other_text,
    summarise,
    taken_over,
    unknown,
)
from tuning_db.engine import IN_MEMORY
from tuning_db.errors import StoreError
from tuning_db.keys import CHUNK, Keys, chunks
from tuning_db.merging import merge_logs
from tuning_db.outage import Outage, Patience, is_away
from tuning_db.queries import (
    COUNTS,
    LATEST,
    LEADERS,
    OVERTAKEN,
    RENEW,
    SESSIONS,
    STANDINGS,
    TRIALS,
    columns_of,
    conditions,
    counts_from,
    fastest,
    insert,
    insert_new,
    leaders_from,
    of_tasks,
    row_of,
    session_from,
    standings_from,
    trace_of,
    trials_from,
    upsert_host,
    upsert_round,
    upsert_sketch,
)
from tuning_db.records import (
    Application,
    Calibration,
    CheckReport,
    Claim,
    Code,
    Environment,
    FailureGroup,
    ForeignTrial,
    Host,
    Intent,
    Json,
    Leader,
    Machine,
    Opening,
    Progress,
    Round,
    Run,
    Session,
    SessionKind,
    Sketch,
    Standing,
    Status,
    TargetRecord,
    TaskCount,
    TrialRecord,
    Workload,
    now,
)
from tuning_db.schema import open_log, pragma, schema_version
from tuning_db.sentences import FOREIGN_ERRORS, explain, is_busy

T = TypeVar("T")
ATTEMPTS = 3  # of a transaction that met a lock or a deadlock; each has waited for the busy timeout already


class SqlStore(TrialStore):
    """A tuning log in SQLite or PostgreSQL."""

    def __init__(self, url_or_path: str | os.PathLike[str], readonly: bool = False) -> None:
        self._opened = open_log(url_or_path, readonly)
        self.place = self._opened.place
        self._keys = Keys(self.place)
        self._closed = False
        self._outage = Outage()
        self._pid = os.getpid()
        if self.place in IN_MEMORY:
            finalize(self, self._opened.read.dispose)  # such a log may be forgotten without being closed

    # --- transactions ---

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, self._opened.read)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, self._opened.write)

    def _mark(self, work: Callable[[Connection], T]) -> T:
        """A write that a power cut may undo: what is in flight is lost then anyway."""
        return self._run(work, self._opened.mark)

    def _run(self, work: Callable[[Connection], T], engine: Engine) -> T:
        if self._closed:
            raise closed(self.place)
        if os.getpid() != self._pid and self.place not in IN_MEMORY:  # forked: the parent's connections
            engine.dispose(close=False)
            self._pid = os.getpid()
        writing = engine is not self._opened.read
        attempt, patience = 1, Patience(self.place)
        while True:
            began = time.monotonic()
            try:
                with engine.begin() as connection:
                    found = work(connection)
                self._outage.end(began)
                return found
            except BaseException as error:
                if writing:
                    self._keys.clear()  # it may have learned what is now rolled back
                if isinstance(error, StoreError) or not isinstance(error, FOREIGN_ERRORS):
                    raise
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

    def put_host(self, host: Host) -> str:
        def work(c: Connection) -> str:
            machine = self._keys.id(c, m.Machine, host.machine)
            row = {"uuid": host.uuid, "name": host.name, "machine_id": machine, "seen": host.seen}
            c.execute(upsert_host(c.dialect.name), row)
            return host.uuid

        return self._write(work)

    def put_code(self, code: Code) -> str:
        self._write(lambda c: insert_new(c, m.Code, row_of(code)))
        return code.key

    def put_sketches(self, sketches: Sequence[Sketch]) -> None:
        def work(c: Connection) -> None:
            c.execute(upsert_sketch(c.dialect.name), [row_of(s) for s in sketches])

        if sketches:
            self._write(work)

    def put_run(self, run: Run) -> str:
        def work(c: Connection) -> str:
            if insert_new(c, m.Run, row_of(run)) is None:
                given = {name: value for name, value in row_of(run).items() if value}
                c.execute(update(m.Run).where(m.Run.key == run.key).values(given))
            return run.key

        return self._write(work)

    def workloads(self) -> tuple[Workload, ...]:
        return self._all(Workload, columns_of(Workload, m.Workload).order_by(m.Workload.id))

    def targets(self) -> tuple[TargetRecord, ...]:
        return self._all(TargetRecord, columns_of(TargetRecord, m.Target).order_by(m.Target.id))

    def machines(self) -> tuple[Machine, ...]:
        return self._all(Machine, columns_of(Machine, m.Machine).order_by(m.Machine.id))

    def environments(self) -> tuple[Environment, ...]:
        return self._all(Environment, columns_of(Environment, m.Environment).order_by(m.Environment.id))

    def hosts(self) -> tuple[Host, ...]:
        q = select(m.Host.uuid, m.Host.name, m.Machine.fingerprint, m.Host.seen)
        return self._all(Host, q.join(m.Machine, m.Machine.id == m.Host.machine_id).order_by(m.Host.id))

    def codes(self) -> tuple[Code, ...]:
        return self._all(Code, columns_of(Code, m.Code).order_by(m.Code.id))

    def sketches(self) -> tuple[Sketch, ...]:
        q = columns_of(Sketch, m.Sketch).where(m.Sketch.text.is_not(None))
        return self._all(Sketch, q.order_by(m.Sketch.id))

    def runs(self) -> tuple[Run, ...]:
        return self._all(Run, columns_of(Run, m.Run).order_by(m.Run.id))

    # --- sessions: who works on what ---

    def put_session(self, session: Session) -> bool:
        def work(c: Connection) -> bool:
            if self._insert_session(c, session):
                return True
            s = m.Session
            open_ = update(s).where(s.uuid == session.id, s.ended.is_(None))
            if session.ended is not None:
                c.execute(open_.values(ended=session.ended, stop_reason=session.stop_reason))
            return False

        return self._write(work)

    def _insert_session(self, c: Connection, session: Session) -> bool:
        """Whether it is new; its run is made where it is not stored."""
        c.execute(insert(c.dialect.name, m.Run), row_of(Run(session.run_key)))
        row = {
            "uuid": session.id,
            "run_id": self._keys.id(c, m.Run, session.run_key),
            "kind": session.kind.value,
            "of_id": None if session.of is None else self._keys.find(c, m.Session, session.of),
            "seed": str(session.seed),
            "options": session.options,
            "machine_id": self._keys.id(c, m.Machine, session.machine),
            "environment_id": self._keys.id(c, m.Environment, session.environment),
            "started": session.started,
            "ended": session.ended,
            "stop_reason": session.stop_reason,
            "owner": session.owner,
            "lease_until": session.lease_until,
        }
        return insert_new(c, m.Session, row) is not None

    def claim(
        self,
        *,
        run_key: str,
        seed: int,
        machine: str,
        environment: str,
        owner: str,
        options: Mapping[str, Json] | None = None,
        fresh: bool = False,
        lease_s: float = LEASE_S,
        gone: Callable[[str], bool] = nobody_is,
    ) -> Claim:
        new = Session(str(uuid4()), run_key, seed, dict(options or {}), machine, environment, now())

        def work(c: Connection) -> Claim:
            c.execute(insert(c.dialect.name, m.Run), row_of(Run(run_key)))
            # of all who ask at once, the others wait here for the first one's commit
            c.execute(select(m.Run.id).where(m.Run.key == run_key).with_for_update())
            known = None if fresh else self._latest(c, run_key, machine, SessionKind.SEARCH)
            time = now()
            if known is not None and known.held(time) and known.owner != owner and not gone(known.owner):
                return Claim(known, mine=False, continued=True)
            if known is None:
                self._insert_session(c, new)
            mine = known or new
            lease = {"owner": owner, "lease_until": time + timedelta(seconds=lease_s)}
            self._set_end(c, mine.id, ended=None, stop_reason=None, **lease)
            return Claim(self._session(c, mine.id), True, known is not None, mine.stop_reason or "")

        return self._write(work)

    def renew(self, session: str, owner: str, lease_s: float = LEASE_S) -> bool:
        until = now() + timedelta(seconds=lease_s)
        return self._mark(lambda c: self._renewed(c, session, owner, until))

    def _renewed(self, c: Connection, session: str, owner: str, until: datetime) -> bool:
        of = {"of_session": session, "of_owner": owner}
        return bool(c.execute(RENEW.values(lease_until=until), of).rowcount)

    def put_opening(self, opening: Opening) -> None:
        def work(c: Connection) -> None:
            row = row_of(opening) | {
                "session_id": self._keys.id(c, m.Session, opening.session),
                "host_id": self._keys.id(c, m.Host, opening.host),
                "code_id": self._keys.id(c, m.Code, opening.code),
            }
            del row["session"], row["host"], row["code"]
            c.execute(insert(c.dialect.name, m.Opening), row)

        self._write(work)

    def openings(self, session: str | None = None) -> tuple[Opening, ...]:
        o = m.Opening
        q = select(
            m.Session.uuid, m.Host.uuid, m.Code.key, o.command, o.user_name, o.pid, o.boot_id, o.started
        ).select_from(o)
        q = q.join(m.Session, m.Session.id == o.session_id).join(m.Host, m.Host.id == o.host_id)
        q = q.join(m.Code, m.Code.id == o.code_id).order_by(o.started, o.id)
        return self._all(Opening, q if session is None else q.where(m.Session.uuid == session))

    def end_session(self, session: str, reason: str) -> None:
        done = {"ended": now(), "stop_reason": reason, "owner": "", "lease_until": None}
        self._write(lambda c: self._set_end(c, session, **done))

    def _set_end(self, c: Connection, session: str, **values: Any) -> None:
        if not c.execute(update(m.Session).where(m.Session.uuid == session).values(values)).rowcount:
            raise unknown(self.place, "session", session)

    def find_session(
        self, run_key: str, machine: str | None = None, kind: SessionKind = SessionKind.SEARCH
    ) -> Session | None:
        return self._read(lambda c: self._latest(c, run_key, machine, kind))

    def _latest(self, c: Connection, run_key: str, machine: str | None, kind: SessionKind) -> Session | None:
        q = SESSIONS.where(m.Run.key == run_key, m.Session.kind == kind.value).order_by(*LATEST).limit(1)
        row = c.execute(q if machine is None else q.where(m.Machine.fingerprint == machine)).first()
        return None if row is None else session_from(*row)

    def _session(self, c: Connection, uuid: str) -> Session:
        return session_from(*c.execute(SESSIONS.where(m.Session.uuid == uuid)).one())

    def sessions(
        self, kind: SessionKind | Collection[SessionKind] | None = None, machine: str | None = None
    ) -> tuple[Session, ...]:
        q = SESSIONS.order_by(m.Session.started, m.Session.id)
        kinds = as_kinds(kind)
        if kinds is not None:
            q = q.where(m.Session.kind.in_([k.value for k in kinds]))
        return self._all(session_from, q if machine is None else q.where(m.Machine.fingerprint == machine))

    # --- rounds and intents: what is in flight ---

    def begin_round(self, begun: Round, intents: Sequence[Intent] = (), owner: str = "") -> None:
        until = now() + timedelta(seconds=LEASE_S)

        def work(c: Connection) -> None:
            if owner and not self._renewed(c, begun.session, owner, until):
                raise taken_over(self.place, begun.session)
            store_round(c, self._keys, begun, intents)

        self._mark(work)

    def put_rounds(self, rounds: Sequence[Round]) -> None:
        def work(c: Connection) -> None:
            for r in rounds:
                row = self._task(c, r.session, r.workload, r.target)
                row |= {"number": r.index, "notes": r.notes, "started": r.started}
                c.execute(upsert_round(c.dialect.name), row)

        if rounds:
            self._write(work)

    def _task(self, c: Connection, session: str, workload: str, target: str) -> dict[str, Any]:
        return {
            "session_id": self._keys.id(c, m.Session, session),
            "workload_id": self._keys.id(c, m.Workload, workload),
            "target_id": self._keys.id(c, m.Target, target),
        }

    def rounds(self, session: str) -> tuple[Round, ...]:
        n = m.Round
        q = select(m.Session.uuid, m.Workload.key, m.Target.key, n.number, n.notes, n.started)
        q = of_tasks(q, n).where(m.Session.uuid == session)
        q = q.order_by(m.Workload.key, m.Target.key, n.number)
        return self._all(Round, q)

    def open_intents(self, session: str | None = None) -> tuple[Intent, ...]:
        n = m.Intent
        q = select(
            m.Session.uuid.label("session"), m.Workload.key.label("workload"), m.Target.key.label("target"),
            n.id, n.host_id, n.sketch_id, n.decisions, n.trace, n.trace_hash, n.worker_pid, n.boot_id,
            n.started, n.attempts,
        )  # fmt: skip
        q = of_tasks(q, n).order_by(n.started, n.id)
        if session is not None:
            q = q.where(m.Session.uuid == session)

        def work(c: Connection) -> tuple[Intent, ...]:
            rows = c.execute(q).all()
            self._keys.load(c, m.Host, (row.host_id for row in rows))
            self._keys.load_sketches(c, (row.sketch_id for row in rows))
            return tuple(self._intent(row) for row in rows)

        return self._read(work)

    def _intent(self, row: Any) -> Intent:
        sketch = None if row.sketch_id is None else self._keys.sketch_of(row.sketch_id)
        return Intent(
            row.session, row.workload, row.target, row.trace_hash, trace_of(row, sketch), row.worker_pid,
            row.boot_id, row.started, row.attempts, self._keys.maybe_key(m.Host, row.host_id),
            "" if sketch is None else sketch.hash, row.decisions,
        )  # fmt: skip

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
        return self._write(lambda c: store_trials(c, self._keys, trials, next(tries) > 1)) if trials else 0

    def best(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[TrialRecord, ...]:
        task = (workload_key, target_key, machine_fingerprint)
        return self._read(lambda c: fastest(c, self._keys, *task, k))

    def best_foreign(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[ForeignTrial, ...]:
        def work(c: Connection) -> tuple[ForeignTrial, ...]:
            where = conditions(c, self._keys, m.TaskCount, workload_key, target_key, statuses=(Status.OK,))
            if where is None:
                return ()
            mine = self._keys.find(c, m.Machine, machine_fingerprint)
            leaders = c.execute(LEADERS.where(*where, m.TaskCount.machine_id != (mine or 0))).all()
            q = columns_of(Machine, m.Machine).where(m.Machine.id.in_([row[2] for row in leaders]))
            machines = {machine.fingerprint: machine for machine in (Machine(*row) for row in c.execute(q))}
            if k == 1:
                rows = c.execute(TRIALS.where(m.Trial.id.in_([row[3] for row in leaders]))).all()
                found = list(trials_from(c, self._keys, rows))
            else:
                task = (workload_key, target_key)
                found = [t for f in machines for t in fastest(c, self._keys, *task, f, k)]
            order = list(machines)
            found.sort(key=lambda t: order.index(t.machine))  # stable: of one machine, the fastest first
            return tuple(ForeignTrial(machines[t.machine], t) for t in found)

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
        trace_hash: str | None = None,
    ) -> tuple[TrialRecord, ...]:
        def work(c: Connection) -> tuple[TrialRecord, ...]:
            restricted = (workload_key, target_key, machine, session, as_statuses(status))
            where = conditions(c, self._keys, m.Trial, *restricted)
            if where is None:
                return ()
            q = TRIALS.where(*where, m.Trial.id > after)
            if before is not None:
                q = q.where(m.Trial.created < before)
            if trace_hash is not None:
                q = q.where(m.Trial.trace_hash == trace_hash)
            q = q.order_by(m.Trial.id.desc() if newest else m.Trial.id).limit(limit)
            return tuple(trials_from(c, self._keys, c.execute(q).all()))

        found = self._read(work)
        return found[::-1] if newest else found

    def last_race(
        self, workload_key: str, target_key: str, machine_fingerprint: str
    ) -> tuple[TrialRecord, ...]:
        known = self.standing(workload_key, target_key, machine_fingerprint)
        return () if known is None else self.trials(workload_key, target_key, session=known.race)

    def met(
        self,
        workload_key: str,
        target_key: str,
        machine_fingerprint: str,
        trace_hashes: Collection[str],
        kinds: Collection[SessionKind] | None = None,
    ) -> frozenset[str]:
        def work(c: Connection) -> frozenset[str]:
            where = conditions(c, self._keys, m.Trial, workload_key, target_key, machine_fingerprint)
            if where is None:
                return frozenset()
            q = select(m.Trial.trace_hash).where(*where).distinct()
            if kinds is not None:
                of_kinds = m.Session.kind.in_([k.value for k in kinds])
                q = q.join(m.Session, m.Session.id == m.Trial.session_id).where(of_kinds)
            parts = chunks(list(trace_hashes))
            return frozenset(
                h for p in parts for h in c.execute(q.where(m.Trial.trace_hash.in_(p))).scalars()
            )

        return self._read(work)

    def trial_id(self, session: str, workload_key: str, target_key: str, trace_hash: str) -> int | None:
        return self._read(lambda c: self._trial_id(c, session, workload_key, target_key, trace_hash))

    def _trial_id(self, c: Connection, session: str, workload: str, target: str, hash: str) -> int | None:
        where = conditions(c, self._keys, m.Trial, workload, target, session=session)
        if where is None:
            return None
        found: int | None = c.execute(select(m.Trial.id).where(*where, m.Trial.trace_hash == hash)).scalar()
        return found

    def trial(self, id: int) -> TrialRecord:
        def work(c: Connection) -> tuple[TrialRecord, ...]:
            return tuple(trials_from(c, self._keys, c.execute(TRIALS.where(m.Trial.id == id)).all()))

        found = self._read(work)
        if not found:
            raise unknown(self.place, "trial", id, "`trials()` gives those that there are.")
        return found[0]

    def trials_of(self, ids: Collection[int]) -> tuple[TrialRecord, ...]:
        def work(c: Connection) -> tuple[TrialRecord, ...]:
            found: list[TrialRecord] = []
            for part in chunks(sorted(ids)):
                rows = c.execute(TRIALS.where(m.Trial.id.in_(part)).order_by(m.Trial.id)).all()
                found += trials_from(c, self._keys, rows)
            return tuple(found)

        return self._read(work)

    def count(
        self,
        workload_key: str | None = None,
        target_key: str | None = None,
        machine: str | None = None,
        session: str | None = None,
        status: Status | Collection[Status] | None = None,
    ) -> int:
        """By session the rows are counted, else what `task_count` says is added up."""

        def work(c: Connection) -> int:
            table = m.TaskCount if session is None else m.Trial
            total = func.coalesce(func.sum(m.TaskCount.count), 0) if session is None else func.count()
            restricted = (workload_key, target_key, machine, session, as_statuses(status))
            where = conditions(c, self._keys, table, *restricted)
            q = select(total).select_from(table)
            return 0 if where is None else int(c.execute(q.where(*where)).scalar_one())

        return self._read(work)

    def failures(
        self, workload_key: str | None = None, session: str | None = None
    ) -> tuple[FailureGroup, ...]:
        def work(c: Connection) -> tuple[FailureGroup, ...]:
            t, n = m.Trial, m.TaskCount
            table: Any = n if session is None else t
            names = (table.status, n.signature if session is None else t.error_signature)
            count: Any = func.sum(n.count) if session is None else func.count()
            first = func.min(n.example if session is None else t.id)
            where = conditions(c, self._keys, table, workload_key, session=session)
            if where is None:
                return ()
            q = select(*names, count, first).where(*where, table.status != Status.OK.value)
            q = q.group_by(*names).order_by(count.desc(), first)
            return tuple(FailureGroup(Status(s), what, int(n), int(i)) for s, what, n, i in c.execute(q))

        return self._read(work)

    def progress(self, session: str) -> tuple[Progress, ...]:
        t = m.Trial
        q = select(m.Workload.key, m.Target.key, t.status, t.median_s, t.verdict).select_from(t)
        q = q.join(m.Session, m.Session.id == t.session_id).join(m.Workload, m.Workload.id == t.workload_id)
        q = q.join(m.Target, m.Target.id == t.target_id).where(m.Session.uuid == session).order_by(t.id)

        def work(c: Connection) -> tuple[Progress, ...]:
            return summarise([(w, g, Status(s), t if v else None) for w, g, s, t, v in c.execute(q)])

        return self._read(work)

    def task_counts(
        self, workload_key: str | None = None, target_key: str | None = None, machine: str | None = None
    ) -> tuple[TaskCount, ...]:
        def work(c: Connection) -> tuple[TaskCount, ...]:
            where = conditions(c, self._keys, m.TaskCount, workload_key, target_key, machine)
            return () if where is None else counts_from(c, self._keys, c.execute(COUNTS.where(*where)).all())

        return self._read(work)

    def leaders(self, machine: str | None = None) -> tuple[Leader, ...]:
        def work(c: Connection) -> tuple[Leader, ...]:
            where = conditions(c, self._keys, m.TaskCount, machine=machine, statuses=(Status.OK,))
            if where is None:
                return ()
            return leaders_from(c, self._keys, c.execute(LEADERS.where(*where)).all())

        return self._read(work)

    # --- what is used ---

    def put_standing(self, standing: Standing) -> None:
        def work(c: Connection) -> None:
            n = m.Standing
            where = conditions(c, self._keys, n, standing.workload, standing.target, standing.machine)
            race = self._keys.id(c, m.Session, standing.race)
            if (
                standing.trial is not None
                and not c.execute(select(m.Trial.id).where(m.Trial.id == standing.trial)).first()
            ):
                raise unknown(self.place, "trial", standing.trial)
            # what was said last of this race stands
            open_ = or_(n.trial_id.is_(None), n.updated <= standing.updated)
            decided = {
                "trial_id": standing.trial,
                "seconds": standing.seconds,
                "default_s": standing.default_s,
                "updated": standing.updated,
            }
            if where is not None:
                c.execute(update(n).where(*where, n.race_id == race, open_).values(decided))

        self._write(work)

    def overtaken(self, machine: str, share: float) -> frozenset[tuple[str, str]]:
        def work(c: Connection) -> frozenset[tuple[str, str]]:
            where = conditions(c, self._keys, m.Standing, machine=machine)
            if where is None:
                return frozenset()
            rows = c.execute(OVERTAKEN.where(*where), {"share": share}).all()
            return frozenset((s.workload, s.target) for s in standings_from(c, self._keys, rows))

        return self._read(work)

    def standing(self, workload_key: str, target_key: str, machine_fingerprint: str) -> Standing | None:
        found = self._standings(workload_key, target_key, machine_fingerprint)
        return found[0] if found else None

    def standings(self, machine: str | None = None, target: str | None = None) -> tuple[Standing, ...]:
        return self._standings(None, target, machine)

    def _standings(
        self, workload: str | None, target: str | None, machine: str | None
    ) -> tuple[Standing, ...]:
        def work(c: Connection) -> tuple[Standing, ...]:
            where = conditions(c, self._keys, m.Standing, workload, target, machine)
            if where is None:
                return ()
            return standings_from(c, self._keys, c.execute(STANDINGS.where(*where)).all())

        return self._read(work)

    # --- rates of a machine; trials in use ---

    def put_calibration(self, fingerprint: str, values: Mapping[str, float] | Sequence[Calibration]) -> None:
        rates = as_calibrations(values)

        def work(c: Connection) -> None:
            owner = self._keys.id(c, m.Machine, fingerprint)
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
            c.execute(insert(c.dialect.name, m.ApplyEvent), row)

        self._write(work)

    def applications(self, trial: int) -> tuple[str, ...]:
        q = select(m.ApplyEvent.used_by).where(m.ApplyEvent.trial_id == trial).order_by(m.ApplyEvent.id)
        return self._read(lambda c: tuple(c.execute(q).scalars()))

    def put_applications(self, applications: Sequence[Application]) -> None:
        def work(c: Connection) -> None:
            for a in applications:
                trial = self._trial_id(c, a.session, a.workload, a.target, a.trace_hash)
                if trial is None:
                    raise unknown(self.place, "trial", a.trace_hash)
                row = {"trial_id": trial, "used_by": a.used_by, "applied": a.applied}
                c.execute(insert(c.dialect.name, m.ApplyEvent), row)

        if applications:
            self._write(work)

    def all_applications(self) -> tuple[Application, ...]:
        t, a = m.Trial, m.ApplyEvent
        q = select(m.Session.uuid, m.Workload.key, m.Target.key, t.trace_hash, a.used_by, a.applied)
        q = q.select_from(a).join(t, t.id == a.trial_id).join(m.Session, m.Session.id == t.session_id)
        q = q.join(m.Workload, m.Workload.id == t.workload_id).join(m.Target, m.Target.id == t.target_id)
        return self._all(Application, q.order_by(a.applied, a.id))

    # --- the log itself ---

    def rows(self, query: str, values: Mapping[str, Any], count: int) -> Iterator[Sequence[tuple[Any, ...]]]:
        if self._closed:
            raise closed(self.place)
        try:
            with self._opened.read.connect() as c:
                found = c.execution_options(stream_results=True).execute(text(query), dict(values))
                batches = ([tuple(row) for row in part] for part in found.partitions(count))
                if self.place not in IN_MEMORY:  # whose one connection others wait for
                    yield from batches
                    return
                whole = list(batches)
            yield from whole
        except FOREIGN_ERRORS as error:
            raise explain(error, self.place) from error

    def merge(self, source: TrialStore) -> tuple[int, int]:
        if not isinstance(source, SqlStore):
            raise TypeError(f"a log is merged from a log, not from {source!r}")
        for store in (self, source):
            if store._closed:
                raise closed(store.place)
        try:
            return merge_logs(self._opened, source._opened)
        except FOREIGN_ERRORS as error:
            raise explain(error, self.place, writing=True) from error

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
                after = 0
                while rows := c.execute(_AFTER, {"after": after}).all():
                    for _ in trials_from(c, self._keys, rows):
                        pass
                    after = rows[-1].id
            except (ValueError, TypeError, LookupError) as error:
                problems.append(f"unreadable trial: {error}")
            if _counted(c) != _counts(c):
                problems.append("the numbers of trials by task (task_count) differ from the trials")
            return CheckReport(version, total, tuple(problems))

        try:
            return self._read(work)
        except StoreError as error:
            if self._closed:
                raise
            return CheckReport(schema_version=0, trials=0, problems=(error.what,))


_AFTER = TRIALS.where(m.Trial.id > bindparam("after")).order_by(m.Trial.id).limit(CHUNK)


def _counts(c: Connection) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in c.execute(COUNTS)}


def _counted(c: Connection) -> set[tuple[Any, ...]]:
    """What `task_count` should say."""
    t = m.Trial
    names = (t.workload_id, t.target_id, t.machine_id, t.status, t.error_signature)
    return {tuple(row) for row in c.execute(select(*names, func.count()).group_by(*names))}
