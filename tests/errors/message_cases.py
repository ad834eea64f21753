"""Cases of error messages: functions that fail, with the text that they must fail with.

@CASES.says("stage 'C' has no axis 'q'; it has i, j, k.")
def unknown_axis() -> None: …
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from autotensor import te
from autotensor.base.errors import AutotensorError, ScheduleError
from autotensor.schedule import Schedule, create_schedule


class Cases:
    """The cases of one file; `check(name)` runs one."""

    def __init__(self) -> None:
        self._cases: dict[str, tuple[Callable[[], object], type[AutotensorError], str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._cases)

    def says(
        self, text: str, error: type[AutotensorError] = ScheduleError
    ) -> Callable[[Callable[[], object]], None]:
        def register(fn: Callable[[], object]) -> None:
            assert fn.__name__ not in self._cases, fn.__name__
            self._cases[fn.__name__] = fn, error, text

        return register

    def check(self, name: str) -> None:
        fn, error, text = self._cases[name]
        with pytest.raises(AutotensorError) as caught:
            fn()
        assert type(caught.value) is error
        assert str(caught.value) == text


def schedule() -> Schedule:
    """A [8, 6] and B [6, 4] constant; C = A B over i, j, k; D = C + 1; E = C * D (outputs D, E)."""
    a, b = te.placeholder((8, 6), name="A"), te.placeholder((6, 4), name="B", constant=True)
    k = te.reduce_axis(6, name="k")
    c = te.compute((8, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((8, 4), lambda i, j: c[i, j] + 1, name="D")
    e = te.compute((8, 4), lambda i, j: c[i, j] * d[i, j], name="E")
    return create_schedule([d, e])


def chain() -> Schedule:
    """P = A + 1, Q = P * 2, R = Q - 1."""
    a = te.placeholder((8, 4), name="A")
    p = te.compute((8, 4), lambda i, j: a[i, j] + 1, name="P")
    q = te.compute((8, 4), lambda i, j: p[i, j] * 2, name="Q")
    return create_schedule(te.compute((8, 4), lambda i, j: q[i, j] - 1, name="R"))
