"""The programs that candidates are compared with, as artifacts for the run child.

    workload ──┬── the DAG as it is ─────▶ Oracle.plain    every candidate is compared with its answers
               └── widen(DAG), float64 ──▶ Oracle.wide     those whose algorithm rounds differently, too

Both are the naive loops that the expressions say. Where they are long, the outer loops of every stage are
divided among threads: each thread runs a chunk of the same loops in the same order, so every element is
computed by the same operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG, StageOp
from autotensor.te.scan import hosts, steps_of
from autotensor.te.wider_floats import widen
from autotensor.te.workload import Workload

LONG_POINTS = 1 << 22  # of a stage: a few milliseconds of naive loops; shorter ones stay wholly unscheduled
CHUNKS = 64  # iterations that the outer loops should have together, for any number of threads


@dataclass(frozen=True, slots=True)
class Oracle:
    """Compiled code as JSON data (`request.to_plain`)."""

    plain: Mapping[str, Any]
    wide: Mapping[str, Any] | None = None  # None: no candidate so far needs it


def oracle_trace(dag: ComputeDAG, long_points: int = LONG_POINTS) -> Trace:
    """The empty trace, or one that divides the outer loops of long stages among threads.

    for n in 0..1: for h in 0..224: for w …     ──▶     parallel for (n*h) in 0..224: for w …

    Steps of scans stay as they are: they come in order.
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
    """How many outer spatial axes are needed for CHUNKS iterations; all, if even they have fewer.

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
    """The same computation in float64; it takes the same arrays."""
    return Workload(f"{workload.name} in float64", widen(workload.dag))
