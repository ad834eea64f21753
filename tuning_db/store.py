"""The trial store in SQL: the verbs of `contract.py`.

Read `transactions.py` first (each verb is one transaction), then any verb. The verbs about sessions are in
`session_verbs.py`, those that read many sessions are in `histories.py`, and those about trials are here.
`queries.py` has the shared queries and turns rows into records. `batches.py` writes many trials at once.
SQLAlchemy's objects do not leave these files. Keys are turned into row ids inside a transaction, and the ids
are remembered (`keys.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, func, or_, select, text, update
from sqlalchemy.exc import DBAPIError

from tuning_db import models as m
from tuning_db.answers import (
    CheckReport,
    FailureGroup,
    ForeignTrial,
    Leader,
    Progress,
    Pruned,
    TaskCount,
    summarise,
)
from tuning_db.batches import store_trials
from tuning_db.contract import TrialStore
from tuning_db.engine import IN_MEMORY, Opened
from tuning_db.errors import StoreError, closed, unknown
from tuning_db.histories import HistoryVerbs
from tuning_db.keys import CHUNK, chunks
from tuning_db.queries import (
    COUNTS,
    LEADERS,
    OVERTAKEN,
    STANDINGS,
    TRIALS,
    columns_of,
    conditions,
    counts_from,
    fastest,
    insert,
    leaders_from,
    row_of,
    standings_from,
    trials_from,
)
from tuning_db.records import Application, Calibration, Machine, SessionKind, Standing, Status, TrialRecord
from tuning_db.schema import pragma, schema_version
from tuning_db.sentences import FOREIGN_ERRORS, explain, misunderstood
from tuning_db.session_verbs import SessionVerbs
from tuning_db.values import as_several, now

T = TypeVar("T")


class SqlStore(SessionVerbs, HistoryVerbs, TrialStore):
    """A tuning log in SQLite or PostgreSQL."""

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
            found.sort(key=lambda t: order.index(t.machine))  # stable: each machine's fastest first
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
            restricted = (workload_key, target_key, machine, session, as_several(Status, status))
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
        """Counts the rows of a session; for all sessions it adds up `task_count`."""

        def work(c: Connection) -> int:
            table = m.TaskCount if session is None else m.Trial
            total = func.coalesce(func.sum(m.TaskCount.count), 0) if session is None else func.count()
            restricted = (workload_key, target_key, machine, session, as_several(Status, status))
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

    # --- trials in use ---

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
            # the latest record of this race counts
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
        rates = [Calibration(*v) for v in values.items()] if isinstance(values, Mapping) else [*values]

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
                if self.place not in IN_MEMORY:  # a log in memory has one connection, for which threads wait
                    yield from batches
                    return
                whole = list(batches)
            yield from whole
        except FOREIGN_ERRORS as error:
            raise explain(error, self.place) from error

    def ask(self, query: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        asked = query.strip().removesuffix(";")
        if not self._opened.readonly:
            raise StoreError(f"tuning log '{self.place}' is open for writing.", "Open it for reading only.")
        if not asked.upper().startswith(("SELECT", "WITH", "VALUES")) or ";" in asked:
            raise StoreError(
                "the query is not a single SELECT.",
                "Write one that begins with SELECT, WITH or VALUES, without ;.",
            )

        def work(c: Connection) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
            try:
                found = c.exec_driver_sql(asked, execution_options={"no_parameters": True})
                return tuple(found.keys()), [tuple(row) for row in found]
            except DBAPIError as error:
                if told := misunderstood(error):
                    raise told from error
                raise

        return self._read(work)

    def merge(self, source: TrialStore) -> tuple[int, int]:
        if not isinstance(source, SqlStore):
            raise TypeError(f"a log is merged from a log, not from {source!r}")
        if source._closed:
            raise closed(source.place)
        from tuning_db.exchange.merging import merge_logs  # imported here, because it is seldom needed

        return self._alone(lambda log: merge_logs(log, source._opened))

    def prune(
        self,
        keep: int,
        before: datetime | None = None,
        makers: Collection[str] = (),
        dry_run: bool = False,
    ) -> tuple[Pruned, ...]:
        if keep < 1:
            raise StoreError(f"{keep} trials of a task cannot be kept.", "Keep the fastest one at least.")
        from tuning_db.upkeep.pruning import prune  # imported here, because it is seldom needed

        return self._alone(lambda log: prune(log, keep, before, makers, dry_run))

    def compact(self) -> tuple[int, int]:
        from tuning_db.upkeep.compacting import compact

        return self._alone(compact)

    def _alone(self, work: Callable[[Opened], T]) -> T:
        """Runs a function that makes its own transactions."""
        if self._closed:
            raise closed(self.place)
        try:
            return work(self._opened)
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
    """The rows that `task_count` should have."""
    t = m.Trial
    names = (t.workload_id, t.target_id, t.machine_id, t.status, t.error_signature)
    return {tuple(row) for row in c.execute(select(*names, func.count()).group_by(*names))}
