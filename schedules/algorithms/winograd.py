"""Winograd convolution F(m×m, 3×3): m² outputs of a 3x3 window from (m+2)² multiplications instead of 9m².

    U[a,b,k,c]     = G w G^T                 weights, prepared once
    D[a,j,th,tw,k] = Σ_i B[i,a] x[i, j]      rows of a tile of inputs
    V[a,b,th,tw,k] = Σ_j D[a,j] B[j,b]       columns
    M[a,b,th,tw,c] = Σ_k V[a,b,·,k] U[a,b,k,c]        (m+2)² matrix products
    R[y,b,th,tw,c] = Σ_a A[a,y] M[a,b]       rows of a tile of outputs
    conv[h,w,c]    = Σ_b R[h%m, b, h//m, w//m, c] A[b, w%m]

Other leading axes (the depth of a three-dimensional convolution) are kept: V is computed for every plane of
the input, and M also sums over the kernel's planes. Transforms are written as selects over positions.
Unrolling the loops makes the positions constant, so only the additions of non-zero terms remain.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016); points of F(4, 3):
Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks"
(ACM TOMS 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction as F
from functools import lru_cache
from math import prod

from autotensor.base.dtype import DType, float64
from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import Binary, Cmp, Const, Expr, Load, Op, all_of, cast, compare, const, select
from autotensor.ir.func import Buffer
from autotensor.ir.visit import free_vars
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.index_regions import access
from autotensor.schedule.state import Stage, State
from autotensor.te.stage import IterDef, StageOp, axes_over, buffer_over
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


def transform(m: int, points: Sequence[int | F]) -> Transform:
    """The matrices that interpolate at m + 1 points and at infinity (Toom and Cook).

    >>> [str(x) for x in transform(2, (0, 1, -1)).bt[0]]  # x^2 - 1
    ['-1', '0', '1', '0']
    """
    ps = [F(p) for p in points]
    others = [ps[:n] + ps[n + 1 :] for n in range(len(ps))]
    bt = [(*_polynomial(rest), F(0)) for rest in others]
    g = [
        tuple(p**k / prod(p - q for q in rest) for k in range(3)) for p, rest in zip(ps, others, strict=True)
    ]
    at = [(*(p**i for p in ps), F(i == m - 1)) for i in range(m)]
    return Transform(m, (*bt, _polynomial(ps)), (*g, (F(0), F(0), F(1))), tuple(at))


def _polynomial(roots: Sequence[F]) -> tuple[F, ...]:
    """Coefficients of the product of all x - root, lowest power first."""
    found = [F(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([F(0), *found], [*found, F(0)], strict=True)]
    return tuple(found)


F2 = transform(2, (0, 1, -1))
# The points 1/2 and -2 replace the usual 2 and -2: powers of a point and of its inverse have similar sizes,
# so the error is a third (512 channels of 28 x 28: 7e-6 of the largest element instead of 2.2e-5).
F4 = transform(4, (0, 1, -1, F(1, 2), -2))


@dataclass(frozen=True, slots=True)
class Conv3x3:
    """A convolution over [n, …, h, w, c], 3x3 and with stride 1 in h and w, that was found in a stage."""

    op: StageOp
    data: Load  # [*planes, h + kh, w + kw, k]
    weight: Load  # [c, k, *taps, kh, kw]

    @property
    def planes(self) -> tuple[Expr, ...]:
        """The indices of the input along the leading axes: n, d*stride + kd, …"""
        return self.data.indices[:-3]

    @property
    def taps(self) -> tuple[IterDef, ...]:
        """Kernel axes besides kh and kw."""
        return self.op.reduce_axes[:-3]

    @property
    def channels(self) -> IterDef:
        """The axis of input channels, over which the convolution sums."""
        return self.op.reduce_axes[-1]


def match(state: State, stage: Stage) -> Conv3x3 | None:
    """The convolution of a stage, if Winograd's method applies to it; otherwise None.

    The method applies only to floats, because integers would lose the fractions of the transforms.
    """
    op = stage.op
    if not op.buffers[0].dtype.is_float or op.has_open_sum:
        return None
    if op.combiner is None or op.combiner.name != "sum" or len(op.axes) < 4 or len(op.reduce_axes) < 3:
        return None
    *taps, kh, kw, k = op.reduce_axes
    *_, h, w, c = op.axes
    if (kh.extent, kw.extent) != (3, 3):
        return None
    match op.bodies[0]:
        case Binary(Op.MUL, Load() as a, Load() as b) if a is not b:
            weight, data = (a, b) if a.buffer.name in state.dag.constants else (b, a)
        case _:
            return None
    tile = {x.var for x in (h, w, c, kh, kw, k)}
    fits = (
        weight.buffer.name in state.dag.constants
        and len(data.indices) == len(op.axes)
        and _same_place(data.indices[-3:], (h.var + kh.var, w.var + kw.var, k.var))
        and not any(free_vars(i) & tile for i in data.indices[:-3])
        and _same_place((*weight.indices[:2], *weight.indices[-2:]), (c.var, k.var, kh.var, kw.var))
        and [i for i in weight.indices[2:-2] if not isinstance(i, Const)] == [t.var for t in taps]
    )
    return Conv3x3(op, data, weight) if fits else None


def _same_place(index: tuple[Expr, ...], wanted: tuple[Expr, ...]) -> bool:
    return len(index) == len(wanted) and all(
        access(a) is not None and access(a) == access(b) for a, b in zip(index, wanted, strict=True)
    )


def expand(tf: Transform) -> Callable[[State, Stage], tuple[StageOp, ...] | None]:
    def build(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
        conv = match(state, stage)
        return None if conv is None else _stages(tf, conv)

    return build


@lru_cache(maxsize=64)  # used by every sketch and every trace of a convolution
def _stages(tf: Transform, conv: Conv3x3) -> tuple[StageOp, ...]:
    name, op = conv.op.name, conv.op
    *outer, h, w, c = op.axes
    dtype = op.buffers[0].dtype
    m, t = tf.m, tf.t
    a, b, j, l_ = IterDef("a", t), IterDef("b", t), IterDef("j", t), IterDef("l", 3)
    th, tw = h.blocks("th", m), w.blocks("tw", m)
    y, k = IterDef("y", m), IterDef("k", conv.channels.extent)
    taps = [replace(x, kind=AxisKind.SPATIAL) for x in conv.taps]
    data = conv.data.buffer
    planes = [replace(a, name=x.name) for x, a in zip(outer, axes_over(data), strict=False)]
    maths, fine = _Sums(dtype), _Sums(float64)

    def stage(
        suffix: str,
        axes: Sequence[IterDef],
        position: Expr,
        rows: Matrix,
        value: Value,
        sums: _Sums = maths,
        dtype: DType = dtype,
    ) -> StageOp:
        """A stage whose element at `position` is Σ_i rows[position][i] × value(i)."""
        made = buffer_over(axes, f"{name}.{suffix}", dtype)
        body = cast(dtype, sums.row_of(rows, position, value))
        return StageOp(made.name, tuple(axes), (), (body,), None, (made,))

    def at(source: StageOp, *index: IterDef | Expr) -> Load:
        return Load(source.buffers[0], tuple(i.var if isinstance(i, IterDef) else i for i in index))

    def weight(i: int) -> Expr:
        index = (c.var, k.var, *conv.weight.indices[2:-2], const(i), l_.var)
        return cast(fine.dtype, Load(conv.weight.buffer, index))

    def pixel(i: int) -> Expr:
        index = (*(p.var for p in planes), th.var * m + i, tw.var * m + j.var, k.var)
        return _inside(data, index, (*planes, th, tw, j, k))

    # The weights are prepared once, so rounding them only at the end costs no time in a call.
    gw = stage("GW", (*taps, a, l_, k, c), a.var, tf.g, weight, fine, fine.dtype)
    u = stage("U", (*taps, a, b, k, c), b.var, tf.g, lambda i: at(gw, *taps, a, const(i), k, c), fine)
    d = stage("D", (*planes, a, j, th, tw, k), a.var, tf.bt, pixel)
    v = stage("V", (*planes, a, b, th, tw, k), b.var, tf.bt, lambda i: at(d, *planes, a, const(i), th, tw, k))
    product = at(v, *conv.planes, a, b, th, tw, k) * at(u, *taps, a, b, k, c)
    axes = (*outer, a, b, th, tw, c)
    made = buffer_over(axes, f"{name}.M", dtype)
    over = tuple(replace(x, kind=AxisKind.REDUCE) for x in (*taps, k))
    mm = StageOp(made.name, axes, over, (product,), op.combiner, (made,))
    r = stage("R", (*outer, y, b, th, tw, c), y.var, tf.at, lambda i: at(mm, *outer, const(i), b, th, tw, c))
    body = maths.row_of(
        tf.at, w.var % m, lambda i: at(r, *outer, h.var % m, const(i), h.var // m, w.var // m, c)
    )
    return gw, u, d, v, mm, r, StageOp(name, op.axes, (), (body,), None, op.buffers, op.tag)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Products of a constant matrix with values, written without multiplications by zeros and ones."""

    dtype: DType

    def row_of(self, rows: Matrix, position: Expr, value: Value) -> Expr:
        """Row `position` of the product. When the loop over positions is unrolled, only this row is left."""
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
    """The element, or 0 outside of the buffer, where tiles overlap its end."""
    ranges = {x.var: Interval(0, x.extent - 1) for x in axes}
    whole = {(x.var, x.size) for x in axes}
    limits = [compare(Cmp.LT, e, n) for e, n in zip(index, buffer.dims, strict=True) if (e, n) not in whole]
    open_ = [limit for limit in limits if prove(limit, ranges) is not True]
    load = Load(buffer, index)
    return select(all_of(*open_), load, const(0, buffer.dtype)) if open_ else load


TOLERANCE = 2e-5  # error as a share of the output's largest element, against float64
for _name, _transform in (("winograd_f2", F2), ("winograd_f4", F4)):
    ALGORITHMS.add(_name, Algorithm(_name, expand(_transform), TOLERANCE))

__all__ = ["F2", "F4", "Conv3x3", "Transform", "expand", "match", "transform"]
