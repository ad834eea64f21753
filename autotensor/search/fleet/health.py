"""Finds workers that are not as fast as their class, by the times of their sentinel kernels.

    each worker's latest sentinel ──against the middle of the others'──▶ off by 3 % or more: named

Two workers that differ do not show which of them is off: a judgement needs three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

OFF = 0.03
JUDGES = 2  # least number of others with which a worker is compared


@dataclass(slots=True)
class Health:
    """The latest sentinels of one class, in seconds by worker; those in quarantine are not among them."""

    latest: dict[str, float] = field(default_factory=dict)

    def hear(self, worker: str, seconds: float) -> float | None:
        """Notes a sentinel. None if the worker is as fast as its class, or too few others are known; else its
        difference as a share (negative: faster), and the worker is forgotten.

        >>> health = Health()
        >>> [health.hear(w, s) for w, s in (("a", 1.0), ("b", 1.01), ("c", 1.05))]
        [None, None, 0.045]
        """
        others = [s for w, s in self.latest.items() if w != worker]
        self.latest[worker] = seconds
        if len(others) < JUDGES:
            return None
        off = seconds / median(others) - 1.0
        if abs(off) < OFF:
            return None
        del self.latest[worker]
        return round(off, 3)


__all__ = ["OFF", "Health"]
