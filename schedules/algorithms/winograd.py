"""Winograd convolution F(m×m, 3×3): m² outputs of a 3x3 window from (m+2)² multiplications instead of 9m².

    U[a,b,k,c]     = G w G^T                 weights, prepared once
    D[a,j,th,tw,k] = Σ_i B[i,a] x[i, j]      rows of a tile of inputs
    V[a,b,th,tw,k] = Σ_j D[a,j] B[j,b]       columns
    M[a,b,th,tw,c] = Σ_k V[a,b,·,k] U[a,b,k,c]        (m+2)² matrix products
    R[y,b,th,tw,c] = Σ_a A[a,y] M[a,b]       rows of a tile of outputs
    conv[h,w,c]    = Σ_b R[h%m, b, h//m, w//m, c] A[b, w%m]

Transforms are written as selects over constant positions; unrolled loops leave only the additions that are not zero.
Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (CVPR 2016), interpolation points 0, ±1, ±2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction as F

from autotensor.ir.bounds import Interval, prove
from autotensor.ir.expr import Cmp, Expr, Load, Op, Var, binary, compare, const, select
from autotensor.ir.func import Buffer
from autotensor.schedule.algorithm import ALGORITHMS, Algorithm
from autotensor.schedule.regions import linear
from autotensor.schedule.state import Stage, State
from autotensor.te.dag import IterDef, StageOp
from autotensor.te.tensor import AxisKind

Matrix = tuple[tuple[F, ...], ...]


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
            if len(load.indices) == 4 and all(
                linear(a) == linear(b) for a, b in zip(load.indices, wanted, strict=True)
            ):
                found[role] = load.buffer
    body = op.bodies[0]
    product = getattr(body, "op", None) is Op.MUL and {
        getattr(body, "a", None),
        getattr(body, "b", None),
    } == set(loads)
    if len(found) != 2 or not product or found["weight"].name not in state.dag.constants:
        return None
    return Conv(op, found["data"], found["weight"], k)


def expand(tf: Transform) -> Callable[[State, Stage], tuple[StageOp, ...] | None]:
    def build(state: State, stage: Stage) -> tuple[StageOp, ...] | None:
        conv = match(state, stage)
        return None if conv is None else _stages(tf, conv)

    return build


def _stages(tf: Transform, conv: Conv) -> tuple[StageOp, ...]:
    name, op = conv.op.name, conv.op
    n, h, w, c = op.axes
    k, dtype = conv.channels, op.buffers[0].dtype
    m, t = tf.m, tf.t
    a, b, j = IterDef("a", t), IterDef("b", t), IterDef("j", t)
    th, tw = IterDef("th", -(-h.extent // m)), IterDef("tw", -(-w.extent // m))
    y = IterDef("y", m)
    k_axis = IterDef("k", k.extent)

    def stage(suffix: str, axes: Sequence[IterDef], body: Expr) -> StageOp:
        made = Buffer(f"{name}.{suffix}", tuple(x.extent for x in axes), dtype)
        return StageOp(made.name, tuple(axes), (), (body,), None, (made,))

    def weight(i: int, l: int) -> Expr:
        return Load(conv.weight, (c.var, k_axis.var, const(i), const(l)))

    def number(x: F) -> Expr:
        return const(float(x), dtype)

    def combine(row: Sequence[F], value: Callable[[int], Expr]) -> Expr:
        """Σ row[i] × value(i) without the zeros."""
        total: Expr | None = None
        for i, x in enumerate(row):
            if x == 0:
                continue
            term = value(i) if x == 1 else -value(i) if x == -1 else number(x) * value(i)
            total = term if total is None else total + term
        return total if total is not None else number(F(0))

    def by_position(position: Expr, options: Sequence[Expr]) -> Expr:
        """options[position], for a position that is constant once its loop is unrolled."""
        out = options[-1]
        for p in range(len(options) - 2, -1, -1):
            out = select(compare(Cmp.EQ, position, const(p)), options[p], out)
        return out

    gw = stage(
        "GW",
        (a, IterDef("l", 3), k_axis, c),
        by_position(
            a.var,
            [
                combine(tf.g[p], lambda i: Load(conv.weight, (c.var, k_axis.var, const(i), Var("l"))))
                for p in range(t)
            ],
        ),
    )
    u = stage(
        "U",
        (a, b, k_axis, c),
        by_position(
            b.var,
            [
                combine(tf.g[p], lambda l: Load(gw.buffers[0], (a.var, const(l), k_axis.var, c.var)))
                for p in range(t)
            ],
        ),
    )
    d_axes = (n, a, j, th, tw, k_axis)

    def pixel(i: int) -> Expr:
        row, col = th.var * m + i, tw.var * m + j.var
        load = Load(conv.data, (n.var, row, col, k_axis.var))
        limits = ((row, conv.data.shape[1]), (col, conv.data.shape[2]))
        ranges = {x.var: Interval(0, x.extent - 1) for x in d_axes}
        inside: Expr | None = None
        for e, dim in limits:
            cond = compare(Cmp.LT, e, const(dim))
            if prove(cond, ranges) is not True:
                inside = cond if inside is None else binary(Op.AND, inside, cond)
        return load if inside is None else select(inside, load, const(0, dtype))

    d = stage("D", d_axes, by_position(a.var, [combine(tf.bt[p], pixel) for p in range(t)]))
    v = stage(
        "V",
        (n, a, b, th, tw, k_axis),
        by_position(
            b.var,
            [
                combine(
                    tf.bt[p],
                    lambda q: Load(d.buffers[0], (n.var, a.var, const(q), th.var, tw.var, k_axis.var)),
                )
                for p in range(t)
            ],
        ),
    )
    mm_buffer = Buffer(f"{name}.M", (n.extent, t, t, th.extent, tw.extent, c.extent), dtype)
    k_reduce = replace(k_axis, kind=AxisKind.REDUCE)
    product = Load(v.buffers[0], (n.var, a.var, b.var, th.var, tw.var, k_axis.var)) * Load(
        u.buffers[0], (a.var, b.var, k_axis.var, c.var)
    )
    mm = StageOp(mm_buffer.name, (n, a, b, th, tw, c), (k_reduce,), (product,), op.combiner, (mm_buffer,))
    r = stage(
        "R",
        (n, y, b, th, tw, c),
        by_position(
            y.var,
            [
                combine(tf.at[p], lambda q: Load(mm_buffer, (n.var, const(q), b.var, th.var, tw.var, c.var)))
                for p in range(m)
            ],
        ),
    )
    out = by_position(
        w.var % m,
        [
            combine(
                tf.at[p],
                lambda q: Load(r.buffers[0], (n.var, h.var % m, const(q), h.var // m, w.var // m, c.var)),
            )
            for p in range(m)
        ],
    )
    last = StageOp(name, op.axes, (), (out,), None, op.buffers, op.tag)
    return gw, u, d, v, mm, r, last


TOLERANCE = 2e-5  # of the output's largest element, against float64
for _name, _transform in (("winograd_f2", F2), ("winograd_f4", F4)):
    ALGORITHMS.add(_name, Algorithm(_name, expand(_transform), TOLERANCE))

__all__ = ["F2", "F4", "Conv", "Transform", "expand", "match"]
