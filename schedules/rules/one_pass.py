"""Scatters and running reductions: one pass over the terms for all elements, instead of one for each element.

    C[i, j] = Σ_k select(p[k] == i, u[k, j], 0)     parallel over parts of i:
                                                      for k: if p[k] is in the part: C[p[k], j] += u[k, j]

    C[i, j] = max_k select(p[k] == i, u[k, j], -1)  the same loops; then -1 is joined if it is a term

    C[b, i, j] = Σ_k select(k <= i, x[b, k, j], 0)  parallel over b (or parts of j):
                                                      for i: C[b, i, j] = C[b, i-1, j] + x[b, i, j]

A running reduction along the first axis, from its beginning, becomes a recurrence (`recurrence`), whose steps
may be joined. In a scatter, every thread reads all terms in order and adds those of its own part. So no two
threads write the same element, and sums have the same bits with any number of threads. If the index of a term
depends on a spatial axis (`scatter_elements`), this axis is divided instead, and each thread reads only its
own terms. Vectors are along an axis on which no index of a term depends. Ranks are found by sorting; lines
are sorted in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from autotensor.base.target import Target
from autotensor.ir.expr import Expr, Load
from autotensor.ir.visit import contains, free_vars
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.solve import Scan, Solve, Sort
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import IterDef, StageOp
from autotensor.te.terms import Running, ranking, running, solutions
from schedules.algorithms.chosen_products import NAME as CHOSEN
from schedules.algorithms.chosen_products import chosen
from schedules.algorithms.neutral_terms import NAME as NEUTRAL
from schedules.algorithms.neutral_terms import neutral_terms, taken
from schedules.algorithms.recurrence import NAME
from schedules.algorithms.recurrence import recurrence as expand
from schedules.cpu import cpu_of
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import lanes_of, read_by_choice, undecided
from schedules.registry import Extension, in_turn
from schedules.rules.streamed_sums import for_cores

# up to this number of elements for each lane, ranks are counted in vectors (128 and 256 elements take 0.5 and
# 0.7 x the time of sorting with 16 lanes, 0.85 and 1.4 x with 8; Zen 4, 2026-11)
COUNTED = 16
FEWER = 4  # there must be this many times as many terms as results of all threads (chosen, 2026-11)
SHORT = 4  # up to this number of terms or elements, comparing is faster than ranking


def one_pass(state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """The extensions of the first way that applies. The first two ways write the choice of terms in a form to
    which the other ways apply."""
    if undecided(state, stage):
        ways = (_chosen_products, _neutral, _scatter, _running_reduction, _ranks)
        yield from in_turn(ways, state, stage, target)


def _chosen_products(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    """Products with the 0 or 1 of a comparison: only terms for which the comparison holds are added.

    The sum as it is written is needed only for operands that are not finite. It is rarely computed, so it
    gets plain loops.
    """
    found = chosen(stage.op)
    if found is None or not is_one_pass(found.op) or read_by_choice(state, stage):
        return ()
    step = UseAlgorithm(stage.name, CHOSEN)
    new = [s.name for s in step.apply(state).stages if s.name not in state.names]
    if not new:
        return (Extension((step,), again=(stage.name,)),)
    harm, each, left = new
    first = stage.op.axes[0].name
    plain = (Parallel(each, first), Pragma(each, first, "skip_unread", "1"))  # no other rule changes it
    return (Extension((step, *plain), done=(each,), again=(harm, left, stage.name)),)


def _neutral(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    """The stage with neutral terms if a condition fails, provided that one pass over the terms can then
    compute all elements."""
    op = taken(stage.op)
    if op is None or not is_one_pass(op):
        return ()
    made = neutral_terms(state, stage)
    assert made is not None
    return (Extension((UseAlgorithm(stage.name, NEUTRAL),), again=tuple(s.name for s in made)),)


def _scatter(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op, found = stage.op, _places(stage.op)
    if not found:
        return ()
    telling = {v.name for e in found.values() for v in free_vars(e)}
    solved = [a for a in op.axes if a.name in found]
    near = [a for a in op.axes if a.name not in found and a.name in telling]
    apart = [a for a in op.axes if a.name not in found and a.name not in telling]
    plan = _Plan(stage, target)
    parts = _in_parts(op, near, apart, target)
    terms = [a.name for a in op.reduce_axes]
    divided = next((a for a in near if a.extent >= target.num_cores), solved[0])
    outer, inner = plan.divided(divided)
    names = {divided.name: inner}
    whole = [a for a in solved if a.runtime is not None and names.get(a.name, a.name) == a.name]
    for a in whole:  # the loop is not run in parts, so it needs a number: one part of the greatest extent
        plan.split(op.name, a.name, a.extent)
        names[a.name] = f"{a.name}.1"
    order = [names.get(a.name, a.name) for a in (*near, *solved)]
    vectors = plan.vectors(apart)
    plan.write(Reorder(op.name, (*outer, *(f"{a.name}.0" for a in whole), *terms, *order, *vectors)))
    plan.marked(outer)
    plan.write(*(Solve(op.name, names.get(a.name, a.name)) for a in solved))
    return (*parts, plan.extension(op.name))


def _places(op: StageOp) -> dict[str, Expr]:
    """The axes along which data give the index of each term, with these indices; empty if there are few
    elements."""
    # indices without data are those of windows and slices, which have their own rules
    found = {name: e for name, e in solutions(op).items() if contains(e, Load)}
    return found if prod(a.extent for a in op.axes if a.name in found) > SHORT else {}


def _in_parts(
    op: StageOp, near: Sequence[IterDef], apart: Sequence[IterDef], target: Target
) -> tuple[Extension, ...]:
    """Separate results for each thread, which are added at the end. This is for few and narrow results, for
    which testing a term takes as long as adding it."""
    narrow = prod(a.extent for a in apart) < lanes_of(op, target)
    if target.num_cores == 1 or near or not narrow or len(op.reduce_axes) != 1 or op.name.endswith(".rf"):
        return ()
    (k,) = op.reduce_axes
    if prod(a.extent for a in op.axes) * target.num_cores * FEWER > k.extent:
        return ()
    return (Extension(for_cores(op, k, target.num_cores), (), (op.name,)),)


def is_one_pass(op: StageOp) -> bool:
    """Whether one pass over the terms can compute all elements, with neutral terms or with other terms if a
    condition fails."""
    return any(bool(_places(o)) or runs(o) is not None for o in (op, taken(op)) if o is not None)


def runs(op: StageOp) -> Running | None:
    """The running reduction of a stage, if its axis is long enough for one pass; otherwise None."""
    found = running(op)
    return found if found is not None and op.reduce_axes[0].extent > SHORT else None


def _running_reduction(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    found = runs(stage.op)
    if found is None:
        return ()
    if expand(state, stage) is not None:
        return (Extension((UseAlgorithm(stage.name, NAME),), again=(stage.name,)),)
    op, plan = stage.op, _Plan(stage, target)
    at = next(n for n, a in enumerate(op.axes) if a.name == found.axis)
    before, after = op.axes[:at], op.axes[at + 1 :]
    outer, inner = [a.name for a in before], [a.name for a in after]
    most = cpu_of(target).latency  # sums that one thread computes at the same time
    if not after and before and before[-1].extent >= most:
        *rest, last = before
        plan.split(op.name, last.name, most)
        outer, inner = [*(a.name for a in rest), f"{last.name}.0"], [f"{last.name}.1"]
        chains = inner
    elif after and prod(a.extent for a in before) < target.num_cores:
        head, tail = plan.divided(after[0])
        outer = [*head, *outer]
        inner = [tail, *plan.vectors(after[1:])] if len(after) > 1 else plan.vectors(after, tail)
        chains = []
    else:
        inner, chains = plan.vectors(after), []
    # each vector directly with its term, so that the old and the new value are loaded and stored once
    around, vector = (inner[:-1], inner[-1:]) if len(inner) > len(after) else ([], inner)
    plan.write(Reorder(op.name, (*outer, found.axis, *around, found.term, *vector)))
    plan.write(*(Unroll(op.name, a) for a in chains))
    if outer:
        plan.marked([plan.fuse(op.name, outer)])
    plan.write(Scan(op.name, found.axis))
    return (plan.extension(op.name),)


def _ranks(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    found = ranking(stage.op)
    if found is None or stage.op.reduce_axes[0].extent <= COUNTED * lanes_of(stage.op, target):
        return ()
    if any(a.name == found.axis and a.runtime is not None for a in stage.op.axes):  # sorts need numbers
        return ()
    name, plan = stage.name, _Plan(stage, target)
    outer = [a.name for a in stage.op.axes if a.name != found.axis]
    plan.write(Reorder(name, (*outer, found.axis, found.term)))
    if outer:
        plan.marked([plan.fuse(name, outer)])
    plan.write(Sort(name, found.axis))
    return (plan.extension(name),)


class _Plan(SketchWriter):
    """Collects the steps of one stage."""

    def __init__(self, stage: Stage, target: Target) -> None:
        super().__init__()
        self.name = stage.name
        self.cores = target.num_cores
        self.lanes = lanes_of(stage.op, target)

    def divided(self, axis: IterDef) -> tuple[list[str], str]:
        """Divides the axis into a part for each core. Returns the loops over parts, if there are several, and
        the inner loop."""
        if self.cores == 1 or axis.extent < self.cores:
            return [], axis.name
        self.split(self.name, axis.name, -(-axis.extent // self.cores))
        return [f"{axis.name}.0"], f"{axis.name}.1"

    def marked(self, outer: Sequence[str]) -> None:
        if self.cores > 1 and outer:
            self.write(Parallel(self.name, outer[0]))

    def vectors(self, axes: Sequence[IterDef], last: str = "") -> list[str]:
        """The loops of the axes, with vectors along the last one if it is long enough.

        last: the loop of the last axis, if this axis has been split before.
        """
        if not axes:
            return []
        *rest, inner = axes
        name = last or inner.name
        if inner.extent < self.lanes * (self.cores if last else 1):
            return [*(a.name for a in rest), name]
        self.split(self.name, name, self.lanes)
        self.write(Vectorize(self.name, f"{name}.1"))
        return [*(a.name for a in rest), f"{name}.0", f"{name}.1"]
