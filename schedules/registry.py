"""Sketch rules: expert knowledge that turns a stage into partial sketches.

A rule looks at one stage of a partly scheduled state and answers with extensions, or with nothing when it
does not apply. Rules are tried in order (a number; `RULES` is sorted by it); the first that
answers decides the stage. An answer may be a generator: a default schedule takes the first extension only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autotensor.base.target import GPU_KINDS, Target
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import Step


@dataclass(frozen=True, slots=True)
class Extension:
    """Steps and holes to append; `done` are stages that need no rule any more.

    `defer` leaves the stage for later: it is looked at again when all others are done, if it is still
    untouched.
    """

    steps: tuple[Step, ...] = ()
    holes: tuple[Hole, ...] = ()
    done: tuple[str, ...] = ()
    defer: bool = False


CPU, GPU = ("llvm", "interp"), GPU_KINDS
ANY = (*CPU, *GPU)

Expand = Callable[[State, Stage, Target], Iterable[Extension]]


@dataclass(frozen=True, slots=True)
class SketchRule:
    """A named rule with its place in the order."""

    name: str
    order: int
    expand: Expand
    devices: tuple[str, ...] = CPU  # kinds of targets that it is for


RULES: list[SketchRule] = []


def sketch_rule(name: str, *, order: int, devices: tuple[str, ...] = CPU) -> Callable[[Expand], Expand]:
    """Registers the decorated function as a sketch rule for these kinds of targets."""

    def register(fn: Expand) -> Expand:
        RULES.append(SketchRule(name, order, fn, devices))
        RULES.sort(key=lambda r: r.order)
        return fn

    return register
