"""A fleet of threads: workers that are killed, lie about their class, or slow down; without dask."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
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
    speed: float = 1.0  # times of everything, beside its class
    batches: int = 0
    deaths: int = 0
    dying: threading.Event = field(default_factory=threading.Event)


@dataclass
class Job:
    batch: Any
    tag: str
    answer: Future[tuple[str, Any]]
    deaths: int = 0


def times(batch: Batch, worker: Worker) -> tuple[MeasureResult, ...]:
    """As many seconds as the trace's hash says."""
    found = []
    for text in batch.traces:
        seconds = worker.speed * 1e-4 * (1.0 + chance(Trace.from_json(text).hash))
        found.append(
            MeasureResult(Status.OK, (seconds,) * (batch.repeat or 3), 0.01, max_error=0.0, tolerance=1e-5)
        )
    return tuple(found)


class SimulatedEngine:
    """Dask as the fleet sees it: tags, one batch at a time on a worker, lost ones go elsewhere."""

    def __init__(
        self,
        workers: list[Worker],
        batch_s: float = 0.0,
        answer: Callable[[Batch, Worker], tuple[MeasureResult, ...]] = times,
    ) -> None:
        self.all, self.batch_s, self.answer = {w.name: w for w in workers}, batch_s, answer
        self.done: list[tuple[str, Batch]] = []  # what was answered, by whom
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

    def kill(self, name: str) -> None:
        """What it works on is lost; it comes back at once."""
        self.all[name].dying.set()

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        for t in self._threads:
            t.join()

    def _work(self, worker: Worker) -> None:
        while (job := self._next(worker)) is not None:
            killed = worker.dying.wait(self.batch_s) if self.batch_s else worker.dying.is_set()
            if killed:
                self._died(worker, job)
                continue
            due = worker.batches % SENTINEL_EVERY == 0
            worker.batches += 1
            results = self.answer(job.batch, worker)
            sentinel = 1e-3 * worker.speed if due else None
            self.done.append((worker.name, job.batch))
            said = Answer(worker.is_of.tag, who(worker), results, sentinel_s=sentinel)
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result((worker.name, said))

    def _next(self, worker: Worker) -> Job | None:
        with self._changed:
            while not self._over:
                found = next((j for j in self._jobs if j.tag in worker.offers), None)
                if found is not None:
                    self._jobs.remove(found)
                    return found
                self._changed.wait(0.2)
        return None

    def _died(self, worker: Worker, job: Job) -> None:
        worker.dying.clear()
        worker.deaths += 1
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
    """It offers one class and is of another."""
    return replace(worker, is_of=is_of, dying=threading.Event())


class Killer:
    """Kills workers in turn, so many times, while a run goes on."""

    def __init__(self, engine: SimulatedEngine, times: int) -> None:
        self.engine, self.left = engine, times
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self._thread.start()

    def _kill(self) -> None:
        names = list(self.engine.all)
        while self.left and not self._over.wait(2.5 * self.engine.batch_s / len(names)):
            self.engine.kill(names[self.left % len(names)])
            self.left -= 1

    def stop(self) -> int:
        """How many workers lost a batch."""
        self._over.set()
        self._thread.join()
        return sum(w.deaths for w in self.engine.all.values())
