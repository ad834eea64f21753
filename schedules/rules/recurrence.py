"""Scans: a loop over steps; the computation of a step is inside the loop.

    parallel over parts of the axes along which steps are independent:
      for t:                                     the step's intermediate stages, in vectors
        the part, in vectors

A scan with few lines whose steps can be joined (running sums, maxima and minima, filters) becomes a loop over
vectors of steps:

    for t.0:                                   each element reads the element t.1 steps before (`look_ahead`)
      (t.1 × lines), in vectors

Elements of a short axis before the vector axis that share work (the parts of a system's state) are computed
together. If steps are not independent along any axis (a recurrent layer), one thread computes all steps.
Cheap pointwise stages of a step are inlined; sums are computed at the beginning of the step.
"""

from __future__ import annotations

from functools import reduce
from math import ceil, gcd, prod

from autotensor.base.target import Target
from autotensor.schedule.carried import apart
from autotensor.schedule.primitives.compute_at import Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.look_ahead import LookAhead
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import IterDef, StageOp
from autotensor.te.look_ahead import is_exact, joined
from autotensor.te.scan import first_steps, steps_of
from schedules.cpu import cpu_of
from schedules.kit.parallel_region import cycles, is_worth_a_region
from schedules.kit.shared_elements import share_work
from schedules.kit.shared_steps import in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import (
    Read,
    divisors,
    is_expensive,
    lanes_of,
    packable,
    reads,
)
from schedules.kit.tiles import nearest, powers, singles
from schedules.registry import Extension

MOST_ROWS = 6  # most rows of sums that are computed together
LONGEST = 16 << 10  # most bytes of a part's row, so that the step before is still in the nearest cache
SUMS = (1, 2, 4, 8)  # numbers of vectors of sums at a time
TOGETHER = 8  # most elements that share work (chosen, 2026-11)


