"""This machine's entries in a tuning log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotensor.base.machine import environment_versions, host_machine
from tuning_db import Machine, Session, TrialStore


def know_machine(store: TrialStore) -> None:
    """Makes this machine known to the log."""
    m = host_machine()
    store.ensure_machine(Machine(m.fingerprint, m.cpu_model, m.features, m.cores, m.caches, "cpu", ""))


def session_here(store: TrialStore, run_key: str, options: Mapping[str, Any], seed: int = 0) -> Session:
    """A new session on this machine, with today's versions. Raises StoreError."""
    know_machine(store)
    return store.start_session(
        run_key=run_key,
        seed=seed,
        machine=host_machine().fingerprint,
        environment=store.ensure_environment(environment_versions()),
        options=options,
    )
