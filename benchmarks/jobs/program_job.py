"""A tensor program as a contestant's job: the forms that peers and autotensor run, and its tuning."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from peers import Ready, Skip, Spec
from suite.programs import PROGRAMS
from suite.programs.drawn import drawn
from suite.programs.program import Array, Program

from jobs.tune_report import of_one_task

MOST_STEPS = 30_000  # most steps of a loop that Python runs


class ProgramJob:
    """A program of the suites, or a drawn program such as "drawn 7"."""

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
        """All results as one array, one after another."""
        found = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return np.concatenate([np.asarray(o, np.float32).reshape(-1) for o in found])

    @property
    def arrays(self) -> list[list[Array]]:
        return [self.inputs]

    @cached_property
    def dag(self) -> Any:
        from autotensor.te.dag import ComputeDAG

        return ComputeDAG.of(list(self.program.te()))

    @cached_property
    def steps(self) -> int:
        """The number of steps of the longest recurrence; 0 without a recurrence."""
        from autotensor.te.scan import hosts

        return max((h.axes[0].extent for h in hosts(self.dag.stages, self.dag.carried)), default=0)

    def module(self) -> Any:
        """The program's array functions as a torch module. Results are made row-major, as for all
        contestants; an einsum's may not be. Raises Skip if they are a very long loop in Python."""
        import torch
        from peers import torch_words

        if self.steps > MOST_STEPS:
            raise Skip(f"{self.steps} steps in a loop of Python's")
        program = self.program

        class Module(torch.nn.Module):  # type: ignore[misc]
            def forward(self, *inputs: Any) -> Any:
                found = program.arrays(torch_words, *inputs)
                many = isinstance(found, tuple)
                return tuple(x.contiguous() for x in found) if many else found.contiguous()

        return Module()

    def reference(self) -> Array:
        return self.flat(tuple(self.program.reference()))

    def ours(self, spec: Spec) -> Ready:
        """Builds the program from the log of the spec, or with default schedules. Results are new arrays, as
        for all contestants."""
        import autotensor as at
        from autotensor.base.target import parse
        from tuning_db import connect

        target = parse(f"llvm -threads={spec.threads}")
        f = at.build(list(self.program.te()), target=target, db=spec.log or connect(":memory:"))
        return (lambda: f(*self.inputs)), lambda: self.flat(f(*self.inputs))

    def tune(self, spec: Spec, trials: int, seed: int) -> dict[str, Any]:
        """Fills the log of the spec. A second call with the same arguments measures nothing."""
        import autotensor as at
        from autotensor.base.target import parse

        target = parse(f"llvm -threads={spec.threads}")
        tensors = list(self.program.te())
        report = at.tune(
            tensors, trials, target, db=spec.log, seed=seed, name=self.program.name, progress=False
        )
        return of_one_task(report)
