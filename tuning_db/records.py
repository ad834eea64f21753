"""The frozen records that go into a tuning log, and come out of it as they were.

Code outside of this package never gets a row or an ORM object. Records refer to each other by *keys*: to a
workload and a target by its key, to a machine by its fingerprint, to an environment by the hash of its
versions, to a session and a host by its uuid, and to a trial by (session, workload, target, trace_hash).
Every record checks itself once, when it is made. So reading a record from a damaged file fails here, and
becomes a `StoreError`. Answers that are not stored, such as counts and histories, are in `answers.py`.

        Workload ─┐                ┌─▶ Sample, Sample, …      start reading at TrialRecord
        Target  ──┼──▶ TrialRecord ┼─▶ Verification
        Machine ──┤        ▲       └─▶ Parent, Parent, …
        Session ──┘    Standing: the winner in use
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tuning_db.values import Json, as_utc, canonical_json, freeze, now, printable


class Status(StrEnum):
    """The outcome of a trial. Only a trial with OK has a time; every failure has a row, too."""

    OK = "OK"
    INVALID_SCHEDULE = "INVALID_SCHEDULE"
    BUILD_ERROR = "BUILD_ERROR"
    BUILD_TIMEOUT = "BUILD_TIMEOUT"
    RUN_ERROR = "RUN_ERROR"
    RUN_TIMEOUT = "RUN_TIMEOUT"
    WRONG_RESULT = "WRONG_RESULT"
    CRASHED = "CRASHED"
    ABORTED = "ABORTED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    REJECTED = "REJECTED"  # compiled, but not run, because its machine code cannot be fast


class SessionKind(StrEnum):
    """The purpose of a session's trials."""

    SEARCH = "search"  # candidates of a tuning run
    RACE = "race"  # known candidates of a task, measured again side by side
    MODEL = "model"  # known candidates, measured again inside their model
    END = "end"  # whole models against each other; it has no trials, and its options hold the outcome


RACES = (SessionKind.RACE, SessionKind.MODEL)  # kinds whose trials may be compared with each other


class Conditions(StrEnum):
    """The circumstances in which a trial was measured."""

    ALONE = "alone"
    BESIDE = "beside"  # other processes timed or compiled meanwhile
    SAME_CODE = "same_code"  # another trial has the same object code and was run for both


