"""storage: the private buffer of an attached stage in another order."""

from __future__ import annotations

import pytest
from comparison import check

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.lowering.pipeline import lower_nest
from autotensor.schedule import Schedule, Trace, create_schedule


def copied() -> tuple[Schedule, str]:
    """C = A @ B.T with a copy of the panel of B that a block needs."""
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((12, 8), name="B")
    k = te.reduce_axis(8, name="k")
    c = te.compute((6, 12), lambda y, x: te.sum(a[y, k] * b[x, k], axis=k), name="C")
    s = create_schedule(c)
    xo, xi = s[c].split("x", factor=4)
    s[c].reorder(xo, "y", "k", xi)
    near = s.cache_read(b, "local", [c])
    near.compute_at(s[c], xo)
    return s, near.name


def test_the_buffer_is_turned_and_the_meaning_stays() -> None:
    s, name = copied()
    s[name].storage("i1", "i0", pad=2)
    assert "local([8, 6], float32)" in str(lower_nest(s.state).run[0])
    check(s.state.dag, s.trace)


def test_it_survives_json() -> None:
    s, name = copied()
    s[name].storage("i1", "i0")
    assert Trace.from_json(s.trace.to_json()) == s.trace
    assert s.trace.steps[-1].call() == 's["B.local:C"].storage("i1", "i0", pad=0)'


@pytest.mark.parametrize(
    ("axes", "pad", "message"),
    [
        (("i0",), 0, "must name each axis of stage 'B.local:C' once: i0, i1"),
        (("i0", "i0"), 0, "must name each axis"),
        (("i0", "i1"), -1, "it must be at least 0"),
    ],
)
def test_what_is_refused(axes: tuple[str, ...], pad: int, message: str) -> None:
    s, name = copied()
    with pytest.raises(ScheduleError, match=message):
        s[name].storage(*axes, pad=pad)


def test_only_attached_stages_have_private_buffers() -> None:
    a = te.placeholder((6, 8), name="A")
    c = te.compute((6, 8), lambda y, x: a[y, x] + 1, name="C")
    s = create_schedule(c)
    with pytest.raises(ScheduleError, match="is not computed inside another"):
        s[c].storage("x", "y")
