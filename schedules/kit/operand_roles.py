"""Roles in a register-tiled product: the vector axis, the row axes, and the treatment of each operand.

    C[b, i, j] = Σ_k A[b, i, k] · B[b, k, j]      vector j   rows (i,)   others (b,)
                                                  moving B (varies along j)   standing A (broadcast)

A constant moving operand is packed into panels once. Any other moving operand is read in place, or its panel
is copied into the cache next to the tile (see `copy_pays`). If it is not contiguous along the vector axis, it
is packed in every call, provided that it is used often enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from autotensor.base.target import Target
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.cpu import cpu_of
from schedules.kit.body_work import PRODUCT, BodyWork, body_work
from schedules.kit.stage_analysis import Read, constants, is_padding, packable, reads, untouched

# A partly used vector needs at least this many columns, and products for each row.
NARROWEST, NARROW_WORK = 3, 64
# Two columns need at least this many steps. With 400 steps, a tile takes a sixth of the time of two lanes
# that wait for their sums; with 64 steps, 1.06 to 1.14 x the time (Zen 5, 2026-12).
PAIR_STEPS = 128


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each axis and operand of the anchor in the kernel."""

    vector: IterDef
    rows: tuple[IterDef, ...]  # tiled, outer to inner: one or two, or none
    others: tuple[IterDef, ...]  # spatial, not tiled
    packed: tuple[Read, ...]  # moving operands to repack as a whole
    direct: tuple[Read, ...]  # moving operands that can be read in place
    turned: tuple[Read, ...]  # moving operands contiguous along the reduction; panels are transposed
    standing: tuple[Read, ...]  # the other operands, which are scalars in the tile
    lanes: int
    row_bytes: int  # distance of neighbouring rows of the standing operand, 0 without one
    depth: int  # steps of the reduction
    work: BodyWork = PRODUCT  # the work of a step
    at_once: int = 1  # most rows of one instruction that multiplies tiles
    ragged: bool = False  # whether its last step is smaller

    @property
    def outer(self) -> int:
        """Extent of the outer of two tiled row axes."""
        return self.rows[0].extent if len(self.rows) == 2 else 1

    @property
    def inner(self) -> int:
        """Extent of the (inner) tiled row axis."""
        return self.rows[-1].extent if self.rows else 1

    @property
    def columns(self) -> int:
        return self.vector.extent


def assign_roles(state: State, op: StageOp, lanes: int, target: Target) -> Roles | None:
    """The roles in a reduction; None if no axis is worth vectors."""
    if not op.axes:
        return None
    vector = op.axes[-1]
    narrow = vector.extent < min(lanes, 8) and vector.extent != max(a.extent for a in op.axes)
    if narrow and not _is_narrow_product(op):
        return None
    moving = [r for r in reads(op) if r.uses(vector.name)]
    if not moving:
        return None
    packed, direct, turned = [], [], []
    fixed = constants(state)
    reused = prod(a.extent for a in op.axes[:-1] if any(not r.uses(a.name) for r in moving))
    least = cpu_of(target).least_reuse
    for r in moving:
        along = r.strides.get(vector.name) == 1
        constant = r.load.buffer.name in fixed
        if not constant and reused >= least and can_turn(op, r, vector.name):
            turned.append(r)
        elif (constant or (not along and reused >= least and _is_input(state, r))) and packable(
            r, vector.name
        ):
            packed.append(r)
        elif along:
            direct.append(r)
        else:
            return None
    rows = [a for a in op.axes[:-1] if a.extent > 1 and any(not r.uses(a.name) for r in moving)]
    chosen = tuple(rows[-2:])
    others = tuple(a for a in op.axes[:-1] if a not in chosen)
    standing = tuple(r for r in reads(op) if r.load not in [m.load for m in moving])
    row_bytes = max((distance(r, chosen[-1].name) for r in standing), default=0) if chosen else 0
    depth = prod(a.extent for a in op.reduce_axes)
    moves = tuple(packed), tuple(direct), tuple(turned)
    work = body_work(op, vector.name, target)
    return Roles(vector, chosen, others, *moves, standing, lanes, row_bytes, depth, work)


def _is_narrow_product(op: StageOp) -> bool:
    """Whether a stage is a product with many rows and few columns, for which a partly used vector is better
    than no vector."""
    if len(op.reduce_axes) != 1:
        return False
    columns, steps = op.axes[-1].extent, op.reduce_axes[0].extent
    return (columns >= NARROWEST and columns * steps >= NARROW_WORK) or (columns == 2 and steps >= PAIR_STEPS)


def can_turn(op: StageOp, r: Read, axis: str) -> bool:
    """Whether an operand is contiguous along the only reduction axis, and `axis` is the index of another
    dimension."""
    if len(op.reduce_axes) != 1 or r.strides.get(op.reduce_axes[0].name) != 1:
        return False
    same = [x for x in reads(op) if x.load.buffer is r.load.buffer]
    return (
        len(same) == 1 and dimension(r, axis) is not None and dimension(r, op.reduce_axes[0].name) is not None
    )


def dimension(r: Read, axis: str) -> int | None:
    """The dimension whose index is this axis alone; None if there is no such dimension."""
    found = [n for n, d in enumerate(r.dims) if d is not None and axis in d.steps]
    if len(found) != 1:
        return None
    d = r.dims[found[0]]
    return found[0] if d is not None and d.axis == axis else None


def distance(r: Read, axis: str) -> int:
    """Bytes between neighbours along an axis."""
    return int(abs(r.strides.get(axis, 0)) * r.load.buffer.dtype.bytes)


def _is_input(state: State, r: Read) -> bool:
    return any(b.name == r.load.buffer.name for b in state.dag.inputs)


def padding_in_front(state: State, op: StageOp) -> tuple[Stage, ...]:
    """Padding stages that only this stage reads, without those of constants."""
    found = []
    known = constants(state)
    for b in op.reads():
        producer = state.producer(b)
        if producer is None or not is_padding(producer.op) or not untouched(producer):
            continue
        if b.name in known or state.is_output(producer):
            continue
        if [c.name for c in state.consumers(producer)] == [op.name]:
            found.append(producer)
    return tuple(found)
