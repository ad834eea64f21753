"""Locks over which this process may fork: a child finds them free.

safe(lock)      of a module: a fork waits for the thread that holds it, so what it guards is whole, too
renewed(lock)   of an object that makes things once: a child makes anew what another thread was making
"""

from __future__ import annotations

import os
from typing import Any, TypeVar
from weakref import WeakSet

L = TypeVar("L")

_renewed: WeakSet[Any] = WeakSet()


def safe(lock: L) -> L:
    """That lock, which a thread that forks takes first: whoever holds it finishes what it is doing.

    Else a child might find it held by a thread that it does not have, and wait for ever. For module-level
    locks: what is registered stays.
    """
    if hasattr(os, "register_at_fork"):
        acquire, release = lock.acquire, lock.release  # type: ignore[attr-defined]
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)
    return lock


def renewed(lock: L) -> L:
    """That lock, which is free in a forked child, whatever the parent's other threads were doing."""
    _renewed.add(lock)
    return lock


def _renew() -> None:
    for lock in _renewed:
        lock._at_fork_reinit()  # as `logging` does it with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
