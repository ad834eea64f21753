"""Random tensor programs: graphs of stencils, filters, contractions, reductions and pointwise work.

    drawn(7)                    program number 7: always the same te and the same array functions
    drawn(7, "stencils")        number 7 of that class
    drawn(7, small=True)        another program, with few elements: to be checked, not timed

A program is a few steps over a pool of values. Each step takes values from the pool and adds one. Every kind
of step is written in te and as NumPy functions. Values that no step reads are results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autotensor import te
from suite.programs.program import Program

MOST = 1 << 21  # most elements of a value
MOST_WORK = 1 << 28  # most multiplications of a contraction


@dataclass(frozen=True)
class Step:
    """One step: `te(name, *tensors)` and `arrays(xp, *arrays)`, applied to the values with these indices."""

    args: tuple[int, ...]
    shape: tuple[int, ...]
    te: Callable[..., Any]
    arrays: Callable[..., Any]


@dataclass
class Draw:
    """A program that is being drawn."""

    rng: random.Random
    small: bool = False
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    read: set[int] = field(default_factory=set)

    def given(self, shape: tuple[int, ...]) -> int:
        """A new input."""
        self.inputs.append(shape)
        self.steps.append(Step((), shape, lambda *_: None, lambda *_: None))
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def put(self, args: tuple[int, ...], shape: tuple[int, ...], te_: Any, arrays: Any) -> int:
        self.steps.append(Step(args, shape, te_, arrays))
        self.shapes.append(shape)
        self.read.update(args)
        return len(self.shapes) - 1

    def least(self, extent: int) -> int:
        """The least extent that a step accepts."""
        return min(extent, 16) if self.small else extent

    def some(self, rank: int = 0) -> int | None:
        """A random value, later ones more often; with the given rank if `rank` is not 0."""
        fitting = [n for n, s in enumerate(self.shapes) if not rank or len(s) == rank]
        return fitting[max(self.rng.randrange(len(fitting)) for _ in range(2))] if fitting else None


def named(body: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """A function with `rank` named parameters, as te needs."""
    names = ", ".join(f"i{n}" for n in range(rank))
    found: Callable[..., Any] = eval(f"lambda {names}: body({names})", {"body": body})
    return found


# -- kinds of steps ----------------------------------------------------------------------------------------

UNARY = {
    "relu": (lambda v: te.maximum(v, 0.0), lambda xp, v: xp.maximum(v, 0.0)),
    "square": (lambda v: v * v * 0.1, lambda xp, v: v * v * 0.1),
    "exp": (lambda v: te.exp(-v * v), lambda xp, v: xp.exp(-v * v)),
    "soft": (lambda v: v / (1.0 + te.abs(v)), lambda xp, v: v / (1.0 + xp.abs(v))),
    "tanh": (lambda v: te.tanh(v), lambda xp, v: xp.tanh(v)),
    "root": (lambda v: te.sqrt(te.abs(v) + 0.1), lambda xp, v: xp.sqrt(xp.abs(v) + 0.1)),
}
BINARY = {
    "add": (lambda a, b: a + 0.5 * b, lambda xp, a, b: a + 0.5 * b),
    "sub": (lambda a, b: a - b, lambda xp, a, b: a - b),
    "mul": (lambda a, b: a * b, lambda xp, a, b: a * b),
    "max": (lambda a, b: te.maximum(a, b), lambda xp, a, b: xp.maximum(a, b)),
    "div": (lambda a, b: a / (1.5 + b * b), lambda xp, a, b: a / (1.5 + b * b)),
    "choose": (lambda a, b: te.select(a > b, a, 0.3 * b), lambda xp, a, b: xp.where(a > b, a, 0.3 * b)),
}


def unary(d: Draw) -> int | None:
    x = d.some()
    if x is None:
        return None
    of, arr = UNARY[d.rng.choice([*UNARY])]
    shape = d.shapes[x]
    return d.put(
        (x,),
        shape,
        lambda name, t: te.compute(shape, named(lambda *i: of(t[i]), len(shape)), name=name),
        lambda xp, v: arr(xp, v),
    )


def binary(d: Draw) -> int | None:
    x = d.some()
    if x is None:
        return None
    shape = d.shapes[x]
    alike = [n for n, s in enumerate(d.shapes) if s == shape and n != x]
    y = d.rng.choice(alike) if alike and d.rng.random() < 0.8 else d.given(shape)
    of, arr = BINARY[d.rng.choice([*BINARY])]
    return d.put(
        (x, y),
        shape,
        lambda name, a, b: te.compute(shape, named(lambda *i: of(a[i], b[i]), len(shape)), name=name),
        lambda xp, a, b: arr(xp, a, b),
    )


def broadcast(d: Draw) -> int | None:
    """Combines a value with another value along one of its axes."""
    x = d.some()
    if x is None or len(d.shapes[x]) < 2:
        return None
    shape = d.shapes[x]
    axis = d.rng.randrange(len(shape))
    alike = [n for n, s in enumerate(d.shapes) if s == (shape[axis],)]
    y = d.rng.choice(alike) if alike else d.given((shape[axis],))
    of, arr = BINARY[d.rng.choice([*BINARY])]
    wide = tuple(shape[axis] if n == axis else 1 for n in range(len(shape)))
    return d.put(
        (x, y),
        shape,
        lambda name, a, b: te.compute(shape, named(lambda *i: of(a[i], b[i[axis]]), len(shape)), name=name),
        lambda xp, a, b: arr(xp, a, b.reshape(wide)),
    )


def stencil(d: Draw) -> int | None:
    """A weighted sum of a point's neighbours that lie inside the value, in a cross or a box."""
    x = d.some()
    if x is None or len(d.shapes[x]) < 2 or min(d.shapes[x][-2:]) < d.least(24):
        return None
    shape = d.shapes[x]
    rank, radius = len(shape), d.rng.choice((1, 1, 1, 2))
    box = d.rng.random() < 0.4 and radius == 1
    span = range(-radius, radius + 1)
    points = [(a, b) for a in span for b in span if box or not a or not b]
    weights = [round(d.rng.uniform(-0.5, 0.5), 3) for _ in points]
    out = (*shape[:-2], shape[-2] - 2 * radius, shape[-1] - 2 * radius)

    def of(name: str, t: Any) -> Any:
        def body(*i: Any) -> Any:
            total = None
            for (a, b), w in zip(points, weights, strict=True):
                term = w * t[(*i[:-2], i[-2] + a + radius, i[-1] + b + radius)]
                total = term if total is None else total + term
            return total

        return te.compute(out, named(body, rank), name=name)

    def arr(xp: Any, v: Any) -> Any:
        total = 0.0
        for (a, b), w in zip(points, weights, strict=True):
            rows = slice(a + radius, a + radius + out[-2])
            columns = slice(b + radius, b + radius + out[-1])
            total = total + w * v[..., rows, columns]
        return total

    return d.put((x,), out, of, arr)


