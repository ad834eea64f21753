"""Does jobs on all cores: this process takes them from the front of the list, children from the end.

    k0 k1 k2 …        … k17 k18        jobs whose results are cached are not in it
    └─▶ this process      child ◀─┘

Lowering is Python, which keeps one core busy for each process. A child takes about a second to start;
meanwhile this process compiles, and it does not wait for a child that has not begun. A job that fails in a
child is compiled again in this process, so that the error is the same with and without children.

In the background of a process that has other work (`aside`), only children compile. A thread that lowers
would hold up all other threads of its process, because Python runs one thread at a time.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from autotensor.base import log
from autotensor.base.errors import MeasureError
from autotensor.base.target import Target, usable_cores
from autotensor.compiler import compile_workload, made_of, recalled, tell_of
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import ObjectCache
from autotensor.runtime.files.packed_artifact import unpack
from autotensor.runtime.workers.children import Child, Status
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload

WORKER = "autotensor.compiling.compile_worker"
JOBS_EACH = 4  # least number of jobs for each process: a child starts in the time of three or four jobs
MOST_CHILDREN = 15  # each child takes 150 MB
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to compile: the arguments of `compile_workload`."""

    workload: Workload
    trace: Trace
    target: Target
    name: str
    overlapping: frozenset[str] = frozenset()

    def key(self) -> str:
        return made_of(self.workload, self.trace, self.target, self.name, self.overlapping)

    def compile(self, cache: ObjectCache) -> Artifact:
        began = time.perf_counter()
        made = compile_workload(self.workload, self.trace, self.target, self.name, cache, self.overlapping)
        return self.told(made, f"compiled in {time.perf_counter() - began:.2f} s")

    def told(self, made: Artifact, how: str) -> Artifact:
        """The artifact, which AUTOTENSOR_DEBUG shows."""
        return tell_of(made, self.workload.dag, self.trace, self.name, how)

    def request(self) -> str:
        """The request to a child; see compile_worker.py."""
        told = {
            "workload": self.workload.text,
            "trace": self.trace.to_json(),
            "target": self.target.to_json(),
            "name": self.name,
            "overlapping": sorted(self.overlapping),
        }
        return json.dumps(told)


def compile_jobs(jobs: Sequence[Job], cache: ObjectCache, aside: bool = False) -> list[Artifact]:
    """The artifacts of jobs, in order: from the cache, or compiled and kept there.

    aside: this process compiles only the jobs that children cannot compile.
    Raises as `compile_workload` does, for the first job that cannot be compiled.
    """
    keys = [job.key() for job in jobs]
    known = {n: found for n, key in enumerate(keys) if (found := recalled(key, cache)) is not None}
    made = {n: jobs[n].told(found, "from the cache") for n, found in known.items()}
    left = [n for n in range(len(jobs)) if n not in made]
    told = [n for n in left if keys[n]]  # a job without a key may depend on the user's code
    processes = min(usable_cores(), len(told) // JOBS_EACH)
    children = min(max(processes, bool(told)) if aside else processes - 1, MOST_CHILDREN)
    with _Helpers(jobs, keys, told, cache, children) as helpers:
        if aside:
            helpers.wait()
        for n in left:
            if n not in told or helpers.take(n):
                made[n] = jobs[n].compile(cache)
        made |= {n: jobs[n].told(found, "compiled by a child") for n, found in helpers.made().items()}
    return [made[n] if n in made else job.compile(cache) for n, job in enumerate(jobs)]


class _Helpers:
    """Children, each with a thread that hands it one job after another."""

    def __init__(
        self, jobs: Sequence[Job], keys: Sequence[str], told: Sequence[int], cache: ObjectCache, children: int
    ) -> None:
        """told: the indices of the jobs that children may take. children: the number of children to start."""
        self._jobs, self._keys, self._cache = jobs, keys, cache
        self._left = deque(told)
        self._busy = 0  # children that compile
        self._serving = max(children, 0)  # children that have not finished
        self._made: dict[int, Artifact] = {}
        self._changed = threading.Condition()  # guards `_left`, `_busy`, `_serving` and `_made`
        self._children = [Child(WORKER) for _ in range(children)]
        self._threads = [
            threading.Thread(target=self._serve, args=(c,), name="autotensor-compile", daemon=True)
            for c in self._children
        ]

    def __enter__(self) -> _Helpers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._left.clear()
        for child in self._children:
            child.stop()  # also ends a child that has not begun
        for thread in self._threads:
            thread.join()

    def take(self, n: int) -> bool:
        """Whether this process may compile job `n`. If so, no child takes that job any more."""
        with self._changed:
            free = n in self._left
            if free:
                self._left.remove(n)
            return free

    def wait(self) -> None:
        """Waits until children have taken all jobs, or no child is left that could take one."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._left and self._serving))

    def made(self) -> dict[int, Artifact]:
        """Waits until no child is at work, and gives the children's results. A job that is missing failed in
        its child."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
            return dict(self._made)

    def _serve(self, child: Child) -> None:
        try:
            child.start()
            while (n := self._next()) is not None:
                made = None
                try:
                    made = self._asked(child, n)
                finally:
                    self._give(n, made)
        except MeasureError as error:  # there is no process or no memory for another child
            reason = error.what
            log.at(1, lambda: f"compiling: {reason}; going on without")
        finally:
            child.kill()
            with self._changed:
                self._serving -= 1
                self._changed.notify()

    def _next(self) -> int | None:
        with self._changed:
            if not self._left:
                return None
            self._busy += 1
            return self._left.pop()

    def _give(self, n: int, artifact: Artifact | None) -> None:
        with self._changed:
            self._busy -= 1
            if artifact is not None:
                self._made[n] = artifact
            self._changed.notify()

    def _asked(self, child: Child, n: int) -> Artifact | None:
        reply = child.request(self._jobs[n].request(), TIMEOUT_S)
        packed = json.loads(reply.text)["packed"] if reply.status is Status.OK else None
        if packed is None:
            return None
        data = base64.b64decode(packed)
        self._cache.put(self._keys[n], data)
        return unpack(data)
