"""Products of 16-bit floats as loops, which tensor cores may compute, in even and odd shapes.

PRODUCTS["convolution"]     a ComputeDAG, small enough to be simulated
"""

from __future__ import annotations

from autotensor import te
from autotensor.te import Tensor
from autotensor.te.dag import ComputeDAG


def wide(x: te.Expr) -> te.Expr:
    return te.cast("float32", x)


def matrices(
    m: int,
    n: int,
    depth: int,
    dtype: str = "float16",
    *,
    turned: tuple[bool, bool] = (False, False),
    constant: bool = False,
    out: str = "",
) -> ComputeDAG:
    """C = A B, with A or B transposed in memory. out: the type of a ReLU after it."""
    a = te.placeholder((depth, m) if turned[0] else (m, depth), dtype, name="A")
    b = te.placeholder((n, depth) if turned[1] else (depth, n), dtype, name="B", constant=constant)
    k = te.reduce_axis(depth, name="k")

    def term(i: te.Expr, j: te.Expr) -> te.Expr:
        return wide(a[k, i] if turned[0] else a[i, k]) * wide(b[j, k] if turned[1] else b[k, j])

    c = te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=k), name="C")
    if not out:
        return ComputeDAG.of([a, b, c])
    d = te.compute((m, n), lambda i, j: te.cast(out, te.maximum(c[i, j], 0.0)), name="D")
    return ComputeDAG.of([a, b, d])


def narrow_sums(m: int, n: int, depth: int) -> ComputeDAG:
    """Terms and sums of 16 bits, as in a graph's product on a card."""
    a, b = te.placeholder((m, depth), "float16", name="A"), te.placeholder((depth, n), "float16", name="B")
    k = te.reduce_axis(depth, name="k")
    return ComputeDAG.of([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])


def batched(count: int, m: int, n: int, depth: int) -> ComputeDAG:
    a = te.placeholder((count, m, depth), "float16", name="A")
    b = te.placeholder((count, depth, n), "float16", name="B")
    k = te.reduce_axis(depth, name="k")
    c = te.compute(
        (count, m, n), lambda p, i, j: te.sum(wide(a[p, i, k]) * wide(b[p, k, j]), axis=k), name="C"
    )
    return ComputeDAG.of([a, b, c])


def convolution(
    image: int,
    channels: int,
    out: int,
    window: int = 3,
    stride: int = 1,
    *,
    batch: int = 1,
    last: bool = True,
) -> ComputeDAG:
    """Padding and a convolution; last: whether channels are the last dimension, or the second one."""
    size, edge = (image - window + 2 * (window // 2)) // stride + 1, window // 2
    w = te.placeholder((window, window, channels, out), "float16", name="W", constant=True)
    p, q = te.reduce_axis(window, name="p"), te.reduce_axis(window, name="q")
    c = te.reduce_axis(channels, name="c")

    def shape(height: int, depth: int) -> tuple[int, ...]:
        return (batch, height, height, depth) if last else (batch, depth, height, height)

    x = te.placeholder(shape(image, channels), "float16", name="X")

    def at(t: Tensor, b: te.Expr, y: te.Expr, z: te.Expr, d: te.Expr) -> te.Expr:
        return t[b, y, z, d] if last else t[b, d, y, z]

    def padded(b: te.Expr, *rest: te.Expr) -> te.Expr:
        y, z, d = rest if last else (*rest[1:], rest[0])
        inside = te.all(y >= edge, y < image + edge, z >= edge, z < image + edge)
        return te.if_then_else(inside, at(x, b, y - edge, z - edge, d), te.const(0.0, "float16"))

    pad = te.compute(shape(image + 2 * edge, channels), padded, name="pad")

    def sums(b: te.Expr, *rest: te.Expr) -> te.Expr:
        y, z, o = rest if last else (*rest[1:], rest[0])
        term = wide(at(pad, b, y * stride + p, z * stride + q, c)) * wide(w[p, q, c, o])
        return te.sum(term, axis=[p, q, c] if last else [c, p, q])

    return ComputeDAG.of([x, w, te.compute(shape(size, out), sums, name="Y")])


PRODUCTS = {
    "even": matrices(64, 64, 64, constant=True),
    "no extent is a multiple": matrices(33, 17, 37),
    "columns are odd": matrices(50, 33, 48, out="float16"),
    "terms are left over": matrices(64, 64, 40),
    "bfloat16": matrices(48, 24, 32, "bfloat16"),
    "rows turned": matrices(48, 40, 32, turned=(True, False)),
    "columns turned": matrices(48, 40, 32, turned=(False, True)),
    "both turned, odd": matrices(31, 29, 23, turned=(True, True)),
    "sums of 16 bits": narrow_sums(40, 40, 48),
    "batched": batched(3, 20, 24, 32),
    "convolution": convolution(7, 16, 24),
    "convolution, odd": convolution(5, 5, 17, batch=2),
    "convolution, strides": convolution(9, 8, 16, stride=2),
    "convolution, channels first": convolution(7, 16, 24, last=False),
    "convolution of points": convolution(6, 32, 32, window=1),
}
