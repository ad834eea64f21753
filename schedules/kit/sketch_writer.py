"""A base class for rules that are written as a class. It collects a sketch's steps and holes, in order.

class _MySketch(SketchWriter):
    def build(self) -> Extension:
        self.hole("C/tile", singles((4, 8)), (4,))
        self.split("C", "i", Ref("C/tile"))
        block = self.fuse("C", ("i.0", "j"))
        self.write(Parallel("C", block))
        return self.extension("C")
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole, Option
from autotensor.schedule.state import Ref
from autotensor.schedule.step import Step
from schedules.kit.shared_steps import fused
from schedules.registry import Extension


class SketchWriter:
    """Collects the steps and holes of one sketch."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.holes: list[Hole] = []

    def write(self, *steps: Step) -> None:
        self.steps += steps

    def split(self, stage: str, loop: str, *inner: int | Ref) -> None:
        """Splits a loop. inner: the extents of the inner loops, outer to inner."""
        self.write(SplitStep(stage, loop, inner))

    def fuse(self, stage: str, loops: Sequence[str]) -> str:
        """Fuses neighbouring loops. Returns the new loop's name."""
        steps, name = fused(stage, loops)
        self.write(*steps)
        return name

    def hole(self, name: str, options: tuple[Option, ...], default: Option) -> None:
        self.holes.append(Hole(name, options, default))

    def extension(self, *done: str) -> Extension:
        """The extension with all collected steps and holes. done: stages that need no further rule."""
        return Extension(tuple(self.steps), tuple(self.holes), done)
