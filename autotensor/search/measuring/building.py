"""The parent's side of building: each child gets one trace at a time, and sends an artifact back.

pool = BuildPool(target, options)
pool.build(workload, traces) ──▶ [Built | MeasureResult, …]      a MeasureResult is a failure
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotensor.base.target import Target, usable_cores
from autotensor.runtime.timing_lock import BusyError, compiling
from autotensor.runtime.workers import children
from autotensor.runtime.workers.children import Child, Reply
from autotensor.schedule.trace import Trace
from autotensor.search.measuring import candidate_time_limit
from autotensor.search.measuring.cores import Cores
from autotensor.search.measuring.measure_request import MeasureOptions, MeasureResult, default_memory_bytes
from autotensor.search.measuring.timing_turns import Turns
from autotensor.te.workload import Workload
from tuning_db.records import Status

WORKER = "autotensor.search.measuring.worker"
KEPT_BYTES = 64 << 20  # bytes of code that are kept; a candidate has 20 to 200 KB
# after this many builds a new child starts, because the old one may have collected memory
_BUILDS_PER_CHILD = 2000
_NO_MEMORY = ("out of memory", "bad_alloc", "cannot allocate memory", "memoryerror")


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate that compiled."""

    artifact: Mapping[str, Any]  # JSON data, as measure_request.to_plain returns it
    sha: str
    seconds: float = 0.0
    asm: Mapping[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The approximate size in memory: nearly all of it is code."""
        return sum(len(code) for code in self.artifact["objects"])


class _Builder:
    """One child and the workloads that were sent to it."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._told: set[str] = set()
        self._builds = 0

    def ask(self, workload: Workload, request: dict[str, Any], timeout_s: float) -> Reply:
        if self._builds >= _BUILDS_PER_CHILD:
            self.child.close()
        if self.child.pid is None:
            self._told.clear()
            self._builds = 0
            self.child.start()  # started here, so that its start does not count as a candidate's time
        text = "" if workload.key in self._told else workload.text
        self._told.add(workload.key)
        self._builds += 1
        return self.child.request(json.dumps({**request, "key": workload.key, "workload": text}), timeout_s)


class BuildPool:
    """Children that compile. LLVM has one lock per process, so each child compiles one candidate at a time.

    Results for the pool's target are kept, because a task's final race compiles its best candidates again.

    If there are spare cores, the children run on all cores until this process times something (`aside`). From
    then on, children that still compile stay on the spare cores.
    """

    def __init__(
        self,
        target: Target,
        options: MeasureOptions,
        modules: Sequence[str] = (),
        path: Sequence[str | Path] = (),
        turns: Turns | None = None,
        cores: Cores | None = None,
    ) -> None:
        """turns: the run's waits for other processes that time. cores: the cores on which this process times,
        and the spare cores for compiling meanwhile; None: there are no spare cores."""
        self.target, self.options = target, options
        self._turns = turns or Turns()
        self._cores = cores
        self._guard = threading.Lock()  # protects the next three attributes
        self._timing = False  # whether this process times something now
        self._machine = ExitStack()  # holds the lock of the whole machine while all cores compile
        count = options.workers or usable_cores()  # OMP_NUM_THREADS is about kernels, not about building them
        memory = options.memory_bytes or default_memory_bytes()
        self._builders = [
            _Builder(Child(WORKER, ["build", *modules], path=path, memory_bytes=memory)) for _ in range(count)
        ]
        self._idle: queue.SimpleQueue[_Builder] = queue.SimpleQueue()
        for builder in self._builders:
            self._idle.put(builder)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="autotensor-build")
        self._kept: dict[tuple[str, str], Built] = {}  # by workload and trace; the latest comes last
        self._kept_bytes = 0

    def build(self, workload: Workload, traces: Sequence[Trace]) -> list[Built | MeasureResult]:
        """One result per trace, in order. Raises MeasureError when no child can be started, and OutOfTime
        when the deadline passes while another process times."""
        known = {t.hash: b for t in traces if (b := self._recalled(workload, t))}
        new = [t for t in traces if t.hash not in known]
        built = dict(
            zip((t.hash for t in new), self.build_for([(workload, t) for t in new], self.target), strict=True)
        )
        for trace_hash, result in built.items():
            self._keep((workload.key, trace_hash), result)
        return [known.get(t.hash) or built[t.hash] for t in traces]

    def build_for(
        self, jobs: Sequence[tuple[Workload, Trace]], target: Target
    ) -> list[Built | MeasureResult]:
        """The same for any computations and any target. Nothing is kept."""
        if not jobs:
            return []
        text = target.to_json()
        for workload, _ in jobs:
            workload.text, workload.key  # noqa: B018  # cached properties: computed before threads read them

        def one(job: tuple[Workload, Trace]) -> Built | MeasureResult:
            workload, trace = job
            builder = self._idle.get()
            try:
                request = {"trace": trace.to_json(), "target": text, "asm": self.options.asm}
                return _outcome(builder.ask(workload, request, self.options.build_timeout_s))
            finally:
                self._idle.put(builder)

        with self._turn():  # not while another process times
            return list(self._threads.map(one, jobs))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside the block, this process times, and children compile on the spare cores, if there are any."""
        with self._guard:
            self._timing = True
            self._stay_aside()
        try:
            yield
        finally:
            with self._guard:
                self._timing = False

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Inside the block, children may compile: on all cores if no process times, else on spare cores."""
        with self._turns.compiling(spare=self._cores is not None):
            if self._cores is None:
                yield
                return
            with self._guard:
                self._spread()
            try:
                yield
            finally:
                with self._guard:
                    self._machine.close()

    def _spread(self) -> None:
        with suppress(BusyError):
            if not self._timing:
                self._machine.enter_context(compiling(0.0))
                self._stay_on(os.sched_getaffinity(0))
                return
        self._stay_aside()

    def _stay_aside(self) -> None:
        if self._cores is not None:
            self._stay_on(self._cores.spare)
        self._machine.close()

    def _stay_on(self, cores: frozenset[int] | set[int]) -> None:
        for builder in self._builders:
            builder.child.stay_on(cores)

    def _recalled(self, workload: Workload, trace: Trace) -> Built | None:
        """The earlier result of compiling a trace. It becomes the latest one."""
        found = self._kept.pop((workload.key, trace.hash), None)
        if found is not None:
            self._kept[workload.key, trace.hash] = found
        return found

    def _keep(self, place: tuple[str, str], built: Built | MeasureResult) -> None:
        """Keeps a result, and drops the least recently used ones."""
        if isinstance(built, Built) and place not in self._kept:
            self._kept[place] = built
            self._kept_bytes += built.bytes
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.pop(next(iter(self._kept))).bytes

    def pids(self) -> tuple[int, ...]:
        return tuple(b.child.pid for b in self._builders if b.child.pid is not None)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for builder in self._builders:
            builder.child.close()


