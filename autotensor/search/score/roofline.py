"""The roofline of a task: seconds that no schedule can beat."""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.schedule.algorithm import FEWEST_OPERATIONS
from autotensor.schedule.primitives.algorithm import algorithms_of
from autotensor.schedule.sketch import Sketch
from autotensor.search.machine.rates import Rates
from autotensor.search.task import Task


def lower_bound(task: Task, rates: Rates, *, cold: bool = True, sketches: Sequence[Sketch] = ()) -> float:
    """Seconds that no schedule can beat: operations at peak, or weights from memory.

    cold: weights come from memory in every call, as in a whole model. sketches: those that may be used; with
    an algorithm among them, fewer operations do.
    """
    dag = task.workload.dag
    other = any(algorithms_of(sketch.steps) for sketch in sketches)
    operations = dag.flops() * (FEWEST_OPERATIONS if other else 1.0)
    weights = sum(b.bytes for b in dag.inputs if b.name in dag.constants) if cold else 0
    return max(operations / (rates.flops * task.target.num_cores), weights / rates.memory_bandwidth)
