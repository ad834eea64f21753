"""Winograd convolution F(m×m, 3×3): m² outputs of a 3x3 window from (m+2)² multiplications instead of 9m².

    U[a,b,k,c]     = G w G^T                 weights, prepared once
    D[a,j,th,tw,k] = Σ_i B[i,a] x[i, j]      rows of a tile of inputs
    V[a,b,th,tw,k] = Σ_j D[a,j] B[j,b]       columns
    M[a,b,th,tw,c] = Σ_k V[a,b,·,k] U[a,b,k,c]        (m+2)² matrix products
    R[y,b,th,tw,c] = Σ_a A[a,y] M[a,b]       rows of a tile of outputs
    conv[h,w,c]    = Σ_b R[h%m, b, h//m, w//m, c] A[b, w%m]

Transforms are selects over positions that unrolled loops make constant; only non-zero additions remain.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), points 0, ±1, ±2, ∞.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction as F

from autotensor.base.dtype import DType
from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import Binary, Cmp, Expr, Load, Op, all_of, compare, const, select
from autotensor.ir.func import Buffer
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.regions import linear
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import IterDef, StageOp
from autotensor.te.tensor import AxisKind

Matrix = tuple[tuple[F, ...], ...]
Value = Callable[[int], Expr]


@dataclass(frozen=True, slots=True)
class Transform:
    """The three matrices of F(m, 3): B^T is t×t, G is t×3, A^T is m×t, with t = m + 2."""

    m: int
    bt: Matrix
    g: Matrix
    at: Matrix

    @property
    def t(self) -> int:
        return self.m + 2


def _rows(*rows: Sequence[int | F]) -> Matrix:
    return tuple(tuple(F(x) for x in row) for row in rows)


F2 = Transform(
    2,
    _rows((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    _rows((1, 0, 0), (F(1, 2), F(1, 2), F(1, 2)), (F(1, 2), F(-1, 2), F(1, 2)), (0, 0, 1)),
    _rows((1, 1, 1, 0), (0, 1, -1, -1)),
)
F4 = Transform(
    4,
    _rows(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    _rows(
        (F(1, 4), 0, 0),
        (F(-1, 6), F(-1, 6), F(-1, 6)),
        (F(-1, 6), F(1, 6), F(-1, 6)),
        (F(1, 24), F(1, 12), F(1, 6)),
        (F(1, 24), F(-1, 12), F(1, 6)),
        (0, 0, 1),
    ),
    _rows((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
)


@dataclass(frozen=True, slots=True)
class Conv:
    """A 3x3, stride-1 convolution over [n, h, w, c] with weights [c, k, kh, kw], as found in a stage."""

    op: StageOp
    data: Buffer
    weight: Buffer
    channels: IterDef  # reduced over


def match(state: State, stage: Stage) -> Conv | None:
    """The convolution that a stage is, if it is one of the kind that Winograd's method fits."""
    op = stage.op
    if op.combiner is None or op.combiner.name != "sum" or len(op.axes) != 4 or len(op.reduce_axes) != 3:
        return None
    kh, kw, k = op.reduce_axes
    n, h, w, c = op.axes
    loads = op.loads()
    if (kh.extent, kw.extent) != (3, 3) or len(loads) != 2:
        return None
    wanted_data = (n.var, h.var + kh.var, w.var + kw.var, k.var)
    wanted_weight = (c.var, k.var, kh.var, kw.var)
    found: dict[str, Buffer] = {}
    for load in loads:
        for role, wanted in (("data", wanted_data), ("weight", wanted_weight)):
            if _same_place(load.indices, wanted):
                found[role] = load.buffer
    match op.bodies[0]:
        case Binary(Op.MUL, Load() as a, Load() as b) if {a, b} == set(loads):
            product = True
        case _:
            product = False
    if len(found) != 2 or not product or found["weight"].name not in state.dag.constants:
        return None
    return Conv(op, found["data"], found["weight"], k)


def _same_place(index: tuple[Expr, ...], wanted: tuple[Expr, ...]) -> bool:
    return len(index) == len(wanted) and all(
        linear(a) is not None and linear(a) == linear(b) for a, b in zip(index, wanted, strict=True)
    )


