"""Seconds of a run by activity.

with watch("measure"):
    results = measurer.submit(…).result()
watch.seconds                        {"search": 0.0, "measure": 1.3, "log": 0.0, "race": 0.0}
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

KINDS = ("search", "measure", "log", "race")


@dataclass(slots=True)
class Stopwatch:
    """Adds up the seconds. A block that raises counts, too."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))

    @contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] += time.perf_counter() - began


__all__ = ["Stopwatch"]
