"""The loops after each step of a trace, and which of their lines the step made.

s["C"].split("i", factors=[8])        ──▶     > for io in range(16):
                                              >   for ii in range(8):
                                                    for j in range(64):
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from autotensor.base.errors import AutotensorError
from autotensor.compiler import nest_text
from autotensor.schedule.state import State
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

LEFT_OUT = "⋮"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a loop nest. `new` says that the step which led to this nest made the line."""

    text: str
    new: bool


@dataclass(frozen=True, slots=True)
class StepView:
    """One step as the call that a person would write, and the loops after it."""

    call: str
    lines: tuple[Line, ...]  # the whole nest
    note: str = ""  # why `lines` is empty

    @property
    def changed(self) -> bool:
        return any(line.new for line in self.lines)

    @property
    def nest(self) -> str:
        return "\n".join(line.text for line in self.lines)


def step_views(dag: ComputeDAG, trace: Trace) -> tuple[StepView, ...]:
    """The loops as written, and the loops after every step. This lowers the nest once per step.

    Raises the first ScheduleError.
    """
    state = State.initial(dag)
    before = nest_text(state)
    views = [StepView("", tuple(Line(text, False) for text in before.splitlines()))]
    for step in trace.steps:
        state = step.apply(state)
        try:
            after = nest_text(state)
        except AutotensorError as e:  # a whole trace may be fine even if its beginning cannot be lowered
            views.append(StepView(step.call(), (), e.what))
            continue
        views.append(StepView(step.call(), compared(before, after)))
        before = after
    return tuple(views)


def compared(before: str, after: str) -> tuple[Line, ...]:
    """The lines of `after`. A line is new if the comparison matches it with no line of `before`."""
    old, new = before.splitlines(), after.splitlines()
    known: set[int] = set()
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        known.update(range(block.b, block.b + block.size))
    return tuple(Line(text, n not in known) for n, text in enumerate(new))


def compact(lines: tuple[Line, ...]) -> list[Line]:
    """New lines and the loops around them. One line marks each place where other lines were left out.

    >>> nest = [("for a:", 0), ("  x", 0), ("  y", 0), ("  for b:", 1), ("    z", 0)]
    >>> print("\\n".join(line.text for line in compact(tuple(Line(t, bool(n)) for t, n in nest))))
    for a:
      ⋮
      for b:
        ⋮
    """
    shown = {n for n, line in enumerate(lines) if line.new}
    for n in sorted(shown):
        depth = indent(lines[n].text)
        for m in range(n - 1, -1, -1):
            if lines[m].text and indent(lines[m].text) < depth:
                depth = indent(lines[m].text)
                shown.add(m)
    out: list[Line] = []
    gap = False
    for n, line in enumerate(lines):
        if n in shown:
            out.append(line)
            gap = False
        elif line.text and not gap:
            out.append(Line(" " * indent(line.text) + LEFT_OUT, False))
            gap = True
    return out


def indent(text: str) -> int:
    return len(text) - len(text.lstrip())
