"""The batches between the proposers and the log, in the order in which they were proposed.

    proposed ──depart──▶ log: rounds and candidates ──▶ measurer ──▶ log: trials ──next──▶ tuner
              several in one transaction                  those that are there, in one transaction

Proposals and results pass one batch at a time, so the candidates of a run are the same whichever batches are
written or submitted together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from itertools import islice, takewhile

from autotensor.base.errors import MeasureError
from autotensor.search.journal import Journal, Proposed
from autotensor.search.measuring.measure_request import Measurer, MeasureResult
from autotensor.search.stopwatch import Stopwatch
from autotensor.search.underway.course import Course, Flight, Known

TOGETHER = 8  # batches in one transaction, at most
SHARE = 4  # one in so many batches in flight waits for others


class Flights:
    """Batches of different tasks."""

    def __init__(self, journal: Journal, measurer: Measurer, watch: Stopwatch, most: int) -> None:
        """most: batches in flight at once."""
        self._journal, self._measurer, self._watch = journal, measurer, watch
        self._together = max(1, min(TOGETHER, most // SHARE))
        self._queue: deque[Flight | Known] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def trials(self) -> int:
        return sum(f.size for f in self._queue)

    def flies(self, course: Course) -> bool:
        return any(f.course is course for f in self._queue)

    def ahead(self) -> list[Flight]:
        """The batches that the measurer has, or will have."""
        return [f for f in self._queue if isinstance(f, Flight)]

    def add(self, flight: Flight) -> None:
        self._queue.append(flight)

    def add_known(self, flights: Iterable[Known]) -> None:
        self._queue.extend(flights)

    def next(self) -> Flight | Known:
        """The oldest, when its results are there; a Flight whose `rows` are None could not be measured.

        Those of the next ones that are there already go into the log with it.
        """
        first = self._queue[0]
        if isinstance(first, Flight):
            if first.answer is None or not first.answer.done() or len(self._waiting()) >= self._together:
                self.depart()
            if first.rows is None and self._is_measured(first):
                self._write_down()
        return self._queue.popleft()

    def _is_measured(self, flight: Flight) -> bool:
        """Waits for its results, or their lack."""
        with self._watch("measure"):
            try:
                flight.results()
            except MeasureError:  # said by the one who takes it
                return False
            return True

    def _write_down(self) -> None:
        """Stores the trials of the first ones, as far as they are answered."""
        ahead = takewhile(lambda f: isinstance(f, Flight) and f.is_answered, self._queue)
        found = [f for f in islice(ahead, self._together) if isinstance(f, Flight)]
        with self._watch("log"):
            rows = self._journal.finish([f.batch for f in found], [f.results() for f in found])
        for flight, mine in zip(found, rows, strict=True):
            flight.rows = mine

    def depart(self) -> None:
        """Writes the batches that were proposed into the log, and submits them."""
        waiting = self._waiting()
        if not waiting:
            return
        with self._watch("log"):
            self._journal.begin([f.batch for f in waiting])
        with self._watch("measure"):
            for flight in waiting:
                flight.answer = self._submitted(flight.batch)

    def _waiting(self) -> list[Flight]:
        return [f for f in self.ahead() if f.answer is None]

    def _submitted(self, batch: Proposed) -> Future[list[MeasureResult]]:
        found = batch.candidates
        gated = [n for n, c in enumerate(found) if c.made_by != "default"]  # something must run
        try:
            return self._measurer.submit(batch.task.workload, [c.trace for c in found], gated=gated)
        except MeasureError as error:
            answer: Future[list[MeasureResult]] = Future()
            answer.set_exception(error)
            return answer

    def cancel(self) -> None:
        """Removes the batches that are not being measured yet."""
        for flight in self.ahead():
            if flight.answer is None or flight.answer.cancel():
                self._queue.remove(flight)
                if flight.answer is not None:
                    self._journal.forget(flight.batch.candidates)


__all__ = ["Flights"]
