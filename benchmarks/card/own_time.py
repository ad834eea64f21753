"""Time that a child had for itself: on a busy machine a limit counts no second that was spent in a queue.

    clock = OwnTime()
    clock.look(child.pid)      seconds since it began, less those for which the child waited for a processor

Linux counts how long each thread was ready to run and did not (/proc/PID/task/TID/schedstat). A child has
many threads, and its children too; the longest wait among them counts, so that their sum does not stop the
clock. A child that hangs while it computes is found as well. Where the kernel counts nothing, all time is a
child's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_WAITED = 1  # of schedstat's numbers: nanoseconds of running, of waiting, times that it ran


class OwnTime:
    """A clock; see the module's docstring."""

    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._clock = proc, clock
        self._at, self._own = clock(), 0.0
        self._queued = 0.0  # seconds of waiting that are not subtracted yet: they are told when they end
        self._seen: dict[Path, int] = {}  # by thread

    def look(self, pid: int | None = None) -> float:
        """Its time now. pid: the child at work; None for none."""
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
            with suppress(OSError, ValueError, IndexError):  # it has ended, or this system does not say
                yield thread, int((thread / "schedstat").read_text().split()[_WAITED])
            with suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from self._threads(int(child))
