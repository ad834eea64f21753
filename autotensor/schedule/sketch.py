"""Sketches: traces with holes, and decisions that fill them.

A hole never changes the loop structure: structural choices are separate sketches. An option is a tuple of
ints, so that numbers that belong together (rows and columns of a register tile) are one decision. In a step,
`Ref("tile", 1)` stands for component 1 of the chosen option of hole "tile".
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autotensor.base.counted import counted
from autotensor.base.errors import ScheduleError
from autotensor.schedule.step import Step, fill, refs, to_json
from autotensor.schedule.trace import Trace

Option = tuple[int, ...]
Decisions = Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Hole:
    """An open decision with `options`. `default` is the option that the rule chooses without measuring."""

    name: str
    options: tuple[Option, ...]
    default: Option

    def __post_init__(self) -> None:
        for option in (*self.options, self.default):
            if not isinstance(option, tuple):
                raise ScheduleError(
                    f"hole {self.name!r}: {option!r} is not a tuple; an option is a tuple of ints.",
                    fix='Write Hole("lanes", ((8,), (16,)), (8,)).',
                )
        if self.default not in self.options:
            raise ScheduleError(f"hole {self.name!r}: default {self.default} is not an option.")


@dataclass(frozen=True)
class Sketch:
    """Steps with holes. `made_by` names the rules that made the sketch, in order."""

    steps: tuple[Step, ...] = ()
    holes: tuple[Hole, ...] = ()
    made_by: tuple[str, ...] = ()

    def extended(self, steps: tuple[Step, ...], holes: tuple[Hole, ...], rule: str) -> Sketch:
        return Sketch((*self.steps, *steps), (*self.holes, *holes), (*self.made_by, rule))

    def __repr__(self) -> str:
        rules = ", ".join(self.made_by) or "no rule"
        steps, holes = counted(len(self.steps), "step"), counted(len(self.holes), "hole")
        return f"Sketch(by {rules}; {steps}, {holes})"

    def __str__(self) -> str:
        """The steps as calls, and a line for each hole."""
        holes = (f"# {h.name}: {counted(len(h.options), 'option')}, default {h.default}" for h in self.holes)
        return "\n".join((Trace(self.steps).to_python(), *holes))

    @cached_property
    def hash(self) -> str:
        """The sketch's identity: its steps with their holes, and the options of the holes."""
        text = json.dumps([[to_json(s) for s in self.steps], [[h.name, h.options] for h in self.holes]])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def text(self) -> str:
        """The steps with their holes, in the JSON form of a trace."""
        return Trace(self.steps).to_json()

    @property
    def size(self) -> int:
        """The number of candidates."""
        total = 1
        for h in self.holes:
            total *= len(h.options)
        return total

    def defaults(self) -> dict[str, Option]:
        return {h.name: h.default for h in self.holes}

    def random(self, rng: random.Random) -> dict[str, Option]:
        return {h.name: rng.choice(h.options) for h in self.holes}

    @cached_property
    def _open(self) -> tuple[bool, ...]:
        """For each step, whether it has holes. Steps without holes are the same for every candidate."""
        return tuple(bool(refs(s)) for s in self.steps)

    def fill(self, decisions: Decisions) -> Trace:
        """The trace for these decisions. Raises ScheduleError if one is missing or not among its options."""
        for h in self.holes:
            if decisions.get(h.name) not in h.options:
                raise ScheduleError(f"hole {h.name!r} cannot be {decisions.get(h.name)}.")
        pairs = zip(self.steps, self._open, strict=True)
        return Trace(tuple(fill(s, decisions) if is_open else s for s, is_open in pairs))
