"""Locks in forked children."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from autotensor.base import fork_locks

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def in_child(work: Callable[[], bool]) -> bool:
    """Whether a forked child answers yes; False if it hangs."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def held(lock: threading.Lock, seconds: float, done: list[float]) -> threading.Thread:
    """A thread that holds it for so long, from now on."""
    has = threading.Event()

    def hold() -> None:
        with lock:
            has.set()
            time.sleep(seconds)
            done.append(time.monotonic())

    thread = threading.Thread(target=hold)
    thread.start()
    assert has.wait(10)
    return thread


def test_who_forks_waits_for_a_safe_lock() -> None:
    lock, done = fork_locks.safe(threading.Lock()), list[float]()
    thread = held(lock, 0.3, done)
    assert in_child(lambda: bool(done) and lock.acquire(timeout=1))
    thread.join()
    assert lock.acquire(timeout=1)
    lock.release()


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_a_renewed_lock_is_free_in_the_child_and_as_it_was_in_the_parent(kind: Callable[[], object]) -> None:
    lock, done = fork_locks.renewed(kind()), list[float]()
    thread = held(lock, 0.5, done)
    assert in_child(lambda: not done and lock.acquire(timeout=1))
    assert not lock.acquire(blocking=False)
    thread.join()
    assert lock.acquire(timeout=1)
    lock.release()


def test_a_plain_lock_would_hang() -> None:
    lock, done = threading.Lock(), list[float]()
    thread = held(lock, 0.3, done)
    assert in_child(lambda: not lock.acquire(timeout=1))
    thread.join()
