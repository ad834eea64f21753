"""Recurrences, which carry state from step to step. NumPy, XLA and torch run the steps in a loop, numba in
the loops that a person would write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te
from suite.programs.program import Program

SUITE = "scans"


def steps(xp: Any, step: Callable[..., Any], state: Any, sequence: Any) -> Any:
    """The states after each step; `state` is the first state."""
    if hasattr(xp, "scan"):
        return xp.scan(step, state, sequence)
    if xp is not np:
        from jax import lax

        _, found = lax.scan(lambda s, x: (step(s, x),) * 2, state, sequence)
        return xp.concatenate([state[None], found])
    found = [state]
    for x in sequence:
        found.append(step(found[-1], x))
    return np.stack(found)


def iir(t: int, n: int) -> Callable[[], Sequence[Any]]:
    def make() -> Sequence[Any]:
        x, s = te.placeholder((t, n), name="x"), te.placeholder((t, n), name="s")
        first = te.compute((1, n), lambda i, j: x[i, j], name="first")
        update = te.compute((t, n), lambda i, j: 0.9 * s[i - 1, j] + x[i, j], name="update")
        return x, te.scan(first, update, s, name="y")

    return make


def one_channel() -> Sequence[Any]:
    n = 1 << 18
    x, s = te.placeholder((n,), name="x"), te.placeholder((n,), name="s")
    first = te.compute((1,), lambda i: x[i], name="first")
    return x, te.scan(first, te.compute((n,), lambda i: 0.9 * s[i - 1] + x[i], name="update"), s, name="y")


def recurrent() -> Sequence[Any]:
    t, b, n = 128, 4, 256
    x, u, s = (
        te.placeholder((t, b, n), name="x"),
        te.placeholder((n, n), name="u"),
        te.placeholder((t, b, n), name="s"),
    )
    k = te.reduce_axis(n, name="k")
    g = te.compute((t, b, n), lambda i, r, j: te.sum(s[i - 1, r, k] * u[k, j], axis=k), name="g")
    h = te.compute((t, b, n), lambda i, r, j: te.tanh(x[i, r, j] + 0.05 * g[i, r, j]), name="h")
    first = te.compute((1, b, n), lambda i, r, j: te.tanh(x[i, r, j]), name="first")
    return x, u, te.scan(first, h, s, name="y")


def _recurrent(xp: Any, x: Any, u: Any) -> Any:
    return steps(xp, lambda h, v: xp.tanh(v + 0.05 * (h @ u)), xp.tanh(x[0]), x[1:])


def heat_in_time() -> Sequence[Any]:
    """Many steps of a stencil in one loop over time."""
    t, n = 60, 4096
    x, s = te.placeholder((n,), name="x"), te.placeholder((t, n), name="s")

    def step(i: Any, j: Any) -> Any:
        mean = (s[i - 1, te.maximum(j - 1, 0)] + s[i - 1, j] + s[i - 1, te.minimum(j + 1, n - 1)]) * 0.33333
        return te.select(te.all(j > 0, j < n - 1), mean, s[i - 1, j])

    first = te.compute((1, n), lambda i, j: x[j], name="first")
    return x, te.scan(first, te.compute((t, n), step, name="step"), s, name="y")


def _heat(xp: Any, x: Any) -> Any:
    def step(v: Any, _: Any) -> Any:
        return xp.concatenate([v[:1], (v[:-2] + v[1:-1] + v[2:]) * 0.33333, v[-1:]])

    return steps(xp, step, x, xp.zeros(59))


def running_sums() -> Sequence[Any]:
    n = 1024
    x, k = te.placeholder((n, n), name="x"), te.reduce_axis(n, name="k")
    return x, te.compute((n, n), lambda i, j: te.sum(te.select(k <= i, x[k, j], 0.0), axis=k), name="y")


def histogram() -> Sequence[Any]:
    n, bins = 1 << 18, 256
    at, k = te.placeholder((n,), "int32", name="at"), te.reduce_axis(n, name="k")
    return at, te.compute((bins,), lambda i: te.sum(te.select(at[k].equal(i), 1.0, 0.0), axis=k), name="h")


def scatter() -> Sequence[Any]:
    """Adds up the messages of a graph's edges at the nodes where the edges end."""
    edges, nodes, width = 20_000, 2_000, 64
    to, m = te.placeholder((edges,), "int32", name="to"), te.placeholder((edges, width), name="m")
    k = te.reduce_axis(edges, name="k")
    body = lambda i, j: te.sum(te.select(to[k].equal(i), m[k, j], 0.0), axis=k)  # noqa: E731
    return to, m, te.compute((nodes, width), body, name="y")


