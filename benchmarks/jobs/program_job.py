"""A tensor program as a contestant's job: what peers and we need to run it, and tuning it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from peers import Ready, Spec
from suite.programs import PROGRAMS
from suite.programs.drawn import drawn
from suite.programs.program import Array, Program

from jobs.tune_report import of_one_task


class ProgramJob:
    """A program of the suites, or one that is drawn: "drawn 7"."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @staticmethod
    def named(name: str) -> ProgramJob:
        kind, _, number = name.partition(" ")
        if kind == "drawn":
            return ProgramJob(drawn(int(number)))
        return ProgramJob(next(p for p in PROGRAMS if p.name == name))

    @cached_property
    def inputs(self) -> list[Array]:
        return self.program.inputs()

    def flat(self, outputs: Any) -> Array:
        """All results behind one another."""
        found = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return np.concatenate([np.asarray(o, np.float32).reshape(-1) for o in found])

    def reference(self) -> Array:
        return self.flat(tuple(self.program.reference()))

    def ours(self, spec: Spec) -> Ready:
        """Built from the log of the spec, or with default schedules; results are new arrays, as elsewhere."""
        import autotensor as at
        from autotensor.base.target import parse
        from tuning_db import connect

        target = parse(f"llvm -threads={spec.threads}")
        f = at.build(list(self.program.te()), target=target, db=spec.log or connect(":memory:"))
        return (lambda: f(*self.inputs)), lambda: self.flat(f(*self.inputs))

    def tune(self, spec: Spec, trials: int, seed: int) -> dict[str, Any]:
        """Fills the log of the spec. The same call again measures nothing."""
        import autotensor as at
        from autotensor.base.target import parse

        target = parse(f"llvm -threads={spec.threads}")
        tensors = list(self.program.te())
        report = at.tune(
            tensors, trials, target, db=spec.log, seed=seed, name=self.program.name, progress=False
        )
        return of_one_task(report)
