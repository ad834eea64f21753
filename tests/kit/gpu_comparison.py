"""Runs one computation under one GPU trace in the interpreter: no race, no missing barrier, no access out of
bounds, and the same bits as the empty trace.

    check_gpu(dag, trace)     raises comparison.Different, with everything to paste, otherwise
"""

from __future__ import annotations

from comparison import agree, blaming, expected, interpreted, verified
from gpu_traces import TARGET

from autotensor.base.target import Target
from autotensor.ir.func import Program
from autotensor.lowering.pipeline import lower
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import random_inputs


def check_gpu(dag: ComputeDAG, trace: Trace, *, seed: int = 0, target: Target = TARGET) -> Program:
    """The program for a target, after the check."""
    inputs = random_inputs(dag, seed, "integer")
    truth = expected(dag, inputs)
    with blaming("lowering", dag, trace):
        program = lower(trace.replay(dag), target, hook=verified)
    with blaming("interpreter", dag, trace):
        agree(dag, inputs, truth, interpreted(dag, program, inputs, 1))
    return program