def means() -> Sequence[Any]:
    """The means of sequences, each with its own length."""
    b, t, d = 64, 256, 64
    x, n = te.placeholder((b, t, d), name="x"), te.placeholder((b,), "int32", name="n")
    k = te.reduce_axis(t, name="k")
    s = te.compute((b, d), lambda i, j: te.sum(te.select(k < n[i], x[i, k, j], 0.0), axis=k), name="s")
    body = lambda i, j: s[i, j] / te.cast("float32", te.maximum(n[i], 1))  # noqa: E731
    return x, n, te.compute((b, d), body, name="y")


def _means(xp: Any, x: Any, n: Any) -> Any:
    there = (xp.arange(x.shape[1])[None, :] < n[:, None])[:, :, None]
    return xp.where(there, x, 0.0).sum(1) / xp.maximum(n, 1)[:, None]


def page_rank() -> Sequence[Any]:
    """One step of page rank: the pages' weights move along links. Indices are compared in 32 bits."""
    links, pages = 65_536, 4_096
    start, end = (te.placeholder((links,), "int32", name=n) for n in ("start", "end"))
    rank, k = te.placeholder((pages,), name="rank"), te.reduce_axis(links, name="k")

    def given(i: Any) -> Any:
        return te.sum(te.select(end[k].equal(te.cast("int32", i)), rank[start[k]], 0.0), axis=k)

    got = te.compute((pages,), given, name="got")
    return start, end, rank, te.compute((pages,), lambda i: 0.85 * got[i] + 0.15 / pages, name="y")


def _page_rank(xp: Any, start: Any, end: Any, rank: Any) -> Any:
    if hasattr(rank, "at"):
        got = xp.zeros(rank.shape, rank.dtype).at[end].add(rank[start])
    elif hasattr(xp, "add_at"):
        got = xp.add_at(len(rank), end, rank[start][:, None])[:, 0]
    else:
        got = np.bincount(end, rank[start], len(rank))
    return 0.85 * got + 0.15 / len(rank)


def _scatter(xp: Any, to: Any, m: Any) -> Any:
    if hasattr(m, "at"):
        return xp.zeros((2000, m.shape[1]), m.dtype).at[to].add(m)
    if hasattr(xp, "add_at"):
        return xp.add_at(2000, to, m)
    out = np.zeros((2000, m.shape[1]), m.dtype)
    np.add.at(out, to, m)
    return out


# -- as a person would write them for numba -----------------------------------------------------------------


def numba_iir(kept: float = 0.9) -> Any:
    """kept: the share of the step before that is kept."""
    import numba

    factor = np.float32(kept)

    @numba.njit(parallel=True, fastmath=True)
    def run(x: Any) -> Any:
        t, n = x.shape
        y, parts = np.empty_like(x), numba.get_num_threads()
        for p in numba.prange(parts):
            low, high = p * n // parts, (p + 1) * n // parts
            for i in range(low, high):
                y[0, i] = x[0, i]
            for s in range(1, t):
                for i in range(low, high):
                    y[s, i] = factor * y[s - 1, i] + x[s, i]
        return y

    return run


