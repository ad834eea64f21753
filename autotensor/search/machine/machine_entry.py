"""This machine's entry in a tuning log."""

from __future__ import annotations

from autotensor.base.machine import host_machine
from tuning_db import Machine, TrialStore


def know_machine(store: TrialStore) -> None:
    """Makes this machine known to the log."""
    m = host_machine()
    store.ensure_machine(Machine(m.fingerprint, m.cpu_model, m.features, m.cores, m.caches, "cpu", ""))
