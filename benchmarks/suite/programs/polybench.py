"""The PolyBench kernels that te can express (Pouchet and Yuki, PolyBench 4.2), in float32.

These kernels are left out, because each element needs the one before it in an order that te cannot express
without a loop that carries state: adi, cholesky, deriche, durbin, floyd-warshall, gramschmidt, lu, ludcmp,
nussinov, seidel-2d, trisolv.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor import te
from suite.programs.program import Program

N = 512
SUITE = "polybench"


def matrix(name: str, *shape: int) -> Any:
    return te.placeholder(shape or (N, N), name=name)


def product(a: Any, b: Any, name: str) -> Any:
    k = te.reduce_axis(a.shape[1], name="k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)


def times(a: Any, x: Any, name: str) -> Any:
    k = te.reduce_axis(a.shape[1], name="k")
    return te.compute((a.shape[0],), lambda i: te.sum(a[i, k] * x[k], axis=k), name=name)


def transposed_times(a: Any, x: Any, name: str) -> Any:
    k = te.reduce_axis(a.shape[0], name="k")
    return te.compute((a.shape[1],), lambda i: te.sum(a[k, i] * x[k], axis=k), name=name)


def gemm() -> Sequence[Any]:
    a, b, c = matrix("A"), matrix("B"), matrix("C")
    p = product(a, b, "P")
    return a, b, c, te.compute((N, N), lambda i, j: 1.5 * p[i, j] + 1.2 * c[i, j], name="out")


def two_mm() -> Sequence[Any]:
    a, b, c, d = (matrix(n) for n in "ABCD")
    t = product(a, b, "T")
    u = te.compute((N, N), lambda i, j: 1.5 * t[i, j], name="U")
    p = product(u, c, "P")
    return a, b, c, d, te.compute((N, N), lambda i, j: p[i, j] + 1.2 * d[i, j], name="out")


def three_mm() -> Sequence[Any]:
    a, b, c, d = (matrix(n) for n in "ABCD")
    return a, b, c, d, product(product(a, b, "E"), product(c, d, "F"), "G")


def atax() -> Sequence[Any]:
    a, x = matrix("A", 1900, 2100), te.placeholder((2100,), name="x")
    return a, x, transposed_times(a, times(a, x, "t"), "y")


def bicg() -> Sequence[Any]:
    a, p, r = matrix("A", 1900, 2100), te.placeholder((2100,), name="p"), te.placeholder((1900,), name="r")
    return a, p, r, transposed_times(a, r, "s"), times(a, p, "q")


def mvt() -> Sequence[Any]:
    a = matrix("A", 2000, 2000)
    x, y, u, v = (te.placeholder((2000,), name=n) for n in ("x1", "x2", "y1", "y2"))
    s, t = times(a, u, "s"), transposed_times(a, v, "t")
    one = te.compute((2000,), lambda i: x[i] + s[i], name="o1")
    return a, x, y, u, v, one, te.compute((2000,), lambda i: y[i] + t[i], name="o2")


def gemver() -> Sequence[Any]:
    a = matrix("A", 2000, 2000)
    u1, v1, u2, v2, y, z = (te.placeholder((2000,), name=n) for n in ("u1", "v1", "u2", "v2", "y", "z"))
    b = te.compute((2000, 2000), lambda i, j: a[i, j] + u1[i] * v1[j] + u2[i] * v2[j], name="B")
    t = transposed_times(b, y, "t")
    x = te.compute((2000,), lambda i: 1.2 * t[i] + z[i], name="x")
    w = times(b, x, "w")
    return a, u1, v1, u2, v2, y, z, b, x, te.compute((2000,), lambda i: 1.5 * w[i], name="out")


def gesummv() -> Sequence[Any]:
    a, b, x = matrix("A", 1300, 1300), matrix("B", 1300, 1300), te.placeholder((1300,), name="x")
    s, t = times(a, x, "s"), times(b, x, "t")
    return a, b, x, te.compute((1300,), lambda i: 1.5 * s[i] + 1.2 * t[i], name="y")


def syrk() -> Sequence[Any]:
    a, c = matrix("A"), matrix("C")
    k = te.reduce_axis(N, name="k")
    p = te.compute((N, N), lambda i, j: te.sum(te.select(j <= i, a[i, k] * a[j, k], 0.0), axis=k), name="P")
    out = te.compute(
        (N, N), lambda i, j: te.select(j <= i, 1.2 * c[i, j] + 1.5 * p[i, j], c[i, j]), name="out"
    )
    return a, c, out


def syr2k() -> Sequence[Any]:
    a, b, c = matrix("A"), matrix("B"), matrix("C")
    k = te.reduce_axis(N, name="k")

    def term(i: Any, j: Any) -> Any:
        return te.select(j <= i, a[j, k] * b[i, k] + b[j, k] * a[i, k], 0.0)

    p = te.compute((N, N), lambda i, j: te.sum(term(i, j), axis=k), name="P")
    out = te.compute(
        (N, N), lambda i, j: te.select(j <= i, 1.2 * c[i, j] + 1.5 * p[i, j], c[i, j]), name="out"
    )
    return a, b, c, out


def symm() -> Sequence[Any]:
    a, b, c = matrix("A"), matrix("B"), matrix("C")
    s = te.compute((N, N), lambda i, j: te.select(j <= i, a[i, j], a[j, i]), name="S")
    p = product(s, b, "P")
    return a, b, c, te.compute((N, N), lambda i, j: 1.2 * c[i, j] + 1.5 * p[i, j], name="out")


def trmm() -> Sequence[Any]:
    a, b = matrix("A"), matrix("B")
    k = te.reduce_axis(N, name="k")

    def term(i: Any, j: Any) -> Any:
        return te.select(k > i, a[k, i] * b[k, j], 0.0)

    p = te.compute((N, N), lambda i, j: te.sum(term(i, j), axis=k), name="P")
    return a, b, te.compute((N, N), lambda i, j: 1.5 * (b[i, j] + p[i, j]), name="out")


def mean_of(x: Any) -> Any:
    rows, columns = x.shape
    k = te.reduce_axis(rows, name="k")
    s = te.compute((columns,), lambda j: te.sum(x[k, j], axis=k), name="s")
    return te.compute((columns,), lambda j: s[j] / float(rows), name="mean")


def covariance() -> Sequence[Any]:
    x = matrix("X", 600, 512)
    m = mean_of(x)
    c = te.compute((600, 512), lambda i, j: x[i, j] - m[j], name="centred")
    k = te.reduce_axis(600, name="k")
    p = te.compute((512, 512), lambda i, j: te.sum(c[k, i] * c[k, j], axis=k), name="P")
    return x, te.compute((512, 512), lambda i, j: p[i, j] / 599.0, name="cov")


def correlation() -> Sequence[Any]:
    x = matrix("X", 600, 512)
    m = mean_of(x)
    r = te.reduce_axis(600, name="r")
    v = te.compute((512,), lambda j: te.sum((x[r, j] - m[j]) * (x[r, j] - m[j]), axis=r), name="v")
    d = te.compute((512,), lambda j: te.sqrt(v[j] / 600.0), name="std")
    c = te.compute((600, 512), lambda i, j: (x[i, j] - m[j]) / (24.494897 * d[j]), name="centred")
    k = te.reduce_axis(600, name="k")
    p = te.compute((512, 512), lambda i, j: te.sum(c[k, i] * c[k, j], axis=k), name="corr")
    return x, p


def doitgen() -> Sequence[Any]:
    a, c = te.placeholder((100, 110, 120), name="A"), matrix("C", 120, 120)
    s = te.reduce_axis(120, name="s")
    out = te.compute((100, 110, 120), lambda r, q, p: te.sum(a[r, q, s] * c[s, p], axis=s), name="out")
    return a, c, out


def _syrk(xp: Any, a: Any, c: Any) -> Any:
    return xp.where(xp.tril(xp.ones_like(c)) > 0, 1.2 * c + 1.5 * (a @ a.T), c)


def _syr2k(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.where(xp.tril(xp.ones_like(c)) > 0, 1.2 * c + 1.5 * (a @ b.T + b @ a.T), c)


def _gemver(xp: Any, a: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any) -> Any:
    b = a + xp.outer(u1, v1) + xp.outer(u2, v2)
    x = 1.2 * (y @ b) + z
    return b, x, 1.5 * (b @ x)


def _covariance(xp: Any, x: Any) -> Any:
    c = x - x.mean(axis=0)
    return c.T @ c / 599.0


def _correlation(xp: Any, x: Any) -> Any:
    c = (x - x.mean(axis=0)) / (24.494897 * xp.std(x, axis=0))
    return c.T @ c


POLYBENCH = (
    Program("gemm", SUITE, gemm, lambda xp, a, b, c: 1.5 * (a @ b) + 1.2 * c),
    Program("2mm", SUITE, two_mm, lambda xp, a, b, c, d: 1.5 * (a @ b) @ c + 1.2 * d),
    Program("3mm", SUITE, three_mm, lambda xp, a, b, c, d: (a @ b) @ (c @ d)),
    Program("atax", SUITE, atax, lambda xp, a, x: (a @ x) @ a),
    Program("bicg", SUITE, bicg, lambda xp, a, p, r: (r @ a, a @ p)),
    Program("mvt", SUITE, mvt, lambda xp, a, x, y, u, v: (x + a @ u, y + v @ a)),
    Program("gemver", SUITE, gemver, _gemver),
    Program("gesummv", SUITE, gesummv, lambda xp, a, b, x: 1.5 * (a @ x) + 1.2 * (b @ x)),
    Program("symm", SUITE, symm, lambda xp, a, b, c: 1.2 * c + 1.5 * (xp.tril(a) + xp.tril(a, -1).T) @ b),
    Program("syrk", SUITE, syrk, _syrk),
    Program("syr2k", SUITE, syr2k, _syr2k),
    Program("trmm", SUITE, trmm, lambda xp, a, b: 1.5 * (b + xp.tril(a, -1).T @ b)),
    Program("covariance", SUITE, covariance, _covariance),
    Program("correlation", SUITE, correlation, _correlation),
    Program("doitgen", SUITE, doitgen, lambda xp, a, c: a @ c),
)
