"""The oracle's programs: naive loops, divided among threads if they are long."""

from __future__ import annotations

import pytest
from comparison import check
from recurrences import recurrent
from strategies import case_of

from autotensor import te
from autotensor.lowering.pipeline import lower
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.oracle import LONG_POINTS, oracle_trace, wide_workload
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload


def image(n: int, h: int, c: int) -> ComputeDAG:
    x = te.placeholder((n, h, h, c), name="x")
    return ComputeDAG.of(te.compute((n, h, h, c), lambda n, h, w, c: x[n, h, w, c] * 2.0, name="y"))


def test_steps_of_scans_stay_in_order() -> None:
    """They stay whole, however long they are; other loops are divided."""
    dag = ComputeDAG.of([*recurrent(64, 8, 128)])
    trace = oracle_trace(dag, long_points=1)
    lower(trace.replay(dag))
    assert {s.stage for s in trace.steps} == {"first"}  # type: ignore[attr-defined]


def test_short_loops_stay_as_they_are() -> None:
    assert oracle_trace(image(1, 224, 3)) == Trace()


def test_outer_loops_of_long_stages_are_divided() -> None:
    assert oracle_trace(image(1, 224, 128)).to_python() == 's["y"].fuse("n", "h")\ns["y"].parallel("(n*h)")'
    assert oracle_trace(image(64, 32, 64)).to_python() == 's["y"].parallel("n")'


def test_a_sum_of_everything_cannot_be_divided() -> None:
    x, k = te.placeholder((LONG_POINTS,), name="x"), te.reduce_axis(LONG_POINTS)
    assert oracle_trace(ComputeDAG.of(te.compute((1,), lambda i: te.sum(x[k] + i, axis=k)))) == Trace()


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sample(8)
def test_divided_loops_mean_the_same(seed: int) -> None:
    """For any number of threads, in the types of the computation and in float64."""
    dag, _ = case_of(seed, steps=0)
    for made in (dag, wide_workload(Workload.of(dag)).dag):
        check(made, oracle_trace(made, long_points=1), seed=seed)
