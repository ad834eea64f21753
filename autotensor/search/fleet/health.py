"""Finds workers that are not as fast as their class, by the times of their sentinel kernels.

    each worker's latest sentinel ──compared with the median of the others'──▶ 3 % apart or more: reported

If only two workers differ, it is not known which of them is wrong, so a judgement needs three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

OFF = 0.03
JUDGES = 2  # least number of others with which a worker is compared


@dataclass(slots=True)
class Health:
    """The latest sentinels of one class, in seconds by worker. Workers in quarantine are left out."""

    latest: dict[str, float] = field(default_factory=dict)

    def hear(self, worker: str, seconds: float) -> float | None:
        """Records a sentinel. Returns None if the worker is as fast as its class, or if too few others are
        known. Otherwise returns its difference as a share (negative: faster), and forgets the worker.

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
