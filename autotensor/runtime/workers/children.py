"""Worker processes that may loop, crash, print too much or hang without harm to their parent.

    parent                                     child: python -m <module>, which calls serve(handle)
    child.request("text", timeout_s=2) ──stdin──▶ handle("text") ──▶ "answer"
              Reply(OK, "answer")      ◀──reply pipe──┘
              Reply(TIMEOUT | CRASHED | EXITED | OUTPUT_LIMIT, why)  child killed; next request starts anew

A request is one line, and an answer is one line. Answers have a pipe of their own, so that a kernel's output
cannot be taken for an answer. stdout and stderr are read, counted and kept up to a limit. Each child leads
its own session, and the whole group is killed at once. A child ends when its parent ends: Linux kills it, and
a thread of the child waits for the end of a pipe that only the parent holds. `fork` and `multiprocessing` are
never used, because they hang with OpenMP, or run the user's script again.

The parent uses `Child`; the child uses `serve`, in child_serving.py.
"""

from __future__ import annotations

import enum
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotensor.base.errors import InputError, MeasureError
from autotensor.base.python_path import python_path

# "reply pipe,life pipe,memory limit"; Child sets it, serve reads and removes it
ENVIRONMENT = "AUTOTENSOR_CHILD"
READY = "ready"
OUTPUT_LIMIT_BYTES = 1 << 20
REPLY_LIMIT_BYTES = 64 << 20
_TAIL_BYTES = 8 << 10
_EXIT_SECONDS = 1.0  # time for the child to end by itself after its pipe is closed; then it is killed
_CHUNK = 1 << 16


class Status(enum.Enum):
    OK = "ok"
    TIMEOUT = "timeout"
    CRASHED = "crashed"  # killed by a signal
    EXITED = "exited"
    OUTPUT_LIMIT = "output limit"


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one request."""

    status: Status
    text: str  # the answer; empty if the status is not OK
    detail: str  # an error in one sentence
    output: str  # the last part of the child's output during the request
    seconds: float


@dataclass(slots=True)
class _Running:
    """A process that was started, and the parent's ends of its pipes."""

    process: subprocess.Popen[bytes]
    requests: int
    replies: int
    output: int
    life: int

    def close(self) -> None:
        for descriptor in (self.requests, self.replies, self.output, self.life):
            with suppress(OSError):
                os.close(descriptor)
        self.requests = self.replies = self.output = self.life = -1


class Child:
    """One worker process. It starts at the first request, and again after each failure. Only one thread at a
    time may use a Child."""

    def __init__(
        self,
        module: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        path: Sequence[str | Path] = (),
        memory_bytes: int | None = None,
        output_limit: int = OUTPUT_LIMIT_BYTES,
        start_timeout_s: float = 60.0,
        python: str = sys.executable,
    ) -> None:
        """`env` adds variables, `path` adds folders to import from, `memory_bytes` limits the address space,
        and `python` is the interpreter."""
        # -P: modules in the user's folder must not replace others of the same name
        self.command = [python, "-P", "-m", module, *args]
        self.env = dict(env or {})
        self.path = [str(p) for p in path]
        self.memory_bytes = memory_bytes
        self.output_limit = output_limit
        self.start_timeout_s = start_timeout_s
        self.starts = 0
        # cores that the child may run on; None: all of the parent's
        self._cores: Collection[int] | None = None
        self._running: _Running | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._tail = b""
        self._printed = 0  # bytes of output since the request began
        self._unread = b""  # bytes that were read from the reply pipe and not yet used

    @property
    def pid(self) -> int | None:
        """Process id; None if the child does not run."""
        running = self._running  # read once, because another thread may end the child
        return running.process.pid if running else None

    def start(self) -> None:
        """Starts the process if need be, and waits until it serves. Raises MeasureError if it does not."""
        if self._running is not None:
            return
        self.starts += 1
        self._running = running = _spawn(self.command, self._environment(), self.memory_bytes, self._cores)
        if self._cores is not None:
            self.stay_on(self._cores)  # the cores may have changed a moment ago
        self._finalizer = weakref.finalize(self, _end, running)
        self._unread = b""
        reply = self._exchange(b"", self.start_timeout_s)
        if reply.status is Status.OK and reply.text != READY:
            self.kill()
        if self._running is None:
            raise MeasureError(
                f"worker {' '.join(self.command[3:])} did not start: {reply.detail or reply.text}",
                context=lambda: reply.output,
            )

    def stay_on(self, cores: Collection[int]) -> None:
        """Binds the child to these cores, now and after each start (Linux). Any thread may call this."""
        self._cores = cores
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):  # the child has just ended
                os.sched_setaffinity(pid, cores)

    def request(self, text: str, timeout_s: float) -> Reply:
        """Sends one line and waits for the answer, at most `timeout_s` seconds. If the status is not OK, the
        child does not run afterwards."""
        if "\n" in text:
            raise InputError("a request to a worker is one line; this one has a line break.")
        self.start()
        return self._exchange(text.encode() + b"\n", timeout_s)

    def stop(self) -> None:
        """Ends the process. Another thread that waits for the process gets the status of a crash."""
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):  # the process has just ended
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the process and its whole group at once."""
        if self._finalizer is not None:
            self._finalizer()
        self._running = self._finalizer = None

    def close(self) -> None:
        """Lets the process end by itself, and kills what is left of its group."""
        if self._running is not None:
            with suppress(OSError):
                os.close(self._running.requests)
            self._running.requests = -1
            _wait_for_exit(self._running.process, _EXIT_SECONDS)
        self.kill()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.env, "PYTHONPATH": python_path(self.path)}

    def _exchange(self, request: bytes, timeout_s: float) -> Reply:
        began = time.monotonic()
        self._tail, self._printed = b"", 0
        status, text, detail = self._converse(request, began + timeout_s)
        if status is Status.TIMEOUT:
            detail = f"no answer within {timeout_s:g} s."
        if status is not Status.OK:
            self.kill()
        return Reply(status, text, detail, self._tail.decode(errors="replace"), time.monotonic() - began)

    def _converse(self, pending: bytes, deadline: float) -> tuple[Status, str, str]:
        """Writes `pending`, and reads until a whole line has come, the pipe ends, too much is printed, or the
        time is over."""
        running = self._running
        assert running is not None
        with selectors.DefaultSelector() as selector:
            selector.register(running.replies, selectors.EVENT_READ)
            selector.register(running.output, selectors.EVENT_READ)
            if pending:
                selector.register(running.requests, selectors.EVENT_WRITE)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return Status.TIMEOUT, "", ""
                ready = {key.fd for key, _ in selector.select(left)}
                if running.output in ready and not self._read_output(running.output):
                    selector.unregister(running.output)
                if self._printed > self.output_limit:
                    return Status.OUTPUT_LIMIT, "", f"it printed more than {self.output_limit} bytes."
                if running.requests in ready:
                    pending = _write_some(running.requests, pending)
                    if not pending:
                        selector.unregister(running.requests)
                if running.replies in ready:
                    data = _read_some(running.replies)
                    if data == b"":
                        return self._post_mortem(running)
                    self._unread += data or b""
                    line, found, rest = self._unread.partition(b"\n")
                    if found:
                        self._unread = rest
                        # it was printed before the answer, so it belongs to this request
                        self._drain(running.output)
                        return Status.OK, line.decode(errors="replace"), ""
                    if len(self._unread) > REPLY_LIMIT_BYTES:
                        return (
                            Status.OUTPUT_LIMIT,
                            "",
                            f"its answer is longer than {REPLY_LIMIT_BYTES} bytes.",
                        )

    def _post_mortem(self, running: _Running) -> tuple[Status, str, str]:
        """The reason why the reply pipe ended."""
        ended = _wait_for_exit(running.process, _EXIT_SECONDS)
        self._drain(running.output)
        if not ended:
            return Status.EXITED, "", "it closed its pipe."
        with suppress(ProcessLookupError, PermissionError):
            # Kills the child's own children. The child is dead, but not reaped yet, so its process id is
            # still its own.
            os.killpg(running.process.pid, signal.SIGKILL)
        code = running.process.wait()
        if code < 0:
            return Status.CRASHED, "", f"it was killed by {_signal_name(-code)}."
        return Status.EXITED, "", f"it exited with status {code}."

    def _drain(self, descriptor: int) -> None:
        while self._printed <= self.output_limit and self._read_output(descriptor):
            pass

    def _read_output(self, descriptor: int) -> bool:
        """Reads some of the child's output. Returns False when there is none (left)."""
        data = _read_some(descriptor)
        if data:
            self._printed += len(data)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
        return bool(data)


