"""Scans of every kind, with different reads of the steps, numbers of states and intermediate values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te

Step = Callable[[list[Any], Any, Any], Any]  # (states, the last one first; x[t]; c[t]) → the next state


def zeros(steps: int, *shape: int, name: str) -> Any:
    return te.compute((steps, *shape), lambda *i: te.const(0.0, "float32"), name=name)


def iir(t: int = 40, n: int = 37, order: int = 1) -> Sequence[Any]:
    """Each channel is separate."""
    x, s = te.placeholder((t, n), name="x"), te.placeholder((t, n), name="s")

    def step(i: Any, j: Any) -> Any:
        total = x[i, j]
        for k in range(1, order + 1):
            total = total + 0.5**k * s[i - k, j]
        return total

    first = te.compute((order, n), lambda i, j: x[i, j], name="first")
    return x, te.scan(first, te.compute((t, n), step, name="step"), s, name="y")


def one_channel(t: int = 50) -> Sequence[Any]:
    x, s = te.placeholder((t,), name="x"), te.placeholder((t,), name="s")
    first = te.compute((1,), lambda i: x[0], name="first")
    return x, te.scan(first, te.compute((t,), lambda i: 0.5 * s[i - 1] + x[i], name="step"), s, name="y")


def wave(t: int = 20, n: int = 40) -> Sequence[Any]:
    """Each step reads its neighbours."""
    x, s = te.placeholder((n,), name="x"), te.placeholder((t, n), name="s")

    def step(i: Any, j: Any) -> Any:
        left = te.select(j > 0, s[i - 1, te.maximum(j - 1, 0)], 0.0)
        right = te.select(j < n - 1, s[i - 1, te.minimum(j + 1, n - 1)], 0.0)
        return 0.25 * left + 0.5 * s[i - 1, j] + 0.25 * right

    first = te.compute((1, n), lambda i, j: x[j], name="first")
    return x, te.scan(first, te.compute((t, n), step, name="step"), s, name="y")


def recurrent(t: int = 12, b: int = 3, n: int = 24) -> Sequence[Any]:
    """h = tanh(x + h U), with the sum as an intermediate value."""
    x, u = te.placeholder((t, b, n), name="x"), te.placeholder((n, n), name="u")
    s = te.placeholder((t, b, n), name="s")
    k = te.reduce_axis(n, name="k")
    g = te.compute((t, b, n), lambda i, r, j: te.sum(s[i - 1, r, k] * u[k, j], axis=k), name="g")
    h = te.compute((t, b, n), lambda i, r, j: te.tanh(x[i, r, j] + 0.1 * g[i, r, j]), name="h")
    return x, u, te.scan(zeros(1, b, n, name="first"), h, s, name="y")


def lstm(t: int = 10, b: int = 2, n: int = 16) -> Sequence[Any]:
    """Two states, four gates in one sum."""
    x, u = te.placeholder((t, b, 4, n), name="x"), te.placeholder((4, n, n), name="u")
    hs, cs = te.placeholder((t, b, n), name="hs"), te.placeholder((t, b, n), name="cs")
    k = te.reduce_axis(n, name="k")
    g = te.compute((t, b, 4, n), lambda i, r, q, j: te.sum(hs[i - 1, r, k] * u[q, j, k], axis=k), name="g")

    def gate(i: Any, r: Any, q: int, j: Any) -> Any:
        return x[i, r, q, j] + 0.1 * g[i, r, q, j]

    c = te.compute(
        (t, b, n),
        lambda i, r, j: (
            te.sigmoid(gate(i, r, 0, j)) * cs[i - 1, r, j]
            + te.sigmoid(gate(i, r, 1, j)) * te.tanh(gate(i, r, 2, j))
        ),
        name="c",
    )
    h = te.compute((t, b, n), lambda i, r, j: te.sigmoid(gate(i, r, 3, j)) * te.tanh(c[i, r, j]), name="h")
    firsts = [zeros(1, b, n, name="h0"), zeros(1, b, n, name="c0")]
    hy, cy = te.scan(firsts, [h, c], [hs, cs], name="y")
    return x, u, hy, cy


def soft_dtw(n: int = 14) -> Sequence[Any]:
    """Diagonals of R[i, j] = d[i, j] - γ log Σ exp(-R/γ) of three neighbours; d is given by diagonals."""
    t = 2 * n - 1
    d, s = te.placeholder((n, n), name="d"), te.placeholder((t, n), name="s")
    far = 1e4

    def step(g: Any, i: Any) -> Any:
        j = g - i
        up = te.select(i > 0, s[g - 1, te.maximum(i - 1, 0)], far)
        left = te.select(j > 0, s[g - 1, i], far)
        corner = te.select(te.all(i > 0, j > 0), s[g - 2, te.maximum(i - 1, 0)], far)
        least = te.minimum(up, te.minimum(left, corner))
        soft = least - te.log(te.exp(least - up) + te.exp(least - left) + te.exp(least - corner))
        here = te.select(te.all(j >= 0, j < n), d[i, te.minimum(te.maximum(j, 0), n - 1)], far)
        return te.select(te.all(j >= 0, j < n), here + soft, far)

    def first(g: Any, i: Any) -> Any:
        start = te.select(te.all(g == 0, i == 0), d[0, 0], far)
        second = te.select(
            te.all(g == 1, i <= 1), d[0, 0] + d[te.minimum(i, n - 1), te.maximum(1 - i, 0)], far
        )
        return te.select(g == 0, start, second)

    update = te.compute((t, n), step, name="step")
    return d, te.scan(te.compute((2, n), first, name="first"), update, s, name="r")


def followed(t: int = 16, n: int = 33) -> Sequence[Any]:
    """A scan that reads a computed tensor, and that another stage reads."""
    x, s = te.placeholder((t, n), name="x"), te.placeholder((t, n), name="s")
    a = te.compute((t, n), lambda i, j: x[i, j] * 0.5, name="a")
    first = te.compute((1, n), lambda i, j: a[0, j], name="first")
    y = te.scan(first, te.compute((t, n), lambda i, j: s[i - 1, j] * 0.5 + a[i, j], name="step"), s, name="y")
    k = te.reduce_axis(t, name="k")
    return x, te.compute((n,), lambda j: te.sum(y[k, j], axis=k), name="total")


def unread(t: int = 12, n: int = 20) -> Sequence[Any]:
    """No step reads a state."""
    x, s = te.placeholder((t, n), name="x"), te.placeholder((t, n), name="s")
    step = te.compute((t, n), lambda i, j: te.tanh(x[i, j]), name="step")
    return x, te.scan(zeros(1, n, name="first"), step, s, name="y")


CASES: dict[str, Callable[[], Sequence[Any]]] = {
    "one pole": iir,
    "three poles": lambda: iir(order=3),
    "many channels": lambda: iir(9, 300),
    "one channel": one_channel,
    "a wave": wave,
    "recurrent": recurrent,
    "lstm": lstm,
    "soft-DTW": soft_dtw,
    "followed": followed,
    "unread": unread,
}


# -- steps of lines, each by itself --------------------------------------------------------------------------


def lines_of(
    order: int, step: Step, n: int, dtype: str = "float32", lines: tuple[int, ...] = ()
) -> list[Any]:
    """x, c and y, each [n, *lines], whose first steps are x + c."""
    shape = (n, *lines)
    x, c, s = (te.placeholder(shape, dtype, name=v) for v in "xcs")

    def later(t: Any, *i: Any) -> Any:
        return step([s[(t - k, *i)] for k in range(1, order + 1)], x[(t, *i)], c[(t, *i)])

    first = te.compute((order, *lines), lambda *at: x[at] + c[at], name="first")
    return [x, c, te.scan(first, te.compute(shape, later, name="u"), s, name="y")]


def drawn_step(rng: random.Random) -> tuple[int, Step]:
    """The order of a recurrence whose steps can be joined, and its step."""
    if rng.random() < 0.3:
        other = drawn_term(rng)
        extreme = rng.choice((te.maximum, te.minimum))
        return 1, lambda s, x, c: either(extreme, other(x, c), s[0])
    poles = [rng.choice((-1, 1)) * rng.uniform(0.3, 0.95) for _ in range(rng.choice((1, 1, 2, 3)))]
    if rng.random() < 0.3:
        pole = rng.uniform(0.3, 0.95) * np.exp(1j * rng.uniform(0.3, 2.8))
        poles = [pole, pole.conjugate()]
    return len(poles), drawn_sum(rng, [float(np.float32(-k.real)) for k in np.poly(poles)[1:]])


def drawn_sum(rng: random.Random, coefficients: list[float]) -> Step:
    """A sum of coefficient × state and other terms, in a random order and with random brackets."""
    other, apart = drawn_term(rng), rng.random()
    order = rng.sample(range(len(coefficients)), len(coefficients))

    def step(s: list[Any], x: Any, c: Any) -> Any:
        total = other(x, c)
        for n in order:
            k = coefficients[n]
            term = (s[n] + x) * k if apart < 0.3 else -(s[n] * -k) if apart < 0.5 else k * s[n]
            total = total + term if apart < 0.7 else term - (0.0 - total)
        return total

    return step


def drawn_term(rng: random.Random) -> Callable[[Any, Any], Any]:
    return rng.choice(
        (lambda x, c: x, lambda x, c: 0.25 * x * c, lambda x, c: x - c, lambda x, c: 1.0 - 0.5 * x)
    )


def either(extreme: Any, a: Any, b: Any) -> Any:
    """The extreme of expressions, or of arrays."""
    if isinstance(a, (np.ndarray, np.floating)):
        return {te.maximum: np.maximum, te.minimum: np.minimum}[extreme](a, b)
    return extreme(a, b)
