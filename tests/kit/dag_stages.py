"""One stage of a random computation: a function for each awkward feature of tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from dag_maker import ELEMENTS, INPUT, POINTS, SIZES, Maker, Value

from autotensor import te
from autotensor.base.dtype import dtype_of


def unary(m: Maker) -> None:
    a = m.operand()
    x, kind = a.tensor, m.rng.randrange(6)
    if kind == 0:
        m.compute(a.shape, lambda *i: te.maximum(x[i], 0), a.bound)
    elif kind == 1:
        m.compute(a.shape, lambda *i: -x[i], a.bound)
    elif kind == 2:
        m.compute(a.shape, lambda *i: x[i] * 2 + 1, 2 * a.bound + 1)
    elif kind == 3 and a.shape:
        axis = m.rng.randrange(len(a.shape))
        m.compute(a.shape, lambda *i: te.select(i[axis] % 2 == 0, x[i], x[i] + 3), a.bound + 3)
    elif kind == 4 and a.shape:
        axis = m.rng.randrange(len(a.shape))
        m.compute(a.shape, lambda *i: x[i] + i[axis].astype(m.dtype), a.bound + 33)
    else:
        m.compute(a.shape, lambda *i: (x[i] > 0).astype(m.dtype) + x[i], a.bound + 1)


def broadcast(m: Maker) -> None:
    """Two operands, the second with some axes missing or of extent 1."""
    a = m.operand()
    drop = m.rng.randint(0, len(a.shape))
    other = tuple(1 if m.rng.random() < 0.3 else n for n in a.shape[drop:])
    b = m.like(other)
    x, y = a.tensor, b.tensor

    def at(i: Sequence[Any]) -> Any:
        return y[tuple(0 if n == 1 else v for v, n in zip(i[drop:], other, strict=True))]

    kind = m.rng.randrange(4)
    if kind == 0 and m.fits(a.bound * b.bound):
        m.compute(a.shape, lambda *i: x[i] * at(i), a.bound * b.bound)
    elif kind == 1:
        m.compute(a.shape, lambda *i: te.select(x[i] > at(i), x[i] - at(i), at(i)), a.bound + b.bound)
    elif kind == 2:
        m.compute(a.shape, lambda *i: te.minimum(x[i], at(i)), max(a.bound, b.bound))
    else:
        m.compute(a.shape, lambda *i: x[i] + at(i), a.bound + b.bound)


def pad(m: Maker) -> None:
    """A border of zeros; a window often reads it afterwards."""
    a = m.operand(1, 3)
    pads = [(m.rng.randint(0, 2), m.rng.randint(0, 2)) for _ in a.shape]
    shape = [n + p + q for n, (p, q) in zip(a.shape, pads, strict=True)]
    if prod(shape) > 2 * ELEMENTS:
        return unary(m)
    x = a.tensor

    def body(*i: Any) -> Any:
        inside = [
            c
            for v, n, (p, q) in zip(i, a.shape, pads, strict=True)
            for c in ([v >= p] if p else []) + ([v < p + n] if q else [])
        ]
        value = x[tuple(v - p for v, (p, _) in zip(i, pads, strict=True))]
        return te.if_then_else(te.all(*inside), value, m.zero()) if inside else value + 1

    m.compute(shape, body, a.bound + 1, "pad")


def stencil(m: Maker) -> None:
    """Neighbours along one axis. Beyond the ends there are zeros, or only positions inside are computed."""
    a = m.operand(1, 3)
    axis, step = m.rng.randrange(len(a.shape)), m.rng.randint(1, 2)
    n = a.shape[axis]
    x, taps = a.tensor, m.rng.randint(2, 3)

    def moved(i: Sequence[Any], by: int) -> tuple[Any, ...]:
        return tuple(v + by if k == axis else v for k, v in enumerate(i))

    if m.rng.random() < 0.5 or n <= (taps - 1) * step:

        def guarded(*i: Any) -> Any:
            total: Any = x[i]
            for t in range(1, taps):
                by = t * step if t % 2 else -(t - 1) * step
                ok = i[axis] + by < n if by > 0 else i[axis] + by >= 0
                total = total + te.if_then_else(ok, x[moved(i, by)], m.zero())
            return total

        m.compute(a.shape, guarded, taps * a.bound, "st")
    else:
        shape = [e - (taps - 1) * step if k == axis else e for k, e in enumerate(a.shape)]

        def valid(*i: Any) -> Any:
            total: Any = x[moved(i, 0)]
            for t in range(1, taps):
                total = total + x[moved(i, t * step)]
            return total

        m.compute(shape, valid, taps * a.bound, "st")


def reduction(m: Maker) -> None:
    """Some axes reduced by sum, max, min, argmax (a tuple), or a reducer of one's own."""
    a = m.operand(1, 3)
    over = sorted(m.rng.sample(range(len(a.shape)), m.rng.randint(1, len(a.shape))))
    ks = m.reduce_axes([a.shape[k] for k in over])
    shape = [n for k, n in enumerate(a.shape) if k not in over]
    length = prod(a.shape[k] for k in over)
    x = a.tensor

    def at(i: Sequence[Any]) -> tuple[Any, ...]:
        kept, inner = iter(i), iter(ks)
        return tuple(next(inner) if k in over else next(kept) for k in range(len(a.shape)))

    kind = m.rng.randrange(6)
    if kind == 0:
        m.compute(shape, lambda *i: te.max(x[at(i)], axis=ks), a.bound, "red")
    elif kind == 1:
        m.compute(shape, lambda *i: te.min(x[at(i)] + 1, axis=ks), a.bound + 1, "red")
    elif kind == 2 and m.dtype.is_float:
        m.compute(
            shape,
            lambda *i: te.sum(te.if_then_else(x[at(i)] > 0, x[at(i)], 1), axis=ks),
            (a.bound + 1) * length,
            "red",
        )
    elif kind == 3:
        argmax = te.comm_reducer(
            _later_max, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax"
        )
        m.compute(shape, lambda *i: argmax((_position(ks), x[at(i)]), axis=ks), a.bound, "arg")
    elif kind == 4 and m.fits(a.bound**2 * length):
        m.compute(shape, lambda *i: te.sum(x[at(i)] * x[at(i)], axis=ks), a.bound**2 * length, "red")
    elif m.fits(a.bound * length):
        m.compute(shape, lambda *i: te.sum(x[at(i)], axis=ks), a.bound * length, "red")
    else:
        m.compute(shape, lambda *i: te.max(x[at(i)], axis=ks), a.bound, "red")


