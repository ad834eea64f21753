"""The verbs of `contract.py` that look at many sessions at once: by time, commit, machine, run.

history       for one task: its verified trials in groups, with the best of each group
finalists     for many tasks: the final trial of a run, a version of the code or a machine
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, select

from tuning_db import models as m
from tuning_db.answers import By, Chapter
from tuning_db.keys import chunks
from tuning_db.queries import TRIALS, VERIFIED, trials_from
from tuning_db.records import SessionKind, TrialRecord
from tuning_db.transactions import Transactions

_LABEL = case(  # `Code.label`
    (m.Code.dirty, m.Code.key),
    (m.Code.commit_sha != "", m.Code.commit_sha),
    else_=func.coalesce(m.Code.version, ""),
)
_GROUPS: dict[By, Any] = {
    By.SESSION: m.Session.uuid,
    By.DAY: func.substr(m.Trial.created, 1, 10),
    By.COMMIT: _LABEL,
    By.MACHINE: m.Machine.fingerprint,
    By.MAKER: m.Trial.made_by,
    By.CONDITIONS: func.coalesce(m.Trial.conditions, ""),
}


class HistoryVerbs(Transactions):
    """The verbs of this module, in SQL."""

    def history(self, workload_key: str, by: By = By.SESSION) -> tuple[Chapter, ...]:
        q = _chapters(_GROUPS[By(by)])
        return self._all(Chapter, q.params(wanted=workload_key))

    def finalists(
        self,
        run: str | None = None,
        codes: Collection[str] | None = None,
        machine: str | None = None,
        session: str | None = None,
    ) -> tuple[TrialRecord, ...]:
        q = _FINALISTS
        if run is not None:
            q = q.where(m.Session.run_id == select(m.Run.id).where(m.Run.key == run).scalar_subquery())
        if session is not None:
            q = q.where(m.Session.uuid == session)
        if codes is not None:
            q = q.where(m.Trial.code_id.in_(select(m.Code.id).where(m.Code.key.in_(list(codes)))))
        if machine is not None:
            of = select(m.Machine.id).where(m.Machine.fingerprint == machine)
            q = q.where(m.Trial.machine_id == of.scalar_subquery())
        ranked = q.subquery()

        def work(c: Connection) -> tuple[TrialRecord, ...]:
            ids = c.execute(select(ranked.c.id).where(ranked.c.place == 1)).scalars().all()
            found: list[TrialRecord] = []
            for part in chunks(sorted(ids)):
                rows = c.execute(TRIALS.where(m.Trial.id.in_(part)).order_by(m.Trial.id)).all()
                found += trials_from(c, self._keys, rows)
            return tuple(found)

        return self._read(work)


def _chapters(by: Any) -> Any:
    """The groups of the workload with the key `wanted`, in the order in which they began."""
    t = m.Trial
    trials = (
        select(
            by.label("of"), t.machine_id, t.target_id, func.coalesce(t.residency, "").label("residency"),
            t.created, t.median_s, t.id,
        )
        .select_from(t)
        .outerjoin(m.Session, m.Session.id == t.session_id)
        .outerjoin(m.Machine, m.Machine.id == t.machine_id)
        .outerjoin(m.Code, m.Code.id == t.code_id)
        .where(t.workload_id == _WANTED, VERIFIED)
        .subquery()
        .c
    )  # fmt: skip
    group: dict[str, Any] = {
        "partition_by": (trials.of, trials.machine_id, trials.target_id, trials.residency)
    }
    ranked = select(
        *group["partition_by"],
        func.min(trials.created).over(**group).label("since"),
        func.min(trials.id).over(**group).label("first"),
        func.count().over(**group).label("trials"),
        func.row_number().over(**group, order_by=(trials.median_s, trials.id)).label("place"),
        trials.median_s,
        trials.id,
    ).subquery()
    g = ranked.c
    return (
        select(g.of, g.since, m.Machine.fingerprint, m.Target.key, g.residency, g.trials, g.median_s, g.id)
        .select_from(ranked)
        .join(m.Machine, m.Machine.id == g.machine_id)
        .join(m.Target, m.Target.id == g.target_id)
        .where(g.place == 1)
        .order_by(g.since, g.first)
    )


_WANTED = select(m.Workload.id).where(m.Workload.key == bindparam("wanted")).scalar_subquery()
_raced = case((m.Session.kind == SessionKind.RACE.value, m.Session.started))  # NULL if it is not a race
# Verified trials by task and machine: first those of the last race, then all others; each with the fastest
# first. Races inside a model are left out, because their seconds are comparable only within the race.
_FINALISTS = (
    select(
        m.Trial.id,
        func.row_number()
        .over(
            partition_by=(m.Trial.workload_id, m.Trial.target_id, m.Trial.machine_id),
            order_by=(
                _raced.is_(None), _raced.desc(), case((_raced.is_not(None), m.Session.id)).desc(),
                m.Trial.median_s, m.Trial.id,
            ),
        )
        .label("place"),
    )
    .select_from(m.Trial)
    .join(m.Session, m.Session.id == m.Trial.session_id)
    .where(VERIFIED, m.Session.kind.in_([SessionKind.SEARCH.value, SessionKind.RACE.value]))
)  # fmt: skip
