"""What every trial store promises: the verbs, and the laws (held by `tests/contract/test_stores.py`).

    connect("log.db") ──▶ TrialStore      store.py: SQL (SQLite, in a file or in memory, or PostgreSQL)

The laws: what was acknowledged is kept; storing the same thing twice is storing it once; a time of another
machine is only returned by `best_foreign`; an unverified trial is never returned by `best`; only
`StoreError` comes out (a record that contradicts itself raises `ValueError` while it is made). A store may
be used from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import uuid4

from tuning_db.errors import StoreError
from tuning_db.records import (
    Calibration,
    CheckReport,
    Environment,
    FailureGroup,
    ForeignTrial,
    Intent,
    Json,
    Machine,
    Progress,
    Round,
    Session,
    Status,
    TargetRecord,
    TrialRecord,
    Workload,
    environment_key,
    now,
)

RACE = "race:"  # how the run key of a session begins that measures known candidates again, side by side


class TrialStore(ABC):
    """A tuning log. Use it as a context manager, or call `close`."""

    place: str  # path or URL without password, for messages

    # --- things that trials refer to; each is stored once and named by its key ---

    def ensure_workload(self, key: str, name: str, text: str, flops: float) -> str:
        """Store a workload unless its key is known; gives the key.

        Raises StoreError if the key is known with another text (the key is a hash of the text).
        """
        return self.put_workload(Workload(key, name, text, flops))

    def ensure_target(self, key: str, text: str) -> str:
        """Store a target unless its key is known; gives the key. The first text stays."""
        return self.put_target(TargetRecord(key, text))

    @abstractmethod
    def ensure_machine(self, machine: Machine) -> str:
        """Store a machine unless its fingerprint is known; gives the fingerprint."""

    def ensure_environment(self, versions: Mapping[str, str]) -> str:
        """Store a set of versions; gives its key."""
        return self.put_environment(Environment(environment_key(versions), versions))

    @abstractmethod
    def put_workload(self, workload: Workload) -> str: ...

    @abstractmethod
    def put_target(self, target: TargetRecord) -> str: ...

    @abstractmethod
    def put_environment(self, environment: Environment) -> str: ...

    @abstractmethod
    def workloads(self) -> tuple[Workload, ...]: ...

    @abstractmethod
    def targets(self) -> tuple[TargetRecord, ...]: ...

    @abstractmethod
    def machines(self) -> tuple[Machine, ...]: ...

    @abstractmethod
    def environments(self) -> tuple[Environment, ...]: ...

    # --- sessions and rounds ---

    def start_session(
        self,
        *,
        run_key: str,
        seed: int,
        machine: str,
        environment: str,
        options: Mapping[str, Json] | None = None,
        started: datetime | None = None,
    ) -> Session:
        """A new session of the run `run_key`, on a stored machine and environment."""
        session = Session(
            str(uuid4()), run_key, seed, dict(options or {}), machine, environment, started or now()
        )
        self.put_session(session)
        return session

    @abstractmethod
    def put_session(self, session: Session) -> bool:
        """Store a session that has its id already (a merge); False, changing nothing, if it is known."""

    @abstractmethod
    def end_session(self, session: str, reason: str) -> None:
        """Note when and why a session stopped; a later end replaces an earlier one."""

    @abstractmethod
    def reopen_session(self, session: str) -> Session:
        """Continue an ended session: it has no end and no stop reason again."""

    @abstractmethod
    def find_session(self, run_key: str) -> Session | None:
        """The latest started session of this run, or None."""

    @abstractmethod
    def sessions(self) -> tuple[Session, ...]:
        """All sessions, oldest first."""

    def start_round(
        self, session: str, workload: str, target: str, index: int, notes: Mapping[str, Json] | None = None
    ) -> Round:
        """Store a round; one that is known gets the new notes (a resumed session starts it again)."""
        begun = Round(session, workload, target, index, dict(notes or {}))
        self.put_rounds((begun,))
        return begun

    @abstractmethod
    def put_rounds(self, rounds: Sequence[Round]) -> None: ...

    @abstractmethod
    def rounds(self, session: str) -> tuple[Round, ...]:
        """Rounds of a session in order of workload, target, index."""

    # --- intents: what is in flight ---

    def mark_intent(self, intent: Intent) -> None:
        """Remember a candidate before it is launched; marking it again counts one more attempt."""
        self.mark_intents((intent,))

    @abstractmethod
    def mark_intents(self, intents: Sequence[Intent]) -> None:
        """`mark_intent` for a batch, in one transaction; candidates whose trial is stored are left out."""

    @abstractmethod
    def open_intents(self, session: str | None = None) -> tuple[Intent, ...]:
        """Candidates that were launched and whose trial was never stored, oldest first."""

    @abstractmethod
    def drop_intents(self, session: str, trace_hashes: Collection[str] | None = None) -> int:
        """Forget intents that will not be launched after all (None: all of the session); gives how many."""

    # --- trials ---

    @abstractmethod
    def add_trials(self, trials: Sequence[TrialRecord]) -> int:
        """Store trials with samples and verification and remove their intents, all or nothing.

        Gives how many were new: a trial whose (session, workload, target, trace_hash) is known is left as
        it was.
        Raises StoreError naming a workload, target, machine, environment, session or round that is not
        stored.
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
        """The `k` best verified trials of every *other* machine, each with the machine it is from."""

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
    ) -> tuple[TrialRecord, ...]:
        """Trials in order of storing, only those with an id above `after` (to read what is new).

        limit: at most so many, the first ones, or the last ones if `newest`. before: only those that were
        created before (to read what a run knew when it began).
        """

    @abstractmethod
    def last_race(
        self, workload_key: str, target_key: str, machine_fingerprint: str
    ) -> tuple[TrialRecord, ...]:
        """The trials of the latest race of a task on exactly this machine, in order of storing.

        A race is a session whose run key begins with `RACE`: candidates that were measured before, measured
        again side by side, so that their times may be compared.
        """

    @abstractmethod
    def trial(self, id: int) -> TrialRecord:
        """One trial by the id this log gave it. Raises StoreError if there is none."""

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
        """One entry for every (workload, target) a session has trials of."""

    # --- rates of a machine; trials in use ---

    @abstractmethod
    def put_calibration(self, fingerprint: str, values: Mapping[str, float] | Sequence[Calibration]) -> None:
        """Store measured rates; earlier values are kept, `calibration` gives the latest."""

    @abstractmethod
    def calibration(self, fingerprint: str) -> Mapping[str, Calibration]:
        """The latest value of every rate of a machine; empty if it was never calibrated."""

    @abstractmethod
    def calibrations(self, fingerprint: str) -> tuple[Calibration, ...]:
        """Every value ever stored for a machine, oldest first."""

    @abstractmethod
    def record_apply(self, trial: int, used_by: str) -> None:
        """Note that a trial was built into something (a model, a library)."""

    @abstractmethod
    def applications(self, trial: int) -> tuple[str, ...]:
        """What a trial was built into, oldest first."""

    # --- the log itself ---

    @abstractmethod
    def check(self) -> CheckReport:
        """Look for damage in the whole log. Cost: reads all of it."""

    @abstractmethod
    def close(self) -> None:
        """Give back files and connections; afterwards every verb raises StoreError. Closing twice is
        allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_statuses(status: Status | Collection[Status] | None) -> tuple[Status, ...] | None:
    match status:
        case None:
            return None
        case str():
            return (Status(status),)
        case _:
            return tuple(Status(s) for s in status)


def as_calibrations(values: Mapping[str, float] | Sequence[Calibration]) -> tuple[Calibration, ...]:
    if isinstance(values, Mapping):
        return tuple(Calibration(name, value) for name, value in values.items())
    return tuple(values)


def summarise(points: Sequence[tuple[str, str, Status, float | None]]) -> tuple[Progress, ...]:
    """Progress per task from `(workload, target, status, verified median | None)` in order of storing."""
    tasks: dict[tuple[str, str], list[tuple[Status, float | None]]] = {}
    for workload, target, status, verified_s in points:
        tasks.setdefault((workload, target), []).append((status, verified_s))
    result = []
    for (workload, target), done in tasks.items():
        curve: list[tuple[int, float]] = []
        for number, (_, seconds) in enumerate(done, start=1):
            if seconds is not None and (not curve or seconds < curve[-1][1]):
                curve.append((number, seconds))
        ok = sum(status is Status.OK for status, _ in done)
        best_s = curve[-1][1] if curve else None
        result.append(Progress(workload, target, len(done), ok, len(done) - ok, best_s, tuple(curve)))
    return tuple(result)


def unknown(place: str, kind: str, key: object, fix: str = "") -> StoreError:
    """The error for a reference to something that is not stored."""
    return StoreError(
        f"tuning log '{place}' has no {kind} {key!r}.", fix or f"Store the {kind} before referring to it."
    )


def other_text(place: str, key: str) -> StoreError:
    return StoreError(
        f"tuning log '{place}' already holds workload {key!r} with another text.",
        "A key is the hash of its text; give the changed workload its own key.",
    )


def closed(place: str) -> StoreError:
    return StoreError(f"tuning log '{place}' is closed.", "Connect to it again.")
