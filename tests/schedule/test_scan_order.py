"""A loop of a running reduction keeps its order, also if it is scheduled further after `scan`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.schedule.schedule import Schedule

X, R = te.placeholder((12, 5), name="X"), te.reduce_axis(12, name="r")
S = te.compute((12, 5), lambda i, j: te.sum(X[R, j], axis=R, where=i >= R), name="S")


def scanned() -> Schedule:
    s = te.create_schedule(S)
    s[S].reorder("i", "r", "j")
    s[S].scan("i")
    return s  # type: ignore[no-any-return]


def whole(s: Schedule) -> None:
    s["S"].parallel("i")


def outer_part(s: Schedule) -> None:
    s["S"].split("i", 4)
    s["S"].parallel("i.0")


def turned_parts(s: Schedule) -> None:
    s["S"].split("i", 4)
    s["S"].reorder("i.1", "i.0", "r", "j")


def fused(s: Schedule) -> None:
    s["S"].reorder("j", "i", "r")
    s["S"].fuse("j", "i")
    s["S"].parallel("(j*i)")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (whole, "scan: axis 'i' of stage 'S' is parallel, but each element continues the one before it"),
        (outer_part, "scan: axis 'i.0' of stage 'S' is parallel"),
        (turned_parts, "scan: parts of axis 'i' of stage 'S' are in another order: i.1, i.0"),
        (fused, "scan: axis '(j*i)' of stage 'S' is parallel"),
    ],
)
def test_what_changes_the_order_is_refused(change: Callable[[Schedule], None], text: str) -> None:
    s = scanned()
    change(s)
    with pytest.raises(ScheduleError) as caught:
        at.lower(s, [X, S])
    assert text in caught.value.what


def other_columns(s: Schedule) -> None:
    s["S"].reorder("j", "i", "r")
    s["S"].parallel("j")


def parts(s: Schedule) -> None:
    s["S"].split("i", 5)
    s["S"].unroll("i.1")


@pytest.mark.parametrize("change", [other_columns, parts])
def test_what_keeps_the_order_is_computed(change: Callable[[Schedule], None]) -> None:
    s = scanned()
    change(s)
    x, found = np.arange(60, dtype=np.float32).reshape(12, 5), np.full((12, 5), np.nan, np.float32)
    at.build(s, [X, S], target="llvm -threads=2")(x, found)
    np.testing.assert_array_equal(found, np.cumsum(x, 0))
