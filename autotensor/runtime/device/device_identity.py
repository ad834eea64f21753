"""The identity of an accelerator: two accelerators with the same identity may share records."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A card as its driver describes it."""

    name: str
    memory: int = 0  # bytes
    units: int = 0  # multiprocessors, compute units
    driver: str = ""

    @property
    def driver_major(self) -> str:
        """The driver's major version: with another one, generated code may change.

        >>> DeviceIdentity("card", driver="570.86.15").driver_major
        '570'
        """
        found = re.search(r"\d+", self.driver)
        return found[0] if found else self.driver


# code may be compiled for a card that is not in this machine; nothing was measured on that card
ABSENT = DeviceIdentity("absent")

__all__ = ["ABSENT", "DeviceIdentity"]
