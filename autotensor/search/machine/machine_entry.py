"""This machine's entries in a tuning log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotensor.base.machine import environment_versions, host_machine
from autotensor.runtime.place import Place
from autotensor.search.measuring.provenance import (
    CodeHere,
    HostHere,
    code_here,
    command_here,
    host_here,
    user_here,
)
from tuning_db import Code, Host, Machine, Opening, Session, SessionKind, TrialStore


@dataclass(frozen=True, slots=True)
class Witness:
    """Where a time comes from: host and code. None means not known."""

    host: str | None = None  # the host's uuid
    code: str | None = None  # the key of the code


NOBODY = Witness()


def know_machine(store: TrialStore, place: Place | None = None) -> str:
    """Adds a machine to the log: the given place, or this machine without a card. Returns its fingerprint."""
    m, device = host_machine() if place is None else place.machine, place and place.device
    fingerprint = m.fingerprint if place is None else place.fingerprint
    name, driver, memory = (device.name, device.driver, device.memory) if device else ("cpu", "", 0)
    return store.ensure_machine(
        Machine(fingerprint, m.cpu_model, m.features, m.cores, m.caches, name, driver, memory=memory)
    )


def work_here(store: TrialStore, session: str) -> Witness:
    """Records that this process works on a session. Returns its host and code. Raises StoreError."""
    host, code = host_here(), code_here()
    known = introduce(store, know_machine(store), host, code)
    store.put_opening(
        Opening(session, host.uuid, code.key, command_here(), user_here(), os.getpid(), boot_id())
    )
    return known


def introduce(store: TrialStore, machine: str, host: HostHere, code: CodeHere) -> Witness:
    """Writes a host (of a machine in the log) and sources to the log. Raises StoreError."""
    store.put_host(Host(host.uuid, host.name, machine))
    store.put_code(Code(code.key, code.version, code.commit, code.dirty, code.sources))
    return Witness(host.uuid, code.key)


def boot_id() -> str:
    """An id that changes at every start of the machine. Only with it, a process id is unique."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def session_here(
    store: TrialStore,
    machine: str,
    run_key: str,
    options: Mapping[str, Any],
    seed: int = 0,
    *,
    kind: SessionKind,
    of: str | None = None,
) -> Session:
    """A new session on a machine in the log, with today's versions. Raises StoreError."""
    return store.start_session(
        run_key=run_key,
        seed=seed,
        machine=machine,
        environment=store.ensure_environment(environment_versions()),
        options=options,
        kind=kind,
        of=of,
    )