def filtered(d: Draw) -> int | None:
    """A window along one of the last two axes, written as a reduction."""
    x = d.some()
    if x is None or len(d.shapes[x]) < 2 or min(d.shapes[x][-2:]) < d.least(48):
        return None
    shape, taps = d.shapes[x], d.rng.choice((3, 5, 7, 9, 13))
    axis = len(shape) - d.rng.choice((1, 2))
    out = tuple(n - taps + 1 if a == axis else n for a, n in enumerate(shape))
    kind = d.rng.choice(("sum", "max", "weights"))
    w = d.given((taps,)) if kind == "weights" else None

    def of(name: str, t: Any, u: Any = None) -> Any:
        k = te.reduce_axis(taps, name=f"{name}_k")

        def body(*i: Any) -> Any:
            v = t[tuple(e + k if a == axis else e for a, e in enumerate(i))]
            return (
                te.max(v, axis=k) if kind == "max" else te.sum(v * (u[k] if u is not None else 0.2), axis=k)
            )

        return te.compute(out, named(body, len(out)), name=name)

    def arr(xp: Any, v: Any, u: Any = None) -> Any:
        total = None
        for k in range(taps):
            part = v[tuple(slice(k, k + out[a]) if a == axis else slice(None) for a in range(len(out)))]
            if kind == "max":
                total = part if total is None else xp.maximum(total, part)
            else:
                part = part * (u[k] if u is not None else 0.2)
                total = part if total is None else total + part
        return total

    return d.put((x,) if w is None else (x, w), out, of, arr)


