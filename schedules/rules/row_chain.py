"""Row chains: softmax, layer norm and their like, computed row by row while a row is in the nearest cache.

    max[r] = max_k x[r,k];  e[r,k] = exp(x[r,k] - max[r]);  sum[r] = Σ_k e[r,k];  out[r,k] = e[r,k] / sum[r]

    ──▶  parallel for r:  max, e, sum, out of one row

Row reductions keep vectors of partial results (rfactor), how many is a sketch each: it decides a shape.
Pointwise stages of the chain unroll a few vectors, each by a hole of its own. A stage joins the chain when
all its readers are in it and its leading axes are the output's rows.
"""

from __future__ import annotations

from itertools import product

from autotensor.base.target import Target
from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.rfactor import RFactor
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Inlined, Ref, Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import StageOp
from schedules.analysis import at_point, is_constant, lanes_of, reads, untouched
from schedules.registry import Extension, sketch_rule
from schedules.rules.tile_cpu import assign_roles, singles

VECTORS = (1, 2, 4, 8)  # of partial results
UNROLLS = (1, 2, 4, 8)  # vectors of a pointwise row at once


@sketch_rule("row_chain", order=15)
def row_chain(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not untouched(stage) or not state.is_output(stage):
        return ()
    rows = _row_count(state, stage)
    if rows == 0:
        return ()
    chain = _chain(state, stage, rows)
    if not any(s.op.is_reduction for s in chain) and not (op.is_reduction and contiguous_reduction(op)):
        return ()
    lanes = lanes_of(op, target)
    for s in (*chain, stage):
        if s.op.is_reduction and (
            not contiguous_reduction(s.op) or assign_roles(state, s.op, lanes) is not None
        ):
            return ()  # the second: a register tile does better
    done = (stage.name, *(s.name for s in chain), *(f"{s.name}.rf" for s in (*chain, stage)))
    reductions = [s for s in (stage, *reversed(chain)) if _has_partials(s.op, lanes)]
    out = []
    for widths in _width_choices([s.op for s in reductions], lanes):
        steps: list[Step] = []
        holes: list[Hole] = []
        for s, width in zip(
            reductions, widths, strict=True
        ):  # before there are holes: rfactor needs all sizes
            _vector_reduction(steps, s.name, s.op, lanes, width)
        at = _host(steps, holes, stage, rows, lanes)
        for producer in reversed(chain):
            steps.extend(_member(producer, holes, stage.name, at, rows, lanes))
        out.append(Extension(tuple(steps), tuple(holes), done))
    return tuple(out)


def _has_partials(op: StageOp, lanes: int) -> bool:
    """Whether the row reduction is long enough for vectors of partial results."""
    return op.is_reduction and op.reduce_axes[-1].extent >= lanes and len(op.buffers) == 1


def _width_choices(ops: list[StageOp], lanes: int) -> list[tuple[int, ...]]:
    """Widths of the partial results of all reductions, the rules' own first; one for all of many."""
    each = [tuple(w * lanes for w in VECTORS if w * lanes <= op.reduce_axes[-1].extent) for op in ops]
    own = tuple(
        max((w for w in widths[:3] if op.reduce_axes[-1].extent // w >= 4), default=widths[0])
        for op, widths in zip(ops, each, strict=True)
    )
    if len(ops) <= 2:
        choices = list(product(*each))
    else:
        choices = [tuple(min(w * lanes, widths[-1]) for widths in each) for w in VECTORS]
    return list(dict.fromkeys((own, *choices)))


def contiguous_reduction(op: StageOp) -> bool:
    """Whether the last reduction axis runs along memory in every operand that uses it."""
    if not op.reduce_axes:
        return False
    last = op.reduce_axes[-1].name
    using = [r for r in reads(op) if r.uses(last)]
    return bool(using) and all(r.strides.get(last) == 1 for r in using)


def _row_count(state: State, stage: Stage) -> int:
    """Leading axes that are rows: all of a reduction's, all but the last of a pointwise output's."""
    op = stage.op
    if op.is_reduction:
        return len(op.axes)
    return len(op.axes) - 1


def _chain(state: State, out: Stage, rows: int) -> tuple[Stage, ...]:
    """Stages that may be computed inside the rows of `out`, producers first."""
    inside = {out.name}
    found: list[Stage] = []
    leading = tuple(a.extent for a in out.op.axes[:rows])
    for s in reversed(state.stages):
        if s.name in inside or isinstance(s.place, Inlined) or is_constant(state, s) or not untouched(s):
            continue
        consumers = state.consumers(s)
        if not consumers or not all(c.name in inside for c in consumers) or state.is_output(s):
            continue
        if tuple(a.extent for a in s.op.axes[:rows]) != leading or not all(
            _same_rows(c.op, s.op, rows) for c in consumers
        ):
            continue
        inside.add(s.name)
        found.append(s)
    return tuple(reversed(found))


def _same_rows(consumer: StageOp, producer: StageOp, rows: int) -> bool:
    """Whether the consumer reads the producer at its own row."""
    mine = [load for load in consumer.loads() if load.buffer in producer.buffers]
    return all(at_point(load.indices[:rows], consumer.axes[:rows]) for load in mine)


def _host(steps: list[Step], holes: list[Hole], stage: Stage, rows: int, lanes: int) -> str:
    """Schedules the output; gives the loop that holds one row."""
    name, op = stage.name, stage.op
    fused = op.axes[0].name
    for axis in op.axes[1:rows]:
        steps.append(FuseStep(name, fused, axis.name))
        fused = fuse_name(fused, axis.name)
    steps.append(Parallel(name, fused))
    if _has_partials(op, lanes):
        steps.append(ComputeAt(f"{name}.rf", name, fused))
    elif not op.is_reduction and op.axes[-1].extent >= lanes:
        _vector_row(steps, holes, name, op, lanes)
    return fused


def _vector_row(steps: list[Step], holes: list[Hole], name: str, op: StageOp, lanes: int) -> None:
    """A pointwise row in vectors, some of them at once."""
    last = op.axes[-1]
    options = tuple(n for n in UNROLLS if n * lanes <= last.extent)
    holes.append(Hole(f"{name}/unroll", singles(options), (1,)))
    steps.append(SplitStep(name, last.name, (Ref(holes[-1].name), lanes)))
    steps.extend((Unroll(name, f"{last.name}.1"), Vectorize(name, f"{last.name}.2")))


def _vector_reduction(steps: list[Step], name: str, op: StageOp, lanes: int, width: int) -> None:
    """Partial results in vectors along the last reduction axis."""
    last = op.reduce_axes[-1]
    part = f"{last.name}.1"
    steps.extend((SplitStep(name, last.name, (width,)), RFactor(name, part)))
    partial = f"{name}.rf"
    spatial = [a.name for a in op.axes]
    others = [a.name for a in op.reduce_axes[:-1]]
    steps.append(SplitStep(partial, part, (lanes,)))
    steps.append(Reorder(partial, (*spatial, *others, f"{last.name}.0", f"{part}.0", f"{part}.1")))
    steps.extend((Unroll(partial, f"{part}.0"), Vectorize(partial, f"{part}.1")))
    steps.append(Unroll(name, part))


def _member(producer: Stage, holes: list[Hole], host: str, at: str, rows: int, lanes: int) -> list[Step]:
    """Steps that put a producer into the host's row loop."""
    steps: list[Step] = []
    name, op = producer.name, producer.op
    if not op.is_reduction and len(op.axes) > rows and op.axes[-1].extent >= lanes:
        _vector_row(steps, holes, name, op, lanes)
    steps.append(ComputeAt(name, host, at))
    if _has_partials(op, lanes):
        steps.append(ComputeAt(f"{name}.rf", host, at))
    return steps
