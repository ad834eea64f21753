"""The Measurer of one class of machines: a batch goes to any free worker of the class.

    submit ──Batch──▶ engine ──▶ a worker of the class ──Answer──▶ of the class, and healthy? ──▶ results
               ▲                                                        │
               └────── its workers were killed, of another class, or not as fast as the class ◀──────┘

A batch is measured on one worker, because its times are compared. Its answer is passed on at most once.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from time import monotonic

from autotensor.base import log
from autotensor.base.errors import MeasureError
from autotensor.base.target import Target
from autotensor.schedule.trace import Trace
from autotensor.search.fleet.engine import Engine, WorkerLost, own_tag
from autotensor.search.fleet.health import Health
from autotensor.search.fleet.machine_class import MachineClass
from autotensor.search.fleet.on_worker import Answer, Batch, measure
from autotensor.search.measuring.measure_request import MeasureOptions, MeasureResult, OutOfTime
from autotensor.te.workload import Workload

BATCH = 8  # traces in a batch
# a batch is sent at most this many times, if its workers were killed, of another class, or not healthy
MOST_SENDS = 10
PATIENCE_S = 120.0  # seconds that a batch waits while no worker could take it
LOOK_EVERY_S = 2.0


@dataclass(slots=True, eq=False)
class _Asked:
    """A batch without an answer."""

    batch: Batch
    tag: str
    answer: Future[list[MeasureResult]]
    sends: int = 0
    alone_since: float | None = None  # time.monotonic since which no worker has offered the tag
    sent: Future[tuple[str, Answer]] | None = None


class FleetMeasurer:
    """Measures for one target on the workers of one class. The engine is not closed."""

    def __init__(
        self,
        engine: Engine,
        machine_class: MachineClass,
        target: Target,
        options: MeasureOptions,
        *,
        modules: Sequence[str] = (),
        batch: int = BATCH,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """modules: the workers' children import these first. batch: number of traces for one worker; more
        traces are divided.

        Each worker has two batches: one waits while the other runs.
        """
        self.engine, self.machine_class, self.health = engine, machine_class, Health()
        self.workers = max(1, len(self._members(machine_class.tag)))
        self.in_flight = 2 * self.workers
        self._size = batch
        self._target, self._options, self._modules = target.to_json(), options, tuple(modules)
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._open: set[_Asked] = set()
        self._raced_by: dict[str, str] = {}  # workload → worker of the workload's latest race
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look_after, name="autotensor fleet", daemon=True)
        self._watch.start()

    def submit(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> Future[list[MeasureResult]]:
        """Submits the traces. A race (with a `repeat`) is never divided."""
        size = len(traces) if repeat is not None else self._size
        parts = [
            self._batch(
                workload, traces[at : at + size], repeat, [n - at for n in gated if at <= n < at + size]
            )
            for at in range(0, len(traces), size)
        ]
        return joined([self._ask(part, self.machine_class.tag) for part in parts])

    def elsewhere(
        self, workload: Workload, traces: Sequence[Trace], repeat: int
    ) -> Future[list[MeasureResult]] | None:
        """Repeats the latest race of a workload on another worker of the class; None if there is none."""
        first = self._raced_by.get(workload.key)
        others = [w for w in self._members(self.machine_class.tag) if w != first]
        if first is None or not others:
            return None
        return self._ask(self._batch(workload, traces, repeat, ()), own_tag(min(others)))

    def close(self) -> None:
        """Cancels the batches without an answer."""
        self._over.set()
        self._watch.join()
        for asked in list(self._open):
            asked.answer.cancel()

    def _batch(
        self, workload: Workload, traces: Sequence[Trace], repeat: int | None, gated: Collection[int]
    ) -> Batch:
        texts = tuple(t.to_json() for t in traces)
        return Batch(
            workload.text,
            workload.name,
            texts,
            self._target,
            self._options,
            self._modules,
            repeat,
            tuple(gated),
        )

    def _ask(self, batch: Batch, tag: str) -> Future[list[MeasureResult]]:
        asked = _Asked(batch, tag, Future())
        with self._lock:
            self._open.add(asked)
        asked.answer.add_done_callback(lambda _: self._done(asked))
        self._send(asked)
        return asked.answer

    def _send(self, asked: _Asked) -> None:
        asked.sends += 1
        asked.sent = self.engine.submit(measure, asked.batch, tag=asked.tag)
        asked.sent.add_done_callback(lambda sent: self._came(asked, sent))

    def _done(self, asked: _Asked) -> None:
        with self._lock:
            self._open.discard(asked)
        if asked.answer.cancelled() and asked.sent is not None:
            asked.sent.cancel()

    def _came(self, asked: _Asked, sent: Future[tuple[str, Answer]]) -> None:
        """Takes a worker's answer, or its failure."""
        if asked.answer.done() or sent.cancelled():
            return
        error = sent.exception()
        if isinstance(error, WorkerLost):
            return self._again(asked, error.what)
        if error is not None:
            return self._fail(asked, error if isinstance(error, MeasureError) else MeasureError(str(error)))
        worker, answer = sent.result()
        if why := self._refused(worker, answer):
            log.warn(f"worker {worker} on {answer.who.host.name} {why}; it gets no more work.")
            self.engine.withdraw(worker, self.machine_class.tag)
            return self._again(asked, why)
        if answer.error:
            return self._fail(asked, (OutOfTime if answer.late else MeasureError)(answer.error))
        if asked.batch.repeat is not None:
            self._raced_by[Workload.from_text(asked.batch.workload, asked.batch.name).key] = worker
        with suppress(InvalidStateError):  # cancelled meanwhile
            asked.answer.set_result([replace(r, who=answer.who) for r in answer.results])

    def _refused(self, worker: str, answer: Answer) -> str:
        """The reason to refuse an answer: the worker is of another class or not healthy. "" if it is good."""
        if answer.tag != self.machine_class.tag:
            return f"is of class {answer.tag}, not of {self.machine_class.tag} as it says"
        if answer.sentinel_s is None:
            return ""
        with self._lock:
            off = self.health.hear(worker, answer.sentinel_s)
        return "" if off is None else f"is {abs(off):.1%} {'slower' if off > 0 else 'faster'} than its class"

    def _again(self, asked: _Asked, why: str) -> None:
        if asked.sends >= MOST_SENDS:
            return self._fail(asked, MeasureError(f"a batch was sent {asked.sends} times; the last: {why}"))
        self._send(asked)

    def _fail(self, asked: _Asked, error: MeasureError) -> None:
        with suppress(InvalidStateError):
            asked.answer.set_exception(error)

    def _members(self, tag: str) -> list[str]:
        return [w for w, tags in self.engine.workers().items() if tag in tags]

    def _look_after(self) -> None:
        """Gives up the batches that no worker has been able to take for too long."""
        while not self._over.wait(LOOK_EVERY_S):
            with self._lock:
                waiting = list(self._open)
            offered = frozenset[str]().union(*self.engine.workers().values())
            for asked in waiting:
                if asked.tag in offered:
                    asked.alone_since = None
                    continue
                asked.alone_since = asked.alone_since or monotonic()
                if monotonic() - asked.alone_since > self._patience_s and asked.sent is not None:
                    asked.sent.cancel()
                    left = f"no worker has offered {asked.tag} for {self._patience_s:.0f} s"
                    self._fail(asked, MeasureError(left))


def joined(parts: Sequence[Future[list[MeasureResult]]]) -> Future[list[MeasureResult]]:
    """The results of all parts, in order, or the first error. Cancelling this future cancels the parts."""
    if len(parts) == 1:
        return parts[0]
    whole: Future[list[MeasureResult]] = Future()
    left = count(len(parts) - 1, -1)

    def came(_: object) -> None:
        if next(left):
            return
        with suppress(InvalidStateError):  # cancelled meanwhile
            errors = [e for p in parts if not p.cancelled() and (e := p.exception()) is not None]
            if errors:
                whole.set_exception(errors[0])
            elif any(p.cancelled() for p in parts):
                whole.cancel()
            else:
                whole.set_result([r for p in parts for r in p.result()])

    def give_up(_: object) -> None:
        if whole.cancelled():
            for part in parts:
                part.cancel()

    for part in parts:
        part.add_done_callback(came)
    whole.add_done_callback(give_up)
    return whole


__all__ = ["FleetMeasurer", "joined"]
