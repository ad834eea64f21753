"""A dozen schedules that together use all features: tails, boxes inside boxes, padding, partial results.

`CASES` maps names to functions giving a `Schedule`. They are small enough to be interpreted in milliseconds;
the planted faults (property/test_planted_faults.py) are found with them.
"""

from __future__ import annotations

from schedule_cases import Cases

from autotensor import te
from autotensor.schedule import Schedule, create_schedule
from autotensor.te import Tensor

CASES = Cases()


def matmul(m: int, n: int, k: int, constant: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B", constant=constant)
    r = te.reduce_axis(k, name="k")
    return a, b, te.compute((m, n), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="C")


@CASES.case
def tiled_matmul() -> Schedule:
    """Loops of 7 and 9 in tiles of 4, all tails."""
    _, _, c = matmul(7, 9, 5)
    s = create_schedule(c)
    yo, xo, yi, xi = s[c].tile("y", "x", 4, 4)
    ko, ki = s[c].split("k", factor=2)
    s[c].reorder(yo, xo, ko, yi, ki, xi)
    s[c].vectorize(xi)
    s[c].unroll(yi)
    s[c].parallel(yo)
    return s


@CASES.case
def register_tile() -> Schedule:
    """A packed constant, an accumulator per tile, an epilogue."""
    _, b, c = matmul(7, 10, 6, constant=True)
    d = te.compute((7, 10), lambda y, x: te.maximum(c[y, x], 0), name="D")
    s = create_schedule(d)
    s.layout(b, [(1, 8)], "1.0 0 1.1")
    yo, yi = s[d].split("y", factor=3)
    xo, xm, xi = s[d].split("x", factors=(2, 4))
    s[d].reorder(yo, xo, yi, xm, xi)
    s[c].compute_at(s[d], xo)
    cxo, cxi = s[c].split("x", factor=4)
    s[c].reorder("k", "y", cxo, cxi)
    for axis in ("y", cxo):
        s[c].unroll(axis)
    s[c].vectorize(cxi)
    s[d].unroll(yi)
    s[d].unroll(xm)
    s[d].vectorize(xi)
    s[d].parallel(yo)
    return s


@CASES.case
def padded_convolution() -> Schedule:
    """Padding inside the tile of a strided convolution inside the tile of its epilogue."""
    x, w = te.placeholder((9, 3), name="X"), te.placeholder((3, 3, 5), name="W")
    pad = te.compute(
        (11, 3), lambda h, c: te.if_then_else(te.all(h >= 1, h < 10), x[h - 1, c], 0), name="pad"
    )
    kh, ci = te.reduce_axis(3, name="kh"), te.reduce_axis(3, name="ci")
    conv = te.compute(
        (5, 5), lambda h, o: te.sum(pad[h * 2 + kh, ci] * w[kh, ci, o], axis=(kh, ci)), name="conv"
    )
    out = te.compute((5, 5), lambda h, o: te.maximum(conv[h, o], 1), name="out")
    s = create_schedule(out)
    ho, hi = s[out].split("h", factor=2)
    oo, oi = s[out].split("o", factor=4)
    s[out].reorder(ho, oo, hi, oi)
    s[conv].compute_at(s[out], oo)
    s[pad].compute_at(s[out], ho)
    s[conv].reorder("kh", "ci", "h", "o")
    s[conv].vectorize("o")
    s[pad].vectorize("c")
    s[out].vectorize(oi)
    s[out].parallel(ho)
    return s


@CASES.case
def fused_rows() -> Schedule:
    """Two axes fused, split again with a tail, one part in parallel."""
    a = te.placeholder((5, 7), name="A")
    b = te.compute((5, 7), lambda y, x: a[y, x] * 2 + x.astype("float32"), name="B")
    s = create_schedule(b)
    fused = s[b].fuse("y", "x")
    outer, inner = s[b].split(fused, factor=8)
    s[b].parallel(outer)
    s[b].vectorize(inner)
    return s


@CASES.case
def fused_host() -> Schedule:
    """A producer computed inside a fused loop that stands still."""
    a = te.placeholder((6, 8), name="A")
    b = te.compute((6, 8), lambda y, x: a[y, x] + 1, name="B")
    c = te.compute((5, 7), lambda y, x: b[y, x] + b[y + 1, x] * b[y, x + 1], name="C")
    s = create_schedule(c)
    yo, xo, yi, xi = s[c].tile("y", "x", 2, 4)
    fused = s[c].fuse(yo, xo)
    s[b].compute_at(s[c], fused)
    s[c].parallel(fused)
    s[b].vectorize("x")
    s[c].vectorize(xi)
    s[c].unroll(yi)
    return s


@CASES.case
def partial_sums() -> Schedule:
    """rfactor of a split that does not divide; the partial results vectorized."""
    a = te.placeholder((5, 13), name="A")
    k = te.reduce_axis(13, name="k")
    b = te.compute((5,), lambda y: te.sum(a[y, k], axis=k), name="B")
    s = create_schedule(b)
    _, ki = s[b].split("k", factor=4)
    rf = s.rfactor(b, ki)
    rf.reorder("y", "k.0", "k.1")
    rf.vectorize("k.1")
    s[b].parallel("y")
    return s


@CASES.case
def arg_max() -> Schedule:
    """Two results of one reduction, through a write cache."""
    a = te.placeholder((4, 9), name="A")
    k = te.reduce_axis(9, name="k")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    index, value = te.compute((4,), lambda y: argmax((k.var.astype("int32"), a[y, k]), axis=k), name="M")
    s = create_schedule([index, value])
    near = s.cache_write(index, "local")
    yo, _ = s[index].split("y", factor=3)
    near.compute_at(s[index], yo)
    near.split("k", factor=2)
    near.reorder("k.0", "y", "k.1")
    return s


@CASES.case
def chain_of_boxes() -> Schedule:
    """Three stages inside one another, with boxes that are larger than needed."""
    a = te.placeholder((24,), name="A")
    b = te.compute((20,), lambda i: a[i + 2] + 1, name="B")
    c = te.compute((18,), lambda i: b[i] + b[i + 2], name="C")
    d = te.compute((7,), lambda i: c[i * 2] - c[i * 2 + 1], name="D")
    s = create_schedule(d)
    o, m, _ = s[d].split("i", factors=(2, 4))
    s[c].compute_at(s[d], m)
    s[b].compute_at(s[d], o)
    s[d].parallel(o)
    return s


@CASES.case
def upsampled() -> Schedule:
    """Quotients: a window of 4 over pairs touches 3 elements. One of two loads reads only under its
    condition."""
    a = te.placeholder((9, 2), name="A")
    b = te.compute((9, 2), lambda i, j: a[i, j] * 3, name="B")
    e = te.compute((9, 2), lambda i, j: a[i, j] - 1, name="E")
    c = te.compute(
        (17, 2), lambda i, j: b[(i + 1) // 2, j] + te.if_then_else(i >= 2, e[i // 2 - 1, j], 5), name="C"
    )
    s = create_schedule(c)
    io, ii = s[c].split("i", factor=4)
    s[c].reorder(io, "j", ii)
    s[b].compute_at(s[c], io)
    s[e].compute_at(s[c], io)
    s[c].vectorize(ii)
    return s


@CASES.case
def copies() -> Schedule:
    """A cached operand inside the reduction, an inlined stage, reversed and strided reads."""
    a = te.placeholder((6, 10), name="A")
    b = te.placeholder((10, 6), name="B")
    scaled = te.compute((10, 6), lambda y, x: b[y, x] * 2, name="scaled")
    k = te.reduce_axis(5, name="k")
    c = te.compute((6, 6), lambda y, x: te.sum(a[5 - y, k * 2] * scaled[k + 1, x], axis=k), name="C")
    s = create_schedule(c)
    s[scaled].compute_inline()
    near = s.cache_read(a, "local", [c])
    s[c].split("k", factor=2)
    s[c].reorder("y", "k.0", "x", "k.1")
    near.compute_at(s[c], "k.0")
    s[c].vectorize("x")
    return s


@CASES.case
def large_factor() -> Schedule:
    """Factors beyond the extent, an axis of extent 1 vectorized."""
    a = te.placeholder((3, 1), name="A")
    b = te.compute((3, 1), lambda y, x: a[y, x] + 1, name="B")
    s = create_schedule(b)
    s[b].split("y", factors=(2, 8))
    s[b].split("x", factor=4)
    s[b].vectorize("x.1")
    s[b].split("y.0", nparts=2)
    return s


@CASES.case
def parallel_reduction_inside() -> Schedule:
    """Parallel rows of accumulators in memory, eleven rows for up to sixteen threads."""
    a = te.placeholder((11, 3, 4), name="A")
    k = te.reduce_axis(3, name="k")
    b = te.compute((11, 4), lambda y, x: te.sum(a[y, k, x], axis=k), name="B")
    c = te.compute((11, 4), lambda y, x: b[y, x] + b[10 - y, x], name="C")
    s = create_schedule([b, c])
    s[b].reorder("y", "k", "x")
    s[b].parallel("y")
    s[b].vectorize("x")
    s[c].parallel("y")
    return s


@CASES.case
def ring_of_rows() -> Schedule:
    """Two stages slide along strips that do not divide, the second by a reduction."""
    a = te.placeholder((23, 9), name="A")
    b = te.compute((22, 9), lambda y, x: a[y, x] - a[y + 1, x], name="B")
    k = te.reduce_axis(3, name="k")
    c = te.compute((20, 9), lambda y, x: te.sum(b[y + k, x], axis=k), name="C")
    d = te.compute((19, 9), lambda y, x: c[y, x] + c[y + 1, x] * 2, name="D")
    s = create_schedule(d)
    s[d].split("y", factors=(3, 2))
    for name in ("C", "B"):
        s[name].compute_at(s[d], "y.1")
        s[name].store_at(s[d], "y.0")
    s[b].split("x", factor=4)
    s[b].vectorize("x.1")
    s[d].parallel("y.0")
    return s
