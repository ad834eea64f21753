"""Schedules by name: a dictionary that functions enter by a decorator.

CASES = Cases()

@CASES.case
def matmul() -> Schedule: ...

CASES["matmul"]()
"""

from __future__ import annotations

from collections.abc import Callable

from autotensor.schedule.schedule import Schedule

Make = Callable[[], Schedule]


class Cases(dict[str, Make]):
    """Functions that give a schedule, by their names."""

    def case(self, fn: Make) -> Make:
        self[fn.__name__] = fn
        return fn
