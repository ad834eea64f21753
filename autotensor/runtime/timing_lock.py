"""One timing at a time on this machine, and no compiling meanwhile: a lock that all processes share.

    with timing_lock():          waits until no other process times or compiles candidates
        with timing_lock(): …    the same thread may take it again
    with compiling():            waits until no other process times anything; any number compile together
    with timing_lock(beside=True), compiling(spare=True)     the two together: on cores that are not timed on
    with timing_by(deadline) as alone: …        who must be done by then goes on without the lock

A whole run limits its waits in total: `search/measuring/timing_turns.py`.

The lock is the kernel's (`flock`): it vanishes with its process, whatever kills that. Whoever waits to time
holds a second lock meanwhile, which compilers pass through: however many they are, timing gets its turn.
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
MOST_WAIT_S = 300.0  # longest wait for one turn: no timing takes so long, but its process may be stopped


class BusyError(MeasureError):
    """Somebody else kept the lock for as long as we could wait."""


class NoFolderError(MeasureError):
    """There is no folder for temporary files."""


class MachineLock:
    """A lock between threads and processes, named by a file; re-entrant within a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.RLock()  # between threads of this process; counts re-entrance
        self._depth = 0
        self._owner: int | None = None  # the thread that has it
        self._file: int | None = None

    def acquire(self, timeout_s: float | None = None) -> None:
        """Wait for the lock. Raises BusyError naming the holder after `timeout_s`; None waits for ever."""
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
            os.ftruncate(self._file, 0)  # those who share it have no name
            os.close(self._file)  # gives the kernel's lock back
            self._file = self._owner = None
        self._threads.release()

    @contextmanager
    def shared(self, timeout_s: float | None = None) -> Iterator[None]:
        """Inside the block no other thread owns the lock, though others may share it; this one may own it."""
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
        """Process id that has the lock, as text; empty when none has, or several share it."""
        try:
            return self.path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    @property
    def _turn(self) -> Path:
        return self.path.with_suffix(".turn")

    def _take(self, path: Path, deadline: float | None, timeout_s: float | None, shared: bool = False) -> int:
        """A file of which we hold the kernel's lock."""
        import fcntl  # POSIX only, like everything that times here

        # Not followed if it is a link: the folder may be shared by users when TMPDIR says so.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        try:
            file = os.open(path, flags, 0o600)
        except OSError as error:
            raise MeasureError(f"the timing lock {path} cannot be opened: {error.strerror}.") from error
        try:
            while True:
                try:
                    # Blocking would be fairer, but cannot be given up in time.
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
    """Hold the machine's timing lock inside the block. beside: not all cores are timed on, and
    processes may compile on spare ones."""
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
    """Waits for the timing lock until the deadline, MOST_WAIT_S at most; gives whether it is held.

    Rough times are better than none: also where the lock can be nowhere, for want of a temporary folder."""
    with ExitStack() as turn:
        held = True
        try:
            turn.enter_context(timing_lock(min(MOST_WAIT_S, max(0.0, deadline.left_s()))))
        except (BusyError, NoFolderError):
            held = False
        yield held


@contextmanager
def compiling(timeout_s: float | None = None, spare: bool = False) -> Iterator[None]:
    """Inside the block no other process of this user times anything; spare: it may, on other cores than
    those that compile. Raises BusyError after `timeout_s`."""
    with _machine_lock(private_folder(), "spare.lock" if spare else "timing.lock").shared(timeout_s):
        yield


@cache
def _machine_lock(folder: Path, name: str) -> MachineLock:
    return MachineLock(folder / name)


def private_folder() -> Path:
    """The user's own folder among the temporary files, mode 0700, created if need be.

    Raises NoFolderError if it cannot be made, MeasureError if somebody else owns a folder of that name.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        path = Path(tempfile.gettempdir()) / f"autotensor-{user}"
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
    except OSError as error:  # tempfile's, too: none of the usual places can be written
        raise NoFolderError(
            "there is no folder for temporary files that can be written.", fix="Set TMPDIR to one."
        ) from error
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != user):
        raise MeasureError(f"{path} belongs to somebody else.", fix="Set TMPDIR to a folder of your own.")
    return path
