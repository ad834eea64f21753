"""Run-time extents of loops: they follow from the symbolic extent of the axis that the loops divide.

    i: n          ──split [4, 13]──▶     i.0: (n + 51) // 52     i.1: 4     i.2: 13     guarded by i < n
    i: n, j: m    ──fuse──▶              (i*j): n * m

Loops whose number of iterations does not depend on symbols are not in the table, because schedules know their
extents. An attached stage has a box of constant extents. If the box covers a whole axis, it need not be
larger than the axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autotensor.base.errors import ScheduleError
from autotensor.ir.affine import is_multiple
from autotensor.ir.expr import Expr, const
from autotensor.ir.simplify import simplify
from autotensor.schedule.extents import Extents
from autotensor.schedule.state import At, Fuse, Split, Stage


@dataclass(frozen=True, slots=True)
class RuntimeExtents:
    """The axes and loops of a stage whose extents depend on symbols."""

    of: Mapping[str, Expr]
    # spatial axes of an attached reduction: their loops end, but no point is guarded, because the guard would
    # be inside the sums; points beyond the extent have no reader
    loose: frozenset[str]

    def guards(self, axis: str) -> Expr | None:
        """The extent with which points of an axis or loop are compared; None if they are not compared."""
        return None if axis in self.loose else self.of.get(axis)


def runtime_extents(stage: Stage, extents: Extents) -> RuntimeExtents:
    """The axes and loops of a stage whose extents depend on symbols.

    Raises ScheduleError for a split of such an axis into a number of parts, because their size would be a
    symbol.
    """
    found: dict[str, Expr] = {}
    box = extents.boxes[stage.name] if isinstance(stage.place, At) else None
    for n, axis in enumerate(stage.op.all_axes):
        whole = box is None or n >= len(box) or int(box[n].extent) == axis.extent
        if axis.runtime is not None and whole:
            found[axis.name] = axis.runtime
    is_tile = box is not None and stage.op.combiner is not None
    loose = {a.name for a in stage.op.axes if a.name in found and is_tile}
    for relation in stage.relations if found else ():
        match relation:
            case Split(parent, children, _, nparts) if parent in found:
                if nparts is not None:
                    raise ScheduleError(
                        f"split: axis {parent!r} of stage {stage.name!r} has the run-time extent "
                        f"{found[parent]}; it cannot be split into a number of parts.",
                        fix="Split it by a factor.",
                    )
                inner = prod(int(extents[stage.name, c]) for c in children[1:])
                found[children[0]] = simplify((found[parent] + (inner - 1)) // inner)
                loose |= {children[0]} if parent in loose else set()
            case Fuse(a, b, fused) if a in found or b in found:
                found[fused] = simplify(_extent(stage, a, extents, found) * _extent(stage, b, extents, found))
                loose |= {fused} if a in loose or b in loose else set()
    for name in (*stage.solved, stage.scanned, stage.sorted):
        refuse_open(stage, name, found, "a scan or a sort")
    return RuntimeExtents(found, frozenset(loose))


def refuse_open(stage: Stage, axis: str, found: Mapping[str, Expr], use: str) -> None:
    """Raises ScheduleError if a loop's extent is known only at run time."""
    if axis in found:
        raise ScheduleError(
            f"axis {axis!r} of stage {stage.name!r} has the run-time extent {found[axis]}; {use} along it "
            "takes a number.",
            fix="Build it for a fixed extent of that axis.",
        )


def _extent(stage: Stage, axis: str, extents: Extents, found: Mapping[str, Expr]) -> Expr:
    return found.get(axis, const(int(extents[stage.name, axis])))


def overhangs(extent: Expr | None, inner: int) -> bool:
    """Whether loops over a run-time extent in steps of `inner` may go beyond the extent."""
    return extent is not None and not is_multiple(extent, inner)