@dataclass(frozen=True, slots=True)
class Workload:
    """A computation, independent of names. `text` is its canonical JSON, and `key` is the hash of the
    text."""

    key: str
    name: str
    text: str
    flops: float
    symbols: Mapping[str, Json] = field(default_factory=dict)  # extents known at run time only, with bounds

    def __post_init__(self) -> None:
        _need_text(self, "key", "text")
        _set(self, "flops", _number("workload", "flops", self.flops))
        _set(self, "symbols", _mapping("workload", "symbols", self.symbols))


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A target of compilation; `text` is JSON and includes the thread count."""

    key: str
    text: str

    def __post_init__(self) -> None:
        _need_text(self, "key", "text")


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware on which times were measured. Times of two fingerprints are compared only on request."""

    fingerprint: str
    cpu_model: str = ""
    features: tuple[str, ...] = ()
    cores: int = 0
    caches: tuple[int, ...] = ()  # bytes, innermost first
    device: str = ""  # accelerator, "" for none
    driver: str = ""  # the accelerator's driver
    extra: Mapping[str, Json] = field(default_factory=dict)
    memory: int = 0  # bytes of the accelerator's memory, or of the host's if there is none; 0: not known

    def __post_init__(self) -> None:
        _need_text(self, "fingerprint")
        _set(self, "features", tuple(self.features))
        _set(self, "caches", tuple(self.caches))
        _set(self, "extra", _mapping("machine", "extra", self.extra))


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions of everything that may change a result: `{"llvmlite": "0.50.0", …}`."""

    key: str
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        _need_text(self, "key")
        _set(self, "versions", _mapping("environment", "versions", self.versions))


@dataclass(frozen=True, slots=True)
class Host:
    """One computer. Several computers may be equal machines; the host says which of them measured."""

    uuid: str
    name: str
    machine: str  # fingerprint
    seen: datetime = field(default_factory=lambda: now())  # when it was last seen

    def __post_init__(self) -> None:
        _need_text(self, "uuid", "machine")
        _set(self, "seen", as_utc(self.seen))


@dataclass(frozen=True, slots=True)
class Code:
    """The sources that searched, compiled and measured; `key` is the hash of the other fields."""

    key: str
    version: str  # the package's version
    commit_sha: str = ""  # commit of the checkout or of the URL of the installation; "": not known
    dirty: bool = False  # the checkout had changes that no commit holds
    sources: str = ""  # hash of the source files

    def __post_init__(self) -> None:
        _need_text(self, "key", "version")

    @property
    def label(self) -> str:
        """A readable name: the commit; the key if there were changes; the version if neither is known."""
        return (self.key if self.dirty else self.commit_sha) or self.version


@dataclass(frozen=True, slots=True)
class Sketch:
    """The structure of candidates: the text of their traces with holes, see `columns/traces.py`."""

    hash: str
    text: str

    def __post_init__(self) -> None:
        _need_text(self, "hash", "text")


@dataclass(frozen=True, slots=True)
class Run:
    """A request of a user: one model or one computation, however often its run was continued.

    `tasks`: one entry for each, `{"workload": key, "target": key, "weight": …, "name": …}`.
    """

    key: str
    model: str = ""
    model_hash: str = ""  # hash of the graph, constants included
    tasks: tuple[Mapping[str, Json], ...] = ()
    tags: Mapping[str, Json] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        _need_text(self, "key")
        _set(self, "tasks", freeze(self.tasks))
        _set(self, "tags", _mapping("run", "tags", self.tags))


@dataclass(frozen=True, slots=True)
class Session:
    """The trials of one run on one machine for one purpose.

    `run_key` names the request, so that the same command finds the session again. The process that works on
    the session has a lease.
    """

    id: str
    run_key: str
    seed: int
    options: Mapping[str, Json]
    machine: str  # fingerprint
    environment: str  # key
    started: datetime
    ended: datetime | None = None  # None: still running, or killed
    stop_reason: str | None = None
    kind: SessionKind = SessionKind.SEARCH
    of: str | None = None  # for a race: uuid of the session whose trials were raced
    owner: str = ""  # the process that works on it
    lease_until: datetime | None = None  # after this time, the owner counts as dead

    def __post_init__(self) -> None:
        _need_text(self, "id", "run_key", "machine", "environment")
        _set(self, "seed", int(self.seed))
        _set(self, "options", _mapping("session", "options", self.options))
        _set(self, "started", as_utc(self.started))
        _set(self, "ended", None if self.ended is None else as_utc(self.ended))
        _set(self, "kind", SessionKind(self.kind))
        _set(self, "lease_until", None if self.lease_until is None else as_utc(self.lease_until))

    def held(self, at: datetime) -> bool:
        """Whether a process works on the session at this instant, according to the lease in the log."""
        return bool(self.owner) and self.lease_until is not None and self.lease_until > at


@dataclass(frozen=True, slots=True)
class Opening:
    """One process that worked on a session: each start of the command makes one."""

    session: str  # uuid
    host: str  # uuid
    code: str  # key
    command: str = ""
    user_name: str = ""
    pid: int = 0
    boot_id: str = ""
    started: datetime = field(default_factory=lambda: now())

    def __post_init__(self) -> None:
        _need_text(self, "session", "host", "code")
        _set(self, "started", as_utc(self.started))


@dataclass(frozen=True, slots=True)
class Round:
    """One round (ask and tell) of one task of a session. `notes` holds data about it, such as the reason why
    the task got no more rounds."""

    session: str
    workload: str
    target: str
    index: int
    notes: Mapping[str, Json] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: now())

    def __post_init__(self) -> None:
        _need_text(self, "session", "workload", "target")
        _set(self, "notes", _mapping("round", "notes", self.notes))
        _set(self, "started", as_utc(self.started))


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed repeat."""

    seconds: float
    residency: str = "warm"  # state of the caches before the run: warm, cold, …
    reference_s: float | None = None  # time of the reference kernel next to it, to notice drift

    def __post_init__(self) -> None:
        _set(self, "seconds", _number("sample", "seconds", self.seconds, least=0.0))
        _set(self, "reference_s", _maybe("sample", "reference_s", self.reference_s, least=0.0))


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of a candidate's answer with the reference; `max_error` and `tolerance` are in the same
    unit.

    A non-finite error (NaN in the output) is stored as None. A verdict of True with an error above the
    tolerance is refused, because a wrong kernel could then be applied.
    """

    max_error: float | None
    tolerance: float
    seeds: tuple[int, ...] = ()
    verdict: bool = False  # True: the answer was right

    def __post_init__(self) -> None:
        error = self.max_error
        _set(self, "max_error", float(error) if error is not None and math.isfinite(error) else None)
        _set(self, "tolerance", _number("verification", "tolerance", self.tolerance, least=0.0))
        _set(self, "seeds", tuple(int(s) for s in self.seeds))
        _set(self, "verdict", bool(self.verdict))
        if self.verdict and (self.max_error is None or self.max_error > self.tolerance):
            raise ValueError(
                f"verification: verdict is True but max_error {error} is above tolerance {self.tolerance}"
            )


@dataclass(frozen=True, slots=True)
class Parent:
    """A candidate from which another one was made, and how: `mutated`, `crossed`, `neighbour`, …"""

    trace_hash: str
    how: str = ""
    workload: str = ""  # the workload's key, if it is another computation

    def __post_init__(self) -> None:
        _need_text(self, "trace_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One candidate that was tried, and everything that is known about the trial.

    `median_s` is a time if and only if `status` is OK: a failure has no time, never an infinite one.
    """

    session: str  # uuid
    workload: str  # key
    target: str  # key
    machine: str  # fingerprint
    environment: str  # key
    trace: str  # JSON text, replayable
    trace_hash: str
    status: Status
    median_s: float | None = None
    samples: tuple[Sample, ...] = ()  # every repeat, in order
    verification: Verification | None = None  # None: never checked, so never applied
    build_s: float | None = None
    error: str | None = None  # full text of the failure
    sketch_hash: str = ""
    decisions: Mapping[str, Json] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()
    made_by: str = ""  # rule, mutation or person
    predicted: float | None = None  # score before measuring
    assembly: Mapping[str, Json] = field(default_factory=dict)  # counts: spills, fma, …
    source_sha: str | None = None
    round: int | None = None  # index of a started Round of the same session, workload and target
    conditions: Conditions | None = None  # None: not recorded
    note: str = ""  # further remarks on the measurement
    host: str | None = None  # uuid of the host that measured
    code: str | None = None  # key of the sources that measured
    metrics: Mapping[str, Json] = field(default_factory=dict)  # measured figures other than seconds
    numerics: str = ""  # class of its arithmetic, if not the target's own
    extents: Mapping[str, Json] = field(default_factory=dict)  # the extents of the symbols in the measurement
    created: datetime = field(default_factory=lambda: now())
    id: int | None = field(default=None, compare=False)  # the log that holds the trial assigns it

    def __post_init__(self) -> None:
        _need_text(self, "session", "workload", "target", "machine", "environment", "trace", "trace_hash")
        _set(self, "status", Status(self.status))
        ok = self.status is Status.OK
        if ok != (self.median_s is not None):
            missing = "needs a median_s" if ok else "has no time: median_s must be None"
            raise ValueError(f"trial: status {self.status} {missing}")
        _set(self, "median_s", _maybe("trial", "median_s", self.median_s, least=0.0))
        _set(self, "build_s", _maybe("trial", "build_s", self.build_s, least=0.0))
        _set(self, "predicted", _maybe("trial", "predicted", self.predicted))
        _set(self, "samples", tuple(self.samples))
        _set(self, "parents", tuple(self.parents))
        _set(self, "conditions", None if self.conditions is None else Conditions(self.conditions))
        _set(self, "metrics", _mapping("trial", "metrics", self.metrics))
        _set(self, "extents", _mapping("trial", "extents", self.extents))
        _set(self, "decisions", _mapping("trial", "decisions", self.decisions))
        _set(self, "assembly", _mapping("trial", "assembly", self.assembly))
        _set(self, "error", None if self.error is None else printable(self.error))
        _set(self, "created", as_utc(self.created))

    @property
    def verified(self) -> bool:
        """Whether the status is OK and the result was right. Only such a trial may be applied."""
        return self.status is Status.OK and self.verification is not None and self.verification.verdict