def _position(ks: Sequence[Any]) -> Any:
    total: Any = None
    for k in ks:
        total = k.var if total is None else total * k.extent + k.var
    return total.astype("int32")


def _later_max(x: Any, y: Any) -> Any:
    """Associative and commutative: the greater value, of equal ones the lower position."""
    first = te.any(x[1] > y[1], te.all((x[1] == y[1]).expr(), x[0] < y[0], x[0] >= 0), y[0] < 0)
    return te.select(first, x[0], y[0]), te.select(first, x[1], y[1])


def matmul(m: Maker) -> None:
    a = m.operand(2, 3)
    k, rows = a.shape[-1], prod(a.shape[:-1])
    n = m.rng.choice([s for s in SIZES if s * rows * k <= 2 * POINTS and s * k <= ELEMENTS] or [1])
    turned = m.rng.random() < 0.5
    b = m.like((n, k) if turned else (k, n))
    bound = a.bound * b.bound * k
    if not m.fits(bound):
        return reduction(m)
    x, y, (r,) = a.tensor, b.tensor, m.reduce_axes([k])
    m.compute(
        (*a.shape[:-1], n),
        lambda *i: te.sum(x[(*i[:-1], r)] * (y[i[-1], r] if turned else y[r, i[-1]]), axis=r),
        bound,
        "mm",
    )


