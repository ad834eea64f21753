"""Locks over which this process may fork: a child finds them free, and what they guard whole."""

from __future__ import annotations

import os
from typing import TypeVar

L = TypeVar("L")


def safe(lock: L) -> L:
    """That lock, which a thread that forks takes first: whoever holds it finishes what it is doing.

    Else a child might find it held by a thread that it does not have, and wait for ever. For module-level
    locks: what is registered stays.
    """
    if hasattr(os, "register_at_fork"):
        acquire, release = lock.acquire, lock.release  # type: ignore[attr-defined]
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)
    return lock
