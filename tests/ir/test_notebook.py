"""A notebook shows the printed text of schedules, traces, graphs and programs."""

from __future__ import annotations

import html
import re

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.insight.timeline import Span, Timeline
from autotensor.search.report import TuneReport


def shown(x: object) -> str:
    """The text in the HTML that a notebook gets."""
    found: str = x._repr_html_()  # type: ignore[attr-defined]
    assert found.startswith("<pre ")
    return html.unescape(re.sub(r"<[^>]+>", "", found))


def test_a_notebook_shows_what_is_printed(own_log: None) -> None:
    a = te.placeholder((8, 16), name="a")
    b = te.compute((8, 16), lambda i, j: te.if_then_else(a[i, j] < 1.0, a[i, j], 0.0), name="b")
    s = at.create_schedule(b)
    s[b].parallel("i")
    x = at.input((1, 8))
    graph = at.Graph((x,), (at.ops.relu(at.ops.dense(x, np.ones((4, 8), np.float32))),))
    program = at.lower(s, [a, b]).program
    for thing in (s, s.trace, graph, program, program.run[0], Timeline((Span("a", 0, 0.0, 1.0),))):
        assert shown(thing) == str(thing)
    report = TuneReport((), 0, 0, 0.0, "the deadline is reached")
    assert shown(report) == repr(report)
    assert "<b>parallel</b>(8)" in s._repr_html_()
    assert "<b>range" not in s._repr_html_()
    assert "&lt;" in program._repr_html_()