@dataclass(frozen=True, slots=True)
class Intent:
    """A candidate about to be launched.

    An intent survives a kill -9. So a candidate that hung is known; it is launched again or reported as
    failed.
    """

    session: str
    workload: str
    target: str
    trace_hash: str
    trace: str
    worker_pid: int = 0
    boot_id: str = ""
    started: datetime = field(default_factory=lambda: now())
    attempts: int = 1  # times it was launched; counted by the store
    host: str | None = None  # uuid
    sketch_hash: str = ""
    decisions: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _need_text(self, "session", "workload", "target", "trace_hash", "trace")
        _set(self, "started", as_utc(self.started))
        _set(self, "decisions", _mapping("intent", "decisions", self.decisions))


@dataclass(frozen=True, slots=True)
class Standing:
    """The winner in use of a task on a machine, by its last race.

    `trial` is the winner's row in that race. It is None if the race was stored without a winner.
    """

    workload: str
    target: str
    machine: str
    race: str  # uuid of the session
    trial: int | None = None
    seconds: float | None = None
    default_s: float | None = None  # time of the default schedule, if it was in the race and worked
    updated: datetime = field(default_factory=lambda: now())

    def __post_init__(self) -> None:
        _need_text(self, "workload", "target", "machine", "race")
        _set(self, "seconds", _maybe("standing", "seconds", self.seconds, least=0.0))
        _set(self, "default_s", _maybe("standing", "default_s", self.default_s, least=0.0))
        _set(self, "updated", as_utc(self.updated))


