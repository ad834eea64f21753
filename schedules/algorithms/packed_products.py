"""Sums of products with integers of few bits, several in a byte, for dot instructions with wider types.

    P[i, n, g] = Σ_v Σ_e i32(w[n, g, v] >> 4*e & 15) * i32(x[i, g, 2*v + e])         w: bytes, constant

        ──▶   w.words[n, g, u, q]          = w[n, g, 4*u + 2*q] | w[n, g, 4*u + 2*q + 1] << 8       prepared
              x.turned[i, g, u, e, q]      = i16(x[i, g, 8*u + 4*q + e])
              P.numbers[n, g, u, e, q]     = i16(w.words[n, g, u, q] >> 4*e & 15)
              P[i, n, g] = Σ_u Σ_e Σ_q i32(x.turned[i, g, u, e, q]) * i32(P.numbers[n, g, u, e, q])

A word has the width of the instruction's operands and holds several numbers. A shift and a mask of a whole
vector of words extract them. A group of the instruction has the numbers with index e of neighbouring words. x
is rearranged in the same order. `P.numbers` should be computed in registers, where it is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial, reduce

from autotensor.base.dtype import DType, int8, int16, int32, uint8, uint16
from autotensor.codegen.dot_instructions import DotInstruction
from autotensor.ir.affine import affine
from autotensor.ir.expr import Binary, Cast, Const, Expr, Load, Op, Var, cast, const
from autotensor.ir.func import Buffer
from autotensor.ir.visit import free_vars, widened
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.axis import fresh
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import IterDef, StageOp
from autotensor.te.tensor import AxisKind

# name of the algorithm → types of x and of the numbers, and words in a group
FORMS: dict[str, tuple[DType, DType, int]] = {
    "packed_pairs": (int16, int16, 2),  # vpmaddwd
    "packed_fours": (int8, uint8, 4),  # vpdpbusd
    "packed_signed_fours": (int8, int8, 4),  # sdot
}


def form_of(dot: DotInstruction) -> str | None:
    """The name of the algorithm whose sums an instruction computes; None if there is none."""
    fits = (dot.a.dtype, dot.b.dtype, dot.group)
    return next((name for name, form in FORMS.items() if form == fits), None)


@dataclass(frozen=True, slots=True)
class _Product:
    """The product that was found in a stage: `x[…, each*v + e]` times number e of byte `w[…, v]`."""

    x: Load
    w: Load
    bits: int  # bits of a number
    rows: tuple[IterDef, ...]  # other axes of w's index
    bytes: IterDef  # the axis v

    @property
    def each(self) -> int:
        """Numbers in a byte."""
        return 8 // self.bits


def packed_products(state: State, stage: Stage, a: DType, b: DType, group: int) -> tuple[StageOp, ...] | None:
    """The stages of the picture above, with `P.numbers` before the last one; None for any other sum."""
    found = _match(state, stage.op)
    if found is None or not a.holds(found.x.buffer.dtype) or (1 << found.bits) - 1 > _most(b):
        return None
    width = b.bits // 8  # bytes of a word
    if found.bytes.extent % (width * group):
        return None
    op, names = stage.op, set(state.names)
    v, each = found.bytes, found.each * width
    # with the names of parts of v, so that traces have the same axes whatever name the author gave to v
    u, e, q = (
        IterDef(f"{v.name}.{n}", size) for n, size in enumerate((v.extent // (width * group), each, group))
    )

    def stored(name: str, t: DType, *extents: int) -> Buffer:
        return Buffer(fresh(name, names), extents, t)

    rows = tuple(x.extent for x in found.rows)
    words = stored(f"{found.w.buffer.name}.words", _unsigned(b), *rows, u.extent, group)
    *own, uw, qw = _axes(words)
    first = (uw.var * group + qw.var) * width
    bytes_ = (Load(found.w.buffer, (*_at(own), first + n)) for n in range(width))
    shifted = (Binary(Op.SHL, cast(words.dtype, x), const(8 * n, words.dtype)) for n, x in enumerate(bytes_))
    joined = reduce(lambda x, y: Binary(Op.OR, x, y), shifted)

    turned = stored(f"{found.x.buffer.name}.turned", a, *found.x.buffer.shape[:-1], u.extent, each, group)
    *lead, ut, et, qt = _axes(turned)
    element = cast(a, Load(found.x.buffer, (*_at(lead), (ut.var * group + qt.var) * each + et.var)))

    numbers = stored(f"{op.name}.numbers", b, *rows, u.extent, each, group)
    number: Expr = Load(words, _at((*found.rows, u, q)))
    if each > 1:
        number = Binary(Op.SHR, number, cast(words.dtype, e.var * found.bits))
        number = Binary(Op.AND, number, const((1 << found.bits) - 1, words.dtype))

    left, right = (
        cast(int32, Load(buffer, (*load.indices[:-1], *_at((u, e, q)))))
        for buffer, load in ((turned, found.x), (numbers, found.w))
    )
    over = tuple(replace(x, kind=AxisKind.REDUCE) for x in (u, e, q))
    return (
        StageOp(words.name, _axes(words), (), (joined,), None, (words,)),
        StageOp(turned.name, _axes(turned), (), (element,), None, (turned,)),
        StageOp(numbers.name, (*found.rows, u, e, q), (), (cast(b, number),), None, (numbers,)),
        replace(op, reduce_axes=over, bodies=(Binary(Op.MUL, left, right),)),
    )


def _axes(b: Buffer) -> tuple[IterDef, ...]:
    return tuple(IterDef(f"d{n}", extent) for n, extent in enumerate(b.shape))


def _at(axes: Iterable[IterDef]) -> tuple[Expr, ...]:
    return tuple(x.var for x in axes)


def _match(state: State, op: StageOp) -> _Product | None:
    """The product in a sum of int32 over the bytes of a row and the numbers in each."""
    if op.combiner is None or op.combiner.name != "sum" or len(op.bodies) != 1:
        return None
    if op.buffers[0].dtype != int32 or op.is_open or len(op.reduce_axes) > 2:
        return None
    match op.bodies[0]:
        case Binary(Op.MUL, left, right):
            for number, other in ((left, right), (right, left)):
                x, packed = widened(other), _number(op, number)
                if x is None or packed is None or packed[0].buffer.name not in state.dag.constants:
                    continue
                w, bits = packed
                rows = _rows(op, w)
                if rows is not None and _stands(op, x, w, bits):
                    return _Product(x, w, bits, rows, op.reduce_axes[0])
    return None


def _number(op: StageOp, e: Expr) -> tuple[Load, int] | None:
    """The byte of number e of a term, and how many bits a number has."""
    match e:
        case Cast(_, Load(buffer, _, None) as w) if buffer.dtype == uint8 and len(op.reduce_axes) == 1:
            return w, 8
        case Binary(Op.AND, Binary(Op.SHR, Cast(_, Load(buffer, _, None) as w), shift), Const(mask)):
            by = affine(shift.a if isinstance(shift, Cast) else shift)
            if buffer.dtype != uint8 or by is None or len(op.reduce_axes) != 2:
                return None
            inner = op.reduce_axes[1]
            bits = 8 // inner.extent
            fits = by.terms == {inner.var: bits} and by.constant == 0 and inner.extent * bits == 8
            return (w, bits) if fits and mask == (1 << bits) - 1 else None
    return None


def _rows(op: StageOp, w: Load) -> tuple[IterDef, ...] | None:
    """The axes that are w's indices before its last dimension, if each covers its whole dimension."""
    axis_of = {a.var: a for a in op.axes}
    rows = tuple(axis_of[i] for i in w.indices[:-1] if isinstance(i, Var) and i in axis_of)
    whole = tuple(a.extent for a in rows) == w.buffer.shape[:-1] and len({*rows}) == len(rows)
    return rows if whole else None


def _stands(op: StageOp, x: Load, w: Load, bits: int) -> bool:
    """Whether w is read at byte v and x at the place of number e, and x has no other index in the sum."""
    v, *inner = op.reduce_axes
    summed = {a.var for a in op.reduce_axes}
    if any(free_vars(i) & summed for i in x.indices[:-1]):
        return False
    place = affine(x.indices[-1])
    wanted = {v.var: 8 // bits, **{a.var: 1 for a in inner}}
    same = place is not None and place.terms == wanted and place.constant == 0
    whole = x.buffer.shape[-1] == w.buffer.shape[-1] * (8 // bits) and w.buffer.shape[-1] == v.extent
    return same and whole and w.indices[-1] == v.var


def _unsigned(t: DType) -> DType:
    return uint16 if t.bits == 16 else uint8


def _most(t: DType) -> int:
    """The largest number of an integer type."""
    return (1 << t.bits - (t.kind == "int")) - 1


for _name, (_a, _b, _group) in FORMS.items():
    ALGORITHMS.add(_name, Algorithm(_name, partial(packed_products, a=_a, b=_b, group=_group)))
