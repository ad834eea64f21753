"""Stencils with one sweep and with several. Borders stay unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotensor import te
from suite.programs.program import Program

SUITE = "stencils"


def inside(n: int, *axes: Any) -> Any:
    return te.all(*(c for a in axes for c in (a >= 1, a < n - 1)))


def steps(make: Callable[[Any, str], Any], shape: tuple[int, ...], count: int) -> Callable[[], Sequence[Any]]:
    def build() -> Sequence[Any]:
        a = x = te.placeholder(shape, name="A")
        for t in range(count):
            x = make(x, f"s{t}")
        return a, x

    return build


def jacobi_1d(x: Any, name: str) -> Any:
    (n,) = x.shape
    return te.compute(
        (n,), lambda i: te.select(inside(n, i), (x[i - 1] + x[i] + x[i + 1]) * 0.33333, x[i]), name=name
    )


def jacobi_2d(x: Any, name: str) -> Any:
    n = x.shape[0]

    def body(i: Any, j: Any) -> Any:
        around = x[i, j] + x[i, j - 1] + x[i, j + 1] + x[i + 1, j] + x[i - 1, j]
        return te.select(inside(n, i, j), around * 0.2, x[i, j])

    return te.compute(x.shape, body, name=name)


def heat_3d(x: Any, name: str) -> Any:
    n = x.shape[0]

    def body(i: Any, j: Any, k: Any) -> Any:
        c = x[i, j, k]
        far = (
            0.125 * (x[i + 1, j, k] - 2.0 * c + x[i - 1, j, k])
            + 0.125 * (x[i, j + 1, k] - 2.0 * c + x[i, j - 1, k])
            + 0.125 * (x[i, j, k + 1] - 2.0 * c + x[i, j, k - 1])
        )
        return te.select(inside(n, i, j, k), far + c, c)

    return te.compute(x.shape, body, name=name)


def stencil_27(x: Any, name: str) -> Any:
    n = x.shape[0] - 2

    def body(i: Any, j: Any, k: Any) -> Any:
        total = None
        for a in range(3):
            for b in range(3):
                for c in range(3):
                    weight = (0.5, 0.1, 0.02, 0.005)[abs(a - 1) + abs(b - 1) + abs(c - 1)]
                    term = weight * x[i + a, j + b, k + c]
                    total = term if total is None else total + term
        return total

    return te.compute((n, n, n), body, name=name)


def valid_2d(radius: int) -> Callable[[Any, str], Any]:
    """A star-shaped stencil with a radius, over the points that lie inside."""

    def make(x: Any, name: str) -> Any:
        n = x.shape[0] - 2 * radius

        def body(i: Any, j: Any) -> Any:
            total = 0.4 * x[i + radius, j + radius]
            for d in range(1, radius + 1):
                around = (
                    x[i + radius - d, j + radius]
                    + x[i + radius + d, j + radius]
                    + x[i + radius, j + radius - d]
                    + x[i + radius, j + radius + d]
                )
                total = total + 0.1 / d * around
            return total

        return te.compute((n, n), body, name=name)

    return make


def gradient_flow() -> Sequence[Any]:
    """Perona and Malik's diffusion: four fluxes, then their sum."""
    n = 1024
    x = te.placeholder((n + 2, n + 2), name="x")

    def flux(di: int, dj: int, name: str) -> Any:
        def body(i: Any, j: Any) -> Any:
            d = x[i + 1 + di, j + 1 + dj] - x[i + 1, j + 1]
            return d / (1.0 + d * d)

        return te.compute((n, n), body, name=name)

    parts = [flux(-1, 0, "north"), flux(1, 0, "south"), flux(0, -1, "west"), flux(0, 1, "east")]
    out = te.compute(
        (n, n),
        lambda i, j: (
            x[i + 1, j + 1] + 0.2 * (parts[0][i, j] + parts[1][i, j] + parts[2][i, j] + parts[3][i, j])
        ),
        name="out",
    )
    return x, out


def hotspot() -> Sequence[Any]:
    n = 1024
    t, p = te.placeholder((n, n), name="T"), te.placeholder((n, n), name="P")

    def body(i: Any, j: Any) -> Any:
        north = te.select(i > 0, t[i - 1, j], t[i, j])
        south = te.select(i < n - 1, t[i + 1, j], t[i, j])
        west = te.select(j > 0, t[i, j - 1], t[i, j])
        east = te.select(j < n - 1, t[i, j + 1], t[i, j])
        c = t[i, j]
        return c + 0.1 * (
            p[i, j] + (north + south - 2.0 * c) * 0.3 + (east + west - 2.0 * c) * 0.2 + (80.0 - c) * 0.01
        )

    return t, p, te.compute((n, n), body, name="out")


