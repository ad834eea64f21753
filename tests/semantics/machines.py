"""Four ways to compute the same element: code for scalars, for vectors with their tails, the interpreter, and
OpenCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from operations import Operation
from special_numbers import Array, uneven

import autotensor as at
from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.base.target import parse
from autotensor.codegen.interp.interpreter import run_program
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.runtime.open_artifact import open_artifact
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace

LANES = 16
Results = list[tuple[Array, tuple[Array, ...]]]  # the result of every operation, and its operands


def compute(machine: str, operations: Sequence[Operation]) -> Results:
    """The results of operations that read the same types, for all their special elements."""
    types = operations[0].types
    assert all(o.types == types for o in operations)
    arrays = uneven(*operations[0].operands())
    n = arrays[0].size
    inputs = [te.placeholder((n,), t, name=f"x{k}") for k, t in enumerate(types)]
    outputs = [
        te.compute((n,), lambda i, o=o: o.make(*(x[i] for x in inputs)), name=f"y{k}")
        for k, o in enumerate(operations)
    ]
    found = MACHINES[machine](inputs, outputs, arrays)
    return [(np.asarray(y), arrays) for y in found]


def _scalar(inputs: list[Any], outputs: list[Any], arrays: Sequence[Array]) -> Any:
    return _tuple(at.build(te.create_schedule(outputs), [*inputs, *outputs])(*arrays))


def _vector(inputs: list[Any], outputs: list[Any], arrays: Sequence[Array]) -> Any:
    s = te.create_schedule(outputs)
    for y in outputs:
        _, lanes = s[y].split(y.op.axis[0], factor=LANES)
        s[y].vectorize(lanes)
    return _tuple(at.build(s, [*inputs, *outputs])(*arrays))


def _interpreter(inputs: list[Any], outputs: list[Any], arrays: Sequence[Array]) -> Any:
    s = te.create_schedule(outputs)
    program = lower(s.trace.replay(s.dag))
    results = [np.zeros(y.shape, dtype_of(y.dtype).numpy) for y in outputs]
    names = [t.name for t in (*inputs, *outputs)]
    run_program(program, dict(zip(names, [*arrays, *results], strict=True)))
    return results


def _opencl(inputs: list[Any], outputs: list[Any], arrays: Sequence[Array]) -> Any:
    dag, target = ComputeDAG.of([*inputs, *outputs]), parse("opencl")
    return _tuple(open_artifact(compile_trace(dag, default_trace(dag, target), target, "walk"))(*arrays))


def _tuple(found: Any) -> Any:
    return found if isinstance(found, tuple) else (found,)


MACHINES: dict[str, Callable[[list[Any], list[Any], Sequence[Array]], Any]] = {
    "scalar": _scalar,
    "vector": _vector,
    "interpreter": _interpreter,
    "opencl": _opencl,
}