def convolution(m: Maker) -> None:
    """1-D or 2-D windows with stride and dilation, channels last or absent."""
    a = m.operand(1, 3)
    spatial = min(len(a.shape), m.rng.randint(1, 2))
    stride = [m.rng.randint(1, 3) for _ in range(spatial)]
    dilation = [m.rng.randint(1, 2) for _ in range(spatial)]
    kernel = [m.rng.randint(1, min(3, (n - 1) // d + 1)) for n, d in zip(a.shape, dilation, strict=False)]
    out = [
        (n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(a.shape, kernel, dilation, stride, strict=False)
    ]
    channels = a.shape[spatial:]
    co = m.rng.choice([1, 2, 5, 8])
    bound = a.bound * INPUT * prod(kernel) * prod(channels)
    if prod(out) * co * prod(kernel) * prod(channels) > 2 * POINTS or not m.fits(
        bound * (4 if m.dtype.is_int else 1)
    ):
        return unary(m)
    w = m.placeholder((*kernel, *channels, co))
    both = m.reduce_axes([*kernel, *channels])
    ks, cs = both[:spatial], both[spatial:]
    x, y = a.tensor, w.tensor
    m.compute(
        (*out, co),
        lambda *i: te.sum(
            x[(*(v * s + k.var * d for v, s, k, d in zip(i, stride, ks, dilation, strict=False)), *cs)]
            * y[(*ks, *cs, i[-1])],
            axis=(*ks, *cs),
        ),
        bound,
        "conv",
    )


def rearrange(m: Maker) -> None:
    """transpose, flip, every second, repeat, tile, reshape, concatenate, gather."""
    a = m.operand(1, 3)
    x, axis = a.tensor, m.rng.randrange(len(a.shape))
    n = a.shape[axis]
    kind = m.rng.randrange(9)

    def one(change: Callable[[Any], Any], extent: int) -> None:
        shape = [extent if k == axis else e for k, e in enumerate(a.shape)]
        m.compute(
            shape, lambda *i: x[tuple(change(v) if k == axis else v for k, v in enumerate(i))], a.bound, "mv"
        )

    small = a.tensor.dtype and prod(a.shape) <= ELEMENTS // 2
    if kind == 0 and len(a.shape) > 1:
        order = m.rng.sample(range(len(a.shape)), len(a.shape))
        m.compute(
            [a.shape[k] for k in order],
            lambda *i: x[tuple(i[order.index(k)] for k in range(len(order)))],
            a.bound,
            "tr",
        )
    elif kind == 1:
        one(lambda v: n - 1 - v, n)
    elif kind == 2:
        one(lambda v: v * 2, (n + 1) // 2)
    elif kind == 3 and small:
        one(lambda v: v // 2, 2 * n)
    elif kind == 4 and small:
        one(lambda v: v % n, 2 * n - 1)
    elif kind == 5:
        _reshape(m, a)
    elif kind == 6 and small:
        shape = [e + (n if k == axis else 0) for k, e in enumerate(a.shape)]
        b = m.like(a.shape)
        y = b.tensor

        def joined(*i: Any) -> Any:
            back = tuple(v - n if k == axis else v for k, v in enumerate(i))
            return te.if_then_else(i[axis] < n, x[i], y[back])

        m.compute(shape, joined, max(a.bound, b.bound), "cat")
    elif kind == 7:
        index = m.placeholder((m.rng.choice([1, 5, 7]),), dtype_of("int32")).tensor
        one(lambda v: index[v] % n, index.shape[0]) if prod(a.shape) // n * index.shape[
            0
        ] <= ELEMENTS else one(lambda v: v, n)
    else:
        one(lambda v: te.maximum(v - 1, 0), n)


def gather(m: Maker) -> None:
    """Positions from a table that is computed, too. Only their range is known."""
    a = m.operand(1, 2)
    x, axis = a.tensor, m.rng.randrange(len(a.shape))
    n = a.shape[axis]
    back = m.rng.random() < 0.5
    m.compute((n,), lambda i: te.cast(dtype_of("int32"), n - 1 - i if back else i // 2), n, "table")
    table = m.made[-1].tensor
    m.compute(
        a.shape, lambda *i: x[tuple(table[v] if k == axis else v for k, v in enumerate(i))], a.bound, "get"
    )


def _reshape(m: Maker, a: Value) -> None:
    total, x = prod(a.shape), a.tensor
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    first = m.rng.choice(divisors)
    shape = (total,) if m.rng.random() < 0.3 else (first, total // first)

    def body(*i: Any) -> Any:
        flat = i[0] if len(i) == 1 else i[0] * shape[1] + i[1]
        out, inner = [], total
        for n in a.shape:
            inner //= n
            out.append(flat // inner % n)
        return x[tuple(out)]

    m.compute(shape, body, a.bound, "view")


def several(m: Maker) -> None:
    """One stage with two results."""
    a = m.operand()
    x = a.tensor
    m.compute(a.shape, lambda *i: (x[i] + 1, te.maximum(x[i], 2)), a.bound + 2, "two")


def condition(m: Maker) -> None:
    """A stage of bools, and a stage that selects by it."""
    a = m.operand()
    b = m.like(a.shape)
    x, y = a.tensor, b.tensor
    m.compute(a.shape, lambda *i: x[i] > y[i], 1, "when")
    chosen = m.made[-1].tensor
    m.compute(a.shape, lambda *i: te.select(chosen[i], x[i], y[i]), max(a.bound, b.bound), "pick")


def narrow(m: Maker) -> None:
    """A conversion to another type and back, for example a sum of bytes in 32 bits."""
    a = m.operand()
    x = a.tensor
    other = "int32" if m.dtype.is_float else "float32"
    if m.dtype.is_float and a.bound >= 2**23:
        return unary(m)
    m.compute(a.shape, lambda *i: te.cast(dtype_of(other), x[i]) + 1, a.bound + 1, "as")
    y = m.made[-1].tensor
    if m.rng.random() < 0.7 and m.dtype.bits > 8 and m.fits(a.bound + 1, dtype_of("float32")):
        m.compute(a.shape, lambda *i: te.cast(m.dtype, y[i]), a.bound + 1, "as")


def folded(m: Maker) -> None:
    """Quotients and remainders inside sums, inside windows: upsampling, pixel shuffle, blocked neighbours."""
    a = m.operand(1, 2)
    x, axis = a.tensor, m.rng.randrange(len(a.shape))
    n, c = a.shape[axis], m.rng.randint(2, 5)
    taps = m.rng.randint(1, min(3, n))
    (r,) = m.reduce_axes([taps])
    kind = m.rng.randrange(7)
    # index of axis i for output extent `extent`, always within 0 … n - 1
    choices: tuple[tuple[Callable[[Any], Any], int], ...] = (
        (lambda i: (i + r) // c, (n - 1) * c + 2 - taps),
        (lambda i: i // c + r, (n - taps + 1) * c),
        (lambda i: (i * c + r) % n, 7),
        (lambda i: i // (2 * c) * 2 + i % 2 if n % 2 == 0 else i // c, n * c),
        (lambda i: n - 1 - (i + r) // c, (n - 1) * c + 2 - taps),
        (lambda i: (i % c + r * 2) // 2, 11 if c + 2 * taps <= 2 * n else 1),
        (lambda i: (i - i % c) // c + r, (n - taps + 1) * c),
    )
    change, extent = choices[kind]
    shape = [extent if k == axis else e for k, e in enumerate(a.shape)]
    if extent < 1 or prod(shape) > ELEMENTS or not m.fits(a.bound * taps):
        return unary(m)
    if kind == 5 and extent == 1 and (taps - 1) >= n:
        return unary(m)

    def at(i: Sequence[Any]) -> Any:
        return x[tuple(change(v) if k == axis else v for k, v in enumerate(i))]

    if kind == 3:
        m.compute(shape, lambda *i: at(i), a.bound, "fold")
    else:
        m.compute(shape, lambda *i: te.sum(at(i), axis=r), a.bound * taps, "fold")


def mathematics(m: Maker) -> None:
    """A function of floats; from here on results are not exact."""
    a = m.operand()
    if not m.dtype.is_float:
        return unary(m)
    x = a.tensor
    kind = m.rng.randrange(3)
    if kind == 0:
        m.compute(a.shape, lambda *i: te.sigmoid(x[i]), 1, "act")
    elif kind == 1:
        m.compute(
            a.shape, lambda *i: te.exp(te.minimum(x[i], 2)) + te.sqrt(te.maximum(x[i], 0)), a.bound + 8, "act"
        )
    else:
        m.compute(a.shape, lambda *i: x[i] / (te.abs(x[i]) + 1), 1, "act")
