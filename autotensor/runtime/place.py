"""The place for which times are valid: a machine, a target, and, if the target is for a card, the card.

    here(target) ──▶ Place ──▶ task(workload key) ──▶ the key of trials in the tuning log

The code that searches for schedules, chooses one from the log, races candidates or prints results uses a
place, or the task key that the place makes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

from autotensor.base.errors import TargetError
from autotensor.base.machine import HostMachine, host_machine
from autotensor.base.target import Target
from autotensor.runtime.device.device_identity import ABSENT, DeviceIdentity
from autotensor.runtime.device.devices import device_of

TaskKey = tuple[str, str, str]  # keys of workload and target, and the machine's fingerprint


@dataclass(frozen=True, slots=True)
class Place:
    """A target on a machine. `device` is the card that runs the kernels; None if the processor runs them."""

    machine: HostMachine
    target: Target
    device: DeviceIdentity | None = None

    @property
    def fingerprint(self) -> str:
        """The processor's fingerprint, or, with a card, a hash of processor and card. Name, memory, units and
        the driver's major version distinguish cards whose targets are equal."""
        if self.device is None:
            return self.machine.fingerprint
        d = self.device
        text = json.dumps([self.machine.fingerprint, d.name, d.memory, d.units, d.driver_major])
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def task(self, workload_key: str) -> TaskKey:
        return workload_key, self.target.key(), self.fingerprint


@lru_cache(maxsize=64)
def here(target: Target) -> Place:
    """The target on this machine. If no card answers, this is a place where nothing was ever measured."""
    if not target.on_card:
        return Place(host_machine(), target)
    try:
        return Place(host_machine(), target, device_of(target).identity)
    except TargetError:
        return Place(host_machine(), target, ABSENT)


__all__ = ["Place", "TaskKey", "here"]