def recurrence(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if not stage.carries or stage.relations:
        return ()
    inside = steps_of(stage.op, [s.op for s in state.live()], state.dag.carried)
    ahead = _Steps(state, stage, inside, target).looking_ahead()
    return (*ahead, _Steps(state, stage, inside, target).build())


class _Steps(SketchWriter):
    """Writes the sketch of one scan."""

    def __init__(self, state: State, host: Stage, inside: tuple[StageOp, ...], target: Target) -> None:
        super().__init__()
        self.state, self.host, self.inside, self.target = state, host, inside, target
        self.vectors = target.kind == "llvm"

    def build(self) -> Extension:
        host, op = self.host.name, self.host.op
        gone = [s for s in self.inside[:-1] if self._is_inlined(s)]
        kept = [s for s in self.inside[:-1] if s not in gone]
        self.write(*(Inline(s.name) for s in reversed(gone)))
        free = apart(op, self.inside, self.state.dag.carried) if not kept else set()
        lanes = lanes_of(op, self.target)
        t = op.axes[0].name
        outer: list[str] = []
        inner: list[str] = []
        last: list[str] = []
        together = self._together([s.name for s in gone])
        for n, a in enumerate(op.axes[1:], 1):
            if n == len(op.axes) - 1 and self.vectors and a.extent > 1:
                few = a.extent < lanes
                last = [a.name] if few else self._columns(host, a, lanes, n in free, outer)
            elif a.name in together:
                continue
            elif n in free:
                outer.append(a.name)
            else:
                inner.append(a.name)
        *around, vector = last or [""]
        self.write(Reorder(host, (*outer, t, *inner, *around, *together, *([vector] if last else []))))
        self.write(*(Unroll(host, a) for a in together))
        if last:
            self.write(Vectorize(host, last[-1]))
        if outer:
            at = self.fuse(host, outer)
            if self.vectors and is_worth_a_region(cycles(op, lanes, self.target), self.target):
                self.write(Parallel(host, at))
        for s in kept:
            self._inner(s)
        return self.extension(host, *(s.name for s in self.inside))

    def _together(self, gone: list[str]) -> list[str]:
        """The axis before the last one, if its elements share work: their vectors are then computed
        together."""
        op = (
            reduce(lambda s, name: Inline(name).apply(s), reversed(gone), self.state).stage(self.host.name).op
        )
        row = op.axes[-2:-1] if len(op.axes) > 2 else ()
        return [a.name for a in row if self.vectors and share_work(op, row, TOGETHER)]

    def looking_ahead(self) -> tuple[Extension, ...]:
        """The sketch with several steps of a few lines in one vector, which reads the vectors before it. It
        is empty if steps depend on one another in other ways, or if sums may not be reordered."""
        host, op, carried = self.host.name, self.host.op, self.state.dag.carried
        lanes = lanes_of(op, self.target)
        wide = prod(a.extent for a in op.axes[1:])
        if not self.vectors or wide >= lanes or not all(self._is_inlined(s) for s in self.inside[:-1]):
            return ()
        gone = [Inline(s.name) for s in reversed(self.inside[:-1])]
        whole = reduce(lambda s, i: i.apply(s), gone, self.state).stage(host).op
        if self.target.is_strict and not is_exact(whole, carried):
            return ()
        fill = lanes // gcd(lanes, wide)  # least number of steps whose lines fill whole vectors
        steps = fill * (1 + first_steps(op) // fill)
        if op.axes[0].extent <= 2 * steps or joined(whole, carried, steps) is None:
            return ()
        t, rest = op.axes[0].name, [a.name for a in op.axes[1:]]
        self.write(*gone, LookAhead(host, steps))
        self.split(host, t, steps)
        self.write(Reorder(host, (f"{t}.0", f"{t}.1", *rest)))
        points = self.fuse(host, [f"{t}.1", *rest])
        if steps * wide == lanes:
            self.write(Vectorize(host, points))
        else:
            self.split(host, points, lanes)
            self.write(*in_vectors(host, f"{points}.0", f"{points}.1"))
        return (self.extension(host, *(s.name for s in self.inside)),)

    def _is_inlined(self, op: StageOp) -> bool:
        """Whether a stage of a step is cheap and every reader reads it at its own index."""
        stage = self.state.stage(op.name)
        readers = self.state.consumers(stage)
        own = all(
            all(i is a.var for i, a in zip(r.load.indices, c.op.axes, strict=False))
            for c in readers
            for r in reads(c.op)
            if r.load.buffer in op.buffers
        )
        return not op.is_reduction and own and (len(readers) == 1 or not is_expensive(op))

    def _columns(self, host: str, axis: IterDef, lanes: int, free: bool, outer: list[str]) -> list[str]:
        """Makes the loops of the last axis: independent parts are outside, and rows of vectors are inside."""
        if not free:
            self.split(host, axis.name, lanes)
            return [f"{axis.name}.0", f"{axis.name}.1"]
        vectors = ceil(axis.extent / lanes)
        most = max(1, LONGEST // (lanes * 4))
        wanted = max(1, min(most, ceil(vectors / self.target.num_cores)))
        options = powers(vectors)
        self.hole(f"{host}/part", singles(options), (nearest(options, wanted),))
        self.split(host, axis.name, Ref(self.holes[-1].name), lanes)
        outer.append(f"{axis.name}.0")
        return [f"{axis.name}.1", f"{axis.name}.2"]

    def _inner(self, op: StageOp) -> None:
        """Makes the loops of a step's intermediate stages, with sums of several vectors at a time."""
        name, lanes = op.name, lanes_of(op, self.target)
        if not self.vectors or not op.axes or op.axes[-1].extent < lanes:
            return
        last = op.axes[-1]
        spatial = [a.name for a in op.axes[:-1]]
        if not op.is_reduction:
            self.split(name, last.name, lanes)
            self.write(Vectorize(name, f"{last.name}.1"))
            return
        across = [r for r in reads(op) if r.uses(last.name) and r.strides.get(last.name) != 1]
        constants = self.state.dag.constants
        if not all(r.load.buffer.name in constants and packable(r, last.name) for r in across):
            self._dots(op)
            return
        for r in across:
            self._pack(r, last.name, lanes)
        terms = [a.name for a in op.reduce_axes]
        rows, height = self._rows(op, spatial)
        options = tuple(n for n in SUMS if n * lanes <= last.extent)
        cpu = cpu_of(self.target)
        held = (cpu.vector_registers - 1) // (height + 1)  # one register is for a scalar of a row
        wanted = nearest(tuple(n for n in options if n <= held) or options[:1], cpu.latency)
        self.hole(f"{name}/vectors", singles(options), (wanted,))
        self.split(name, last.name, Ref(self.holes[-1].name), lanes)
        self.write(
            Reorder(name, (*spatial, f"{last.name}.0", *terms, *rows, f"{last.name}.1", f"{last.name}.2")),
            *in_vectors(name, *rows, f"{last.name}.1", f"{last.name}.2"),
        )

    def _pack(self, r: Read, axis: str, lanes: int) -> None:
        """Packs a constant so that its vectors are contiguous."""
        along = next(n for n, d in enumerate(r.dims) if d is not None and axis in d.steps)
        rest = [str(n) for n in range(len(r.dims)) if n != along]
        order = " ".join([f"{along}.0", *rest, f"{along}.1"])
        self.write(Layout(r.load.buffer.name, ((along, lanes),), order))

    def _rows(self, op: StageOp, spatial: list[str]) -> tuple[list[str], int]:
        """Unrolls rows that share the vectors of a step's operand: a part of the second-to-last axis. Returns
        their loops, and the default number of rows."""
        row = op.axes[-2] if len(op.axes) > 2 else None
        if row is None or row.extent < 2:
            return [], 1
        options = divisors(row.extent, MOST_ROWS)
        self.hole(f"{op.name}/rows", singles(options), (options[-1],))
        self.split(op.name, row.name, Ref(self.holes[-1].name))
        spatial[-1] = f"{row.name}.0"
        return [f"{row.name}.1"], options[-1]

    def _dots(self, op: StageOp) -> None:
        """Computes sums along contiguous memory in vector lanes, which are joined at the end."""
        term = op.reduce_axes[-1]
        lanes = lanes_of(op, self.target)
        if term.extent < lanes or any(r.uses(term.name) and r.strides.get(term.name) != 1 for r in reads(op)):
            return
        others = [a.name for a in op.reduce_axes[:-1]]
        options = tuple(n * lanes for n in SUMS if n * lanes <= term.extent)
        own = nearest(options, cpu_of(self.target).latency * lanes)
        self.hole(f"{op.name}/lanes", singles(options), (own,))
        self.split(op.name, term.name, Ref(self.holes[-1].name))
        self.write(
            Reorder(op.name, (*(a.name for a in op.axes), f"{term.name}.1", *others, f"{term.name}.0")),
            Vectorize(op.name, f"{term.name}.1"),
        )
