"""Cheap pointwise stages are inlined into their consumers, unless these would compute them repeatedly.

Expensive stages (exp) are inlined only into a single consumer that reads each element once: a pointwise
stage, or a reduction that has another term for each element. Its vectors must then read contiguous memory, or
more of its loads must be contiguous than with the stage kept.
Padding before a reduction is left to the reduction's rule, which decides where to copy it. A chain is cut if
the expression would be nested too deeply.

A product reads each element of its operands hundreds of times, once for each tile. If a stage is inlined into
several readers, each of them computes it. In these cases, the costs of both choices (`_inlined`, `_stored`)
decide whether the stage is inlined or computed whole. The other choice is offered second, unless it seems
many times as slow. A table from which data select far more elements than the table has is computed whole. For
a stage that only one pipeline of stencils reads, the rule `pipeline` decides (`pipeline.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.target import Target
from autotensor.ir.expr import Load
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import MOST_NESTED
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.state import Stage, State, nested
from autotensor.te.dag import StageOp
from autotensor.te.stage import evaluated
from schedules.cpu import cpu_of
from schedules.kit.stage_analysis import (
    is_constant,
    is_expensive,
    is_padding,
    is_read_by_terms,
    lanes_of,
    reads,
    reads_once,
    second_cache,
    undecided,
)
from schedules.placement.cost import GATHER, Group, weight
from schedules.placement.sides import mean_evaluation
from schedules.registry import Extension
from schedules.rules.pipeline import group_of

HOPELESS = 8.0  # an alternative that seems this many times as slow is not offered (chosen, 2026-11)
# A stage with several readers may be inlined although this seems up to this many times as slow, because the
# count does not see that rows of the readers share work. 13 of 140 drawn programs are 1.04 to 5.8 times as
# fast with 2 as with 8, two 0.86 and 0.99 times; with 1, five are slower (Zen 3, 2026-11).
SURE = 2.0
OFTEN = 4  # a table is computed whole if each element is read at least this many times (chosen, 2026-11)
# The results of a product for which a tile evaluates an element of an operand once: for an element of a row,
# the lanes of two to four vectors; for an element of a column, eight rows (chosen, 2026-11).
ROW_SERVES, COLUMN_SERVES = 32, 8
MOST_LOADS = 64  # loads that are followed through stages that may be inlined


def inline(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    consumers = state.consumers(stage)
    if (
        op.is_reduction
        or state.is_output(stage)
        or not consumers
        or not undecided(state, stage)
        or any(nested(c.op, op) > MOST_NESTED for c in consumers)
    ):
        return ()
    summed = [c for c in consumers if c.op.is_reduction]
    if is_padding(op) and summed:
        return ()
    if is_expensive(op):
        own = is_read_by_terms if summed else reads_once
        single = len(consumers) == 1 and own(consumers[0].op, op)
        if not single or not _runs_along(state, consumers[0].op, op) or (summed and target.kind != "llvm"):
            return ()
    gone = Extension((Inline(stage.name),), done=(stage.name,))
    kept = Extension(stays=(stage.name,), onward=True)
    if target.kind == "llvm" and _is_table(op, consumers):
        return (kept, gone)
    if summed and is_expensive(op):
        return (gone, kept)
    decided = len(consumers) == 1 and not summed and _is_decided(state, consumers[0], stage, target)
    if target.kind != "llvm" or decided or any(is_constant(state, c) for c in summed):
        return (gone,)
    once, again = _stored(op, target), sum(_inlined(c.op, op, target) for c in consumers)
    if again <= once * (1.0 if summed else SURE):
        return (gone, kept) if once <= HOPELESS * again else (gone,)
    return (kept, gone) if again <= HOPELESS * once else (kept,)


def possible_loads(state: State, op: StageOp, target: Target) -> tuple[Load, ...]:
    """The loads that a stage may have when this rule has decided about the stages that it reads; only its own
    loads if there are very many."""
    waiting, seen = list(op.loads()), dict[Load, None]()
    choices: dict[str, tuple[Extension, ...]] = {}
    while waiting:
        load = waiting.pop()
        source = state.producer(load.buffer)
        if source is None:
            seen[load] = None
            continue
        if source.name not in choices:
            choices[source.name] = inline(state, source, target)
        gone = [bool(c.done) for c in choices[source.name]]
        if not all(gone) or not gone:
            seen[load] = None
        if any(gone):
            axes = {a.var: i for a, i in zip(source.op.axes, load.indices, strict=True)}
            waiting += [substitute(x, axes) for x in source.op.loads()]
        if len(waiting) + len(seen) > MOST_LOADS:
            return op.loads()
    return tuple(seen)


def _is_decided(state: State, consumer: Stage, stage: Stage, target: Target) -> bool:
    """Whether no costs need to be compared for the only reader, or the rule `pipeline` has compared them.

    That rule decides for stages that are read at several points. A reader may have got several reads later,
    because stages were inlined into it that each read the stage at their own point.
    """
    if len([r for r in reads(consumer.op) if r.load.buffer in stage.op.buffers]) < 2:
        return True
    first = State.initial(state.dag)
    if not {consumer.name, stage.name} <= set(first.names):
        return True
    group = group_of(first, first.stage(consumer.name), target)
    return group is not None and any(o.name == stage.name for o in group.order)


def _is_table(op: StageOp, consumers: Sequence[Stage]) -> bool:
    """Whether data select the elements of the stage that are read, each is read several times, and they take
    work."""
    found = [r for c in consumers for r in reads(c.op) if r.load.buffer in op.buffers]
    often = sum(c.op.points() for c in consumers) >= OFTEN * op.points()
    return often and bool(evaluated(op.bodies)) and all(r.from_data for r in found)


def _runs_along(state: State, consumer: StageOp, op: StageOp) -> bool:
    """Whether vectors of the consumer read contiguous memory if it computes the stage's elements itself."""
    if not (consumer.axes and op.axes):  # no vectors, or one element
        return True
    here = _walked(consumer, op, consumer.axes[-1].name)
    inlined = _across(state, op, here)
    kept = (here not in ("", op.axes[-1].name)) + _across(state, op, op.axes[-1].name)
    return inlined == 0 or inlined < kept


