"""The programs that candidates are compared with, as artifacts for the run child.

    workload ──┬── the DAG as it is ─────▶ Oracle.plain    every candidate is compared with these answers
               └── widen(DAG), float64 ──▶ Oracle.wide     those whose algorithm rounds differently, too

Both are the naive loops of the expressions. If these take long, the outer loops of every stage are divided
among threads. Each thread runs a chunk of the same loops in the same order, so every element is computed by
the same operations.

Where the terms of an inner sum cancel and a later stage divides by the sum, the oracle is far from exact.
`fit_to_compare` finds such inputs: there, answers that differ say nothing about a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.checks import MOST_POINTS, compare, output_bounds, sizes_of_terms
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.reference import evaluate
from autotensor.te.scan import hosts, steps_of
from autotensor.te.wider_floats import widen
from autotensor.te.workload import Workload

Array = np.ndarray[Any, np.dtype[Any]]

# points of a stage that take a few milliseconds in naive loops; shorter stages stay unscheduled
LONG_POINTS = 1 << 22
CHUNKS = 64  # the outer loops together should have this many iterations, for any number of threads


@dataclass(frozen=True, slots=True)
class Oracle:
    """Compiled code as JSON data (`request.to_plain`)."""

    plain: Mapping[str, Any]
    wide: Mapping[str, Any] | None = None  # None: no candidate has needed it yet


def oracle_trace(dag: ComputeDAG, long_points: int = LONG_POINTS) -> Trace:
    """The empty trace, or one that divides the outer loops of long stages among threads.

    for n in 0..1: for h in 0..224: for w …     ──▶     parallel for (n*h) in 0..224: for w …

    The steps of scans stay as they are, because they must run in order.
    """
    s = Schedule(dag)
    ordered = {
        op for host in hosts(dag.stages, dag.carried) for op in steps_of(host, dag.stages, dag.carried)
    }
    for stage in dag.stages:
        if stage in ordered:
            continue
        if stage.points() >= long_points and (outer := _outer(stage)):
            fused = s[stage.name].op.axis[0]
            for axis in s[stage.name].op.axis[1:outer]:
                fused = s[stage.name].fuse(fused, axis)
            s[stage.name].parallel(fused)
    return s.trace


def _outer(stage: StageOp) -> int:
    """The number of outer spatial axes that are needed for CHUNKS iterations; all, if they have fewer
    together.

    0 for a stage of one point.

    >>> from autotensor import te
    >>> x = te.compute((1, 224, 3), lambda n, h, c: te.const(0.0), name="x")
    >>> _outer(ComputeDAG.of(x).stages[0])
    2
    """
    iterations = 1
    for n, axis in enumerate(stage.axes, 1):
        iterations *= axis.extent
        if iterations >= CHUNKS:
            return n
    return len(stage.axes) if iterations > 1 else 0


def wide_workload(workload: Workload) -> Workload:
    """The same computation in float64. It takes the same arrays."""
    return Workload(f"{workload.name} in float64", widen(workload.dag))


def fit_to_compare(dag: ComputeDAG, inputs: Mapping[str, Array], answers: Mapping[str, Array]) -> bool:
    """Whether the answers are within half the allowed error of exact answers.

    Two such programs are within the allowed error of each other. Computations that take NumPy long are not
    tested; they count as fit.
    """
    if sum(s.points() for s in dag.stages) > MOST_POINTS:
        return True
    terms = sizes_of_terms(dag, inputs)
    bounds = {name: b / 2 for name, b in output_bounds(dag).items() if 0.0 < b < math.inf}
    with np.errstate(all="ignore"):  # infinities and NaN are compared like numbers
        exact = evaluate(dag, inputs, accumulate=np.float64)
    return not any(
        compare(answers[name], exact[name], bound, terms.get(name, 0.0)).complaint
        for name, bound in bounds.items()
        if answers[name].dtype.kind not in "biu"
    )
