"""A stage whose loops form a product of 16-bit floats becomes a plain matrix product with a rounded-up depth.

    C[n, y, x, o] = Σ_{p, q, c} f32(X[n, y + p, x + q, c]) * f32(W[p, q, c, o])

        ──▶   C.rows[m, k]     = X[…], 0 after the last term    m = (n, y, x)   k = (p, q, c)
              C.columns[k, o]  = W[…], 0 after the last term
              C.flat[m, o]     = Σ_k f32(C.rows[m, k]) * f32(C.columns[k, o])
              C[n, y, x, o]    = C.flat[m, o]

An axis of the result that only one operand has becomes part of m or o. An axis of the result that both
operands have is a batch axis. So convolutions, batched products and transposed products all have this form.
No stage needs extra memory: `C.rows` and `C.columns` are the copies that a block makes anyway, the block
keeps `C.flat` in registers, and `C` is the array that the block writes. The terms stay the same. Sums of
16-bit floats are computed in float32 and rounded once.
Source: implicit GEMM (Chetlur et al., "cuDNN", 2014).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from autotensor.base.dtype import float32
from autotensor.ir.expr import Binary, Cast, Cmp, Combiner, Expr, Load, Op, Select, Var, cast, compare, const
from autotensor.ir.func import Buffer
from autotensor.ir.rewrite import substitute
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import StageOp
from autotensor.te.indices import reads_memory
from autotensor.te.stage import IterDef
from autotensor.te.tensor import AxisKind

NAME = "flat_product"
DEPTH = 16  # terms of one instruction; the depth is a multiple of this
_X, _Y = Var("lhs0", float32), Var("rhs0", float32)
_SUM = Combiner("sum", (_X,), (_Y,), (Binary(Op.ADD, _X, _Y),), (const(0.0, float32),))


@dataclass(frozen=True, slots=True)
class Operands:
    """The two operands, and the axes of each. The last axis of the result is a column."""

    rows: Load
    columns: Load
    batches: tuple[IterDef, ...]  # axes that both operands have
    m: tuple[IterDef, ...]
    n: tuple[IterDef, ...]
    k: tuple[IterDef, ...]  # last: the axis along which `rows` is contiguous, if there is one

    @property
    def extents(self) -> tuple[int, int, int]:
        m, n, k = (prod(a.extent for a in axes) for axes in (self.m, self.n, self.k))
        return m, n, k


def roles(op: StageOp) -> Operands | None:
    """The operands and the roles of the axes in a sum of products of 16-bit floats; None for other stages."""
    found = _operands(op)
    if found is None or not op.axes or any(a.runtime is not None for a in op.all_axes):
        return None
    if any(reads_memory(i) for load in found for i in load.indices):
        return None
    rows, columns = sorted(found, key=lambda x: op.axes[-1].var in free_vars(x))
    mine, others = free_vars(rows), free_vars(columns)
    if op.axes[-1].var not in others - mine:
        return None
    m = tuple(a for a in op.axes if a.var not in others)
    n = tuple(a for a in op.axes if a.var in others - mine)
    both = tuple(a for a in op.axes if a.var in mine & others)
    last = next((a for a in op.reduce_axes if rows.indices[-1] is a.var), op.reduce_axes[-1])
    k = (*(a for a in op.reduce_axes if a is not last), last)
    return Operands(rows, columns, both, m, n, k) if m else None


def _operands(op: StageOp) -> tuple[Load, Load] | None:
    """The two loads that are multiplied, if their products are summed in float32 or in their own type."""
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1:
        return None
    match op.bodies[0]:
        case Binary(Op.MUL, Cast(_, Load(_, _, None) as a) as left, Cast(_, Load(_, _, None) as b)):
            fits = left.dtype == float32
        case Binary(Op.MUL, Load(_, _, None) as a, Load(_, _, None) as b):
            fits = a.dtype == op.buffers[0].dtype
        case _:
            return None
    return (a, b) if fits and a.dtype.is_half and a.dtype == b.dtype else None


def flat_product(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
    """The four stages; None for a stage that is not a product of 16-bit floats."""
    op = stage.op
    r = roles(op)
    if r is None:
        return None
    names = set(state.names)
    extents = r.extents
    taken = {a.name for a in r.batches}
    m, n, k = (IterDef(fresh(name, taken), size) for name, size in zip("mnk", extents, strict=True))
    k = replace(k, extent=ceil(k.extent / DEPTH) * DEPTH)
    summed = replace(k, kind=AxisKind.REDUCE)
    values = {a.var: e for axes, flat in ((r.m, m), (r.n, n), (r.k, k)) for a, e in _digits(axes, flat.var)}
    is_term = compare(Cmp.LT, k.var, const(extents[2]))

    def operand(suffix: str, load: Load, axes: tuple[IterDef, ...]) -> StageOp:
        value: Expr = substitute(load, values)
        if k.extent > extents[2]:
            value = Select(is_term, value, const(0.0, load.dtype))
        buffer = Buffer(fresh(f"{op.name}.{suffix}", names), tuple(a.extent for a in axes), load.dtype)
        names.add(buffer.name)
        return StageOp(buffer.name, axes, (), (value,), None, (buffer,))

    rows = operand("rows", r.rows, (*r.batches, *_as_it_lies(r.rows, r.m, m, k)))
    columns = operand("columns", r.columns, (*r.batches, *_as_it_lies(r.columns, r.n, n, k)))
    axes = (*r.batches, m, n)
    buffer = Buffer(fresh(f"{op.name}.flat", names), tuple(a.extent for a in axes), float32)
    terms = (
        cast(float32, Load(made.buffers[0], tuple(a.var for a in made.axes))) for made in (rows, columns)
    )
    product = StageOp(buffer.name, axes, (summed,), (Binary(Op.MUL, *terms),), _SUM, (buffer,))
    place = (*(a.var for a in r.batches), _flat(r.m), _flat(r.n))
    result = cast(op.buffers[0].dtype, Load(buffer, place))
    return rows, columns, product, StageOp(op.name, op.axes, (), (result,), None, op.buffers, op.tag)


def _as_it_lies(load: Load, own: Sequence[IterDef], flat: IterDef, k: IterDef) -> tuple[IterDef, IterDef]:
    """The flat axis of an operand's own axes and the terms' axis, in the order of memory: neighbours in
    memory stay neighbours."""
    return (k, flat) if load.indices[-1] in [a.var for a in own] else (flat, k)


def _digits(axes: Sequence[IterDef], flat: Var) -> Iterator[tuple[IterDef, Expr]]:
    """Each axis, as a digit of the flat axis."""
    below = 1
    for n, a in reversed(list(enumerate(axes))):
        digit = flat if below == 1 else flat // below
        yield a, digit if n == 0 else digit % a.extent
        below *= a.extent


def _flat(axes: Sequence[IterDef]) -> Expr:
    total: Expr = axes[0].var
    for a in axes[1:]:
        total = total * a.extent + a.var
    return total


ALGORITHMS.add(NAME, Algorithm(NAME, flat_product))
