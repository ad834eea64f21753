"""A child's own time: on a busy machine, limits do not count the time in which the child waits for a
processor.

    clock = OwnTime()
    clock.look(child.pid)      seconds since it began, less those for which the child waited for a processor

Linux counts how long each thread was ready to run but did not run (/proc/PID/task/TID/schedstat). A child and
its own children have many threads. Only the longest wait among them counts, because their sum could stop the
clock. So a child that computes for ever is found, too. If the system counts no waits, all time is the child's
own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

# index of the wait among schedstat's numbers: nanoseconds of running, nanoseconds of waiting, number of runs
_WAITED = 1


class OwnTime:
    """A clock; see the module's docstring."""

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock = proc, clock
        self._at, self._own = clock(), 0.0
        # seconds of waiting that are not yet subtracted, because the system reports a wait only when it ends
        self._queued = 0.0
        self._seen: dict[Path, int] = {}  # thread → nanoseconds of waiting at the last look

    def look(self, pid: int | None = None) -> float:
        """The child's own time now. pid: the running child; None if no child runs."""
        at = self._clock()
        passed, self._at = at - self._at, at
        waited = {} if pid is None else dict(self._threads(pid))
        self._queued += max((ns - self._seen.get(t, 0) for t, ns in waited.items()), default=0) * 1e-9
        self._seen = waited
        without = min(passed, self._queued)
        self._queued -= without
        self._own += passed - without
        return self._own

    def _threads(self, pid: int) -> Iterator[tuple[Path, int]]:
        """How long each thread of a process and of its children has waited, in nanoseconds."""
        for thread in (self._proc / str(pid) / "task").glob("*"):
            # the thread has ended, or this system has no such file
            with suppress(OSError, ValueError, IndexError):
                yield thread, int((thread / "schedstat").read_text().split()[_WAITED])
            with suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from self._threads(int(child))