def halved(d: Draw) -> int | None:
    x = d.some()
    if x is None or len(d.shapes[x]) < 2 or min(d.shapes[x][-2:]) < d.least(64):
        return None
    shape = d.shapes[x]
    axis = len(shape) - d.rng.choice((1, 2))
    out = tuple((n - 1) // 2 if a == axis else n for a, n in enumerate(shape))

    def of(name: str, t: Any) -> Any:
        def body(*i: Any) -> Any:
            def at(o: int) -> Any:
                return t[tuple(2 * e + o if a == axis else e for a, e in enumerate(i))]

            return 0.25 * at(0) + 0.5 * at(1) + 0.25 * at(2)

        return te.compute(out, named(body, len(out)), name=name)

    def arr(xp: Any, v: Any) -> Any:
        def at(o: int) -> Any:
            return v[
                tuple(slice(o, o + 2 * out[a] - 1, 2) if a == axis else slice(None) for a in range(len(out)))
            ]

        return 0.25 * at(0) + 0.5 * at(1) + 0.25 * at(2)

    return d.put((x,), out, of, arr)


def doubled(d: Draw) -> int | None:
    x = d.some()
    if (
        x is None
        or len(d.shapes[x]) < 2
        or min(d.shapes[x][-2:]) < d.least(24)
        or prod(d.shapes[x]) > MOST // 2
    ):
        return None
    shape = d.shapes[x]
    axis = len(shape) - d.rng.choice((1, 2))
    out = tuple(2 * n - 2 if a == axis else n for a, n in enumerate(shape))

    def of(name: str, t: Any) -> Any:
        def body(*i: Any) -> Any:
            near = t[tuple(e // 2 if a == axis else e for a, e in enumerate(i))]
            far = t[tuple(e // 2 + 1 if a == axis else e for a, e in enumerate(i))]
            return te.select(i[axis] % 2 == 0, near, 0.5 * near + 0.5 * far)

        return te.compute(out, named(body, len(out)), name=name)

    def arr(xp: Any, v: Any) -> Any:
        at = xp.arange(out[axis])
        near, far = xp.take(v, at // 2, axis=axis), xp.take(v, at // 2 + 1, axis=axis)
        even = (at % 2 == 0).reshape(tuple(-1 if a == axis else 1 for a in range(len(out))))
        return xp.where(even, near, 0.5 * near + 0.5 * far)

    return d.put((x,), out, of, arr)


def reduced(d: Draw) -> int | None:
    """A sum, mean of squares or maximum along one axis."""
    x = d.some()
    if x is None or len(d.shapes[x]) < 2:
        return None
    shape = d.shapes[x]
    axis, kind = d.rng.randrange(len(shape)), d.rng.choice(("sum", "max", "squares"))
    out = tuple(n for a, n in enumerate(shape) if a != axis)
    if prod(out) < d.least(64):
        return None

    def of(name: str, t: Any) -> Any:
        k = te.reduce_axis(shape[axis], name=f"{name}_k")

        def body(*i: Any) -> Any:
            v = t[(*i[:axis], k, *i[axis:])]
            return te.max(v, axis=k) if kind == "max" else te.sum(v if kind == "sum" else v * v, axis=k)

        return te.compute(out, named(body, len(out)), name=name)

    def arr(xp: Any, v: Any) -> Any:
        return xp.max(v, axis=axis) if kind == "max" else (v if kind == "sum" else v * v).sum(axis=axis)

    return d.put((x,), out, of, arr)


def contracted(d: Draw) -> int | None:
    """An einsum of two tensors: some axes kept, one or two summed."""
    x = d.some()
    if x is None or len(d.shapes[x]) not in (2, 3):
        return None
    shape = d.shapes[x]
    letters = "abc"[: len(shape)]
    summed = d.rng.sample(letters, d.rng.choice((1, 1, min(2, len(shape) - 1))))
    batch = [c for c in letters if c not in summed and d.rng.random() < 0.25]
    fresh = d.rng.choice((1, 3, 8, 17, 33) if d.small else (24, 40, 64, 96, 128))
    right = [*summed, *batch, "z"]
    d.rng.shuffle(right)
    out = [c for c in letters if c not in summed] + ["z"]
    if d.rng.random() < 0.3:
        d.rng.shuffle(out)
    size = {**dict(zip(letters, shape, strict=True)), "z": fresh}
    shape_out = tuple(size[c] for c in out)
    if prod(size.values()) > MOST_WORK or not d.least(256) <= prod(shape_out) <= MOST:
        return None
    if prod(size[c] for c in right) > MOST:
        return None
    y = d.given(tuple(size[c] for c in right))
    factor = d.rng.choice(("plain", "plain", "plain", "distance", "masked", "min-plus"))
    if factor != "plain" and prod(size.values()) > MOST_WORK // 8:
        factor = "plain"
    spec = f"{letters},{''.join(right)}->{''.join(out)}"

    def of(name: str, a: Any, b: Any) -> Any:
        ks = {c: te.reduce_axis(size[c], name=f"{name}_{c}") for c in summed}

        def body(*i: Any) -> Any:
            at = {**dict(zip(out, i, strict=True)), **ks}
            u, v = a[tuple(at[c] for c in letters)], b[tuple(at[c] for c in right)]
            axes = [*ks.values()]
            if factor == "distance":
                return te.sum((u - v) * (u - v), axis=axes)
            if factor == "masked":
                return te.sum(te.select(u > 0.0, u * v, 0.0), axis=axes)
            if factor == "min-plus":
                return te.min(u + v, axis=axes)
            return te.sum(u * v, axis=axes)

        return te.compute(shape_out, named(body, len(out)), name=name)

    def arr(xp: Any, a: Any, b: Any) -> Any:
        if factor == "masked":
            return xp.einsum(spec, xp.where(a > 0, a, 0), b)
        if factor == "plain":
            return xp.einsum(spec, a, b)
        every = "".join(dict.fromkeys([*letters, "z"]))

        def spread(v: Any, axes: Sequence[str]) -> Any:
            order = [axes.index(c) for c in every if c in axes]
            return xp.transpose(v, order).reshape([size[c] if c in axes else 1 for c in every])

        u, v = spread(a, [*letters]), spread(b, right)
        over = tuple(every.index(c) for c in summed)
        found = ((u - v) ** 2).sum(axis=over) if factor == "distance" else xp.min(u + v, axis=over)
        left = [c for c in every if c not in summed]
        return xp.transpose(found, [left.index(c) for c in out])

    return d.put((x, y), shape_out, of, arr)


def triangular(d: Draw) -> int | None:
    """A square product whose sums begin or end at the diagonal."""
    n = d.rng.choice((17, 40, 64) if d.small else (192, 256, 384))
    alike = [m for m, s in enumerate(d.shapes) if s == (n, n)]
    x = d.rng.choice(alike) if alike else d.given((n, n))
    y = d.given((n, n))
    kind = d.rng.choice(("k > i", "k <= i", "j <= i"))

    def of(name: str, a: Any, b: Any) -> Any:
        k = te.reduce_axis(n, name=f"{name}_k")

        def body(i: Any, j: Any) -> Any:
            cond = {"k > i": k > i, "k <= i": k <= i, "j <= i": j <= i}[kind]
            return te.sum(te.select(cond, a[i, k] * b[k, j], 0.0), axis=k)

        return te.compute((n, n), body, name=name)

    def arr(xp: Any, a: Any, b: Any) -> Any:
        if kind == "j <= i":
            return xp.tril(a @ b)
        return (xp.triu(a, 1) if kind == "k > i" else xp.tril(a)) @ b

    return d.put((x, y), (n, n), of, arr)


def turned(d: Draw) -> int | None:
    """Swaps the last two axes."""
    x = d.some()
    if x is None or len(d.shapes[x]) < 2:
        return None
    shape = d.shapes[x]
    out = (*shape[:-2], shape[-1], shape[-2])
    return d.put(
        (x,),
        out,
        lambda name, t: te.compute(
            out, named(lambda *i: t[(*i[:-2], i[-1], i[-2])] * 0.9, len(out)), name=name
        ),
        lambda xp, v: xp.swapaxes(v, -1, -2) * 0.9,
    )


def coloured(d: Draw) -> int | None:
    """An image with few channels as its last axis; a small matrix mixes the channels."""
    x = d.some()
    if x is None or len(d.shapes[x]) != 2 or prod(d.shapes[x]) > MOST // 4:
        return None
    shape, c = d.shapes[x], d.rng.choice((2, 3, 4))
    y = d.given((*shape, c))
    weights = [round(d.rng.uniform(-0.5, 0.5), 3) for _ in range(c)]

    def of(name: str, a: Any, b: Any) -> Any:
        def body(i: Any, j: Any, k: Any) -> Any:
            mixed = sum((weights[m] * b[i, j, m] for m in range(1, c)), weights[0] * b[i, j, 0])
            return a[i, j] * b[i, j, k] + mixed

        return te.compute((*shape, c), body, name=name)

    def arr(xp: Any, a: Any, b: Any) -> Any:
        mixed = sum(w * b[..., m] for m, w in enumerate(weights))
        return a[..., None] * b + mixed[..., None]

    return d.put((x, y), (*shape, c), of, arr)


KINDS: dict[str, Callable[[Draw], int | None]] = {
    k.__name__: k
    for k in (
        *(unary, binary, broadcast, stencil, filtered, halved, doubled, reduced, contracted, triangular),
        *(turned, coloured),
    )
}
CLASSES: dict[str, tuple[str, ...]] = {
    "pipelines": ("stencil", "filtered", "halved", "doubled", "unary", "binary", "stencil", "binary"),
    "stencils": ("stencil", "stencil", "unary", "binary"),
    "contractions": ("contracted", "contracted", "unary", "triangular", "broadcast", "turned"),
    "reductions": ("reduced", "unary", "broadcast", "binary", "reduced"),
    "graphs": tuple(KINDS),
}


def numbers_of(text: str) -> list[int]:
    """The numbers of programs that a command line names. A range does not include its last number.

    >>> numbers_of("7,10:13")
    [7, 10, 11, 12]
    """
    ends = [part.partition(":")[::2] for part in text.split(",") if part]
    return [n for first, last in ends for n in range(int(first), int(last or int(first) + 1))]


def drawn(number: int, kind: str = "", small: bool = False) -> Program:
    """The program with that number, of one class if `kind` is given. A number always gives the same
    program."""
    rng = random.Random(f"{kind}/{number}" + "/small" * small)
    chosen = kind or rng.choice([*CLASSES])
    d = Draw(rng, small)
    if chosen in ("contractions", "graphs") and rng.random() < 0.5:
        d.given(tuple(rng.choice((3, 7, 16, 20) if small else (24, 48, 96, 160)) for _ in range(3)))
    else:
        rows, columns = (240, 384, 512, 900, 1024), (256, 500, 768, 1024, 1536)
        if small:
            rows, columns = (17, 24, 33, 40, 50), (20, 32, 45, 67, 90)
        d.given((rng.choice(rows), rng.choice(columns)))
    wanted, tries = rng.randint(2, 7), 0
    while len(d.steps) - len(d.inputs) < wanted and tries < 60:
        tries += 1
        KINDS[rng.choice(CLASSES[chosen])](d)
    return _program(d, f"{chosen} {number}")


def _program(d: Draw, name: str) -> Program:
    results = [n for n, s in enumerate(d.steps) if s.args and n not in d.read]
    used = d.read | set(results)
    given = [n for n, s in enumerate(d.steps) if not s.args and n in used]

    def make() -> Sequence[Any]:
        made: dict[int, Any] = {n: te.placeholder(d.shapes[n], name=f"x{n}") for n in given}
        for n, step in enumerate(d.steps):
            if step.args:
                made[n] = step.te(f"s{n}", *(made[a] for a in step.args))
        return [*(made[n] for n in given), *(made[n] for n in results)]

    def arrays(xp: Any, *inputs: Any) -> Any:
        made: dict[int, Any] = dict(zip(given, inputs, strict=True))
        for n, step in enumerate(d.steps):
            if step.args:
                made[n] = step.arrays(xp, *(made[a] for a in step.args))
        return tuple(made[n] for n in results)

    return Program(name, f"drawn {name.split()[0]}", make, arrays)
