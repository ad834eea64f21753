"""ahead: computes stages some iterations before the loop reads them (`double_buffer`).

for k:                         S[0] = f(0)
  S[k % 2] = f(k)     ──▶      for k:
  C += S[k % 2]                  if k + 1 < n: S[(k + 1) % 2] = f(k + 1)
                                 C += S[k % 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotensor.base.errors import ScheduleError
from autotensor.ir.expr import Cmp, Expr, Var, compare, const
from autotensor.ir.rewrite import substitute
from autotensor.ir.stmt import NOTHING, Await, Commit, If, Stmt, seq
from autotensor.schedule.axis import Axis, Mark
from autotensor.schedule.state import Stage


@dataclass(frozen=True, slots=True)
class Ahead:
    """One stage, and the statement that computes its box for an iteration of the loop over `var`."""

    stage: Stage
    body: Stmt
    var: Var
    extent: int
    lets: tuple[tuple[Var, Expr], ...]  # variables that follow from `var`

    def of_turn(self, turn: Expr) -> Stmt:
        """The box of another iteration."""
        values: dict[Var, Expr] = {self.var: turn}
        for name, value in self.lets:
            values[name] = substitute(value, values)
        return substitute(self.body, values)

    def box(self, turn: int) -> Stmt:
        """The box of an iteration that no earlier iteration can compute; nothing for most iterations."""
        return self.of_turn(const(turn)) if turn < min(self.stage.turns - 1, self.extent) else NOTHING

    def within(self) -> Stmt:
        """The box that each iteration computes for a later one."""
        later = self.var + (self.stage.turns - 1)
        return If(compare(Cmp.LT, later, const(self.extent)), self.of_turn(later))


def before(ahead: Sequence[Ahead], copies: bool) -> Stmt:
    """The copies that must be under way when the loop begins.

    copies: makes groups of the boxes, in case they are copied asynchronously. There is one group for each
    iteration that `within` leaves outstanding, and one more. So the box of iteration n is in group n or an
    earlier group. Boxes that some stages fetch further ahead are in the last group.
    """
    boxes = max(a.stage.turns for a in ahead) - 1
    groups = _outstanding(ahead) + 1
    out: list[Stmt] = []
    for n in range(boxes):
        out += [a.box(n) for a in ahead]
        if copies and (n < groups - 1 or n == boxes - 1):
            out.append(Commit())
    return seq(*out)


def within(ahead: Sequence[Ahead], copies: bool) -> tuple[Stmt, Stmt]:
    """The beginning of an iteration of the loop: a wait for its boxes, and the boxes of later iterations."""
    later = seq(*(a.within() for a in ahead))
    return (Await(_outstanding(ahead)), seq(later, Commit())) if copies else (NOTHING, later)


def _outstanding(ahead: Sequence[Ahead]) -> int:
    """The number of groups that may still be under way while an iteration computes."""
    return min(a.stage.turns for a in ahead) - 2


def is_ahead(stage: Stage) -> bool:
    return stage.turns > 1


def check_ahead(stage: Stage, host: Stage, leaf: Axis, beside: Sequence[Stage]) -> None:
    """Raises ScheduleError if a stage cannot be computed ahead of the host's loop."""
    if leaf.mark is not Mark.SERIAL:
        raise ScheduleError(
            f"double_buffer: loop {leaf.name!r} of {host.name!r} is {leaf.mark.value}; its turns do not "
            "follow one another.",
            fix=f"Attach {stage.name!r} to a plain loop.",
        )
    for other in beside:
        if other is not stage and any(b in other.op.buffers for b in stage.op.reads()):
            raise ScheduleError(
                f"double_buffer: stage {stage.name!r} reads {other.name!r}, computed in the same turn.",
                fix=f"Attach {other.name!r} to {stage.name!r}.",
            )