def _jacobi_1d(count: int) -> Callable[..., Any]:
    def run(xp: Any, x: Any) -> Any:
        for _ in range(count):
            x = xp.concatenate([x[:1], (x[:-2] + x[1:-1] + x[2:]) * 0.33333, x[-1:]])
        return x

    return run


def put(xp: Any, x: Any, middle: Any) -> Any:
    """x with its inside replaced."""
    at = (slice(1, -1),) * x.ndim
    if hasattr(x, "at"):
        return x.at[at].set(middle)
    x = xp.array(x)
    x[at] = middle
    return x


def _jacobi_2d(count: int) -> Callable[..., Any]:
    def run(xp: Any, x: Any) -> Any:
        for _ in range(count):
            x = put(xp, x, (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]) * 0.2)
        return x

    return run


def _heat_3d(count: int) -> Callable[..., Any]:
    def run(xp: Any, x: Any) -> Any:
        for _ in range(count):
            c = x[1:-1, 1:-1, 1:-1]
            far = (
                0.125 * (x[2:, 1:-1, 1:-1] - 2 * c + x[:-2, 1:-1, 1:-1])
                + 0.125 * (x[1:-1, 2:, 1:-1] - 2 * c + x[1:-1, :-2, 1:-1])
                + 0.125 * (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2])
            )
            x = put(xp, x, far + c)
        return x

    return run


def _stencil_27(xp: Any, x: Any) -> Any:
    n = x.shape[0] - 2
    total = 0.0
    for a in range(3):
        for b in range(3):
            for c in range(3):
                weight = (0.5, 0.1, 0.02, 0.005)[abs(a - 1) + abs(b - 1) + abs(c - 1)]
                total = total + weight * x[a : a + n, b : b + n, c : c + n]
    return total


def _valid_2d(radius: int, count: int) -> Callable[..., Any]:
    def run(xp: Any, x: Any) -> Any:
        r = radius
        for _ in range(count):
            n = x.shape[0] - 2 * r
            total = 0.4 * x[r : r + n, r : r + n]
            for d in range(1, r + 1):
                total = total + 0.1 / d * (
                    x[r - d : r - d + n, r : r + n]
                    + x[r + d : r + d + n, r : r + n]
                    + x[r : r + n, r - d : r - d + n]
                    + x[r : r + n, r + d : r + d + n]
                )
            x = total
        return x

    return run


def _flow(xp: Any, x: Any) -> Any:
    c = x[1:-1, 1:-1]
    total = 0.0
    for d in (x[:-2, 1:-1] - c, x[2:, 1:-1] - c, x[1:-1, :-2] - c, x[1:-1, 2:] - c):
        total = total + d / (1 + d * d)
    return c + 0.2 * total


def _hotspot(xp: Any, t: Any, p: Any) -> Any:
    q = xp.pad(t, 1, mode="edge")
    ns, ew = q[:-2, 1:-1] + q[2:, 1:-1] - 2 * t, q[1:-1, 2:] + q[1:-1, :-2] - 2 * t
    return t + 0.1 * (p + ns * 0.3 + ew * 0.2 + (80.0 - t) * 0.01)


STENCILS = (
    Program("jacobi-1d, 4 steps", SUITE, steps(jacobi_1d, (1 << 20,), 4), _jacobi_1d(4)),
    Program("jacobi-2d", SUITE, steps(jacobi_2d, (1300, 1300), 1), _jacobi_2d(1)),
    Program("jacobi-2d, 3 steps", SUITE, steps(jacobi_2d, (1300, 1300), 3), _jacobi_2d(3)),
    Program("heat-3d, 3 steps", SUITE, steps(heat_3d, (120, 120, 120), 3), _heat_3d(3)),
    Program("27 points", SUITE, steps(stencil_27, (130, 130, 130), 1), _stencil_27),
    Program("star of radius 4", SUITE, steps(valid_2d(4), (1032, 1032), 1), _valid_2d(4, 1)),
    Program("star of radius 2, twice", SUITE, steps(valid_2d(2), (1032, 1032), 2), _valid_2d(2, 2)),
    Program("Perona-Malik", SUITE, gradient_flow, _flow),
    Program("hotspot", SUITE, hotspot, _hotspot),
)
