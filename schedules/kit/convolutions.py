"""Convolutions: the roles of the axes in a sum of products of data windows and constant weights.

    conv[n, i, p, c] = Σ_{t, k} x[n, i + (p + 1)//2 - t, k] * taps[p, t, k, c]
         rows: n, i      others: p      vector: c      windows: i → t      phases: i → p

Rows are the axes that the weights do not have. The result may be read through joined axes (`digits`); then
the tiles are made of the reader's loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.ir.expr import Load, Select
from autotensor.ir.visit import contains, free_vars
from autotensor.schedule.index_regions import access
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.state import Inlined, Stage, State
from autotensor.schedule.step import Step
from autotensor.te.dag import IterDef, StageOp
from schedules.kit.operand_roles import padding_in_front
from schedules.kit.stage_analysis import Digit, Read, constants, digits, packable, reads, untouched


@dataclass(frozen=True, slots=True)
class ConvRoles:
    """The role of each axis."""

    op: StageOp
    vector: IterDef  # output channels
    rows: tuple[IterDef, ...]  # axes of more than one element that the weights do not have, outer to inner
    others: tuple[IterDef, ...]  # groups, phases, axes of one element
    windows: dict[str, tuple[str, ...]]  # row axis → reduce axes that move along with it
    phases: dict[str, tuple[str, ...]]  # row axis → other axes in the same index
    data: Load
    weight: Read
    pads: tuple[Stage, ...]
    host: Stage | None
    place: dict[str, Digit]  # axis of the convolution → digit of the host's axis
    lanes: int

    @property
    def row_bytes(self) -> int:
        """Distance in bytes between neighbouring elements of the data along the innermost row axis."""
        row = self.rows[-1]
        for index, step in zip(self.data.indices, self.data.buffer.row_major(), strict=True):
            if row.var in free_vars(index):
                a = access(index)
                times = a.steps.get(row.name, 1) if a is not None and a.is_sum else 1
                return abs(times) * int(step) * int(self.data.buffer.dtype.bytes)
        return 0

    @property
    def plain(self) -> bool:
        """Whether no axis is a digit of one of the host's axes."""
        return all(not d.by for d in self.place.values())

    @property
    def skips(self) -> bool:
        """Whether terms can be left out, because of padding or because some phases have fewer taps than
        others."""
        return bool(self.pads) or contains(self.op.bodies[0], Select)

    def unseen(self, host: StageOp) -> list[str]:
        """The host's axes that contain no axis of the convolution; they have one element."""
        return [a.name for a in host.axes if all(d.axis != a.name for d in self.place.values())]


def uses(r: Read, axis: IterDef) -> bool:
    return axis.name in r.strides


def find_convolution(state: State, op: StageOp, lanes: int) -> ConvRoles | None:
    """The roles of the axes; None if the stage is not a convolution with constant weights."""
    loads = op.loads()
    if not op.is_reduction or op.combiner is None or op.combiner.name != "sum":
        return None
    if len(op.buffers) != 1 or len(op.axes) < 2 or len(loads) != 2:
        return None
    vector, fixed = op.axes[-1], constants(state)
    weight = next((r for r in reads(op) if r.load.buffer.name in fixed and packable(r, vector.name)), None)
    if weight is None:
        return None
    data = next(x for x in loads if x is not weight.load)
    if any(vector.var in free_vars(i) for i in data.indices):
        return None
    rows = tuple(a for a in op.axes[:-1] if a.extent > 1 and not uses(weight, a))
    if not rows:
        return None
    host, place = _host(state, op)
    pads = tuple(p for p in padding_in_front(state, op) if p.op.buffers[0] is data.buffer)
    windows, phases = _companions(op, data, rows)
    others = tuple(a for a in op.axes[:-1] if a not in rows)
    return ConvRoles(op, vector, rows, others, windows, phases, data, weight, pads, host, place, lanes)


def _host(state: State, op: StageOp) -> tuple[Stage | None, dict[str, Digit]]:
    """The stage that reads every element once, and the op's axes as digits of its axes; no stage for an
    output."""
    own = {a.name: Digit(a.name) for a in op.axes}
    stage = state.stage(op.name)
    consumers = state.consumers(stage)
    if len(consumers) != 1 or isinstance(consumers[0].place, Inlined) or state.is_output(stage):
        return None, own
    host = consumers[0]
    found = digits(host.op, op)
    if found is None or host.op.is_reduction or not untouched(host):
        return None, own
    return host, found


def _companions(
    op: StageOp, data: Load, rows: tuple[IterDef, ...]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """For each row axis: the reduce axes, and the other spatial axes, in the same index of the data."""
    windows: dict[str, tuple[str, ...]] = {}
    phases: dict[str, tuple[str, ...]] = {}
    for row in rows:
        near = [free_vars(i) for i in data.indices if row.var in free_vars(i)]
        windows[row.name] = tuple(a.name for a in op.reduce_axes if any(a.var in v for v in near))
        phases[row.name] = tuple(
            a.name for a in op.axes[:-1] if a not in rows and any(a.var in v for v in near)
        )
    return windows, phases


def loop_names(conv: ConvRoles, host: str) -> tuple[dict[str, str], list[Step]]:
    """The host's loops for the convolution's axes, and the steps that split loops with two digits."""
    cuts = dict.fromkeys((d.axis, d.by) for d in conv.place.values() if d.by)
    names = {a: d.axis if not d.by else f"{d.axis}.{int(d.low)}" for a, d in conv.place.items()}
    return names, [SplitStep(host, axis, (by,)) for axis, by in cuts]
