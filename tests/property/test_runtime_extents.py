"""For every value of its run-time extents, a program computes the same as a program for that value.

Random computations with symbols for some extents, under random legal traces: the interpreter on the final
program, with arrays of just the size, and native code give what the reference gives for these numbers.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from comparison import GUARD, GUARD_BYTE, Different, agree, blaming, fresh, verified
from fences import fenced
from open_dags import opened
from random_dags import random_dag
from random_traces import random_trace

from autotensor.base.errors import LoweringError, ScheduleError
from autotensor.base.target import host
from autotensor.codegen.interp.interpreter import run_program
from autotensor.compiler import compile_trace
from autotensor.lowering.pipeline import lower
from autotensor.runtime.files.artifact import EXTENTS
from autotensor.runtime.open_artifact import open_artifact
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.fixed_extents import Values, corners, fixed
from autotensor.te.reference import evaluate, random_inputs

LONG = 1000
CHUNK = 50


def case_of(seed: int) -> tuple[ComputeDAG, Trace] | None:
    """A computation with symbols and a trace of it; None where nothing of the computation can be open."""
    rng = random.Random(seed)
    dag = opened(random_dag(rng, 4), rng)
    return (dag, random_trace(rng, dag, 10)) if dag.symbols() else None


def check_open(dag: ComputeDAG, trace: Trace, seed: int) -> bool:
    """Raises Different unless all values agree. False for a trace that run-time extents refuse."""
    rng = random.Random(seed)
    with blaming("lowering", dag, trace):
        try:
            program = lower(trace.replay(dag), hook=verified)
        except (ScheduleError, LoweringError) as refused:
            if "run-time extent" not in refused.what:
                raise
            return False
        module = open_artifact(compile_trace(dag, trace, host()), threads=1)
    choices = [*corners(dag), *({s: rng.randint(s.least, s.most) for s in dag.symbols()} for _ in range(3))]
    for n, values in enumerate(choices):
        own = fixed(dag, values)
        inputs = random_inputs(own, seed + n, "integer")
        want = evaluate(own, inputs)
        said = ", ".join(f"{s.name} = {v}" for s, v in values.items())
        with blaming(f"interpreter, {said}", dag, trace):
            agree(own, inputs, want, _interpreted(program, own, values, inputs))
        with blaming(f"native code, {said}", dag, trace):
            for threads in (1, 3):
                module.threads = threads
                agree(own, inputs, want, _native(module, own, inputs))
    return True


def _interpreted(program, own, values: Values, inputs):  # type: ignore[no-untyped-def]
    arrays = {name: a.copy() for name, a in inputs.items()} | {b.name: fresh(b) for b in own.outputs}
    arrays[EXTENTS] = np.array(list(values.values()), np.int64)
    run_program(program, arrays, check=False)
    return {b.name: arrays[b.name] for b in own.outputs}


def _native(module, own, inputs):  # type: ignore[no-untyped-def]
    """The outputs of native code between guard bytes, from inputs that end where memory ends."""
    raw = {b.name: np.full(b.bytes + 2 * GUARD, GUARD_BYTE, np.uint8) for b in own.outputs}
    out = {
        b.name: raw[b.name][GUARD : GUARD + b.bytes].view(b.dtype.numpy).reshape(b.shape) for b in own.outputs
    }
    for b in own.outputs:
        out[b.name][...] = fresh(b)
    given = {n: fenced(a) for n, a in inputs.items()}
    module(*({**given, **out}[a.name] for a in module.args))
    for name, bytes_ in raw.items():
        if not ((bytes_[:GUARD] == GUARD_BYTE).all() and (bytes_[-GUARD:] == GUARD_BYTE).all()):
            raise Different(f"bytes around output {name!r} were overwritten.")
    return {name: a.copy() for name, a in out.items()}


def check_seeds(first: int, count: int) -> int:
    """The number of cases that were computed. The others have no open extent, or were refused."""
    cases = [(seed, case_of(seed)) for seed in range(first, first + count)]
    return sum(check_open(*case, seed) for seed, case in cases if case is not None)


def test_random_computations_at_random_extents() -> None:
    assert check_seeds(0, 25) > 10  # the test computes, not only refuses


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, LONG, CHUNK))
def test_at_length(first: int) -> None:
    check_seeds(first, CHUNK)
