"""Time that a child had for itself: on a busy machine a limit counts no second that was spent in a queue.

    clock = OwnTime()
    clock.look(child.pid)      seconds since it began, less those for which the child waited for a processor

The kernel says of each thread how long it was ready to run and did not (/proc/PID/task/TID/schedstat). Of all
threads of a child and of its children the one that waited longest counts, so that many of them do not stop
the clock: something that hangs and computes is found, too. Where nobody says, all time counts.
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
