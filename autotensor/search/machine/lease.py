"""The lease of a run: one of several processes that start the same run works on it; the others wait.

    claim ──mine──▶ prolonged by a thread while the run goes on ──▶ given up at its end
          └─another's──▶ said once, asked again ──▶ it ended, or died: what it measured is continued

A process that dies on this machine is known to be dead at once: its number is free, or somebody else's. One
elsewhere is taken for dead when its lease runs out (`tuning_db.contract.LEASE_S`).
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from autotensor.base import log
from autotensor.base.errors import MeasureError
from autotensor.search.machine.machine_entry import boot_id
from tuning_db import Claim, StoreError, TrialStore

BEAT_S = 15.0  # between two signs of life; a lease lasts four of them
ASK_AGAIN_S = 0.25


class WorkedOn(MeasureError):
    """Another process works on a run, and there was no time to wait for its end."""


_held: set[str] = set()  # owners in this process whose run goes on


def new_owner() -> str:
    """A name for one run of the search: host, start of the machine, processes that see each other, number of
    the process and when it began, and something that is never used again."""
    pid = os.getpid()
    return " ".join(
        (platform.node() or "host", boot_id(), _process_space(), f"{pid}", _born(pid), uuid4().hex)
    )


def surely_gone(owner: str) -> bool:
    """Whether the owner was a process on this machine that does not run any more, or has given up."""
    parts = owner.split(" ")
    if len(parts) != 6 or "" in parts:
        return False
    _, boot, space, pid, born, _ = parts
    if (boot, space) != (boot_id(), _process_space()) or not pid.isdecimal():
        return False
    if int(pid) == os.getpid():
        return owner not in _held
    return _born(int(pid)) != born


def shown(owner: str) -> str:
    """The owner for people.

    >>> shown("ada 1f 7 4242 99 ab")
    'process 4242 on ada'
    """
    parts = owner.split(" ")
    return f"process {parts[3]} on {parts[0]}" if len(parts) == 6 else owner or "nobody"


@contextmanager
def leased(
    store: TrialStore,
    claim: Callable[[str], Claim],
    wait_s: Callable[[], float],
    stopped: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda other: None,
) -> Iterator[Claim]:
    """A session that is ours inside the block, prolonged there and given up behind it.

    claim: requests it under the name of an owner. wait_s: seconds that are left to wait for another. say:
    called once with the process that this one waits for. Raises WorkedOn if that still works on it then.
    """
    owner = new_owner()
    _held.add(owner)
    try:
        found = _claimed(lambda: claim(owner), wait_s, stopped, say)
        with _prolonged(store, found.session.id, owner):
            yield found
    finally:
        _held.discard(owner)


def _claimed(
    claim: Callable[[], Claim],
    wait_s: Callable[[], float],
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> Claim:
    found, told = claim(), False
    while not found.mine:
        other = shown(found.session.owner)
        if wait_s() <= 0.0 or stopped():
            raise WorkedOn(other)
        if not told:
            say(other)
            told = True
        time.sleep(min(ASK_AGAIN_S, max(0.0, wait_s())))
        found = claim()
    return found


@contextmanager
def _prolonged(store: TrialStore, session: str, owner: str) -> Iterator[None]:
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            try:
                store.renew(session, owner)
            except StoreError as error:  # the search meets it, too, and says more of it
                log.warn(f"the tuning log could not record that this run goes on: {error.what}")

    thread = threading.Thread(target=beat, name="autotensor lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(StoreError):  # then it runs out by itself
            store.renew(session, owner, 0.0)


def _process_space() -> str:
    """Names those processes that see each other's numbers; a container has its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _born(pid: int) -> str:
    """When a process started, in ticks since the machine did; "" if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text[text.rindex(")") + 2 :].split()
    return "" if fields[0] == "Z" else fields[19]  # a zombie works on nothing
