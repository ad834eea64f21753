"""Special elements of every type: the ends, powers of two and their neighbours, zeros, infinities, NaN,
subnormal numbers, huge ones, and some drawn at random; and all pairs of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of

Array = np.ndarray[Any, Any]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = (*INTEGERS, *FLOATS, "bool")
RANDOM = 8


def special(name: str) -> Array:
    """The elements of one type, each once (NaN too), in order of their bits."""
    t = dtype_of(name)
    if t.is_bool:
        return np.array([False, True])
    numbers = _integers(t) if t.is_int else _floats(t)
    bits = numbers.view(f"u{t.bytes}")
    return np.unique(bits).view(t.numpy)


def _integers(t: DType) -> Array:
    low = -(1 << (t.bits - 1)) if t.kind == "int" else 0
    high = low + (1 << t.bits) - 1
    powers = {0, 1, 2, 3, t.bits // 2, t.bits - 2, t.bits - 1, t.bits}
    near = {(1 << p) + d for p in powers for d in (-1, 0, 1)}
    shifts = {t.bits - 1, t.bits, t.bits + 1, 2 * t.bits, 31, 32, 33, 63, 64, 65}
    wanted = {0, 3, 5, 7, 10, 100, 127, low, low + 1, low + 2, high, high - 1, high // 3, low // 3}
    # halfway between two floats of 8 or 24 digits, but for the last bit
    wanted |= {(1 << p) + (1 << (p - d)) + s for p in (30, 62) for d in (8, 24) for s in (-1, 0, 1)}
    wanted |= near | shifts | {-v for v in near | shifts}
    rng = np.random.default_rng(t.bits + (t.kind == "int"))
    drawn = rng.integers(low, high, RANDOM, t.numpy, endpoint=True).tolist()
    return np.array([v for v in [*wanted, *drawn] if low <= v <= high], t.numpy)


def _floats(t: DType) -> Array:
    import ml_dtypes

    info = ml_dtypes.finfo(t.numpy)
    tiny, least, most, eps = (
        float(v) for v in (info.smallest_normal, info.smallest_subnormal, info.max, info.eps)
    )
    whole = [1, 2, 3, 5, 7, 10, 60, 127, 128, 255, 256, 300, 2**11 + 1, 2**15, 2**16, 2**23 - 1, 2**24 + 1]
    whole += [2**30, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63, 2**64, 10**10, 10**16, 10**20]
    parts = [
        0.1,
        0.25,
        0.5,
        0.75,
        1 - eps / 2,
        1 + eps,
        1.5,
        2.5,
        3.5,
        0.49999997,
        88.8,
        103.9,
        709.8,
        1e-3,
        1e-8,
    ]
    # halfway between two floats of 8, 11, 24 digits, or hardly more
    parts += [1 + 2.0**-d + s for d in (8, 11, 24) for s in (-(2.0**-45), 0, 2.0**-45)]
    parts += [np.pi, np.pi / 2, np.e, 1e30, 1e300]
    ends = [0.0, tiny, tiny / 2, tiny * 1.5, least, 3 * least, most, most / 2, np.inf]
    rng = np.random.default_rng(t.bits)
    drawn = rng.standard_normal(RANDOM) * np.exp2(rng.uniform(-20, 20, RANDOM))
    with np.errstate(over="ignore"):
        positive = np.array([*whole, *parts, *ends, *np.abs(drawn)], np.float64).astype(t.numpy)
        both = np.concatenate([positive, -positive, np.array([np.nan], t.numpy)])
    return both


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Every element of one array with every element of the other, in mixed order."""
    x, y = np.repeat(a, b.size), np.tile(b, a.size)
    order = np.random.default_rng(0).permutation(x.size)
    return x[order], y[order]


def uneven(*arrays: Array) -> tuple[Array, ...]:
    """Arrays of a length that leaves 5 over when cut into vectors of 16: some of the first come twice."""
    n = arrays[0].size
    more = (5 - n) % 16
    return tuple(np.resize(a, n + more) for a in arrays)
