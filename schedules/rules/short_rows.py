"""Chains over rows that are shorter than a vector: each lane of a vector belongs to another row.

    m[r] = max_k x[r, k];  e[r, k] = exp(x[r, k] - m[r]);  z[r] = Σ_k e[r, k];  p[r, k] = e[r, k] / z[r]

    ──▶  parallel over blocks of 16 rows:
           m[0:16], e[k, 0:16] for each k, z[0:16]          terms and elements are unrolled
           p of the block, in the order of memory
           if there are many terms, outer terms in loops around the unrolled ones

The rule does the same for a single pointwise stage if the elements of a row share work. In vectors along a
row of 5 elements, most lanes would be idle, and sums would be joined lane by lane. Code generation shuffles
whole vectors of the operands into lanes (`shared_vectors.py`), and shuffles the lanes back when the last
stage is stored. Results between stages stay in registers, or in the nearest cache with the rows contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotensor.base.target import Target
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.primitives.mark import Parallel, Unroll, Vectorize
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.storage import Storage
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import IterDef, StageOp
from schedules.cpu import EXTREME, cpu_of
from schedules.kit.body_work import joins_extremes
from schedules.kit.flat_axes import fused_axes
from schedules.kit.parallel_region import cycles, is_worth_a_region
from schedules.kit.shared_elements import share_work
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import Read, contiguous_reduction, lanes_of, reads, undecided
from schedules.registry import Extension
from schedules.rules.row_chain import chain_of_rows

WRITTEN = 128  # most unrolled terms and elements of a row, in all stages
# this many saved operations repay shuffling a vector into lanes and back (5: 0.93 times as fast, 8: 1.4;
# Zen 4, 2026-11)
TURNED = 6.0
BLOCKS = 2  # least blocks of rows
STEP = 16  # up to this distance of rows in elements, operands are shuffled; beyond, gathered


def short_rows(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    op = stage.op
    if target.kind != "llvm" or not op.axes or not undecided(state, stage):
        return ()
    if op.is_open:
        return ()
    lanes = lanes_of(op, target)
    for rows in range(1, len(op.axes) + 1):
        if _suits((op,), rows, lanes + 1, 0) and share_work(op, op.axes[rows:], lanes, TURNED):
            return (_ShortRows((op,), rows, lanes, target).build(), Extension(onward=True))
        if prod(a.extent for a in op.axes[rows:]) < lanes:
            chain = chain_of_rows(state, stage, rows, target)
            ops = (*(s.op for s in chain), op)
            if any(o.is_reduction for o in ops) and _suits(ops, rows, lanes, cpu_of(target).short_sum):
                return (_ShortRows(ops, rows, lanes, target).build(), Extension(onward=True))
            return ()
    return ()


def _suits(ops: Sequence[StageOp], rows: int, lanes: int, short_sum: int) -> bool:
    """Whether stages that could be computed row by row are better computed across rows."""
    last = ops[-1]
    row = last.axes[rows - 1]
    if row.extent < BLOCKS * lanes:
        return False
    made = {b for o in ops for b in o.buffers}
    written = [_written(o, rows) for o in ops]
    short = all(prod(a.extent for a in o.axes[-1:] if o.axes[rows:]) < lanes for o in ops)
    if not short or sum(written) > WRITTEN or any(b.dtype.bits < 32 for b in made):
        return False
    if len(ops) == 1 and not last.axes[rows:] and _run(last) > short_sum * _weight_of_joins(last):
        return False
    taken = [
        (r, tuple(a.name for a in o.axes[:rows])) for o in ops for r in reads(o) if r.load.buffer not in made
    ]
    across = prod(a.extent for a in last.axes[rows:]) > 1 or any(
        r.strides.get(outer[-1], 0) > 1 for r, outer in taken
    )
    return across and all(_is_near(r, outer) and r.load.dtype.bits >= 32 for r, outer in taken)


def _run(op: StageOp) -> int:
    """The number of terms in a vector along the terms: 3 for a pool's window of 3x3. If no such vector is
    contiguous, it is the number of all terms."""
    if not contiguous_reduction(op):
        return prod(a.extent for a in op.reduce_axes)
    return fused_axes(op.name, op, op.reduce_axes)[2]


def _weight_of_joins(op: StageOp) -> float:
    return EXTREME if joins_extremes(op) else 1.0


def _written(op: StageOp, rows: int) -> int:
    """The points of a row that are unrolled."""
    apart = _terms_apart(op, rows)
    return prod(a.extent for a in (*op.axes[rows:], *op.reduce_axes) if a not in apart)


def _terms_apart(op: StageOp, rows: int) -> tuple[IterDef, ...]:
    """The outer reduction axes that stay loops. They are used if several elements of a row share work, and
    there are too many terms to unroll."""
    elements, terms = prod(a.extent for a in op.axes[rows:]), list(op.reduce_axes)
    while elements > 1 and terms and elements * prod(a.extent for a in terms) > WRITTEN:
        terms.pop(0)
    return op.reduce_axes[: len(op.reduce_axes) - len(terms)]


def _is_near(r: Read, outer: Sequence[str]) -> bool:
    """Whether neighbouring rows of an operand are only few elements apart, or the operand is the same for all
    rows. An operand that only some rows share belongs to a product, which has register tiles."""
    row = outer[-1]
    return 0 <= r.strides.get(row, STEP + 1) <= STEP if r.uses(row) else not any(map(r.uses, outer))


class _ShortRows(SketchWriter):
    def __init__(self, ops: Sequence[StageOp], rows: int, lanes: int, target: Target) -> None:
        super().__init__()
        *self.chain, self.last = ops
        self.rows, self.lanes, self.target = rows, lanes, target

    def build(self) -> Extension:
        op, chain = self.last, self.chain
        apart = op.is_reduction or not chain  # whether the result is computed first, then copied to memory
        if apart:
            self.write(CacheWrite(op.name, "local"))
        block = self._host()
        if apart:
            self._inside(f"{op.name}.local", op, block)
        for o in reversed(chain):
            self._inside(o.name, o, block)
        return self.extension(op.name, *(o.name for o in chain))

    def _host(self) -> str:
        """Makes the last stage's loops: blocks of rows, and in each block vectors in the order of memory."""
        op, lanes = self.last, self.lanes
        names = [a.name for a in op.axes]
        row, inner = names[self.rows - 1], op.axes[self.rows :]
        self.split(op.name, row, lanes)
        vector = f"{row}.1"
        if inner:
            vector = self.fuse(op.name, (vector, *names[self.rows :]))
            self.split(op.name, vector, prod(a.extent for a in inner), lanes)
            self.write(Unroll(op.name, f"{vector}.1"))
            vector = f"{vector}.2"
        self.write(Vectorize(op.name, vector))
        block = self.fuse(op.name, (*names[: self.rows - 1], f"{row}.0"))
        if is_worth_a_region(sum(cycles(o, lanes, self.target) for o in (*self.chain, op)), self.target):
            self.write(Parallel(op.name, block))
        return block

    def _inside(self, name: str, op: StageOp, block: str) -> None:
        """Makes the loops of a stage of the block: terms and elements are unrolled, and rows are in lanes and
        contiguous."""
        around, row, inner = op.axes[: self.rows - 1], op.axes[self.rows - 1], op.axes[self.rows :]
        apart = _terms_apart(op, self.rows)
        written = [a.name for a in (*inner, *op.reduce_axes) if a not in apart]
        self.write(ComputeAt(name, self.last.name, block))
        if inner:
            self.write(Storage(name, tuple(a.name for a in (*around, *inner, row)), 0))
        self.write(Reorder(name, (*(a.name for a in (*around, *apart)), *written, row.name)))
        self.write(*(Unroll(name, w) for w in written), Vectorize(name, row.name))