def _across(state: State, op: StageOp, axis: str) -> int:
    """The number of loads that change with an axis but are not contiguous along it, with those of stages that
    may be inlined into the op."""
    total, inlined = 0, dict[str, StageOp]()
    for r in reads(op):
        source = state.producer(r.load.buffer)
        if source is not None and _vanishes(state, op, source):
            inlined[source.name] = source.op  # counted once: every point of the op reads one element of it
        else:
            total += r.uses(axis) and r.strides.get(axis) not in (0, 1)
    return total + sum(_across(state, s, _walked(op, s, axis)) for s in inlined.values())


def _vanishes(state: State, reader: StageOp, stage: Stage) -> bool:
    """Whether a stage may be inlined into its only reader, which reads each element once."""
    alone = len(state.consumers(stage)) == 1 and not state.is_output(stage)
    return alone and not stage.op.is_reduction and reads_once(reader, stage.op)


def _walked(reader: StageOp, op: StageOp, axis: str) -> str:
    """The axis of an op that is indexed by a reader's axis; "" if there is none."""
    for r in reads(reader):
        if r.load.buffer in op.buffers:
            for d, mine in zip(r.dims, op.axes, strict=True):
                if d is not None and axis in d.steps:
                    return mine.name
    return ""


def _inlined(consumer: StageOp, op: StageOp, target: Target) -> float:
    """The cycles for the stage's elements in a reader, if the reader computes them where it reads them."""
    return (_in_product if consumer.is_reduction else _in_place)(consumer, op, target)


def _in_place(consumer: StageOp, op: StageOp, target: Target) -> float:
    """The same as `_inlined`, for a reader that evaluates each of its points once."""
    group = Group((op, consumer), lanes_of(consumer, target), target)
    gone, none = frozenset({op.name}), frozenset[str]()
    inlined, read = (mean_evaluation(group, consumer, names) for names in (gone, none))
    return consumer.points() / group.lanes * (inlined - read)


def _in_product(consumer: StageOp, op: StageOp, target: Target) -> float:
    """The same as `_inlined`, for a reduction, whose tiles evaluate an element once for several results."""
    lanes, total = lanes_of(op, target), 0.0
    work, turned = weight(op, cpu_of(target).called), _turned(op) * GATHER * lanes
    vector = consumer.axes[-1].name if consumer.axes else ""
    for r in reads(consumer):
        if r.load.buffer not in op.buffers:
            continue
        others = [a for a in consumer.axes if a.extent > 1 and not r.uses(a.name)]
        serves = 1.0
        if others:
            serves = COLUMN_SERVES if r.uses(vector) else ROW_SERVES / lanes
        total += consumer.points() / lanes / serves * (work + turned * r.uses(vector))
    return total


def _turned(op: StageOp) -> int:
    """The number of loads that change with the last axis but are not contiguous along it."""
    last = op.axes[-1].name if op.axes else ""
    return sum(r.strides.get(last, 1) not in (0, 1) for r in reads(op))


def _stored(op: StageOp, target: Target) -> float:
    """The cycles to compute and write all elements, to read them once, and of a parallel region."""
    cpu, lanes = cpu_of(target), lanes_of(op, target)
    size = sum(b.bytes for b in op.buffers)
    rate = cpu.l2_rate if size <= second_cache(target) * target.num_cores else cpu.l3_rate
    compute = op.points() / lanes * weight(op, cpu.called)
    return float(compute + 2.0 * size / rate + cpu.region * target.num_cores)
