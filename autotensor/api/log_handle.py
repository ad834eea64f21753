"""A tuning log for reading: its runs, the schedules in use, the origin of candidates, tables for data frames.

    log = at.log("team.db")                          read-only; close it, or use it in a with statement
    log.runs(model="resnet18")                       frozen records, named by keys
    log.report("resnet18").save("report.html")       one page, see docs/report.md
    log.frame("trials", where={"status": "OK"})      pandas, polars and duckdb take it

A key or name that the log does not have is an InputError with the nearest one, never an empty answer.
Names and fields of this interface stay the same from version to version, however the database changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from autotensor.api.log import LogError, check_log, default_log, open_existing, translated
from autotensor.api.log_comparison import AT_LEAST, TaskComparison, compare, regressions
from autotensor.api.log_names import check_known, member
from autotensor.base.counted import counted
from autotensor.base.errors import InputError
from autotensor.base.registry import suggest
from autotensor.resolve import all_in_use
from tuning_db import TrialStore
from tuning_db.answers import By, Chapter, FailureGroup, TaskCount
from tuning_db.exchange.frames import TABLES, Frame, Where, check_shapes, frame
from tuning_db.records import (
    Code,
    Host,
    Machine,
    Opening,
    Run,
    Session,
    SessionKind,
    Standing,
    Status,
    TargetRecord,
    TrialRecord,
    Workload,
)

if TYPE_CHECKING:
    from autotensor.insight.report.report import Report

FEATURES = "features"
A = TypeVar("A")


def log(db: str | None = None) -> LogHandle:
    """The tuning log at a path or URL, for reading; None: the user's own.

    Raises InputError when there is no such log, LogError for a log that cannot be read.
    """
    check_log(db)
    return LogHandle(open_existing(default_log() if db is None else db))


class LogHandle:
    """Reads a log. All results are frozen records. Durations are in seconds, points in time in UTC."""

    def __init__(self, opened: AbstractContextManager[TrialStore | None]) -> None:
        self._opened = opened
        store = opened.__enter__()
        if store is None:
            raise InputError("there is no tuning log yet.", fix="Tune first, or name one.")
        self._store = store

    def __repr__(self) -> str:
        return f"LogHandle({self._store.place}, {counted(self._store.count(), 'trial')})"

    def runs(self, model: str | None = None) -> tuple[Run, ...]:
        """The runs of one model, or of all."""
        return self._answered(tuple(r for r in self._store.runs() if model in (None, r.model)), model=model)

    def sessions(
        self, kind: SessionKind | str | None = None, machine: str | None = None
    ) -> tuple[Session, ...]:
        """The sessions (searches and races), oldest first."""
        return self._answered(
            self._store.sessions(member("kind", SessionKind, kind), machine), machine=machine
        )

    def openings(self, session: str | None = None) -> tuple[Opening, ...]:
        """The processes that worked on a session, with their commands and code."""
        return self._answered(self._store.openings(session), session=session)

    def _answered(self, found: A, **asked: str | None) -> A:
        """An answer. Raises InputError if it is empty because the log does not have a name."""
        if not found:  # only then: the names of a large log take long to read
            check_known(self._store, **asked)
        return found

    def workloads(self) -> tuple[Workload, ...]:
        return self._store.workloads()

    def targets(self) -> tuple[TargetRecord, ...]:
        return self._store.targets()

    def machines(self) -> tuple[Machine, ...]:
        return self._store.machines()

    def hosts(self) -> tuple[Host, ...]:
        return self._store.hosts()

    def codes(self) -> tuple[Code, ...]:
        return self._store.codes()

    def trials(
        self,
        workload: str | None = None,
        target: str | None = None,
        machine: str | None = None,
        session: str | None = None,
        status: Status | str | None = None,
        limit: int | None = None,
        after: int = 0,
    ) -> tuple[TrialRecord, ...]:
        """The trials with an id above `after`, at most `limit`, in the order in which they were stored."""
        wanted = member("status", Status, status)
        return self._answered(
            self._store.trials(workload, target, machine, session, wanted, limit, after),
            workload=workload,
            target=target,
            machine=machine,
            session=session,
        )

    def trial(self, id: int) -> TrialRecord:
        """A trial by its number. Raises LogError if the log has no such trial."""
        with translated():
            return self._store.trial(id)

    def best(self, workload: str, target: str, machine: str, k: int = 1) -> tuple[TrialRecord, ...]:
        """The fastest verified trials of a task. `standing` says which trial is used."""
        return self._answered(
            self._store.best(workload, target, machine, k), workload=workload, target=target, machine=machine
        )

    def standing(self, workload: str, target: str, machine: str) -> Standing | None:
        """The winner of the last race of a task; None if no race was held."""
        return self._answered(
            self._store.standing(workload, target, machine), workload=workload, target=target, machine=machine
        )

    def standings(self, machine: str | None = None) -> tuple[Standing, ...]:
        return self._answered(self._store.standings(machine), machine=machine)

    def in_use(self, machine: str) -> tuple[TrialRecord, ...]:
        """The trial that `autotensor db best` names for each task of a machine."""
        return self._answered(tuple(all_in_use(self._store, machine)), machine=machine)

    def lineage(self, trial: int, depth: int = 16) -> tuple[TrialRecord, ...]:
        """A trial and its ancestors (the trials that it was made from), each once, up to `depth` steps
        back."""
        found = {trial: self.trial(trial)}
        near = [found[trial]]
        for _ in range(depth):
            near = [p for t in near for p in self._parents(t) if p.id not in found]
            found |= {p.id or 0: p for p in near}
            if not near:
                break
        return tuple(found.values())

    def _parents(self, t: TrialRecord) -> list[TrialRecord]:
        """The first trials, on the same machine, of the traces from which trial `t` was made."""
        parents: list[TrialRecord] = []
        for p in t.parents:
            task = (p.workload or t.workload, t.target, t.machine)
            parents += self._store.trials(*task, limit=1, trace_hash=p.trace_hash)
        return parents

    def counts(self, workload: str | None = None) -> tuple[TaskCount, ...]:
        """The number of trials of each task, by machine and outcome."""
        return self._answered(self._store.task_counts(workload), workload=workload)

    def failures(self, workload: str | None = None) -> tuple[FailureGroup, ...]:
        """Failed trials by status and error, most frequent first."""
        return self._answered(self._store.failures(workload), workload=workload)

    def history(self, workload: str, by: By | str = By.SESSION) -> tuple[Chapter, ...]:
        """The best trials of a workload by session, day, commit, machine, maker or conditions, oldest
        first."""
        return self._answered(
            self._store.history(workload, member("by", By, by) or By.SESSION), workload=workload
        )

    def compare(self, a: str, b: str, at_least: float = AT_LEAST) -> tuple[TaskComparison, ...]:
        """The results of two runs, sessions, commits or machines, task by task, compared by all samples.

        Raises InputError for a name that is not in the log.
        """
        return compare(self._store, a, b, at_least)

    def regressions(
        self, a: str | None = None, b: str | None = None, at_least: float = AT_LEAST
    ) -> tuple[TaskComparison, ...]:
        """The tasks that surely became slower from `a` to `b`. Without names, the newest commit is compared
        with the commit before it."""
        return regressions(self._store, a, b, at_least)

    def report(self, run: str | None = None, against: str | None = None) -> Report:
        """The report of a run: print it, `save("report.html")` it, or let a notebook show it.

        run: the run's key, the id of one of its sessions, the beginning of either, or its model; None: the
        last run. against: another run, to compare with on the same page. Raises InputError when there is no
        such run.
        """
        from autotensor.api.run_report import run_report  # imported here: only reports need charts

        return run_report(self._store, run, against)

    def frame(self, table: str, where: Where | None = None, columns: Sequence[str] | None = None) -> Frame:
        """A table for data frames: trials, features, sessions, standings, counts, parents or rates.

        where: for each column the value, or the values, of the rows. columns: the names of the columns; None:
        all. The result gives its rows through `__arrow_c_stream__`, batch by batch, at each call; the log
        must be open then. "features" has the inputs of a cost model for each trial
        (`autotensor.search.score.features`), the prior's time in seconds, and the outcome. Trials whose
        sketches the rules no longer make are left out.
        Raises LogError for an unknown table or column, for a value that no row can have, and without pyarrow
        (extra `frame`).
        """
        if table not in (*TABLES, FEATURES):
            raise LogError(f"there is no table {table!r}.", fix=suggest(table, (*sorted(TABLES), FEATURES)))
        with translated():
            check_shapes(where, columns)
            check_known(self._store, **{str(name): wanted for name, wanted in (where or {}).items()})
            if table == FEATURES:
                from autotensor.search.feature_frames import feature_frame

                return feature_frame(self._store, where or {}, columns)
            return frame(self._store, table, where, columns)

    def close(self) -> None:
        self._opened.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)


__all__ = ["LogHandle", "log"]
