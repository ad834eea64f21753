"""Operators of data analysis and of new networks that no library has as a single operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor import te
from suite.programs.program import Program

SUITE = "odd"


def pair_min(name: str = "argmin") -> Any:
    return te.comm_reducer(
        lambda a, b: (
            te.select(a[1] <= b[1], a[0], b[0]),
            te.select(a[1] <= b[1], a[1], b[1]),
        ),
        lambda t0, t1: (te.const(-1, t0), te.max_value(t1)),
        name=name,
    )


def nearest() -> Sequence[Any]:
    n, m, d = 1024, 1024, 16
    x, y = te.placeholder((n, d), name="x"), te.placeholder((m, d), name="y")
    k, j = te.reduce_axis(d, name="k"), te.reduce_axis(m, name="j")
    far = te.compute(
        (n, m), lambda i, p: te.sum((x[i, k] - y[p, k]) * (x[i, k] - y[p, k]), axis=k), name="far"
    )
    return x, y, te.compute((n,), lambda i: te.min(far[i, j], axis=j), name="nearest")


def _nearest(xp: Any, x: Any, y: Any) -> Any:
    return xp.min(((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1), axis=1)


def pairs(kind: str) -> Any:
    n, m, d = 512, 512, 64

    def make() -> Sequence[Any]:
        x, y = te.placeholder((n, d), name="x"), te.placeholder((m, d), name="y")
        k = te.reduce_axis(d, name="k")

        def body(i: Any, j: Any) -> Any:
            far = te.abs(x[i, k] - y[j, k])
            return te.sum(far, axis=k) if kind == "sum" else te.max(far, axis=k)

        return x, y, te.compute((n, m), body, name="far")

    return make


def _pairs(kind: str) -> Any:
    def run(xp: Any, x: Any, y: Any) -> Any:
        far = xp.abs(x[:, None, :] - y[None, :, :])
        return far.sum(axis=-1) if kind == "sum" else xp.max(far, axis=-1)

    return run


def min_plus() -> Sequence[Any]:
    n = 384
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis(n, name="k")
    return a, b, te.compute((n, n), lambda i, j: te.min(a[i, k] + b[k, j], axis=k), name="C")


def kernel_matrix() -> Sequence[Any]:
    n, m, d = 768, 768, 24
    x, y, w = (
        te.placeholder((n, d), name="x"),
        te.placeholder((m, d), name="y"),
        te.placeholder((m,), name="w"),
    )
    k, j = te.reduce_axis(d, name="k"), te.reduce_axis(m, name="j")
    far = te.compute(
        (n, m), lambda i, p: te.sum((x[i, k] - y[p, k]) * (x[i, k] - y[p, k]), axis=k), name="far"
    )
    g = te.compute((n, m), lambda i, p: te.exp(-0.1 * far[i, p]), name="g")
    return x, y, w, te.compute((n,), lambda i: te.sum(g[i, j] * w[j], axis=j), name="out")


def _kernel_matrix(xp: Any, x: Any, y: Any, w: Any) -> Any:
    return xp.exp(-0.1 * ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=-1)) @ w


def prefix_sums() -> Sequence[Any]:
    """Running sums along every row, by doubling: nine stages."""
    n = 512
    x = y = te.placeholder((n, n), name="x")
    step = 1
    while step < n:
        y = _shifted(y, step, f"p{step}")
        step *= 2
    return x, y


def _shifted(y: Any, step: int, name: str) -> Any:
    return te.compute(
        y.shape, lambda i, j: y[i, j] + te.select(j >= step, y[i, te.maximum(j - step, 0)], 0.0), name=name
    )


def rope_attention_scores() -> Sequence[Any]:
    heads, n, d = 8, 256, 64
    q, k = te.placeholder((heads, n, d), name="q"), te.placeholder((heads, n, d), name="k")
    c, s = te.placeholder((n, d // 2), name="cos"), te.placeholder((n, d // 2), name="sin")

    def turned(x: Any, name: str) -> Any:
        def body(h: Any, i: Any, e: Any) -> Any:
            half = d // 2
            other = te.select(e < half, -x[h, i, (e + half) % d], x[h, i, (e + half) % d])
            return x[h, i, e] * c[i, e % half] + other * s[i, e % half]

        return te.compute((heads, n, d), body, name=name)

    a, b = turned(q, "qr"), turned(k, "kr")
    r = te.reduce_axis(d, name="r")
    return (
        q,
        k,
        c,
        s,
        te.compute((heads, n, n), lambda h, i, j: te.sum(a[h, i, r] * b[h, j, r], axis=r), name="out"),
    )


def _rope(xp: Any, q: Any, k: Any, c: Any, s: Any) -> Any:
    def turned(x: Any) -> Any:
        half = x.shape[-1] // 2
        other = xp.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * xp.concatenate([c, c], axis=-1) + other * xp.concatenate([s, s], axis=-1)

    return xp.einsum("hir,hjr->hij", turned(q), turned(k))


def group_norm_silu() -> Sequence[Any]:
    """Group norm over the pixels and channels of a group (channels last), then silu."""
    h, w, c, g = 64, 64, 128, 8
    per = c // g
    x = te.placeholder((h, w, c), name="x")
    a, b, e = (te.reduce_axis(n, name=m) for n, m in ((h, "a"), (w, "b"), (per, "e")))
    p, q, f = (te.reduce_axis(n, name=m) for n, m in ((h, "p"), (w, "q"), (per, "f")))
    s = te.compute((g,), lambda i: te.sum(x[a, b, i * per + e], axis=[a, b, e]), name="s")
    m = te.compute((g,), lambda i: s[i] / float(h * w * per), name="mean")

    def square(i: Any) -> Any:
        v = x[p, q, i * per + f] - m[i]
        return te.sum(v * v, axis=[p, q, f])

    v = te.compute((g,), square, name="v")
    r = te.compute((g,), lambda i: 1.0 / te.sqrt(v[i] / float(h * w * per) + 1e-5), name="r")
    n = te.compute((h, w, c), lambda i, j, k: (x[i, j, k] - m[k // per]) * r[k // per], name="n")
    return x, te.compute((h, w, c), lambda i, j, k: n[i, j, k] / (1.0 + te.exp(-n[i, j, k])), name="out")


def _group_norm(xp: Any, x: Any) -> Any:
    y = x.reshape(64, 64, 8, 16)
    m = y.mean(axis=(0, 1, 3), keepdims=True)
    v = ((y - m) ** 2).mean(axis=(0, 1, 3), keepdims=True)
    z = ((y - m) / xp.sqrt(v + 1e-5)).reshape(64, 64, 128)
    return z / (1 + xp.exp(-z))


def lut() -> Sequence[Any]:
    """A table lookup at every pixel, with linear interpolation between neighbours, then means of 2 x 2
    pixels."""
    n = 1024
    x, table = te.placeholder((n, n), "float32", name="x"), te.placeholder((257,), name="table")

    def body(i: Any, j: Any) -> Any:
        v = te.minimum(te.maximum(x[i, j] * 40.0 + 128.0, 0.0), 255.0)
        low = te.cast("int32", te.floor(v))
        return table[low] + (v - te.floor(v)) * (table[low + 1] - table[low])

    y = te.compute((n, n), body, name="y")
    out = te.compute(
        (n // 2, n // 2),
        lambda i, j: (
            0.25 * (y[2 * i, 2 * j] + y[2 * i + 1, 2 * j] + y[2 * i, 2 * j + 1] + y[2 * i + 1, 2 * j + 1])
        ),
        name="out",
    )
    return x, table, out


def _lut(xp: Any, x: Any, table: Any) -> Any:
    v = xp.clip(x * 40.0 + 128.0, 0.0, 255.0)
    low = xp.asarray(xp.floor(v), dtype=xp.int32)
    y = table[low] + (v - xp.floor(v)) * (table[low + 1] - table[low])
    return 0.25 * (y[::2, ::2] + y[1::2, ::2] + y[::2, 1::2] + y[1::2, 1::2])


ODD = (
    Program("nearest neighbour", SUITE, nearest, _nearest),
    Program("L1 distances", SUITE, pairs("sum"), _pairs("sum")),
    Program("L-infinity distances", SUITE, pairs("max"), _pairs("max")),
    Program(
        "min-plus product", SUITE, min_plus, lambda xp, a, b: xp.min(a[:, :, None] + b[None, :, :], axis=1)
    ),
    Program("kernel matrix", SUITE, kernel_matrix, _kernel_matrix),
    Program("prefix sums by doubling", SUITE, prefix_sums, lambda xp, x: xp.cumsum(x, axis=1)),
    Program("rope scores", SUITE, rope_attention_scores, _rope),
    Program("group norm and silu", SUITE, group_norm_silu, _group_norm),
    Program("table", SUITE, lut, _lut),
)