def _outcome(reply: Reply) -> Built | MeasureResult:
    if reply.status is children.Status.OK:
        answer = json.loads(reply.text)
        if "artifact" in answer:
            return Built(answer["artifact"], answer["sha"], answer["seconds"], answer["asm"])
        status = Status(answer["status"] or Status.BUILD_ERROR)
        status = Status.BUILD_ERROR if status is Status.RUN_ERROR else status
        return MeasureResult(status, error=answer["error"], build_seconds=reply.seconds)
    match failure(reply):
        case Status.RUN_TIMEOUT, error:
            return MeasureResult(
                Status.BUILD_TIMEOUT, error=f"building: {error}", build_seconds=reply.seconds
            )
        case (Status.OUT_OF_MEMORY | Status.OUTPUT_LIMIT) as status, error:
            return MeasureResult(status, error=f"building: {error}", build_seconds=reply.seconds)
        case _, error:
            return MeasureResult(
                Status.BUILD_ERROR, error=f"the compiler died: {error}", build_seconds=reply.seconds
            )


def failure(reply: Reply) -> tuple[Status, str]:
    """Status and full text for a request whose child did not survive."""
    text = (
        reply.detail if not reply.output.strip() else f"{reply.detail}\nIt printed:\n{reply.output.strip()}"
    )
    starved = any(sign in reply.output.lower() for sign in _NO_MEMORY)
    match reply.status:
        case children.Status.TIMEOUT:
            return Status.RUN_TIMEOUT, text
        case children.Status.OUTPUT_LIMIT:
            return Status.OUTPUT_LIMIT, text
        case _ if starved:
            return Status.OUT_OF_MEMORY, text
        case children.Status.CRASHED if "SIGKILL" in reply.detail:
            return Status.OUT_OF_MEMORY, text  # we did not kill it: the system was short of memory
        case children.Status.CRASHED if candidate_time_limit.SIGNAL in reply.detail:
            return Status.RUN_TIMEOUT, text
        case children.Status.CRASHED if "SIGABRT" in reply.detail:
            return Status.ABORTED, text
        case children.Status.CRASHED:
            return Status.CRASHED, text
        case _:
            return Status.RUN_ERROR, text
