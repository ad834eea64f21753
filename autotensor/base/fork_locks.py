"""Locks that allow this process to fork: they are free in a child.

safe(lock)      a module's lock: a fork waits for the thread that holds it, so the guarded data are complete
renewed(lock)   the lock of an object that makes each thing only once. A child gets the lock free, and makes
                the things that another thread of the parent had not finished.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar
from weakref import WeakSet

L = TypeVar("L")

_renewed: WeakSet[Any] = WeakSet()


def safe(lock: L) -> L:
    """The lock. A thread that forks takes it first, so that the thread that holds it can finish its work.

    Otherwise a child might find the lock held by a thread that the child does not have, and wait for ever.
    This is for module-level locks, because the lock stays registered for ever.
    """
    if hasattr(os, "register_at_fork"):
        acquire, release = lock.acquire, lock.release  # type: ignore[attr-defined]
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)
    return lock


def renewed(lock: L) -> L:
    """The lock, which is free in a forked child even if another thread of the parent held it."""
    _renewed.add(lock)
    return lock


def _renew() -> None:
    for lock in _renewed:
        lock._at_fork_reinit()  # as `logging` does with its own locks


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
