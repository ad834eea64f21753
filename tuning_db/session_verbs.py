"""The verbs of `contract.py` about sessions, rounds, intents, and the records to which trials refer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, select, update

from tuning_db import models as m
from tuning_db.answers import Claim
from tuning_db.batches import store_rounds
from tuning_db.contract import LEASE_S, nobody_is
from tuning_db.errors import other_text, taken_over, unknown
from tuning_db.keys import chunks
from tuning_db.queries import (
    LATEST,
    RENEW,
    SESSIONS,
    columns_of,
    insert,
    insert_new,
    of_tasks,
    row_of,
    session_from,
    trace_of,
    upsert_host,
    upsert_round,
    upsert_sketch,
)
from tuning_db.records import (
    Code,
    Environment,
    Host,
    Intent,
    Machine,
    Opening,
    Round,
    Run,
    Session,
    SessionKind,
    Sketch,
    TargetRecord,
    Workload,
)
from tuning_db.transactions import Transactions
from tuning_db.values import Json, as_several, now


class SessionVerbs(Transactions):
    """The verbs of this module, in SQL."""

    # --- records to which trials refer ---

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

    # --- sessions: their trials and owners ---

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
        """Inserts a session, and its run if the run is not stored. Returns whether the session is new."""
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
            # if several processes claim at once, all others wait here until the first one has committed
            c.execute(select(m.Run.id).where(m.Run.key == run_key).with_for_update())
            known = None if fresh else self._latest(c, run_key, machine, SessionKind.SEARCH)
            time = now()
            if known is not None and known.held(time) and known.owner != owner and not gone(known.owner):
                return Claim(known, mine=False)
            if known is None:
                self._insert_session(c, new)
            mine = known or new
            lease = {"owner": owner, "lease_until": time + timedelta(seconds=lease_s)}
            self._set_end(c, mine.id, ended=None, stop_reason=None, **lease)
            return Claim(self._session(c, mine.id), True, mine.stop_reason or "")

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
        kinds = as_several(SessionKind, kind)
        if kinds is not None:
            q = q.where(m.Session.kind.in_([k.value for k in kinds]))
        return self._all(session_from, q if machine is None else q.where(m.Machine.fingerprint == machine))

    # --- rounds and intents: what is in flight ---

    def begin_rounds(self, begun: Sequence[Round], intents: Sequence[Intent] = (), owner: str = "") -> None:
        until = now() + timedelta(seconds=LEASE_S)

        def work(c: Connection) -> None:
            for session in dict.fromkeys(r.session for r in begun):
                if owner and not self._renewed(c, session, owner, until):
                    raise taken_over(self.place, session)
            store_rounds(c, self._keys, begun, intents)

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