def _spawn(
    command: list[str],
    environment: Mapping[str, str],
    memory_bytes: int | None,
    cores: Collection[int] | None = None,
) -> _Running:
    """Starts `command` in a session of its own, with the pipes of the protocol."""
    reply_in, reply_out = os.pipe()
    # no process writes to it: the child sees the pipe's end when the parent has ended
    life_out, life_in = os.pipe()
    told = f"{reply_out},{life_out},{memory_bytes or 0},{os.getpid()}"

    def start() -> subprocess.Popen[bytes]:
        with _on(cores):  # a child begins on the cores of the thread that starts it
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                env={**environment, ENVIRONMENT: told},
                pass_fds=(reply_out, life_out),
                start_new_session=True,
            )

    try:
        process = _spawner().submit(start).result()
    except BaseException as error:
        os.close(reply_in)
        os.close(life_in)
        if isinstance(error, OSError):
            raise MeasureError(f"a worker process cannot be started: {error.strerror}.") from error
        raise
    finally:
        os.close(reply_out)
        os.close(life_out)
    assert process.stdin is not None
    assert process.stdout is not None
    # These are duplicates that only we use. Popen's file objects would warn when they are collected.
    running = _Running(
        process, os.dup(process.stdin.fileno()), reply_in, os.dup(process.stdout.fileno()), life_in
    )
    process.stdin.close()
    process.stdout.close()
    for descriptor in (running.requests, running.replies, running.output):
        os.set_blocking(descriptor, False)
    return running


@contextmanager
def _on(cores: Collection[int] | None) -> Iterator[None]:
    """Makes the calling thread run on these cores inside the block."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@cache
def _spawner() -> ThreadPoolExecutor:
    """The thread that starts all children. PR_SET_PDEATHSIG kills a child when the *thread* that started it
    ends, so this thread must live as long as the process."""
    return ThreadPoolExecutor(1, thread_name_prefix="autotensor-spawner")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spawner.cache_clear)  # a forked child does not have the thread


def _end(running: _Running) -> None:
    """Kills the group with SIGKILL (a candidate may ignore other signals), and reaps the process."""
    with suppress(ProcessLookupError, PermissionError):
        # else it was reaped, and its process id may already belong to another process
        if running.process.returncode is None:
            os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()
    running.close()


def _wait_for_exit(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ends within `seconds`. It is not reaped, so that its group can still be named."""
    deadline = time.monotonic() + seconds
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


def _read_some(descriptor: int) -> bytes | None:
    """Some bytes; b"" at the end, and None when there are none now."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _write_some(descriptor: int, data: bytes) -> bytes:
    """Writes as much as fits, and returns the rest. For a closed pipe nothing is left; reading says why."""
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
