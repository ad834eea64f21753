"""The lease of a run: if several processes start the same run, one works on it, and the others wait.

    claim ──mine──▶ prolonged by a thread while the run goes on ──▶ given up at its end
          └─another's──▶ message, then retries ──▶ the other ended or died: its work is continued

If a process on this machine dies, this is noticed at once, because its process id is free or belongs to
another process. A process on another machine counts as dead when its lease ends
(`tuning_db.contract.LEASE_S`).
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

BEAT_S = 15.0  # seconds between two renewals; a lease lasts four times as long
ASK_AGAIN_S = 0.25


class WorkedOn(MeasureError):
    """Another process works on a run, and there was no time to wait for its end."""


_held: set[str] = set()  # owners in this process whose run has not ended


def new_owner() -> str:
    """A unique name for one run of the search: host, boot, process namespace, id and start of the process,
    and a random part."""
    pid = os.getpid()
    return " ".join(
        (platform.node() or "host", boot_id(), _process_space(), f"{pid}", _born(pid), uuid4().hex)
    )


def surely_gone(owner: str) -> bool:
    """Whether the owner was a process on this machine that has ended, or has given up the lease."""
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
    """The owner as readable text.

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
    """Leases a session for the block. A thread renews the lease, and the end of the block gives it up.

    claim: requests the session for an owner. wait_s: seconds that this may wait for another process. say:
    called once with the name of that process. Raises WorkedOn if that process is still at work afterwards.
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
            except StoreError as error:  # the search gets the same error and reports it in full
                log.warn(f"the tuning log could not record that this run goes on: {error.what}")

    thread = threading.Thread(target=beat, name="autotensor lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(StoreError):  # if this fails, the lease ends by itself
            store.renew(session, owner, 0.0)


def _process_space() -> str:
    """The namespace of process ids; a container has its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _born(pid: int) -> str:
    """When a process started, in ticks since the machine started; "" if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text[text.rindex(")") + 2 :].split()
    return "" if fields[0] == "Z" else fields[19]  # a zombie does no work