def numba_one() -> Any:
    import numba

    @numba.njit(fastmath=True)
    def run(x: Any) -> Any:
        y = np.empty_like(x)
        v = y[0] = x[0]
        for s in range(1, x.shape[0]):
            v = np.float32(0.9) * v + x[s]
            y[s] = v
        return y

    return run


def numba_recurrent() -> Any:
    import numba

    @numba.njit(fastmath=True)
    def run(x: Any, u: Any) -> Any:
        t, b, n = x.shape
        y, g = np.empty_like(x), np.empty(n, np.float32)
        for r in range(b):
            for j in range(n):
                y[0, r, j] = np.tanh(x[0, r, j])
        for s in range(1, t):
            for r in range(b):
                g[:] = 0
                for k in range(n):
                    v = y[s - 1, r, k]
                    for j in range(n):
                        g[j] += v * u[k, j]
                for j in range(n):
                    y[s, r, j] = np.tanh(x[s, r, j] + np.float32(0.05) * g[j])
        return y

    return run


def numba_histogram() -> Any:
    import numba

    @numba.njit(parallel=True)
    def run(at: Any) -> Any:
        parts = numba.get_num_threads()
        own = np.zeros((parts, 256), np.float32)
        for p in numba.prange(parts):
            for k in range(p * at.shape[0] // parts, (p + 1) * at.shape[0] // parts):
                own[p, at[k]] += 1
        return own.sum(axis=0)

    return run


def numba_scatter() -> Any:
    import numba

    @numba.njit(fastmath=True)
    def run(to: Any, m: Any) -> Any:
        y = np.zeros((2000, m.shape[1]), np.float32)
        for k in range(to.shape[0]):
            i = to[k]
            for j in range(m.shape[1]):
                y[i, j] += m[k, j]
        return y

    return run


def numba_means() -> Any:
    import numba

    @numba.njit(fastmath=True)
    def run(x: Any, n: Any) -> Any:
        b, _, d = x.shape
        y = np.zeros((b, d), np.float32)
        for i in range(b):
            for k in range(n[i]):
                for j in range(d):
                    y[i, j] += x[i, k, j]
            for j in range(d):
                y[i, j] /= np.float32(max(n[i], 1))
        return y

    return run


def numba_page_rank() -> Any:
    import numba

    @numba.njit(fastmath=True)
    def run(start: Any, end: Any, rank: Any) -> Any:
        y = np.zeros_like(rank)
        for k in range(start.shape[0]):
            y[end[k]] += rank[start[k]]
        for i in range(rank.shape[0]):
            y[i] = np.float32(0.85) * y[i] + np.float32(0.15) / rank.shape[0]
        return y

    return run


def _iir(xp: Any, x: Any) -> Any:
    return steps(xp, lambda y, v: 0.9 * y + v, x[0], x[1:])


def _histogram(xp: Any, at: Any) -> Any:
    return xp.bincount(at, **{"length" if hasattr(at, "at") else "minlength": 256})


SCANS = (
    Program("filter of 512 channels", SUITE, iir(4000, 512), _iir, numba=numba_iir),
    Program("filter of 64 channels", SUITE, iir(20_000, 64), _iir, numba=numba_iir),
    Program("filter of one channel", SUITE, one_channel, _iir, numba=numba_one),
    Program("recurrent layer", SUITE, recurrent, _recurrent, numba=numba_recurrent),
    Program("sixty steps of heat", SUITE, heat_in_time, _heat),
    Program(
        "running sums", SUITE, running_sums, lambda xp, x: xp.cumsum(x, axis=0), numba=lambda: numba_iir(1.0)
    ),
    Program("histogram", SUITE, histogram, _histogram, integers=(0,), below=256, numba=numba_histogram),
    Program("means of sequences", SUITE, means, _means, integers=(1,), below=257, numba=numba_means),
    Program("page rank", SUITE, page_rank, _page_rank, integers=(0, 1), below=4096, numba=numba_page_rank),
    Program("scatter", SUITE, scatter, _scatter, integers=(0,), below=2000, numba=numba_scatter),
)
