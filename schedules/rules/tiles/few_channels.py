"""Convolutions with few output channels: vectors along the input channels.

For example, a decoder's last layer computes three channels from 64. Three are too few for a vector, but there
are many input channels. So every output is a sum of vectors, whose lanes are joined at the end:

    parallel over blocks of (groups, phases, rows)
      for phases in the tiled axis                                            unrolled
        for tiles of the row
          for kernel rows, kernel columns, vectors of input channels:
            acc[elements, output channels] += x × weights          both are vectors; padding is skipped
          the lanes of each accumulator are joined to one number, which is stored

Weights are transposed so that input channels are last. The rule does not apply if input channels do not fill
vectors, or if there are enough output channels.

The sums are single numbers. A slow pointwise stage after them (tanh) is left to its own rule, which computes
whole vectors of sums (DCGAN's last layer: 1.6 x as fast as number by number; Zen 4, 2026-11).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Unroll
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Ref, Stage, State
from autotensor.schedule.step import Step
from schedules.kit.convolutions import ConvRoles, find_convolution, loop_names
from schedules.kit.parallel_region import divided
from schedules.kit.shared_steps import fused, host_and_anchor, in_vectors
from schedules.kit.stage_analysis import Digit, is_expensive, lanes_of, reads, undecided, walks_one_row
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension

# steps of a register tile that take as long as joining the lanes of one sum. 1000 rows of 64 terms to 7
# results are 1.8 x as fast in a tile as by this rule; 2708 rows of 128 terms take the same time in both; 1024
# rows of 512 terms to 4 results are 1.9 x as fast by this rule (Zen 4, 2026-11)
JOINED = 11
MAX_WRITTEN = 9  # most unrolled kernel elements


def few_channels(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not undecided(state, stage) or not op.reduce_axes:
        return ()
    conv = find_convolution(state, op, lanes_of(op, target))
    if conv is None or conv.vector.extent >= min(conv.lanes, 8):
        return ()
    last, terms = op.reduce_axes[-1], prod(a.extent for a in op.reduce_axes)
    if conv.vector.extent * (terms / conv.lanes + JOINED) >= terms:
        return ()
    data = next(r for r in reads(op) if r.load is conv.data)
    if last.extent % conv.lanes or data.strides.get(last.name) != 1:
        return ()
    if conv.host is not None and is_expensive(conv.host.op) and walks_one_row(conv.host.op):
        conv = replace(conv, host=None, place={a.name: Digit(a.name) for a in op.axes})
    return (_build(state, stage, conv, target),)


def _build(state: State, stage: Stage, conv: ConvRoles, target: Target) -> Extension:
    steps: list[Step] = [Inline(p.name) for p in conv.pads]
    host, inner, first = host_and_anchor(conv.host, stage.name)
    steps += first
    steps.append(_turned(conv))
    names, cuts = loop_names(conv, host)
    steps += cuts
    row, column, channel = conv.rows[0], conv.rows[-1], conv.vector
    tile = Hole(f"{stage.name}/tile", *_tiles(conv, target))
    rows = powers(row.extent if row is not column else ceil(column.extent / tile.default[0]))
    around = prod(a.extent for a in conv.others if a.name not in conv.phases[column.name])
    wanted = max(1, rows[-1] * around // (4 * target.num_cores))
    block = Hole(f"{stage.name}/rows", singles(rows), (nearest(rows, wanted),))
    inside: list[str] = []
    for a in conv.rows:
        name = names[a.name]
        parts = [Ref(block.name)] * (a is row) + [Ref(tile.name)] * (a is column)
        if parts:
            steps.append(SplitStep(host, name, tuple(parts)))
        inside += [f"{name}.{n}" for n in range(1, len(parts) + 1)] if a is row else []
        inside += [] if a is row else [f"{name}.{n}" for n in range(len(parts) + 1)] if parts else [name]
    written = [names[p] for p in conv.phases[column.name] if p in names]
    outside = [names[a.name] for a in conv.others if a.name in names and names[a.name] not in written]
    outside = [*conv.unseen(state.stage(host).op), *outside, f"{names[row.name]}.0"]
    # the host may have no loop for a single channel
    channels = [names[channel.name]] if channel.name in names else []
    *inside, place, tiled = inside
    steps.append(Reorder(host, (*outside, *written, *inside, place, tiled, *channels)))
    together, outer = fused(host, outside)
    steps += [*together, *(Unroll(host, a) for a in (*written, tiled, *channels))]
    steps += divided(host, outer, stage.op, conv.lanes, target)
    steps.append(ComputeAt(inner, host, place))
    steps += _anchor(stage, conv, inner)
    done = (host, inner, stage.name, *(p.name for p in conv.pads))
    return Extension(tuple(steps), (tile, block), done)


def _tiles(conv: ConvRoles, target: Target) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The options for the elements of a row in a tile, and the default: as many accumulators as fit into
    registers."""
    most = max(1, (target.sum_registers - conv.vector.extent - 1) // conv.vector.extent)
    extent = conv.rows[-1].extent
    options = tuple(range(1, min(most, extent) + 1))
    best = min(options, key=lambda t: (ceil(extent / t) * (t + 1.0), -t))
    return singles(options), (best,)


def _turned(conv: ConvRoles) -> Layout:
    """The layout of the weights with input channels last and output channels before them."""
    last = conv.op.reduce_axes[-1].name
    walkers = conv.weight.walkers.items()
    behind = [n for name in (conv.vector.name, last) for n, a in walkers if a == name]
    order = [n for n in range(len(conv.weight.dims)) if n not in behind] + behind
    return Layout(conv.weight.load.buffer.name, (), " ".join(map(str, order)))


def _anchor(stage: Stage, conv: ConvRoles, inner: str) -> list[Step]:
    """Puts lanes outside, then kernel loops, and an unrolled tile inside."""
    op = stage.op
    last = op.reduce_axes[-1].name
    kernel = [a.name for a in op.reduce_axes[:-1]]
    near = [w for w in conv.windows[conv.rows[-1].name] if w in kernel]
    small = prod(a.extent for a in op.reduce_axes if a.name in near) <= MAX_WRITTEN
    spatial = [a.name for a in op.axes]
    return [
        SplitStep(inner, last, (conv.lanes,)),
        Reorder(inner, (f"{last}.1", *kernel, f"{last}.0", *spatial)),
        *in_vectors(inner, *(near if small and conv.skips else ()), *spatial, f"{last}.1"),
        Pragma(inner, f"{last}.1", "skip_zeros", "1"),
    ]
