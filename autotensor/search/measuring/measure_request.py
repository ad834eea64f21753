"""Requests to a measurer, and its results. Compiled code as JSON, which child processes pass on.

measurer.submit(workload, traces) ──▶ Future of [MeasureResult, …]      one per trace, in order
"""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import sha256
from math import inf
from numbers import Real
from typing import Any, Literal, Protocol, runtime_checkable

from autotensor.base.counted import counted
from autotensor.base.doors import inside, name_of
from autotensor.base.errors import InputError, MeasureError
from autotensor.base.granted.control_group import memory_limit
from autotensor.base.target import Target, host_caches
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.provenance import CodeHere, HostHere
from autotensor.te.workload import Workload
from tuning_db.records import Conditions, Status

Residency = Literal["graph", "hot"]


class OutOfTime(MeasureError):
    """The deadline came before the work was done. The workload itself is not at fault."""


LEAST_SAMPLES = 3  # with fewer samples, a result is not a trial


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How candidates are built, checked and timed."""

    repeat: int = 4  # samples of each candidate that is not slower than another one: race_rule.py
    min_seconds: float = 0.002  # least duration of a sample
    build_timeout_s: float = 20.0
    run_timeout_s: float = 10.0  # limit of one sample, or of one run while checking
    oracle_timeout_s: float = 300.0  # limit of the unscheduled program on one set of inputs
    # seeds of the random inputs; inputs of small integers are added if results are exact on these
    seeds: tuple[int, ...] = (0, 1)
    memory_bytes: int | None = None  # address space of a child; None: three quarters of this machine's memory
    # weights come from memory as in a whole model, or everything stays as the last call left it
    residency: Residency = "graph"
    workers: int | None = None  # number of children that build; None: one per core
    # measured FLOP/s of all threads; a candidate that claims more than 1.10 times this is checked again
    peak_flops: float | None = None
    racing: bool = True  # False: the same number of samples for each candidate, however slow it is
    # whether the result has facts about the machine code; this takes a quarter of the build's time
    asm: bool = True

    def __post_init__(self) -> None:
        if self.repeat < LEAST_SAMPLES:
            raise InputError(
                f"measuring with repeat={self.repeat}: a trial has at least {LEAST_SAMPLES} samples."
            )
        if not self.seeds:
            raise InputError("measuring with no seeds: an answer must be checked on at least one input.")
        if self.residency not in ("graph", "hot"):
            raise InputError(f"residency {self.residency!r} is unknown.", fix="Known: graph, hot.")
        for name in ("min_seconds", "build_timeout_s", "run_timeout_s", "oracle_timeout_s"):
            if getattr(self, name) <= 0:
                raise InputError(f"measuring with {name}={getattr(self, name)!r}: it must be positive.")


@dataclass(frozen=True, slots=True)
class Who:
    """The host and versions of the process that made a measurement, if the caller did not make it."""

    host: HostHere
    code: CodeHere


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The outcome for one candidate."""

    status: Status
    seconds: tuple[float, ...] = ()  # seconds per call, one for each sample; empty unless status is OK
    build_seconds: float | None = None  # for replaying, lowering and compiling; None: it was not built
    error: str | None = None  # the full reason of a failure
    source_sha: str | None = None  # hash of the object code
    # relative error of the answers (see checks.compare); None: no answer was checked
    max_error: float | None = None
    tolerance: float | None = None  # the allowed error, in the same unit
    asm: Mapping[str, int] = field(default_factory=dict)  # fields of codegen.llvm_asm.AsmFacts
    reference_seconds: tuple[float, ...] = ()  # times of the reference kernel, next to each sample
    prepared_bytes: int = 0  # bytes of constants that each call reads
    conditions: Conditions = Conditions.ALONE
    note: str = ""  # a remark about an unusual result with status OK
    who: Who | None = None  # None: the calling process

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


