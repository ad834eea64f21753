"""Convolutions whose groups, or whose results, have fewer channels than a vector.

Groups of few channels: one vector holds several groups.

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

Few output channels: vectors along the input channels.

    parallel over blocks of (groups, phases, rows)
      for phases in the tiled axis                                            unrolled
        for tiles of the row
          for kernel rows, kernel columns, vectors of input channels:
            acc[elements, output channels] += x × weights          both are vectors; padding is skipped
          the lanes of each accumulator are joined to one number, which is stored

For example, a decoder's last layer computes three channels from 64. Three are too few for a vector, but there
are many input channels. So every output is a sum of vectors, whose lanes are joined at the end. Weights are
transposed so that input channels are last. The sums are single numbers. A slow pointwise stage after them
(tanh) is left to its own rule, which computes whole vectors of sums (DCGAN's last layer: 1.6 x as fast as
number by number; Zen 4, 2026-11).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.axis import fuse_name
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.fuse import FuseStep
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Unroll
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef
from schedules.kit.convolutions import ConvRoles, loop_names, uses
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import host_and_anchor, in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import Digit, is_expensive, reads, walks_one_row
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension

# steps of a register tile that take as long as joining the lanes of one sum. 1000 rows of 64 terms to 7
# results are 1.8 x as fast in a tile as in lanes; 2708 rows of 128 terms take the same time in both; 1024
# rows of 512 terms to 4 results are 1.9 x as fast in lanes (Zen 4, 2026-11)
JOINED = 11
MAX_GROUP = 96  # most unrolled reduction steps of groups: a row of a kernel times the channels of a group
MAX_ELEMENTS = 9  # most unrolled kernel elements of few output channels
BLOCKS = 4  # parallel blocks for each core


def narrow_groups(state: State, stage: Stage, conv: ConvRoles, target: Target) -> Extension | None:
    """The sketch with several groups in a vector; None if the groups do not fill vectors."""
    group = _group(conv)
    return None if group is None else _GroupsSketch(state, stage, conv, target, group).build()


def few_channels(state: State, stage: Stage, conv: ConvRoles, target: Target) -> Extension | None:
    """The sketch with vectors along the input channels; None if these do not fill vectors, or if joining the
    lanes would take longer than the sums."""
    op = stage.op
    last, terms = op.reduce_axes[-1], prod(a.extent for a in op.reduce_axes)
    if conv.vector.extent * (terms / conv.lanes + JOINED) >= terms:
        return None
    data = next(r for r in reads(op) if r.load is conv.data)
    if last.extent % conv.lanes or data.strides.get(last.name) != 1:
        return None
    if conv.host is not None and is_expensive(conv.host.op) and walks_one_row(conv.host.op):
        conv = replace(conv, host=None, place={a.name: Digit(a.name) for a in op.axes})
    return _LanesSketch(state, stage, conv, target).build()


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
        and last.extent * max(1, column) <= MAX_GROUP
        and conv.host is not None
        and not any(conv.phases.values())
        and all(d is not None and d.by == each for d in places)
    )
    return group if fits else None


class _NarrowSketch(SketchWriter):
    """Writes one sketch. This base class has the part that both kinds of convolutions share."""

    def __init__(self, state: State, stage: Stage, conv: ConvRoles, target: Target) -> None:
        super().__init__()
        self.state, self.stage, self.conv, self.target = state, stage, conv, target

    def build(self) -> Extension:
        conv, anchor = self.conv, self.stage.name
        self.write(*(Inline(p.name) for p in conv.pads))
        host, inner, first = host_and_anchor(conv.host, anchor)
        self.write(*first, self.packed())
        names, cuts = loop_names(conv, host)
        self.write(*cuts)
        self.write(ComputeAt(inner, host, self.tile_host(host, names)))
        self.tile_anchor(inner)
        return self.extension(host, inner, anchor, *(p.name for p in conv.pads))

    @abstractmethod
    def packed(self) -> Layout:
        """The layout of the weights."""

    @abstractmethod
    def tile_host(self, host: str, names: Mapping[str, str]) -> str:
        """Splits, orders and marks the host's loops. Returns the innermost loop around a tile."""

    @abstractmethod
    def tile_anchor(self, inner: str) -> None:
        """Orders and marks the loops of the sums."""

    def rows_of_tiles(
        self, host: str, names: Mapping[str, str], most: int, around: int, largest: bool
    ) -> list[str]:
        """Splits the row axes into blocks and tiles. Returns the loops inside of a block.

        most: elements of a row whose sums fit into registers; around: other parallel iterations; largest:
        the largest of equally good tiles is the default, not the smallest.
        """
        row, column = self.conv.rows[0], self.conv.rows[-1]
        tiles = tuple(range(1, max(1, min(column.extent, most)) + 1))
        best = min(tiles, key=lambda n: (ceil(column.extent / n) * (n + 1), -n if largest else n))
        choices = powers(row.extent if row is not column else ceil(column.extent / best))
        wanted = max(1, choices[-1] * around // (BLOCKS * self.target.num_cores))
        tile, block = f"{self.stage.name}/tile", f"{self.stage.name}/rows"
        self.hole(tile, singles(tiles), (best,))
        self.hole(block, singles(choices), (nearest(choices, wanted),))
        inside: list[str] = []
        for a in self.conv.rows:
            parts, name = [Ref(block)] * (a is row) + [Ref(tile)] * (a is column), names[a.name]
            if parts:
                self.split(host, name, *parts)
            first = 1 if a is row else 0
            inside += [f"{name}.{n}" for n in range(first, len(parts) + 1)] if parts else [name]
        return inside


class _GroupsSketch(_NarrowSketch):
    """Several groups in a vector."""

    def __init__(self, state: State, stage: Stage, conv: ConvRoles, target: Target, group: IterDef) -> None:
        super().__init__(state, stage, conv, target)
        self.group, self.together = group, conv.lanes // conv.vector.extent  # groups in a vector

    def packed(self) -> Layout:
        """The weights of the groups in a vector lie next to each other, in the order of the reduction."""
        weight = self.conv.weight
        dim = {a: n for n, a in weight.walkers.items()}
        group, each = dim[self.group.name], dim[self.conv.vector.name]
        over = [dim[a.name] for a in self._order() if a.name in dim]
        rest = [n for n in range(len(weight.dims)) if n not in (group, each, *over)]
        order = " ".join(map(str, (*rest, f"{group}.0", *over, f"{group}.1", each)))
        return Layout(weight.load.buffer.name, ((group, self.together),), order)

    def _order(self) -> tuple[IterDef, ...]:
        """The reduction axes, outermost first: other axes, then the channel, then kernel columns."""
        *kernel, channel = self.conv.op.reduce_axes
        along = [a for a in kernel if a.name in self.conv.windows[self.conv.rows[-1].name]]
        return (*(a for a in kernel if a not in along), channel, *along)

    def tile_host(self, host: str, names: Mapping[str, str]) -> str:
        conv = self.conv
        group, each = names[self.group.name], names[conv.vector.name]
        self.split(host, group, self.together)
        # the sums of a tile, and the elements that a kernel row reads, are in registers
        most, vectors = self.target.vector_registers // 2 - 4, self.group.extent // self.together
        inside = self.rows_of_tiles(host, names, most, vectors, largest=False)
        others = [names[a.name] for a in conv.others if a is not self.group and a.name in names]
        block = f"{names[conv.rows[0].name]}.0"
        outside = [*conv.unseen(self.state.stage(host).op), *others, f"{group}.0", block]
        self.write(Reorder(host, (*outside, *inside, f"{group}.1", each)))
        outer = self.fuse(host, outside)
        self.write(FuseStep(host, f"{group}.1", each))
        self.write(*in_vectors(host, inside[-1], fuse_name(f"{group}.1", each)))
        self.write(*divided(host, outer, self.stage.op, conv.lanes, self.target))
        return inside[-2]

    def tile_anchor(self, inner: str) -> None:
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


class _LanesSketch(_NarrowSketch):
    """Vectors along the input channels."""

    def packed(self) -> Layout:
        """Input channels are last, and output channels before them."""
        last = self.conv.op.reduce_axes[-1].name
        walkers = self.conv.weight.walkers.items()
        behind = [n for name in (self.conv.vector.name, last) for n, a in walkers if a == name]
        order = [n for n in range(len(self.conv.weight.dims)) if n not in behind] + behind
        return Layout(self.conv.weight.load.buffer.name, (), " ".join(map(str, order)))

    def tile_host(self, host: str, names: Mapping[str, str]) -> str:
        conv, results = self.conv, self.conv.vector.extent
        row, phases = conv.rows[0], conv.phases[conv.rows[-1].name]
        around = prod(a.extent for a in conv.others if a.name not in phases)
        most = (self.target.sum_registers - results - 1) // results  # as many sums as fit into registers
        inside = self.rows_of_tiles(host, names, most, around, largest=True)
        written = [names[p] for p in phases if p in names]
        others = [names[a.name] for a in conv.others if a.name in names and names[a.name] not in written]
        outside = [*conv.unseen(self.state.stage(host).op), *others, f"{names[row.name]}.0"]
        # the host may have no loop for a single channel
        channels = [names[conv.vector.name]] if conv.vector.name in names else []
        self.write(Reorder(host, (*outside, *written, *inside, *channels)))
        outer = self.fuse(host, outside)
        self.write(*(Unroll(host, a) for a in (*written, inside[-1], *channels)))
        self.write(*divided(host, outer, self.stage.op, conv.lanes, self.target))
        return inside[-2]

    def tile_anchor(self, inner: str) -> None:
        """Puts lanes outside, then kernel loops, and an unrolled tile inside."""
        op, conv = self.stage.op, self.conv
        last = op.reduce_axes[-1].name
        kernel = [a.name for a in op.reduce_axes[:-1]]
        near = [w for w in conv.windows[conv.rows[-1].name] if w in kernel]
        small = prod(a.extent for a in op.reduce_axes if a.name in near) <= MAX_ELEMENTS
        spatial = [a.name for a in op.axes]
        self.split(inner, last, conv.lanes)
        self.write(Reorder(inner, (f"{last}.1", *kernel, f"{last}.0", *spatial)))
        self.write(*in_vectors(inner, *(near if small and conv.skips else ()), *spatial, f"{last}.1"))
        self.write(Pragma(inner, f"{last}.1", "skip_zeros", "1"))
