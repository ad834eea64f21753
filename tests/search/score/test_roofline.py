"""The roofline counts the operations that algorithms leave, over all sketches."""

from __future__ import annotations

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.search.score.roofline import lower_bound
from autotensor.search.task import Task
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import generate
from schedules.prior.rates import Rates

TARGET = parse("llvm -mcpu=znver3 -threads=1")
RATES = Rates.guess(TARGET)


def bound(dag: ComputeDAG) -> tuple[float, float]:
    """The bounds of the computation as written, and with all sketches."""
    task = Task(Workload.of(dag), TARGET)
    sketches = generate(task.workload.dag, TARGET)
    assert any(isinstance(step, UseAlgorithm) for s in sketches for step in s.steps)
    return lower_bound(task, RATES, cold=False), lower_bound(task, RATES, cold=False, sketches=sketches)


def test_an_algorithm_of_a_stage_that_other_steps_make() -> None:
    """Winograd's convolution stands behind a tile that `cache_write` makes."""
    x = at.input((1, 64, 56, 56))
    y = at.ops.relu(at.ops.conv2d(x, np.ones((64, 64, 3, 3), np.float32), padding=1) + x)
    (dag,) = (t.workload.dag for t in at.plan_model(y, TARGET).search_tasks() if "conv2d" in t.workload.name)
    written, least = bound(dag)
    assert least < written


def test_a_chain_of_three_is_two_products() -> None:
    p, q, r = te.placeholder((8, 64)), te.placeholder((64, 64)), te.placeholder((64, 64))
    u, v = te.reduce_axis(64), te.reduce_axis(64)
    chain = te.compute((8, 64), lambda i, j: te.sum(p[i, u] * q[u, v] * r[v, j], axis=[u, v]))
    written, least = bound(ComputeDAG.of([p, q, r, chain]))
    assert least < written / 16
