"""The dot instructions that can compute a stage, with the axis cut into groups and the packed operand.

    C[i, j] += i32(A[i, k]) * i32(W[k, j])        x86.vpdpbusd.512: groups of 4 of k, A shared, W in panels
                                                  [j.0, k.0, j.1, k.1]

In the operand that all columns share, neighbours along the axis are contiguous, so a group is one word. The
other operand varies along the columns and is packed. If it is not a constant, it is packed in every call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import DotInstruction, available
from autotensor.ir.expr import Binary, Load, Op
from autotensor.ir.visit import widened
from autotensor.schedule.state import State
from autotensor.te.dag import StageOp
from schedules.cpu import cpu_of
from schedules.kit.body_work import PRODUCT
from schedules.kit.matrix_tiles import groups_at_once
from schedules.kit.operand_roles import Roles, assign_roles, dimension
from schedules.kit.stage_analysis import Read, constants, packable


@dataclass(frozen=True, slots=True)
class DotUse:
    """An instruction for a stage, and the roles of the stage's operands for it."""

    dot: DotInstruction
    axis: str  # the reduction axis that is cut into groups
    extent: int  # the extent of this axis
    roles: Roles  # the panel is packed; depth in groups
    gain: float  # operations per second, divided by those of float32 FMAs, from the processor's record

    groups: int = 1  # groups in one iteration of the reduction's loop

    @property
    def ragged(self) -> bool:
        """Whether the last iteration has fewer terms."""
        return self.extent % (self.dot.group * self.groups) != 0


def dot_uses(state: State, op: StageOp, target: Target) -> tuple[DotUse, ...]:
    """The uses of all instructions that fit, the fastest first."""
    if not available(target) or not is_sum_of_products(op):
        return ()
    found = (_use(state, op, dot, target) for dot in available(target))
    return tuple(sorted((use for use in found if use is not None), key=lambda use: -use.gain))


def is_sum_of_products(op: StageOp) -> bool:
    """Whether a stage sums products of two loads, each of them widened or unchanged."""
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1 or not op.axes:
        return False
    return factors(op) is not None


def factors(op: StageOp) -> tuple[Load, Load] | None:
    """The loads of the two factors of each term; None for other terms."""
    match op.bodies[0]:
        case Binary(Op.MUL, a, b):
            left, right = widened(a), widened(b)
            return None if left is None or right is None or left is right else (left, right)
    return None


def _use(state: State, op: StageOp, dot: DotInstruction, target: Target) -> DotUse | None:
    types = {load.buffer.dtype for load in op.loads()}
    if op.buffers[0].dtype != dot.sums.dtype or types != {dot.a.dtype, dot.b.dtype}:
        return None
    roles = assign_roles(state, op, dot.columns, target)
    if roles is None or len(roles.standing) != 1:
        return None
    (standing,) = roles.standing
    (panel,) = (*roles.packed, *roles.direct, *roles.turned)
    if standing.load.buffer.dtype != dot.a.dtype or panel.load.buffer.dtype != dot.b.dtype:
        return None
    if standing.load.buffer is panel.load.buffer:
        return None  # packing would change both operands, and the instruction needs it for one only
    axis = next((a for a in op.reduce_axes if standing.strides.get(a.name) == 1), None)
    if axis is None or axis.extent < dot.group or not _can_pack(state, panel, roles, axis.name):
        return None
    groups = ceil(axis.extent / dot.group)
    depth = groups * (roles.depth // axis.extent)
    roles = replace(roles, packed=(panel,), direct=(), turned=(), depth=depth, work=PRODUCT)
    known = gain(dot, target)
    if dot.rows > 1:
        if op.is_open or not roles.rows or axis.extent % dot.group:
            return None
        most = dot.depth // dot.group
        step = groups_at_once(groups, most)
        roles = replace(roles, at_once=dot.rows, ragged=groups % step != 0)
        known *= _filled(roles.inner, dot.rows) * groups / (most * ceil(groups / step))
        return DotUse(dot, axis.name, axis.extent, roles, known, step)
    return DotUse(dot, axis.name, axis.extent, roles, known)


def _filled(extent: int, most: int) -> float:
    """The share of its tiles that an extent fills."""
    return extent / (most * ceil(extent / most))


def _can_pack(state: State, panel: Read, roles: Roles, axis: str) -> bool:
    """Whether panels of groups can be made: once for a constant, or in every call for an input."""
    known = panel.load.buffer.name in constants(state) or panel.load.buffer in state.dag.inputs
    return known and packable(panel, roles.vector.name) and dimension(panel, axis) is not None


def gain(dot: DotInstruction, target: Target) -> float:
    """An instruction's operations per second, divided by those of FMAs of whole registers."""
    _, _, word = dot.name.partition(".")
    known = max((g for begin, g in cpu_of(target).dots if word.startswith(begin)), default=0.0)
    return known * dot.columns * dot.sums.dtype.bytes / target.vector_bytes
