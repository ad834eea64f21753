"""Convolutions in groups of few channels: one vector holds several groups.

    parallel over (batch, vectors of groups, blocks of rows)
      for rows of the block / tiles of the row
        acc[elements, groups × channels] in registers
        for kernel rows: if the row is not padding:
          for input channels of a group, kernel columns, elements (all unrolled):
            acc += x × weights

For example, four groups of four channels fill sixteen lanes. All output channels of a group read the same
inputs. So x is a vector of neighbouring channels in which one channel of each group is repeated for its group
(one load and a shuffle). Unlike with block-diagonal weights, nothing is multiplied by zeros. A kernel row is
unrolled, so that all kernel columns that read a shuffled vector share it.
"""

from __future__ import annotations

from math import ceil

from autotensor.base.target import Target
from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef
from schedules.kit.convolutions import ConvRoles, find_convolution, loop_names, uses
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import host_and_anchor, in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import lanes_of, reads, undecided
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension
from schedules.rules.tiles.convolution import convolution

MAX_WRITTEN = 96  # most unrolled reduction steps: a row of a kernel times the channels of a group
BLOCKS = 4  # parallel blocks for each core


def narrow_groups(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    """The sketch with several groups in a vector, then the sketches with one group in a vector, if there are
    any."""
    if target.kind != "llvm" or not undecided(state, stage):
        return ()
    conv = find_convolution(state, stage.op, lanes_of(stage.op, target))
    group = None if conv is None else _group(conv)
    if conv is None or group is None:
        return ()
    return (_GroupsSketch(state, stage, conv, group, target).build(), *convolution(state, stage, target))


def _group(conv: ConvRoles) -> IterDef | None:
    """The axis of groups, if whole groups fill vectors and a vector of outputs reads one vector of inputs."""
    groups = [a for a in conv.others if a.extent > 1]
    reduce = conv.op.reduce_axes
    each, last = conv.vector.extent, reduce[-1] if reduce else None
    if len(groups) != 1 or last is None or not uses(conv.weight, groups[0]) or each >= conv.lanes:
        return None
    group, data = groups[0], next(r for r in reads(conv.op) if r.load is conv.data)
    column = sum(a.extent for a in reduce if a.name in conv.windows[conv.rows[-1].name])
    places = conv.place.get(group.name), conv.place.get(conv.vector.name)
    fits = (
        conv.lanes % each == 0
        and group.extent % (conv.lanes // each) == 0
        and last.extent == each == data.strides.get(group.name)
        and data.strides.get(last.name) == 1
        and last.extent * max(1, column) <= MAX_WRITTEN
        and conv.host is not None
        and not any(conv.phases.values())
        and all(d is not None and d.by == each for d in places)
    )
    return group if fits else None


class _GroupsSketch(SketchWriter):
    """Writes the sketch."""

    def __init__(self, state: State, stage: Stage, conv: ConvRoles, group: IterDef, target: Target) -> None:
        super().__init__()
        self.state, self.stage, self.conv, self.group, self.target = state, stage, conv, group, target
        self.together = conv.lanes // conv.vector.extent  # groups in a vector

    def build(self) -> Extension:
        conv, anchor = self.conv, self.stage.name
        self.write(*(Inline(p.name) for p in conv.pads))
        host, inner, first = host_and_anchor(conv.host, anchor)
        self.write(*first)
        self._pack()
        self.write(ComputeAt(inner, host, self._tile_host(host)))
        self._tile_anchor(inner)
        return self.extension(host, inner, anchor, *(p.name for p in conv.pads))

    def _pack(self) -> None:
        """Packs the weights of the groups in a vector next to each other, in the order of the reduction."""
        weight = self.conv.weight
        dim = {a: n for n, a in weight.walkers.items()}
        group, each = dim[self.group.name], dim[self.conv.vector.name]
        over = [dim[a.name] for a in self._order() if a.name in dim]
        rest = [n for n in range(len(weight.dims)) if n not in (group, each, *over)]
        order = " ".join(map(str, (*rest, f"{group}.0", *over, f"{group}.1", each)))
        self.write(Layout(weight.load.buffer.name, ((group, self.together),), order))

    def _order(self) -> tuple[IterDef, ...]:
        """The reduction axes, outermost first: other axes, then the channel, then kernel columns."""
        *kernel, channel = self.conv.op.reduce_axes
        along = [a for a in kernel if a.name in self.conv.windows[self.conv.rows[-1].name]]
        return (*(a for a in kernel if a not in along), channel, *along)

    def _tile_host(self, host: str) -> str:
        """Splits, orders and marks the host's loops. Returns the innermost loop around a tile."""
        conv = self.conv
        names, cuts = loop_names(conv, host)
        self.write(*cuts)
        group, each = names[self.group.name], names[conv.vector.name]
        row, column = conv.rows[0], conv.rows[-1]
        tile = Hole(f"{self.stage.name}/tile", *self._tiles())
        vectors = self.group.extent // self.together
        choices = powers(row.extent if row is not column else ceil(column.extent / tile.default[0]))
        wanted = max(1, choices[-1] * vectors // (BLOCKS * self.target.num_cores))
        rows = Hole(f"{self.stage.name}/rows", singles(choices), (nearest(choices, wanted),))
        self.holes += [tile, rows]
        self.split(host, group, self.together)
        inside: list[str] = []
        for a in conv.rows:
            parts = [Ref(rows.name)] * (a is row) + [Ref(tile.name)] * (a is column)
            name = names[a.name]
            if parts:
                self.split(host, name, *parts)
            first = 1 if a is row else 0
            inside += [f"{name}.{n}" for n in range(first, len(parts) + 1)] if parts else [name]
        others = [names[a.name] for a in conv.others if a is not self.group and a.name in names]
        outside = [*conv.unseen(self.state.stage(host).op), *others, f"{group}.0", f"{names[row.name]}.0"]
        self.write(Reorder(host, (*outside, *inside, f"{group}.1", each)))
        outer = self.fuse(host, outside)
        self.write(FuseStep(host, f"{group}.1", each))
        self.write(*in_vectors(host, inside[-1], fuse_name(f"{group}.1", each)))
        self.write(*divided(host, outer, self.stage.op, conv.lanes, self.target))
        return inside[-2]

    def _tiles(self) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """The options for the elements of a row in a tile, and the default. Their sums, and the elements that
        a kernel row reads, are in registers."""
        column = self.conv.rows[-1]
        most = max(1, min(column.extent, self.target.vector_registers // 2 - 4))
        tiles = tuple(range(1, most + 1))

        def cost(n: int) -> float:
            return ceil(column.extent / n) * (n + 1.0)

        return singles(tiles), (min(tiles, key=lambda n: (cost(n), n)),)

    def _tile_anchor(self, inner: str) -> None:
        """Puts kernel rows outside, and an unrolled kernel row and register tile inside."""
        op, conv = self.stage.op, self.conv
        order = [a.name for a in self._order()]
        lanes = fuse_name(self.group.name, conv.vector.name)
        spatial = [a.name for a in op.axes if a not in (self.group, conv.vector)]
        self.write(Reorder(inner, (*order, *spatial, self.group.name, conv.vector.name)))
        self.write(FuseStep(inner, self.group.name, conv.vector.name))
        along = set(conv.windows[conv.rows[-1].name]) | {op.reduce_axes[-1].name}
        self.write(*in_vectors(inner, *(x for x in order if x in along), *spatial, lanes))
        self.write(Pragma(inner, order[0], "skip_zeros", "1"))
