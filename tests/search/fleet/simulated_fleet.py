"""A fleet of threads without dask: workers may be killed, give a wrong class, or slow down."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from fakes import TARGET, chance

from autotensor.base.machine import HostMachine
from autotensor.schedule.trace import Trace
from autotensor.search.fleet.engine import WorkerLost, own_tag
from autotensor.search.fleet.machine_class import MachineClass
from autotensor.search.fleet.on_worker import SENTINEL_EVERY, Answer, Batch
from autotensor.search.measuring.measure_request import MeasureResult, Who
from autotensor.search.measuring.provenance import CodeHere, HostHere
from tuning_db.records import Status

CODE = CodeHere("0.2", "abc", False, "123")
DEATHS_ALLOWED = 3  # of a batch's workers, as dask has it


def class_of(processor: str = "simulated", code: CodeHere = CODE) -> MachineClass:
    return MachineClass(HostMachine(processor, ("avx2",), 2, (32 << 10, 1 << 20)), TARGET, code.key)


@dataclass
class Worker:
    name: str
    is_of: MachineClass
    offers: set[str]
    speed: float = 1.0  # factor on all times, in addition to its class's
    batches: int = 0


@dataclass
class Job:
    batch: Any
    tag: str
    answer: Future[tuple[str, Any]]
    deaths: int = 0


def times(batch: Batch, worker: Worker) -> tuple[MeasureResult, ...]:
    """Seconds that depend on the trace's hash."""
    found = []
    for text in batch.traces:
        seconds = worker.speed * 1e-4 * (1.0 + chance(Trace.from_json(text).hash))
        found.append(
            MeasureResult(Status.OK, (seconds,) * (batch.repeat or 3), 0.01, max_error=0.0, tolerance=1e-5)
        )
    return tuple(found)


class SimulatedEngine:
    """The part of dask that the fleet uses: tags, one batch at a time on a worker, and lost batches go to
    other workers."""

    def __init__(
        self,
        workers: list[Worker],
        batch_s: float = 0.0,
        kills: int = 0,
        kill_every: int = 3,
        takes: float = math.inf,
        at_once: int = 1,
    ) -> None:
        """kills: the number of workers that die with a batch half done, one after every `kill_every` batches.

        takes: a worker leaves a batch with which it would have taken more than this number of traces.
        at_once: batches are measured when this number of workers have one.
        """
        self.all, self.batch_s = {w.name: w for w in workers}, batch_s
        self.kills, self.kill_every, self.deaths, self._taken = kills, kill_every, 0, 0
        self._left, self._at_once = takes, threading.Barrier(at_once)
        self.done: list[tuple[str, Batch]] = []  # worker and batch of each answer
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._over = False
        self._threads = [threading.Thread(target=self._work, args=(w,), daemon=True) for w in workers]
        for t in self._threads:
            t.start()

    def submit(self, function: Any, *args: Any, tag: str) -> Future[tuple[str, Any]]:
        job = Job(args[0], tag, Future())
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
        return job.answer

    def workers(self) -> Mapping[str, frozenset[str]]:
        return {w.name: frozenset(w.offers) for w in self.all.values()}

    def described(self) -> Mapping[str, tuple[MachineClass, Who]]:
        return {w.name: (w.is_of, who(w)) for w in self.all.values()}

    def withdraw(self, worker: str, tag: str) -> None:
        with self._changed:
            self.all[worker].offers.discard(tag)

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for t in self._threads:
            t.join()

    def _work(self, worker: Worker) -> None:
        while (job := self._next(worker)) is not None:
            if self._is_fatal():
                time.sleep(self.batch_s / 2)
                self._died(job)
                continue
            self._at_once.wait(30)
            time.sleep(self.batch_s)
            due = worker.batches % SENTINEL_EVERY == 0
            worker.batches += 1
            results = times(job.batch, worker)
            sentinel = 1e-3 * worker.speed if due else None
            self.done.append((worker.name, job.batch))
            said = Answer(worker.is_of.tag, who(worker), results, sentinel_s=sentinel)
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result((worker.name, said))

    def _next(self, worker: Worker) -> Job | None:
        with self._changed:
            while not self._over:
                found = next((j for j in self._jobs if j.tag in worker.offers), None)
                if found is not None and len(found.batch.traces) <= self._left:
                    self._jobs.remove(found)
                    self._left -= len(found.batch.traces)
                    return found
                self._changed.wait(0.2)
        return None

    def _is_fatal(self) -> bool:
        with self._changed:
            self._taken += 1
            fatal = self.deaths < self.kills and self._taken % self.kill_every == 0
            self.deaths += fatal
        return fatal

    def _died(self, job: Job) -> None:
        job.deaths += 1
        if job.deaths > DEATHS_ALLOWED:
            job.answer.set_exception(WorkerLost(f"{job.deaths} workers died"))
            return
        with self._changed:
            self._jobs.appendleft(job)
            self._changed.notify_all()


def who(worker: Worker) -> Who:
    return Who(HostHere(f"{worker.name:0>32}", worker.name), CODE)


def crew(count: int, of: MachineClass | None = None, prefix: str = "w") -> list[Worker]:
    """Workers of one class, as `autotensor fleet worker` starts them."""
    own = of or class_of()
    names = [f"{prefix}{n}" for n in range(count)]
    return [Worker(name, own, {own.tag, own_tag(name)}) for name in names]


def mistagged(worker: Worker, is_of: MachineClass) -> Worker:
    """It offers the tag of one class and belongs to another."""
    return replace(worker, is_of=is_of)
