"""Sketches of a whole computation: rules applied stage by stage, from the last to the first."""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.errors import ScheduleError
from autotensor.base.target import Target
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import Inlined, State
from autotensor.schedule.step import refs
from autotensor.te.dag import ComputeDAG
from schedules import rules as _rules  # noqa: F401  # registers them
from schedules.registry import RULES

MAX_SKETCHES = 64  # of one computation; chains of stages with many alternatives are cut here


@dataclass(frozen=True, slots=True)
class _Partial:
    sketch: Sketch
    done: frozenset[str]


def generate(dag: ComputeDAG, target: Target) -> tuple[Sketch, ...]:
    """All sketches that the rules make for a computation, most promising first. Never empty."""
    partial = [_Partial(Sketch(), frozenset())]
    finished: list[Sketch] = []
    while partial:
        current = partial.pop(0)
        state = structure(current.sketch, dag)
        stage = next(
            (s for s in reversed(state.stages) if s.name not in current.done and not isinstance(s.place, Inlined)), None
        )
        if stage is None:
            finished.append(current.sketch)
            continue
        for rule in RULES:
            extensions = rule.expand(state, stage, target)
            if extensions:
                partial.extend(
                    _Partial(
                        current.sketch.extended(e.steps, e.holes, rule.name) if e.steps else current.sketch,
                        current.done | set(e.done) | {stage.name},
                    )
                    for e in extensions
                )
                break
        else:
            partial.append(_Partial(current.sketch, current.done | {stage.name}))
        partial = partial[:MAX_SKETCHES]
    return tuple(dict.fromkeys(finished))


def structure(sketch: Sketch, dag: ComputeDAG) -> State:
    """The loops of a sketch with its holes open. Repacking with an open width is left out: it changes no loop."""
    state = State.initial(dag)
    for step in sketch.steps:
        if isinstance(step, Layout) and refs(step):
            continue
        state = step.apply(state)
    return state


def default_trace_of(dag: ComputeDAG, target: Target) -> Sketch:
    """The sketch that is taken when nothing was ever measured."""
    sketches = generate(dag, target)
    if not sketches:
        raise ScheduleError("no rule applies to this computation.")
    return sketches[0]