@dataclass(frozen=True, slots=True)
class Application:
    """A use of a trial in a model file or a library. The trial is named by keys that every log
    understands."""

    session: str
    workload: str
    target: str
    trace_hash: str
    used_by: str
    applied: datetime = field(default_factory=lambda: now())

    def __post_init__(self) -> None:
        _need_text(self, "session", "workload", "target", "trace_hash")
        _set(self, "applied", as_utc(self.applied))


@dataclass(frozen=True, slots=True)
class Calibration:
    """One measured rate of a machine, e.g. `Calibration("peak_f32", 117e9, "FLOP/s")`."""

    name: str
    value: float
    unit: str = ""
    samples: tuple[float, ...] = ()
    measured: datetime = field(default_factory=lambda: now())

    def __post_init__(self) -> None:
        _need_text(self, "name")
        _set(self, "value", _number("calibration", "value", self.value))
        _set(self, "samples", tuple(_number("calibration", "samples", s) for s in self.samples))
        _set(self, "measured", as_utc(self.measured))


def environment_key(versions: Mapping[str, str]) -> str:
    """Hash of a set of versions, independent of their order."""
    return hashlib.sha256(canonical_json(dict(versions)).encode()).hexdigest()[:32]


def _set(record: object, name: str, value: object) -> None:
    object.__setattr__(record, name, value)  # a frozen record normalises its fields once, while it is made


def _need_text(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str) or not value:
            raise ValueError(f"{type(record).__name__}: {name} must be a non-empty string, got {value!r}")


def _number(owner: str, name: str, value: float, least: float = -math.inf) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        bound = "" if least == -math.inf else f" of at least {least:g}"
        raise ValueError(f"{owner}: {name} must be a finite number{bound}, got {value!r}")
    return float(value)


def _maybe(owner: str, name: str, value: float | None, least: float = -math.inf) -> float | None:
    return None if value is None else _number(owner, name, value, least)


def _mapping(owner: str, name: str, value: Mapping[str, Json]) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{owner}: {name} must be a mapping, got {value!r}")
    frozen: Mapping[str, Json] = freeze(value)
    return frozen
