"""The batches between the proposers and the log, in the order of their proposal.

    proposed ──depart──▶ log: rounds and candidates ──▶ measurer ──▶ log: trials ──next──▶ tuner
              several in one transaction                  those that are ready, in one transaction

Proposals and results pass one batch at a time. So the candidates of a run are the same, whichever batches are
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

TOGETHER = 8  # most batches in one transaction
SHARE = 4  # one of this many batches in flight waits for others


class Flights:
    """Batches of different tasks."""

    def __init__(self, journal: Journal, measurer: Measurer, watch: Stopwatch, most: int) -> None:
        """most: the number of batches that may be in flight at once."""
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
        """The batches that the measurer has now, or will get."""
        return [f for f in self._queue if isinstance(f, Flight)]

    def add(self, flight: Flight) -> None:
        self._queue.append(flight)

    def add_known(self, flights: Iterable[Known]) -> None:
        self._queue.extend(flights)

    def next(self) -> Flight | Known:
        """Waits for the oldest batch and returns it. A Flight whose `rows` are None could not be measured.

        If the next batches have results already, these are written to the log together with it.
        """
        first = self._queue[0]
        if isinstance(first, Flight):
            if first.answer is None or not first.answer.done() or len(self._waiting()) >= self._together:
                self.depart()
            if first.rows is None and self._is_measured(first):
                self._write_down()
        return self._queue.popleft()

    def _is_measured(self, flight: Flight) -> bool:
        """Waits for the batch's results. Returns whether there are any."""
        with self._watch("measure"):
            try:
                flight.results()
            except MeasureError:  # the caller reports the error
                return False
            return True

    def _write_down(self) -> None:
        """Stores the trials of the first batches, as far as these have results."""
        ahead = takewhile(lambda f: isinstance(f, Flight) and f.is_answered, self._queue)
        found = [f for f in islice(ahead, self._together) if isinstance(f, Flight)]
        with self._watch("log"):
            rows = self._journal.finish([f.batch for f in found], [f.results() for f in found])
        for flight, mine in zip(found, rows, strict=True):
            flight.rows = mine

    def depart(self) -> None:
        """Writes the proposed batches to the log, and submits them."""
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
        gated = [n for n, c in enumerate(found) if c.made_by != "default"]  # at least the default must run
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
