"""The indices of a stage as expressions over loop variables, with their conditions.

    split i [7, 8]      i = i.0*8 + i.1                    guard i.0*8 + i.1 < 50 if the loops go beyond i
    fuse i, j           i = (i*j) // m, j = (i*j) % m      variables of their own, inside the fused loop
    computed at a loop  i = base + i.0*8 + i.1             the box begins at `base`

`nest.py` builds the loops from this, outermost first.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from autotensor.ir.bounds import Interval
from autotensor.ir.expr import Cmp, Expr, Load, Var, compare, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.simplify import simplify
from autotensor.ir.visit import collect
from autotensor.lowering.nest.boxes import Boxes, base_of
from autotensor.lowering.nest.guards import box_conditions, domain_guards, reads
from autotensor.lowering.nest.loops import Loops
from autotensor.lowering.nest.marks import ENDING, kind_of
from autotensor.lowering.nest.runtime_extents import RuntimeExtents, overhangs
from autotensor.lowering.nest.solved_loops import counted, op_in_one_pass
from autotensor.lowering.nest.when.skipped_terms import skipping
from autotensor.lowering.nest.when.unread_points import needed, wanted_at_all
from autotensor.schedule.axis import Mark
from autotensor.schedule.extents import Extents, leaf_var
from autotensor.schedule.state import At, Fuse, Split, Stage, State

Lets = dict[str, tuple[tuple[Var, Expr], ...]]


def stage_loops(
    state: State,
    stage: Stage,
    extents: Extents,
    runtime: RuntimeExtents,
    boxes: Boxes,
    ranges: dict[Var, Interval],
) -> Loops:
    """The loops of a stage, before they are nested."""
    values, lets, guards = _indices(stage, extents, runtime)
    values = counted(stage, values)
    local = {a.name: values[a.name] for a in stage.op.all_axes}
    if isinstance(stage.place, At):
        for axis, span in zip(stage.op.axes, extents.boxes[stage.name], strict=True):
            values[axis.name] = simplify(base_of(span) + local[axis.name], ranges)
        guards.extend(_attached_guards(state, stage, boxes, values, ranges))
    passing = replace(stage, op=op_in_one_pass(stage)) if stage.solved or stage.scanned else stage
    skips, bodies = skipping(passing, values, ranges)
    points = {a.var: values[a.name] for a in stage.op.axes}
    needs = tuple(simplify(substitute(c, points), ranges) for c in needed(state, stage))
    wanted = wanted_at_all(state, stage)
    boxes.touched.extend(load.buffer for c in wanted for load in collect(c, Load))
    return Loops(
        stage, values, local, lets, tuple(guards), skips=skips, bodies=bodies, needs=needs, wanted=wanted
    )


def _indices(
    stage: Stage, extents: Extents, runtime: RuntimeExtents
) -> tuple[dict[str, Expr], Lets, list[Expr]]:
    """Every axis as an expression over loop variables, variables inside loops, and guards of overhangs."""
    name = stage.name
    values: dict[str, Expr] = {a.name: leaf_var(name, a.name) for a in stage.leaves}
    # variable → the loop inside which it is known
    owner = {a.name: a.name for a in stage.leaves}
    # variables without parts: no loop inside needs the parts
    vectors = {a.name for a in stage.leaves if a.mark is Mark.VECTORIZED}
    lets: Lets = {}
    guards: list[Expr] = []

    def extent(axis: str) -> int:
        return int(extents[name, axis])

    for relation in reversed(stage.relations):
        match relation:
            case Split(parent, children, _, _):
                sizes = [extent(c) for c in children]
                total: Expr = const(0)
                for n, c in enumerate(children):
                    total = total + values[c] * prod(sizes[n + 1 :])
                values[parent] = total
                size = runtime.guards(parent)
                if prod(sizes) > extent(parent) or overhangs(size, prod(sizes[1:])):
                    size = const(extent(parent)) if size is None else size
                    guards.append(compare(Cmp.LT, total, size))
            case Fuse(a, b, fused):
                columns = runtime.of.get(b, const(extent(b)))
                outer, inner = fused_parts(values[fused], columns)
                if fused in owner and owner[fused] not in vectors:
                    # the parts of a variable are variables, too, so that expressions over them are linear
                    leaf = owner[fused]
                    pair = ((leaf_var(name, a), outer), (leaf_var(name, b), inner))
                    lets[leaf] = (*lets.get(leaf, ()), *pair)
                    values[a], values[b] = pair[0][0], pair[1][0]
                    owner[a] = owner[b] = leaf
                else:
                    values[a], values[b] = outer, inner
    for x in stage.leaves:
        size = runtime.guards(x.name)
        if size is not None and kind_of(stage, x, extents) not in ENDING:
            guards.append(compare(Cmp.LT, leaf_var(name, x.name), size))
    return values, lets, guards


def fused_parts(value: Expr, columns: Expr) -> tuple[Expr, Expr]:
    """The two indices that a fused index represents."""
    return value // columns, value % columns


def _attached_guards(
    state: State, stage: Stage, boxes: Boxes, values: dict[str, Expr], ranges: dict[Var, Interval]
) -> list[Expr]:
    """The conditions for computing the points of an attached stage's box (see guards.py)."""
    near = {b for s in state.live() if isinstance(s.place, At) for b in s.op.buffers}
    out = domain_guards(stage.op, values, ranges, near)
    mapping = {a.var: values[a.name] for a in stage.op.all_axes}
    for read in reads(stage.op):
        if read.load.buffer in near and not read.conditions:
            index = boxes.relative(read.load, mapping)
            out.extend(box_conditions(index, boxes.shape(read.load.buffer), ranges))
    return list(dict.fromkeys(out))
