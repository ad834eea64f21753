"""One timing at a time on this machine: a lock that all processes of the user share.

    with timing_lock():          waits until no other process times anything
        with timing_lock(): …    the same thread may take it again

The lock is the kernel's (`flock`): it vanishes with its process, whatever kills that.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from autotensor.base.errors import MeasureError

_POLL_SECONDS = 0.02


class MachineLock:
    """A lock between threads and processes, named by a file; re-entrant within a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.RLock()  # between threads of this process; counts re-entrance
        self._depth = 0
        self._file: int | None = None

    def acquire(self, timeout_s: float | None = None) -> None:
        """Wait for the lock. Raises MeasureError naming the holder after `timeout_s`; None waits for ever."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._threads.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise self._busy(timeout_s)
        try:
            if self._depth == 0:
                self._file = self._take(deadline, timeout_s)
            self._depth += 1
        except BaseException:
            self._threads.release()
            raise

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            os.close(self._file)  # gives the kernel's lock back
            self._file = None
        self._threads.release()

    @contextmanager
    def __call__(self, timeout_s: float | None = None) -> Iterator[None]:
        self.acquire(timeout_s)
        try:
            yield
        finally:
            self.release()

    def holder(self) -> str:
        """Process id that took the lock last, as text; empty when unknown."""
        try:
            return self.path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _take(self, deadline: float | None, timeout_s: float | None) -> int:
        import fcntl  # POSIX only, like everything that times here

        # Not followed if it is a link: the folder may be shared by users when TMPDIR says so.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            file = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise MeasureError(f"the timing lock {self.path} cannot be opened: {error.strerror}.") from error
        try:
            while True:
                try:
                    # Blocking would be fairer, but cannot be given up in time.
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if deadline is None else fcntl.LOCK_NB))
                    break
                except BlockingIOError:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise self._busy(timeout_s) from None
                    time.sleep(_POLL_SECONDS)
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(file)
            raise
        return file

    def _busy(self, timeout_s: float | None) -> MeasureError:
        holder = self.holder()
        by = f" by process {holder}" if holder else ""
        return MeasureError(f"the timing lock {self.path} is held{by}; gave up after {timeout_s:g} s.")


@contextmanager
def timing_lock(timeout_s: float | None = None) -> Iterator[None]:
    """Hold the machine's timing lock inside the block."""
    with _machine_lock(private_folder())(timeout_s):
        yield


@cache
def _machine_lock(folder: Path) -> MachineLock:
    return MachineLock(folder / "timing.lock")


def private_folder() -> Path:
    """The user's own folder among the temporary files, mode 0700, created if need be.

    Raises MeasureError if somebody else owns a folder of that name.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    path = Path(tempfile.gettempdir()) / f"autotensor-{user}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != user):
        raise MeasureError(f"{path} belongs to somebody else.", fix="Set TMPDIR to a folder of your own.")
    return path
