"""An operator of the suite as a contestant's job: the forms that peers and autotensor run, and its tuning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from peers import Ready, Skip, Spec
from suite import get
from suite.case import Case

from jobs.tune_report import of_one_task

Array = np.ndarray[Any, np.dtype[Any]]


class OperatorJob:
    """A case of the suite. `module`, `onnx`, `arrays` and `channels_last` are those of the case."""

    def __init__(self, name: str, case: Case | None = None) -> None:
        """`case`: a case that is not in the suite."""
        self.case = case or get(name)
        self.arrays = self.case.arrays
        self.channels_last = self.case.channels_last

    def module(self) -> Any:
        return self.case.module()

    def onnx(self) -> bytes:
        return self.case.onnx()

    def numpy_function(self) -> Callable[[], Array] | None:
        inputs, constants = self.arrays
        given = (*inputs, *constants.values())
        return (lambda: self.case.numpy(*given)) if self.case.has_numpy else None

    def ours(self, spec: Spec) -> Ready:
        """Builds the operator from the log of the spec, or with default schedules. Weights are bound, and the
        output array is given."""
        import autotensor as at
        from autotensor.runtime.arrays import aligned_copy, aligned_empty
        from tuning_db import connect

        target, tensors = target_of(spec), self.case.tensors()
        if spec.numerics == "fast" and not _differs(tensors, target):
            raise Skip("as strict: no fast algorithm applies")
        f = at.build(tensors, target=target, db=spec.log or connect(":memory:"))
        inputs, constants = self.arrays
        if constants:
            f = f.bind(**{n: self.case.constant_to_ours(a) for n, a in constants.items()})
        given = [aligned_copy(self.case.to_ours(a)) for a in inputs]
        out = aligned_empty(tensors[-1].shape, "float32")

        def run() -> None:
            f(*given, out)

        def output() -> Array:
            out[...] = np.nan
            run()
            return self.case.from_ours(np.array(out))

        return run, output

    def tune(self, spec: Spec, trials: int, seed: int) -> dict[str, Any]:
        """Fills the log of the spec. A second call with the same arguments measures nothing."""
        import autotensor as at

        target, tensors = target_of(spec), self.case.tensors()
        if spec.numerics == "fast" and not _differs(tensors, target):
            raise Skip("as strict: no fast algorithm applies")
        name = self.case.name
        report = at.tune(tensors, trials, target, db=spec.log, seed=seed, name=name, progress=False)
        return of_one_task(report)


def target_of(spec: Spec) -> Any:
    """The target: this machine, with the processor, threads and numerics of the spec."""
    from autotensor.base.target import parse

    return parse(f"llvm -mcpu={spec.cpu} -threads={spec.threads} -numerics={spec.numerics}")


def _differs(tensors: list[Any], target: Any) -> bool:
    """Whether fast numerics give this computation a schedule that strict numerics lack."""
    from dataclasses import replace

    from autotensor.te.dag import ComputeDAG
    from schedules.generate import generate

    dag, _ = ComputeDAG.of(tensors).canonical()
    return generate(dag, target) != generate(dag, replace(target, numerics="strict"))
