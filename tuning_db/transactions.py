"""Transactions of one log. Errors become `StoreError`.

If a server is busy or away, a transaction is tried again (see outage.py).

self._read(lambda c: …)     self._write(…)     self._mark(…): a write that a power cut may undo
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import finalize

from sqlalchemy import Connection, Engine

from tuning_db.engine import IN_MEMORY
from tuning_db.errors import StoreError, closed
from tuning_db.keys import Keys
from tuning_db.outage import Outage, Patience, is_away
from tuning_db.schema import open_log
from tuning_db.sentences import FOREIGN_ERRORS, explain, is_busy

T = TypeVar("T")
ATTEMPTS = 3  # tries of a transaction after a lock or a deadlock; each waits for the busy timeout


class Transactions:
    """One open log, with the methods that its verbs use. Threads may share it."""

    def __init__(self, url_or_path: str | os.PathLike[str], readonly: bool = False) -> None:
        self._opened = open_log(url_or_path, readonly)
        self.place = self._opened.place
        self._keys = Keys(self.place)
        self._closed = False
        self._outage = Outage()
        self._pid = os.getpid()
        finalize(self, _forget, self._opened.read, self._pid)  # a log may be dropped without being closed

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, self._opened.read)

    def _write(self, work: Callable[[Connection], T]) -> T:
        return self._run(work, self._opened.write)

    def _mark(self, work: Callable[[Connection], T]) -> T:
        """A write that a power cut may undo. It is for records of running work, which a power cut ends
        anyway."""
        return self._run(work, self._opened.mark)

    def _run(self, work: Callable[[Connection], T], engine: Engine) -> T:
        if self._closed:
            raise closed(self.place)
        if os.getpid() != self._pid and self.place not in IN_MEMORY:  # forked: the parent's connections
            engine.dispose(close=False)
            self._pid = os.getpid()
        writing = engine is not self._opened.read
        attempt, patience = 1, Patience(self.place)
        while True:
            began = time.monotonic()
            try:
                with engine.begin() as connection:
                    found = work(connection)
                self._outage.end(began)
                return found
            except BaseException as error:
                if writing:
                    self._keys = Keys(self.place)  # the remembered ids may have been rolled back
                if isinstance(error, StoreError) or not isinstance(error, FOREIGN_ERRORS):
                    raise
                if not self._opened.is_sqlite and is_away(error):
                    if patience.wait(error, tell=self._outage.notice()):
                        continue
                elif is_busy(error) and attempt < ATTEMPTS:
                    attempt += 1
                    continue
                raise explain(error, self.place, writing) from error

    def _all(self, make: Callable[..., T], q: Any) -> tuple[T, ...]:
        """The record of each row of a query."""
        return self._read(lambda c: tuple(make(*row) for row in c.execute(q)))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._opened.read.dispose()


def _forget(engine: Engine, pid: int) -> None:
    """Closes the connections of a log, except those that a forked child has from its parent."""
    if os.getpid() == pid:
        engine.dispose()