def expand(tf: Transform) -> Callable[[State, Stage], tuple[StageOp, ...] | None]:
    def build(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
        conv = match(state, stage)
        return None if conv is None else _stages(tf, conv)

    return build


def _stages(tf: Transform, conv: Conv) -> tuple[StageOp, ...]:
    name, op = conv.op.name, conv.op
    n, h, w, c = op.axes
    dtype = op.buffers[0].dtype
    m, t = tf.m, tf.t
    a, b, j, l_ = IterDef("a", t), IterDef("b", t), IterDef("j", t), IterDef("l", 3)
    th, tw = IterDef("th", -(-h.extent // m)), IterDef("tw", -(-w.extent // m))
    y, k = IterDef("y", m), IterDef("k", conv.channels.extent)
    maths = _Sums(dtype)

    def stage(suffix: str, axes: Sequence[IterDef], position: Expr, rows: Matrix, value: Value) -> StageOp:
        """A stage whose element at `position` is Σ_i rows[position][i] × value(i)."""
        made = Buffer(f"{name}.{suffix}", tuple(x.extent for x in axes), dtype)
        return StageOp(made.name, tuple(axes), (), (maths.row_of(rows, position, value),), None, (made,))

    def at(source: StageOp, *index: IterDef | Expr) -> Load:
        return Load(source.buffers[0], tuple(i.var if isinstance(i, IterDef) else i for i in index))

    def weight(i: int) -> Expr:
        return Load(conv.weight, (c.var, k.var, const(i), l_.var))

    def pixel(i: int) -> Expr:
        return _inside(conv.data, (n.var, th.var * m + i, tw.var * m + j.var, k.var), (n, th, tw, j, k))

    gw = stage("GW", (a, l_, k, c), a.var, tf.g, weight)
    u = stage("U", (a, b, k, c), b.var, tf.g, lambda i: at(gw, a, const(i), k, c))
    d = stage("D", (n, a, j, th, tw, k), a.var, tf.bt, pixel)
    v = stage("V", (n, a, b, th, tw, k), b.var, tf.bt, lambda i: at(d, n, a, const(i), th, tw, k))
    product = at(v, n, a, b, th, tw, k) * at(u, a, b, k, c)
    axes = (n, a, b, th, tw, c)
    made = Buffer(f"{name}.M", tuple(x.extent for x in axes), dtype)
    mm = StageOp(made.name, axes, (replace(k, kind=AxisKind.REDUCE),), (product,), op.combiner, (made,))
    r = stage("R", (n, y, b, th, tw, c), y.var, tf.at, lambda i: at(mm, n, const(i), b, th, tw, c))
    body = maths.row_of(tf.at, w.var % m, lambda i: at(r, n, h.var % m, const(i), h.var // m, w.var // m, c))
    return gw, u, d, v, mm, r, StageOp(name, op.axes, (), (body,), None, op.buffers, op.tag)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Products of a constant matrix with values, written without zeros and ones."""

    dtype: DType

    def row_of(self, rows: Matrix, position: Expr, value: Value) -> Expr:
        """Row `position` of the product; when its loop is unrolled, one row stays."""
        sums = [self.row(row, value) for row in rows]
        out = sums[-1]
        for p in range(len(sums) - 2, -1, -1):
            out = select(compare(Cmp.EQ, position, const(p)), sums[p], out)
        return out

    def row(self, row: Sequence[F], value: Value) -> Expr:
        total: Expr | None = None
        for i, x in enumerate(row):
            if x == 0:
                continue
            term = value(i) if x == 1 else -value(i) if x == -1 else const(float(x), self.dtype) * value(i)
            total = term if total is None else total + term
        return const(0, self.dtype) if total is None else total


def _inside(buffer: Buffer, index: tuple[Expr, ...], axes: Sequence[IterDef]) -> Expr:
    """The element, or 0 where tiles stick out of the buffer."""
    ranges = {x.var: Interval(0, x.extent - 1) for x in axes}
    limits = [compare(Cmp.LT, e, const(dim)) for e, dim in zip(index, buffer.shape, strict=True)]
    open_ = [limit for limit in limits if prove(limit, ranges) is not True]
    load = Load(buffer, index)
    return select(all_of(*open_), load, const(0, buffer.dtype)) if open_ else load


TOLERANCE = 2e-5  # of the output's largest element, against float64
for _name, _transform in (("winograd_f2", F2), ("winograd_f4", F4)):
    ALGORITHMS.add(_name, Algorithm(_name, expand(_transform), TOLERANCE))

__all__ = ["F2", "F4", "Conv", "Transform", "expand", "match"]