@runtime_checkable
class Measurer(Protocol):
    """An object that measures times of candidates: this machine, a cluster, or a fake with a known optimum.

    If a measurer has an attribute `in_flight` above 1, it gets batches of this many tasks before it has
    answered the first. Such a measurer compiles one batch while it times another, or has many machines. If it
    has an attribute `workers` above 1, it divides the traces of a call among this many machines. It may get
    several batches of a task in one call.
    """

    def submit(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> Future[list[MeasureResult]]:
        """One result for each trace, in order. repeat: number of samples of each; None: the measurer decides.

        gated: indices of the traces that may be REJECTED because of their machine code (code_gate.py). The
        other traces always run. The traces of one call, or of each part of it, are measured side by side on
        one machine, because their times are compared. The future raises MeasureError only if no trace can be
        measured.
        """
        ...

    def close(self) -> None: ...


class AtOnce(ABC):
    """A measurer that measures before `submit` returns. A subclass implements `measure`."""

    @abstractmethod
    def measure(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:
        """The results or the error of the future that `submit` returns."""

    def submit(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> Future[list[MeasureResult]]:
        answer: Future[list[MeasureResult]] = Future()
        try:
            with inside("measurer", type(self), "in measure"):
                found = self.measure(workload, traces, repeat, gated=gated)
            answer.set_result(checked_results(type(self), found, len(traces)))
        except MeasureError as error:
            answer.set_exception(error)
        return answer

    def close(self) -> None:  # noqa: B027  # subclasses may hold resources
        """Releases the resources of measuring."""


def checked_results(measurer: type, found: object, count: int) -> list[MeasureResult]:
    """The results of `count` traces. Raises InputError if a measurer gives anything else."""
    given = list(found) if isinstance(found, list | tuple) else [found]
    results = [r for r in given if isinstance(r, MeasureResult)]
    odd = [r for r in given if not isinstance(r, MeasureResult)]
    if odd or len(results) != count:
        gives = repr(odd[0]) if odd else counted(len(results), "result")
        raise InputError(
            f"measurer {name_of(measurer)!r} gives {gives} for {counted(count, 'trace')}.",
            fix="It must give a list with one MeasureResult for each trace (docs/extend.md).",
        )
    for r in results:
        if r.ok and not _timed(r):
            raise InputError(
                f"measurer {name_of(measurer)!r} gives a result with status OK and the seconds "
                f"{r.seconds!r}.",
                fix="Such a result needs a tuple of positive numbers.",
            )
    return results


def _timed(r: MeasureResult) -> bool:
    """Whether all samples are positive numbers, and there is one."""
    seconds = r.seconds if isinstance(r.seconds, tuple | list) else ()
    return bool(seconds) and all(isinstance(s, Real) and 0.0 < s < inf for s in seconds)


def checked_measurer(given: object) -> Measurer:
    """Raises InputError for an object that is not a measurer."""
    if isinstance(given, type) or not isinstance(given, Measurer):
        raise InputError(
            f"measurer {name_of(given) if isinstance(given, type) else given!r} cannot be used: it lacks "
            "submit or close.",
            fix="docs/extend.md shows one.",
        )
    count = batches_at_once(given)
    if not isinstance(count, int) or count < 1:
        raise InputError(f"a measurer has in_flight={count!r}; it must be a whole number, at least 1.")
    return given


def workers_of(measurer: Measurer) -> int:
    """The number of machines that measure at the same time."""
    count: int = getattr(measurer, "workers", 1)
    return count


def batches_at_once(measurer: Measurer) -> int:
    """The number of batches that may be submitted before the first one is answered."""
    count: int = getattr(measurer, "in_flight", 1)
    return count


def source_sha(artifact: Artifact) -> str:
    """A hash of the object code and its arguments. If two hashes are equal, one measurement is enough."""
    digest = sha256(
        repr((artifact.entry, artifact.prepare, artifact.args, artifact.entry_constants())).encode()
    )
    for data in artifact.objects:
        digest.update(data)
    return digest.hexdigest()


def to_plain(artifact: Artifact) -> dict[str, Any]:
    """The artifact as JSON data, without texts and bound values."""
    return {
        "name": artifact.name,
        "target": artifact.target.to_json(),
        "entry": artifact.entry,
        "prepare": artifact.prepare,
        "args": [asdict(a) for a in artifact.args],
        "needs": list(artifact.needs),
        "objects": [base64.b64encode(data).decode("ascii") for data in artifact.objects],
        "meta": dict(artifact.meta),
    }


def from_plain(data: Mapping[str, Any]) -> Artifact:
    return Artifact(
        name=data["name"],
        target=Target.from_json(data["target"]),
        entry=data["entry"],
        prepare=data["prepare"],
        args=tuple(ArgSpec(**{**a, "shape": tuple(a["shape"])}) for a in data["args"]),
        objects=tuple(base64.b64decode(text) for text in data["objects"]),
        needs=tuple(data["needs"]),
        meta=data["meta"],
    )


@lru_cache(maxsize=1)
def default_memory_bytes() -> int:
    """Three quarters of the memory that this process may use."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(total, memory_limit() or total) // 4 * 3


ROTATION_BYTES = 160 << 20  # most memory for copies of weights
ROTATION_COPIES = 512


def rotation_copies(constant_bytes: int, residency: Residency) -> int:
    """Number of copies of constants to rotate among, so that each call reads them from memory, as in a model.

    >>> rotation_copies(0, "graph"), rotation_copies(1 << 20, "hot")
    (1, 1)
    """
    if residency == "hot" or constant_bytes == 0:
        return 1
    last = host_caches()[-1]
    wanted = 2 * last // constant_bytes + 1
    return max(1, min(wanted, ROTATION_COPIES, ROTATION_BYTES // constant_bytes))
