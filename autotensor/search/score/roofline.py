"""The roofline of a task: a lower bound of its seconds for all schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import inf

from autotensor.base.errors import ScheduleError
from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import available
from autotensor.ir.expr import Binary, Const, Op
from autotensor.ir.node import Node
from autotensor.ir.visit import any_node
from autotensor.schedule.algorithm import FEWEST_OPERATIONS
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.state import State
from autotensor.search.task import Task
from autotensor.te.dag import ComputeDAG
from schedules.prior.rates import Rates


def lower_bound(task: Task, rates: Rates, *, cold: bool = True, sketches: Sequence[Sketch] = ()) -> float:
    """Seconds that no schedule can beat: operations at peak rate, or weights from memory.

    cold: weights come from memory in every call, as in a whole model. sketches: the sketches that may be
    used. If some use an algorithm, fewer operations may be enough.
    """
    dag = task.workload.dag
    fastest = fastest_gain(dag, rates, task.target)
    operations = fewest_operations(dag, sketches) / fastest
    weights = sum(b.bytes for b in dag.inputs if b.name in dag.constants) if cold else 0
    return max(operations / (rates.flops * task.target.num_cores), weights / rates.memory_bandwidth)


def fewest_operations(dag: ComputeDAG, sketches: Sequence[Sketch]) -> float:
    """The operations as written, or with the sketches' algorithms, which may need fewer."""
    written = float(dag.flops() + products_of_integers(dag))
    chosen = {tuple(x for x in s.steps if isinstance(x, UseAlgorithm)) for s in sketches} - {()}
    if not chosen:
        return written
    return min(written * FEWEST_OPERATIONS, *(_left(dag, steps) for steps in chosen))


def _left(dag: ComputeDAG, steps: Sequence[UseAlgorithm]) -> float:
    """Operations that remain with these algorithms; infinite if they need stages of other steps."""
    try:
        state = reduce(lambda state, step: step.apply(state), steps, State.initial(dag))
    except ScheduleError:
        return inf
    made = replace(dag, stages=tuple(s.op for s in state.stages))
    return float(made.flops() + products_of_integers(made))


def fastest_gain(dag: ComputeDAG, rates: Rates, target: Target) -> float:
    """The rate of the fastest instruction for the types of some stage, as a multiple of FMAs in float32."""
    gains = [1.0]
    for op in dag.stages:
        types = {load.buffer.dtype for load in op.loads()} | {b.dtype for b in op.buffers}
        gains += [rates.gain(dot, target) for dot in available(target) if types & {*dot.types[1:]}]
    return max(gains)


def products_of_integers(dag: ComputeDAG) -> int:
    """Multiplications and additions in sums of integers' products. Those of floats count as FLOPs."""
    whole = (op for op in dag.stages if op.is_reduction and op.buffers[0].dtype.is_int)
    return sum(2 * op.points() for op in whole if any_node(op.bodies[0], _multiplies))


def _multiplies(node: Node) -> bool:
    return isinstance(node, Binary) and node.op is Op.MUL and not isinstance(node.b, Const)
