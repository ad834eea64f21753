"""The child's side of children.py: it answers lines until the parent closes the pipe or ends.

# package/worker.py
if __name__ == "__main__":
    serve(handle)            handle: one line in, one line out
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from autotensor.base.errors import InputError
from autotensor.runtime.workers.children import ENVIRONMENT, READY

_PR_SET_PDEATHSIG = 1


def serve(handle: Callable[[str], str]) -> None:
    """Answers each line of standard input with `handle(line)`. Returns when the input ends.

    An exception in `handle` ends the process with its traceback. The parent reports this and starts another
    child.
    """
    told = os.environ.pop(ENVIRONMENT, "")
    if not told:
        raise InputError("this worker is started by autotensor, not by hand.")
    reply, life, memory_bytes, parent = (int(word) for word in told.split(","))
    for descriptor in (reply, life):
        os.set_inheritable(descriptor, False)
    _die_with(parent, life)
    _limit(memory_bytes)
    _answer(reply, READY)
    for line in sys.stdin.buffer:
        answer = handle(line.decode().rstrip("\n"))
        if "\n" in answer:
            raise InputError("the answer of a worker is one line; this one has a line break.")
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # text that was printed so far belongs to this request
        _answer(reply, answer)


def _answer(descriptor: int, text: str) -> None:
    data = text.encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _die_with(parent: int, life: int) -> None:
    """Ends this process when its parent ends, even if a kernel loops for ever."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before this check
            os._exit(0)

    def watch() -> None:
        with suppress(OSError):
            os.read(life, 1)  # returns when the last writer, the parent, has ended
        with suppress(OSError):
            if os.getpgrp() == os.getpid():
                os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=watch, daemon=True, name="autotensor-life").start()


def _limit(memory_bytes: int) -> None:
    """Switches core dumps off, and limits the address space to `memory_bytes`; 0 means no limit."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
