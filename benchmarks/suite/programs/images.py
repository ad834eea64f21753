"""Image pipelines, after Halide's applications (Ragan-Kelley et al., PLDI 2013): chains of stencils."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotensor import te
from suite.programs.program import Program

SUITE = "images"
H, W = 1024, 1536


def image(pad: int, name: str = "in", channels: int = 0) -> Any:
    shape = (H + pad, W + pad)
    return te.placeholder((*shape, channels) if channels else shape, name=name)


def along(x: Any, weights: Sequence[float], axis: int, name: str) -> Any:
    """A filter along an axis, over the points that lie inside the image."""
    n = len(weights) - 1
    shape = (x.shape[0] - n, x.shape[1]) if axis == 0 else (x.shape[0], x.shape[1] - n)

    def body(i: Any, j: Any) -> Any:
        total = None
        for d, w in enumerate(weights):
            term = w * (x[i + d, j] if axis == 0 else x[i, j + d])
            total = term if total is None else total + term
        return total

    return te.compute(shape, body, name=name)


def _along(x: Any, weights: Sequence[float], axis: int) -> Any:
    n = x.shape[axis] - len(weights) + 1
    return sum(w * (x[d : d + n] if axis == 0 else x[:, d : d + n]) for d, w in enumerate(weights))


THIRD = (1 / 3, 1 / 3, 1 / 3)
FIFTEEN = tuple(1.0 / (1.0 + 0.1 * (d - 7) ** 2) / 8 for d in range(15))
SEVEN = (0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05)


def blur() -> Sequence[Any]:
    x = image(2)
    return x, along(along(x, THIRD, 1, "bx"), THIRD, 0, "by")


def gaussian() -> Sequence[Any]:
    x = image(14)
    return x, along(along(x, FIFTEEN, 0, "bv"), FIFTEEN, 1, "bh")


def unsharp() -> Sequence[Any]:
    x = image(6, channels=3)
    gray = te.compute(
        (H + 6, W + 6), lambda i, j: 0.299 * x[i, j, 0] + 0.587 * x[i, j, 1] + 0.114 * x[i, j, 2], name="gray"
    )
    b = along(along(gray, SEVEN, 0, "bv"), SEVEN, 1, "bh")
    sharp = te.compute((H, W), lambda i, j: 2.0 * gray[i + 3, j + 3] - b[i, j], name="sharp")
    ratio = te.compute((H, W), lambda i, j: sharp[i, j] / (te.abs(gray[i + 3, j + 3]) + 0.1), name="ratio")
    return x, te.compute((H, W, 3), lambda i, j, c: ratio[i, j] * x[i + 3, j + 3, c], name="out")


def _unsharp(xp: Any, x: Any) -> Any:
    gray = 0.299 * x[..., 0] + 0.587 * x[..., 1] + 0.114 * x[..., 2]
    b = _along(_along(gray, SEVEN, 0), SEVEN, 1)
    mid = gray[3:-3, 3:-3]
    return ((2.0 * mid - b) / (xp.abs(mid) + 0.1))[..., None] * x[3:-3, 3:-3]


def harris() -> Sequence[Any]:
    x = image(4)

    def gradient(name: str, swapped: bool) -> Any:
        def body(i: Any, j: Any) -> Any:
            def at(a: int, b: int) -> Any:
                return x[i + b, j + a] if swapped else x[i + a, j + b]

            return (at(0, 2) - at(0, 0) + 2.0 * (at(1, 2) - at(1, 0)) + at(2, 2) - at(2, 0)) / 12.0

        return te.compute((H + 2, W + 2), body, name=name)

    gx, gy = gradient("gx", False), gradient("gy", True)
    xx = te.compute((H + 2, W + 2), lambda i, j: gx[i, j] * gx[i, j], name="xx")
    yy = te.compute((H + 2, W + 2), lambda i, j: gy[i, j] * gy[i, j], name="yy")
    xy = te.compute((H + 2, W + 2), lambda i, j: gx[i, j] * gy[i, j], name="xy")

    def box(p: Any, name: str) -> Any:
        def body(i: Any, j: Any) -> Any:
            total = None
            for a in range(3):
                for b in range(3):
                    total = p[i + a, j + b] if total is None else total + p[i + a, j + b]
            return total

        return te.compute((H, W), body, name=name)

    sxx, syy, sxy = box(xx, "sxx"), box(yy, "syy"), box(xy, "sxy")
    det = te.compute((H, W), lambda i, j: sxx[i, j] * syy[i, j] - sxy[i, j] * sxy[i, j], name="det")
    trace = te.compute((H, W), lambda i, j: sxx[i, j] + syy[i, j], name="trace")
    return x, te.compute((H, W), lambda i, j: det[i, j] - 0.04 * trace[i, j] * trace[i, j], name="out")


def _harris(xp: Any, x: Any) -> Any:
    def gradient(v: Any) -> Any:
        return (v[:-2, 2:] - v[:-2, :-2] + 2 * (v[1:-1, 2:] - v[1:-1, :-2]) + v[2:, 2:] - v[2:, :-2]) / 12.0

    gx, gy = gradient(x), gradient(x.T).T

    def box(p: Any) -> Any:
        return sum(p[a : a + H, b : b + W] for a in range(3) for b in range(3))

    sxx, syy, sxy = box(gx * gx), box(gy * gy), box(gx * gy)
    return sxx * syy - sxy * sxy - 0.04 * (sxx + syy) ** 2


def bilateral() -> Sequence[Any]:
    """A bilateral filter over 9 x 9 pixels, computed directly, with weights for distance and for
    difference."""
    h, w, r = 256, 384, 4
    x = te.placeholder((h + 2 * r, w + 2 * r), name="in")
    a, b = te.reduce_axis(2 * r + 1, name="a"), te.reduce_axis(2 * r + 1, name="b")
    c, d = te.reduce_axis(2 * r + 1, name="c"), te.reduce_axis(2 * r + 1, name="d")

    def weight(i: Any, j: Any, p: Any, q: Any) -> Any:
        far = x[i + p, j + q] - x[i + r, j + r]
        near = te.cast("float32", (p - r) * (p - r) + (q - r) * (q - r))
        return te.exp(-2.0 * far * far - 0.05 * near)

    s = te.compute((h, w), lambda i, j: te.sum(weight(i, j, a, b), axis=[a, b]), name="weights")
    t = te.compute(
        (h, w), lambda i, j: te.sum(weight(i, j, c, d) * x[i + c, j + d], axis=[c, d]), name="values"
    )
    return x, te.compute((h, w), lambda i, j: t[i, j] / s[i, j], name="out")


def _bilateral(xp: Any, x: Any) -> Any:
    r = 4
    h, w = x.shape[0] - 2 * r, x.shape[1] - 2 * r
    mid = x[r : r + h, r : r + w]
    weights = values = 0.0
    for p in range(2 * r + 1):
        for q in range(2 * r + 1):
            v = x[p : p + h, q : q + w]
            g = xp.exp(-2.0 * (v - mid) ** 2 - 0.05 * ((p - r) ** 2 + (q - r) ** 2))
            weights, values = weights + g, values + g * v
    return values / weights


def down(x: Any, name: str) -> Any:
    h, w = (x.shape[0] - 2) // 2, (x.shape[1] - 2) // 2
    a = te.compute(
        (h, x.shape[1]),
        lambda i, j: (x[2 * i, j] + 2.0 * x[2 * i + 1, j] + x[2 * i + 2, j]) * 0.25,
        name=name + "v",
    )
    return te.compute(
        (h, w), lambda i, j: (a[i, 2 * j] + 2.0 * a[i, 2 * j + 1] + a[i, 2 * j + 2]) * 0.25, name=name
    )


def up(x: Any, h: int, w: int, name: str) -> Any:
    a = te.compute(
        (h, x.shape[1]),
        lambda i, j: 0.75 * x[i // 2, j] + 0.25 * x[i // 2 + i % 2, j],
        name=name + "v",
    )
    return te.compute((h, w), lambda i, j: 0.75 * a[i, j // 2] + 0.25 * a[i, j // 2 + j % 2], name=name)


def pyramid() -> Sequence[Any]:
    x = image(14)
    one = down(x, "d1")
    two = down(one, "d2")
    back = up(two, one.shape[0] - 4, one.shape[1] - 4, "u1")
    detail = te.compute(back.shape, lambda i, j: one[i, j] - 0.5 * back[i, j], name="l1")
    whole = up(detail, H, W, "u0")
    return x, te.compute((H, W), lambda i, j: x[i, j] + 0.3 * whole[i, j], name="out")


def _down(x: Any) -> Any:
    h, w = (x.shape[0] - 2) // 2, (x.shape[1] - 2) // 2
    a = (x[0 : 2 * h : 2] + 2 * x[1 : 2 * h + 1 : 2] + x[2 : 2 * h + 2 : 2]) * 0.25
    return (a[:, 0 : 2 * w : 2] + 2 * a[:, 1 : 2 * w + 1 : 2] + a[:, 2 : 2 * w + 2 : 2]) * 0.25


def _up(xp: Any, x: Any, h: int, w: int) -> Any:
    i, j = xp.arange(h), xp.arange(w)
    a = 0.75 * x[i // 2] + 0.25 * x[i // 2 + i % 2]
    return 0.75 * a[:, j // 2] + 0.25 * a[:, j // 2 + j % 2]


def _pyramid(xp: Any, x: Any) -> Any:
    one = _down(x)
    two = _down(one)
    h, w = one.shape[0] - 4, one.shape[1] - 4
    detail = one[:h, :w] - 0.5 * _up(xp, two, h, w)
    return x[:H, :W] + 0.3 * _up(xp, detail, H, W)


def max_filter() -> Sequence[Any]:
    x = image(8)
    a, b = te.reduce_axis(9, name="a"), te.reduce_axis(9, name="b")
    m = te.compute((H, W + 8), lambda i, j: te.max(x[i + a, j], axis=a), name="mv")
    return x, te.compute((H, W), lambda i, j: te.max(m[i, j + b], axis=b), name="out")


def _max_filter(xp: Any, x: Any) -> Any:
    m = x[:H]
    for d in range(1, 9):
        m = xp.maximum(m, x[d : d + H])
    out = m[:, :W]
    for d in range(1, 9):
        out = xp.maximum(out, m[:, d : d + W])
    return out


def nl_means() -> Sequence[Any]:
    """A mean of 5 x 5 neighbours, weighted by the similarity of their 3 x 3 patches."""
    h, w = 256, 384
    x = te.placeholder((h + 6, w + 6), name="in")
    p = te.reduce_axis(3, name="p")
    q = te.reduce_axis(3, name="q")

    def difference(i: Any, j: Any, s: Any, t: Any) -> Any:
        d = x[i + s + p, j + t + q] - x[i + 2 + p, j + 2 + q]
        return te.sum(d * d, axis=[p, q])

    apart = te.compute((5, 5, h, w), lambda s, t, i, j: difference(i, j, s, t), name="apart")
    weight = te.compute((5, 5, h, w), lambda s, t, i, j: te.exp(-0.3 * apart[s, t, i, j]), name="weight")
    s, t = te.reduce_axis(5, name="s"), te.reduce_axis(5, name="t")
    u, v = te.reduce_axis(5, name="u"), te.reduce_axis(5, name="v")
    total = te.compute((h, w), lambda i, j: te.sum(weight[s, t, i, j], axis=[s, t]), name="total")
    mixed = te.compute(
        (h, w), lambda i, j: te.sum(weight[u, v, i, j] * x[i + u + 1, j + v + 1], axis=[u, v]), name="mixed"
    )
    return x, te.compute((h, w), lambda i, j: mixed[i, j] / total[i, j], name="out")


def _nl_means(xp: Any, x: Any) -> Any:
    h, w = x.shape[0] - 6, x.shape[1] - 6
    total = mixed = 0.0
    for s in range(5):
        for t in range(5):
            apart = 0.0
            for p in range(3):
                for q in range(3):
                    a = x[s + p : s + p + h, t + q : t + q + w]
                    apart = apart + (a - x[2 + p : 2 + p + h, 2 + q : 2 + q + w]) ** 2
            g = xp.exp(-0.3 * apart)
            total, mixed = total + g, mixed + g * x[s + 1 : s + 1 + h, t + 1 : t + 1 + w]
    return mixed / total


def demosaic() -> Sequence[Any]:
    """A Bayer pattern (GR/BG) to colours, bilinear, then a colour matrix and a curve."""
    x = image(2, "raw")

    def green(i: Any, j: Any) -> Any:
        mean = (x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2]) * 0.25
        return te.select((i + j) % 2 == 0, x[i + 1, j + 1], mean)

    g = te.compute((H, W), green, name="g")
    across = te.compute((H, W), lambda i, j: (x[i + 1, j] + x[i + 1, j + 2]) * 0.5, name="across")
    upright = te.compute((H, W), lambda i, j: (x[i, j + 1] + x[i + 2, j + 1]) * 0.5, name="upright")
    corners = te.compute(
        (H, W), lambda i, j: (x[i, j] + x[i, j + 2] + x[i + 2, j] + x[i + 2, j + 2]) * 0.25, name="corners"
    )

    def of(red: bool) -> Any:
        def body(i: Any, j: Any) -> Any:
            row = i % 2 == (0 if red else 1)
            here = te.select(j % 2 == (1 if red else 0), x[i + 1, j + 1], across[i, j])
            other = te.select(j % 2 == (1 if red else 0), upright[i, j], corners[i, j])
            return te.select(row, here, other)

        return te.compute((H, W), body, name="r" if red else "b")

    r, b = of(True), of(False)

    def colour(i: Any, j: Any, c: Any) -> Any:
        one = 1.4 * r[i, j] - 0.3 * g[i, j] - 0.1 * b[i, j]
        two = -0.2 * r[i, j] + 1.5 * g[i, j] - 0.3 * b[i, j]
        three = 0.0 * r[i, j] - 0.5 * g[i, j] + 1.5 * b[i, j]
        v = te.select(c == 0, one, te.select(c == 1, two, three))
        return v / (1.0 + te.abs(v))

    return x, te.compute((H, W, 3), colour, name="out")


def _demosaic(xp: Any, x: Any) -> Any:
    i, j = xp.arange(H)[:, None], xp.arange(W)[None, :]
    n, s, w, e, m = x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:], x[1:-1, 1:-1]
    g = xp.where((i + j) % 2 == 0, m, (n + s + w + e) * 0.25)
    across, upright = (w + e) * 0.5, (n + s) * 0.5
    corners = (x[:-2, :-2] + x[:-2, 2:] + x[2:, :-2] + x[2:, 2:]) * 0.25
    r = xp.where(i % 2 == 0, xp.where(j % 2 == 1, m, across), xp.where(j % 2 == 1, upright, corners))
    b = xp.where(i % 2 == 1, xp.where(j % 2 == 0, m, across), xp.where(j % 2 == 0, upright, corners))
    out = xp.stack([1.4 * r - 0.3 * g - 0.1 * b, -0.2 * r + 1.5 * g - 0.3 * b, -0.5 * g + 1.5 * b], axis=-1)
    return out / (1 + xp.abs(out))


def canny_front() -> Sequence[Any]:
    """The first steps of Canny's edge detector: smoothing, gradients, magnitude, and thinning across the
    stronger gradient."""
    x = image(6)
    b = along(along(x, (0.25, 0.5, 0.25), 0, "sv"), (0.25, 0.5, 0.25), 1, "sh")
    gx = te.compute((H + 2, W + 2), lambda i, j: b[i + 1, j + 2] - b[i + 1, j], name="gx")
    gy = te.compute((H + 2, W + 2), lambda i, j: b[i + 2, j + 1] - b[i, j + 1], name="gy")
    m = te.compute((H + 2, W + 2), lambda i, j: te.sqrt(gx[i, j] * gx[i, j] + gy[i, j] * gy[i, j]), name="m")

    def thin(i: Any, j: Any) -> Any:
        c = m[i + 1, j + 1]
        flat = te.abs(gx[i + 1, j + 1]) >= te.abs(gy[i + 1, j + 1])
        one = te.select(flat, m[i + 1, j], m[i, j + 1])
        two = te.select(flat, m[i + 1, j + 2], m[i + 2, j + 1])
        return te.select(te.all(c >= one, c >= two), c, 0.0)

    return x, te.compute((H, W), thin, name="out")


def _canny(xp: Any, x: Any) -> Any:
    b = _along(_along(x, (0.25, 0.5, 0.25), 0), (0.25, 0.5, 0.25), 1)
    gx, gy = b[1:-1, 2:] - b[1:-1, :-2], b[2:, 1:-1] - b[:-2, 1:-1]
    m = xp.sqrt(gx * gx + gy * gy)
    flat = (xp.abs(gx) >= xp.abs(gy))[1:-1, 1:-1]
    c = m[1:-1, 1:-1]
    one = xp.where(flat, m[1:-1, :-2], m[:-2, 1:-1])
    two = xp.where(flat, m[1:-1, 2:], m[2:, 1:-1])
    return xp.where((c >= one) & (c >= two), c, 0.0)


def stencil_chain() -> Sequence[Any]:
    x = y = te.placeholder((H + 16, W + 16), name="in")
    for n in range(8):
        y = _cross(y, f"s{n}")
    return x, y


def _cross(y: Any, name: str) -> Any:
    def body(i: Any, j: Any) -> Any:
        return 0.2 * (y[i + 1, j + 1] + y[i, j + 1] + y[i + 2, j + 1] + y[i + 1, j] + y[i + 1, j + 2])

    return te.compute((y.shape[0] - 2, y.shape[1] - 2), body, name=name)


def _chain(xp: Any, y: Any) -> Any:
    for _ in range(8):
        y = 0.2 * (y[1:-1, 1:-1] + y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:])
    return y


IMAGES = (
    Program("blur", SUITE, blur, lambda xp, x: _along(_along(x, THIRD, 1), THIRD, 0)),
    Program("Gaussian of 15 taps", SUITE, gaussian, lambda xp, x: _along(_along(x, FIFTEEN, 0), FIFTEEN, 1)),
    Program("unsharp mask", SUITE, unsharp, _unsharp),
    Program("Harris corners", SUITE, harris, _harris),
    Program("bilateral filter", SUITE, bilateral, _bilateral),
    Program("pyramid", SUITE, pyramid, _pyramid),
    Program("max filter", SUITE, max_filter, _max_filter),
    Program("NL-means", SUITE, nl_means, _nl_means),
    Program("demosaic", SUITE, demosaic, _demosaic),
    Program("Canny's front", SUITE, canny_front, _canny),
    Program("eight crosses", SUITE, stencil_chain, _chain),
)
