"""The loops after each step, and the changed lines that are shown."""

from __future__ import annotations

from collections.abc import Callable

from autotensor import te
from autotensor.insight.trace_steps import compact, compared, step_views
from autotensor.schedule import Schedule, create_schedule

Golden = Callable[[str], None]


def scheduled() -> Schedule:
    """C = A B, scheduled by hand; the last two steps leave the loops as they are."""
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5, 8), name="B", constant=True)
    k = te.reduce_axis(5, name="k")
    c = te.compute((6, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    i, j = s[c].op.axis
    _, ji = s[c].split(j, factor=4)
    s[c].vectorize(ji)
    s[c].parallel(i)
    s[c].compute_root()
    s[c].reorder(i)
    return s


def test_every_step_marks_its_lines(golden: Golden) -> None:
    s = scheduled()
    text = []
    for v in step_views(s.dag, s.trace):
        text.append(v.call or "the loops as written")
        text += [f"{'>' if line.new else ' '} {line.text}" for line in v.lines if v.changed or not v.call]
    golden("\n".join(text))


def test_one_view_a_step_and_the_last_is_the_schedule() -> None:
    s = scheduled()
    views = step_views(s.dag, s.trace)
    assert [v.call for v in views] == ["", *(step.call() for step in s.trace.steps)]
    assert views[-1].nest == str(s)
    assert [v.changed for v in views] == [False, True, True, True, False, False]


def test_only_what_is_not_there_before_is_new() -> None:
    lines = compared("a\nb\nc", "a\nx\nc\nb")
    assert [(line.text, line.new) for line in lines] == [("a", False), ("x", True), ("c", True), ("b", False)]


def test_what_is_left_out_is_one_line_a_run() -> None:
    before = "for i:\n  a\n  b\n\n  c\nfor j:\n  d"
    after = "for i:\n  a\n  b\n\n  c\nfor j:\n  for k:\n    e"
    shown = [line.text for line in compact(compared(before, after))]
    assert shown == ["⋮", "for j:", "  for k:", "    e"]
