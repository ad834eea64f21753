"""Windows of pools against a count of every place."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from autotensor.operators.window import Window

WINDOWS = st.builds(
    Window,
    extent=st.integers(1, 9),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
    ceil=st.booleans(),
)


def test_the_last_window_may_hang_over() -> None:
    exact, over = (Window(6, 3, 2, 1, 0, 0, ceil) for ceil in (False, True))
    assert (exact.out, exact.around, exact.is_whole) == (2, (0, 0), True)
    assert (over.out, over.around, over.is_whole) == (3, (0, 1), False)
    assert [over.places(i) for i in range(3)] == [[0, 1, 2], [2, 3, 4], [4, 5]]


def test_padding_counts_when_asked_for() -> None:
    w = Window(4, 3, 2, 1, 1, 1, False)
    assert [w.inside(i, include_pad=True) for i in range(w.out)] == [3, 3]
    assert [w.inside(i, include_pad=False) for i in range(w.out)] == [2, 3]


def test_none_fits() -> None:
    assert Window(2, 4, 1, 1, 0, 0, False).span < 0


@given(WINDOWS)
def test_windows_are_all_that_fit(w: Window) -> None:
    assume(w.span >= 0 and max(w.before, w.after) < w.reach)  # as operators ask: each window meets x
    last = w.extent + w.after + (w.stride - 1 if w.ceil else 0)  # where a window may end
    starts = range(-w.before, w.extent if w.ceil else last, w.stride)
    assert w.out == sum(s + w.reach <= last for s in starts)


@given(WINDOWS)
def test_what_stands_around_is_what_is_read(w: Window) -> None:
    assume(w.span >= 0 and w.out > 0)
    ends = (w.out - 1) * w.stride - w.before + w.reach
    before, after = w.around
    assert before == w.before
    assert w.extent + after >= ends
    for i in range(w.out):
        assert len(w.places(i)) == w.inside(i, include_pad=False)
