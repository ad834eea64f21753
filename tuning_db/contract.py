"""The contract of every trial store: its methods (*verbs*) and its laws (see tests/contract/test_stores.py).

    connect("log.db") ──▶ TrialStore      store.py: SQL (SQLite, in a file or in memory, or PostgreSQL)

The laws: A write that was acknowledged is kept. Storing a record twice is the same as storing it once. Only
`best_foreign` returns times of other machines. `best` never returns an unverified trial. A store raises only
`StoreError` (a record that contradicts itself raises `ValueError` while it is made). Several threads may use
one store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tuning_db.answers import (
    By,
    Chapter,
    CheckReport,
    Claim,
    FailureGroup,
    ForeignTrial,
    Leader,
    Progress,
    Pruned,
    TaskCount,
)
from tuning_db.records import (
    Application,
    Calibration,
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
    Standing,
    Status,
    TargetRecord,
    TrialRecord,
    Workload,
    environment_key,
)
from tuning_db.values import Json, now

LEASE_S = 60.0  # if the owner of a session does not renew its lease for this time, it counts as dead


def nobody_is(owner: str) -> bool:
    """The default of the argument `gone`: it says of no owner that its process has ended."""
    return False


class TrialStore(ABC):
    """A tuning log. Use it as a context manager, or call `close`."""

    place: str  # path or URL without password, for messages

    # --- records to which trials refer; each is stored once and named by its key ---

    def ensure_workload(self, key: str, name: str, text: str, flops: float) -> str:
        """Store a workload unless its key is known. Returns the key.

        Raises StoreError if the key is known with another text (the key is a hash of the text).
        """
        return self.put_workload(Workload(key, name, text, flops))

    def ensure_target(self, key: str, text: str) -> str:
        """Store a target unless its key is known. Returns the key. The first text is kept."""
        return self.put_target(TargetRecord(key, text))

    @abstractmethod
    def ensure_machine(self, machine: Machine) -> str:
        """Store a machine unless its fingerprint is known. Returns the fingerprint."""

    def ensure_environment(self, versions: Mapping[str, str]) -> str:
        """Store a set of versions. Returns its key."""
        return self.put_environment(Environment(environment_key(versions), versions))

    @abstractmethod
    def put_workload(self, workload: Workload) -> str: ...

    @abstractmethod
    def put_target(self, target: TargetRecord) -> str: ...

    @abstractmethod
    def put_environment(self, environment: Environment) -> str: ...

    @abstractmethod
    def put_host(self, host: Host) -> str:
        """Store a host, or note when it was seen again. Returns its uuid."""

    @abstractmethod
    def put_code(self, code: Code) -> str:
        """Store a version of the sources unless its key is known. Returns the key."""

    @abstractmethod
    def put_sketches(self, sketches: Sequence[Sketch]) -> None:
        """Store the texts of sketches. A trace that follows from its sketch and decisions is then not
        stored."""

    @abstractmethod
    def put_run(self, run: Run) -> str:
        """Store a run's request. If the run is known, its model, tasks, tags and note are replaced by the new
        ones that are not empty."""

    @abstractmethod
    def workloads(self) -> tuple[Workload, ...]: ...

    @abstractmethod
    def targets(self) -> tuple[TargetRecord, ...]: ...

    @abstractmethod
    def machines(self) -> tuple[Machine, ...]: ...

    @abstractmethod
    def environments(self) -> tuple[Environment, ...]: ...

    @abstractmethod
    def hosts(self) -> tuple[Host, ...]: ...

    @abstractmethod
    def codes(self) -> tuple[Code, ...]: ...

    @abstractmethod
    def sketches(self) -> tuple[Sketch, ...]: ...

    @abstractmethod
    def runs(self) -> tuple[Run, ...]: ...

    # --- sessions: their trials and owners ---

    def start_session(
        self,
        *,
        run_key: str,
        seed: int,
        machine: str,
        environment: str,
        options: Mapping[str, Json] | None = None,
        started: datetime | None = None,
        kind: SessionKind = SessionKind.SEARCH,
        of: str | None = None,
    ) -> Session:
        """A new session of the run `run_key`, on a stored machine and environment, without a lease."""
        session = Session(
            str(uuid4()), run_key, seed, dict(options or {}), machine, environment, started or now(),
            kind=kind, of=of,
        )  # fmt: skip
        self.put_session(session)
        return session

    @abstractmethod
    def put_session(self, session: Session) -> bool:
        """Store a session that already has an id, because it comes from another log. Returns False if it is
        known.

        If the known session has no end, it gets the end of this record.
        """

    @abstractmethod
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
        """The search session of a run on a machine: the latest one continued, or a new one.

        If several processes claim the session at once, one of them gets it. `Claim.mine` is False while
        another owner has a lease on the session, unless `gone` says that this owner's process has ended.
        fresh: make a new session in any case.
        """

    @abstractmethod
    def renew(self, session: str, owner: str, lease_s: float = LEASE_S) -> bool:
        """Prolong a lease. Returns False if another owner has the session now."""

    @abstractmethod
    def put_opening(self, opening: Opening) -> None:
        """Note that a process works on a session: its command, user, host and code."""

    @abstractmethod
    def openings(self, session: str | None = None) -> tuple[Opening, ...]:
        """The processes that worked on a session, or on any session, oldest first."""

    @abstractmethod
    def end_session(self, session: str, reason: str) -> None:
        """Note when and why a session stopped, and end its lease. A later end replaces an earlier one."""

    @abstractmethod
    def find_session(
        self, run_key: str, machine: str | None = None, kind: SessionKind = SessionKind.SEARCH
    ) -> Session | None:
        """The session of this run and kind that started last, on this machine if one is named; None if there
        is no such session."""

    @abstractmethod
    def sessions(
        self, kind: SessionKind | Collection[SessionKind] | None = None, machine: str | None = None
    ) -> tuple[Session, ...]:
        """Sessions of these kinds (None: all), oldest first."""

    # --- rounds and intents: what is in flight ---

    @abstractmethod
    def begin_rounds(self, begun: Sequence[Round], intents: Sequence[Intent] = (), owner: str = "") -> None:
        """Store rounds and their candidates, in one transaction, before they are launched.

        A known round gets the new notes, because a resumed session starts it again. For a known candidate,
        one more attempt is counted. Candidates whose trial is stored are left out. Raises StoreError, and
        stores nothing, if a session now belongs to another owner than `owner` ("": not checked).
        """

    @abstractmethod
    def put_rounds(self, rounds: Sequence[Round]) -> None: ...

    @abstractmethod
    def rounds(self, session: str) -> tuple[Round, ...]:
        """Rounds of a session in order of workload, target, index."""

    @abstractmethod
    def open_intents(self, session: str | None = None) -> tuple[Intent, ...]:
        """Candidates that were launched but have no stored trial, oldest first."""

    @abstractmethod
    def drop_intents(self, session: str, trace_hashes: Collection[str] | None = None) -> int:
        """Delete intents that will not be launched (None: all intents of the session). Returns their
        number."""

    # --- trials ---

    @abstractmethod
    def add_trials(self, trials: Sequence[TrialRecord]) -> int:
        """Store trials with samples and verification and remove their intents, all or nothing.

        Returns how many trials were new. If a trial's (session, workload, target, trace_hash) is known, the
        stored trial is not changed. If the trials belong to a race, it becomes the last race of their task.
        Raises StoreError naming a workload, target, machine, environment, session, round, host or code that
        is not stored.
        """

    @abstractmethod
    def best(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[TrialRecord, ...]:
        """The `k` fastest verified trials with different traces, fastest first, measured on exactly this
        machine."""

    @abstractmethod
    def best_foreign(
        self, workload_key: str, target_key: str, machine_fingerprint: str, k: int = 1
    ) -> tuple[ForeignTrial, ...]:
        """The `k` best verified trials of every *other* machine, each with its machine."""

    @abstractmethod
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
        """Trials in the order in which they were stored; only those with an id above `after`, to read new
        trials.

        limit: the largest number of trials; they are the first ones, or the last ones if `newest`.
        before: only trials that were created before that time, to read the log as it was when a run began.
        """

    @abstractmethod
    def last_race(
        self, workload_key: str, target_key: str, machine_fingerprint: str
    ) -> tuple[TrialRecord, ...]:
        """The trials of the latest race of a task on exactly this machine, in order of storing.

        A race is a session of one of the kinds `RACES`: it measures known candidates again, side by side, so
        that their times may be compared.
        """

    @abstractmethod
    def met(
        self,
        workload_key: str,
        target_key: str,
        machine_fingerprint: str,
        trace_hashes: Collection[str],
        kinds: Collection[SessionKind] | None = None,
    ) -> frozenset[str]:
        """Those of the given traces that this machine has measured in sessions of these kinds (None: any)."""

    @abstractmethod
    def put_standing(self, standing: Standing) -> None:
        """Record the winner of a race. This has no effect if a later race was stored meanwhile.

        Raises StoreError naming a trial that is not stored.
        """

    @abstractmethod
    def standing(self, workload_key: str, target_key: str, machine_fingerprint: str) -> Standing | None:
        """The winner that is used for a task on this machine; None if the task had no race."""

    @abstractmethod
    def standings(self, machine: str | None = None, target: str | None = None) -> tuple[Standing, ...]:
        """The winners that are used for all tasks."""

    @abstractmethod
    def overtaken(self, machine: str, share: float) -> frozenset[tuple[str, str]]:
        """Workloads and targets with a verified trial that is newer than their last race, and took less than
        `share` of the time of the race's winner."""

    @abstractmethod
    def leaders(self, machine: str | None = None) -> tuple[Leader, ...]:
        """The fastest verified trial of every task on each machine, or on one machine. Cost: one look-up per
        task."""

    @abstractmethod
    def task_counts(
        self, workload_key: str | None = None, target_key: str | None = None, machine: str | None = None
    ) -> tuple[TaskCount, ...]:
        """The number of trials of each task, by machine and outcome. Cost: one row per number."""

    @abstractmethod
    def trial_id(self, session: str, workload_key: str, target_key: str, trace_hash: str) -> int | None:
        """The id that this log gave a trial; None if it is not stored."""

    @abstractmethod
    def trial(self, id: int) -> TrialRecord:
        """The trial with this id in this log. Raises StoreError if there is none."""

    @abstractmethod
    def trials_of(self, ids: Collection[int]) -> tuple[TrialRecord, ...]:
        """Trials by their ids, in order of storing; ids that are not stored are left out."""

    @abstractmethod
    def count(
        self,
        workload_key: str | None = None,
        target_key: str | None = None,
        machine: str | None = None,
        session: str | None = None,
        status: Status | Collection[Status] | None = None,
    ) -> int: ...

    @abstractmethod
    def failures(
        self, workload_key: str | None = None, session: str | None = None
    ) -> tuple[FailureGroup, ...]:
        """Failed trials grouped by status and error signature, most frequent first."""

    @abstractmethod
    def progress(self, session: str) -> tuple[Progress, ...]:
        """One entry for every (workload, target) of which a session has trials."""

    # --- many sessions at once ---

    @abstractmethod
    def history(self, workload_key: str, by: By = By.SESSION) -> tuple[Chapter, ...]:
        """The verified trials of a workload in groups, with the best of each group. The group that began
        first comes first.

        Cost: reads the workload's trials.
        """

    @abstractmethod
    def finalists(
        self,
        run: str | None = None,
        codes: Collection[str] | None = None,
        machine: str | None = None,
        session: str | None = None,
    ) -> tuple[TrialRecord, ...]:
        """The final verified trial for every task on every machine, of this run or session, of these versions
        of the sources, or of this machine. It is the fastest trial of the last race or, without a race, of
        all trials. Races inside a model do not count.

        Cost: reads all trials of the run, session or machine; with `codes`, all trials of the log.
        """

    # --- rates of a machine; trials in use ---

    @abstractmethod
    def put_calibration(self, fingerprint: str, values: Mapping[str, float] | Sequence[Calibration]) -> None:
        """Store measured rates. Earlier values are kept; `calibration` returns the latest."""

    @abstractmethod
    def calibration(self, fingerprint: str) -> Mapping[str, Calibration]:
        """The latest value of every rate of a machine; empty if it was never calibrated."""

    @abstractmethod
    def calibrations(self, fingerprint: str) -> tuple[Calibration, ...]:
        """Every value ever stored for a machine, oldest first."""

    @abstractmethod
    def record_apply(self, trial: int, used_by: str) -> None:
        """Note that a trial was built into a file (a model, a library)."""

    @abstractmethod
    def applications(self, trial: int) -> tuple[str, ...]:
        """The files into which a trial was built, oldest first."""

    @abstractmethod
    def put_applications(self, applications: Sequence[Application]) -> None:
        """Store the applications that another log recorded. Known ones are not changed.

        Raises StoreError naming a trial that is not stored.
        """

    @abstractmethod
    def all_applications(self) -> tuple[Application, ...]:
        """The files into which any trial was built, oldest first."""

    # --- the log itself ---

    @abstractmethod
    def rows(self, query: str, values: Mapping[str, Any], count: int) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Rows of a SELECT in batches of `count`, as the database has them (for frames.py)."""

    @abstractmethod
    def ask(self, query: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Column names and rows of one SELECT in the database's own SQL, for a log that is open for reading
        only.

        Raises StoreError if the log can be written, if the text is not a single SELECT, or if the database
        refuses it. A semicolon is refused except at the end, because a server would run the text after it as
        a second statement, outside of the transaction that only reads.
        """

    @abstractmethod
    def merge(self, source: TrialStore) -> tuple[int, int]:
        """Add everything in another log. Returns the number of new trials, and the number of trials that were
        read.

        Trials that were merged before are not read again. Raises StoreError if `source` is this log, or
        holds another workload under a key of this log.
        """

    @abstractmethod
    def prune(
        self,
        keep: int,
        before: datetime | None = None,
        makers: Collection[str] = (),
        dry_run: bool = False,
    ) -> tuple[Pruned, ...]:
        """Delete trials that are not needed. Returns the number of trials of each workload, and how many of
        them were deleted.

        These trials stay: the `keep` fastest verified trials of every task on every machine, all trials of
        races, winners in use, trials that were built into a file, trials of sessions without an end, an
        example of every kind of failure, all trials that these makers made, the newest trial, and all trials
        from which any of these was made. before: only older trials are deleted. dry_run: nothing is deleted.
        If pruning is killed, the log is intact, and pruning again continues.
        Raises StoreError for a `keep` below one.
        """

    @abstractmethod
    def compact(self) -> tuple[int, int]:
        """Return the space of deleted rows to the system. Returns the log's bytes before and after.

        Other processes wait until it is done. Cost: writes the whole log again.
        """

    @abstractmethod
    def check(self) -> CheckReport:
        """Look for damage in the whole log. Cost: reads all of it."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. Afterwards, every verb raises StoreError. Closing twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
