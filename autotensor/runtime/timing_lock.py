"""A lock that all processes of this machine share. While one process times, no other times or compiles.

    with timing_lock():          waits until no other process times or compiles candidates
        with timing_lock(): …    the same thread may take it again
    with compiling():            waits until no other process times; any number may compile together
    with timing_lock(beside=True), compiling(spare=True)     both at once, on different cores
    with timing_by(deadline) as alone: …        continues without the lock if the deadline comes first

`search/measuring/timing_turns.py` limits the total waiting time of a whole run.

The lock is the system kernel's (`flock`), so it vanishes with its process, however that ends. A process that
waits for timing holds a second lock meanwhile. Compilers must pass this second lock, so timing gets its turn,
however many processes compile.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from autotensor.base.deadline import Deadline
from autotensor.base.errors import MeasureError

_POLL_SECONDS = 0.02
# longest wait for one turn: no timing takes so long, but a process that holds the lock may be stopped
MOST_WAIT_S = 300.0


class BusyError(MeasureError):
    """Another process kept the lock for as long as this one could wait."""


class NoFolderError(MeasureError):
    """There is no folder for temporary files."""


class MachineLock:
    """A lock between threads and processes, named by a file; re-entrant within a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.RLock()  # between threads of this process; it also counts nested uses
        self._depth = 0
        self._owner: int | None = None  # the thread that holds the lock
        self._file: int | None = None

    def acquire(self, timeout_s: float | None = None) -> None:
        """Waits for the lock. After `timeout_s`, raises BusyError with the holder. None waits for ever."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._threads.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise self._busy(timeout_s)
        try:
            if self._depth == 0:
                with ExitStack() as turn:
                    turn.callback(os.close, self._take(self._turn, deadline, timeout_s))
                    self._file = self._take(self.path, deadline, timeout_s)
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
                self._owner = threading.get_ident()
            self._depth += 1
        except BaseException:
            self._threads.release()
            raise

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            os.ftruncate(self._file, 0)  # processes that share the lock do not write their names
            os.close(self._file)  # releases the kernel's lock
            self._file = self._owner = None
        self._threads.release()

    @contextmanager
    def shared(self, timeout_s: float | None = None) -> Iterator[None]:
        """Inside the block, no other thread owns the lock. Others may share it, and this one may own it."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if self._owner == threading.get_ident():
            yield
            return
        with ExitStack() as held:
            with ExitStack() as turn:
                turn.callback(os.close, self._take(self._turn, deadline, timeout_s, shared=True))
                held.callback(os.close, self._take(self.path, deadline, timeout_s, shared=True))
            yield

    @contextmanager
    def __call__(self, timeout_s: float | None = None) -> Iterator[None]:
        self.acquire(timeout_s)
        try:
            yield
        finally:
            self.release()

    def holder(self) -> str:
        """Id of the process that holds the lock, as text; empty if none does, or several share it."""
        try:
            return self.path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def _turn(self) -> Path:
        return self.path.with_suffix(".turn")

    def _take(self, path: Path, deadline: float | None, timeout_s: float | None, shared: bool = False) -> int:
        """A file whose kernel lock this process now holds."""
        import fcntl  # only on POSIX, like everything that times here

        # A link is not followed, because TMPDIR may name a folder that several users share.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            file = os.open(path, flags, 0o600)
        except OSError as error:
            raise MeasureError(f"the timing lock {path} cannot be opened: {error.strerror}.") from error
        try:
            while True:
                try:
                    # A blocking call would be fairer, but cannot be given up after the timeout.
                    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                    fcntl.flock(file, kind | (0 if deadline is None else fcntl.LOCK_NB))
                    break
                except BlockingIOError:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise self._busy(timeout_s) from None
                    time.sleep(_POLL_SECONDS)
        except BaseException:
            os.close(file)
            raise
        return file

    def _busy(self, timeout_s: float | None) -> BusyError:
        holder = self.holder()
        by = f" by process {holder}" if holder else ""
        return BusyError(f"the timing lock {self.path} is held{by}; gave up after {timeout_s:g} s.")


@contextmanager
def timing_lock(timeout_s: float | None = None, beside: bool = False) -> Iterator[None]:
    """Holds the machine's timing lock inside the block. beside: some cores are not used for timing, and
    processes may compile on these."""
    began, folder = time.monotonic(), private_folder()
    with _machine_lock(folder, "timing.lock")(timeout_s):
        if beside:
            yield
            return
        left_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began))
        with _machine_lock(folder, "spare.lock")(left_s):
            yield


@contextmanager
def timing_by(deadline: Deadline) -> Iterator[bool]:
    """Waits for the timing lock until the deadline, but at most MOST_WAIT_S. Yields whether the lock is held.

    Rough times are better than none, so timing continues without the lock. This is also done if there is no
    temporary folder that the lock could be in.
    """
    with ExitStack() as turn:
        held = True
        try:
            turn.enter_context(timing_lock(min(MOST_WAIT_S, max(0.0, deadline.left_s()))))
        except (BusyError, NoFolderError):
            held = False
        yield held


@contextmanager
def compiling(timeout_s: float | None = None, spare: bool = False) -> Iterator[None]:
    """Inside the block no other process of this user times anything. spare: other processes may time, but on
    other cores than those that compile. Raises BusyError after `timeout_s`."""
    with _machine_lock(private_folder(), "spare.lock" if spare else "timing.lock").shared(timeout_s):
        yield


@cache
def _machine_lock(folder: Path, name: str) -> MachineLock:
    return MachineLock(folder / name)


def private_folder() -> Path:
    """The user's own folder in the folder for temporary files, with mode 0700, created if need be.

    Raises NoFolderError if the folder cannot be made, MeasureError if another user owns a folder of that
    name.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        path = Path(tempfile.gettempdir()) / f"autotensor-{user}"
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
    except OSError as error:  # also tempfile's own error: none of the usual folders can be written to
        raise NoFolderError(
            "there is no folder for temporary files that can be written.", fix="Set TMPDIR to one."
        ) from error
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != user):
        raise MeasureError(f"{path} belongs to somebody else.", fix="Set TMPDIR to a folder of your own.")
    return path
