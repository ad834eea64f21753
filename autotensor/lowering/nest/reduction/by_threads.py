"""Across threads: a reduction loop that is bound to threads of a block.

    for k.1 in bind(8, "threadIdx.x"):      P = 0                                        each thread its own
      for k.0: C += f(k.0, k.1)      ──▶    for k.0: P += f(k.0, threadIdx.x)
                                            R[threadIdx.x] = P                           shared memory
                                            if threadIdx.x < 4: R[threadIdx.x] += R[threadIdx.x + 4]
                                            if threadIdx.x < 2: …
                                            C = R[0]

Threads along other axes of the block have their own rows of R. Barriers are inserted later (gpu/barriers.py).
gpu/unify.py decides which thread stores C if several threads have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Expr, Var, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import ForKind, If, Stmt, for_range, seq
from autotensor.lowering.nest.loops import Loops
from autotensor.lowering.nest.reduction.partial_sums import Part
from autotensor.lowering.nest.update import Place, allocated, loaded, store_all, update
from autotensor.schedule.extents import in_block, leaf_var
from autotensor.schedule.state import At, Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.tensor import AxisKind
from autotensor.te.thread import VTHREAD


@dataclass(frozen=True, slots=True)
class ThreadLoop:
    """A loop bound to a thread axis."""

    axis: str
    var: Var
    extent: int

    def check_inside(self, outside: tuple[ThreadLoop, ...], stage: str, leaf: str) -> None:
        """Raises ScheduleError if fewer threads reach the loop than it needs."""
        for other in outside:
            if other.axis == self.axis and other.axis != VTHREAD and other.extent < self.extent:
                raise ScheduleError(
                    f"bind: axis {leaf!r} of stage {stage!r} needs {self.extent} threads of {self.axis}; the "
                    f"loop {other.var.name!r} around it has {other.extent}.",
                    fix=f"Split it by {other.extent} first, or attach the stage further out.",
                )

    def around(self, body: Stmt) -> Stmt:
        return for_range(self.var, self.extent, body, ForKind.THREAD, self.axis)


def is_private(stage: Stage) -> bool:
    """Whether each thread has its own copy of a stage's values."""
    return isinstance(stage.place, At) and stage.scope is not Scope.SHARED


def thread_vars(loops: Loops) -> set[Var]:
    """The variables of a stage's loops that differ between the threads of a block."""
    name = loops.stage.name
    found: set[Var] = set()
    for leaf in loops.stage.leaves:
        if in_block(leaf.thread):
            found.add(leaf_var(name, leaf.name))
            found.update(v for v, _ in loops.lets.get(leaf.name, ()))
    return found


def meets(state: State, loops: Loops, depth: int) -> bool:
    """Whether threads of a block meet in the loops from `depth` on.

    They meet for a stage in shared memory, or to join partial results.
    """
    stage = loops.stage
    if not loops.targets and any(_is_joined(a.kind, a.thread) for a in stage.leaves[depth:]):
        return True
    inside = (s for a in stage.leaves[depth:] for s in state.attached(stage.name, a.name))
    return any(_meets(state, s) for s in inside)


def _meets(state: State, stage: Stage) -> bool:
    return (
        stage.scope is Scope.SHARED
        or any(_is_joined(a.kind, a.thread) for a in stage.leaves)
        or any(_meets(state, s) for s in state.attached(stage.name))
    )


def _is_joined(kind: AxisKind, thread: str) -> bool:
    return kind is AxisKind.REDUCE and in_block(thread)


@dataclass(frozen=True, slots=True)
class Across:
    """The partial results of one reduction."""

    op: StageOp
    outside: tuple[ThreadLoop, ...]  # thread loops around the reduction
    joining: tuple[ThreadLoop, ...]  # the thread loops of the reduction itself
    loops: tuple[tuple[Var, int], ...]  # spatial loops inside, with their extents

    def __post_init__(self) -> None:
        for loop in self.joining:
            if any(loop.axis == o.axis for o in self.outside):
                raise ScheduleError(
                    f"bind: stage {self.op.name!r} is reduced over {loop.axis}, and a loop around it is "
                    "bound to the same axis.",
                    fix="Bind the reduction to another thread axis.",
                )

    @property
    def parts(self) -> tuple[Place, ...]:
        """The buffer and indices where each thread accumulates, for each output."""
        return Part(self.op.buffers, self.loops).targets

    @property
    def rows(self) -> tuple[ThreadLoop, ...]:
        """The thread loops outside, one for each axis; each combination has a row of shared memory."""
        # the innermost loop counts
        found = {o.axis: o for o in self.outside if o.axis.startswith("threadIdx")}
        return tuple(found.values())

    @property
    def count(self) -> int:
        """The number of threads that join their results."""
        return prod(loop.extent for loop in self.joining)

    @property
    def number(self) -> Expr:
        """The position of a thread among these threads."""
        total: Expr = const(0)
        for loop in self.joining:
            total = total * loop.extent + loop.var
        return total

    def shared(self, at: Expr) -> list[Place]:
        """Element `at` of this thread's row in shared memory, for each output."""
        shape = (*(row.extent for row in self.rows), self.count)
        index = (*(row.var for row in self.rows), at)
        return [(Buffer(f"{b.name}.across", shape, b.dtype, Scope.SHARED), index) for b in self.op.buffers]

    @property
    def results(self) -> tuple[Expr, ...]:
        return loaded(self.shared(const(0)))

    def join(self, name: str) -> Stmt:
        """The statements that join the parts. name: the stage's name, for temporary variables."""
        assert self.op.combiner is not None
        own = self.shared(self.number)
        steps = [self._all(store_all(own, loaded(self.parts)))]
        left = self.count
        while left > 1:
            half = 1 << (left - 1).bit_length() - 1
            beyond = loaded(self.shared(self.number + half))
            step = update(f"{name}:{half}", self.op.combiner, own, beyond)
            steps.append(self._all(If(self.number < left - half, step)))
            left = half
        return seq(*steps)

    def _all(self, body: Stmt) -> Stmt:
        for loop in reversed(self.joining):
            body = loop.around(body)
        return body

    def around(self, body: Stmt) -> Stmt:
        """The statement inside the allocations of the parts and the shared rows."""
        return allocated((*self.shared(const(0)), *self.parts), body)
