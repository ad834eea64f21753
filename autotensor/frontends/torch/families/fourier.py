"""Fourier transforms, as products with constant matrices.

    [re | im] @ [[cos, -sin], [sin, cos]]        a line of n points, n <= 64 or prime; half for real points

A longer line of n = a*b points is computed in three steps: transforms of a points with a stride of b, a
rotation of each point, and transforms of b points. This takes n*(a + b) steps instead of n². Source: Cooley
and Tukey 1965.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import Ints
from autotensor.frontends.torch.families.complex import Complex, on_complex
from autotensor.frontends.torch.families.elementwise import floats
from autotensor.frontends.torch.families.shape import slice_
from autotensor.frontends.torch.registry import converts
from autotensor.graph.build import ops
from autotensor.graph.ir import Array, GraphNode, constant

WHOLE = 64  # most points that one matrix transforms
MOST = 2048  # most points if their number is prime


@converts("aten._fft_r2c.default")
def real_to_complex(x: GraphNode, dim: Ints, norm: int, onesided: bool) -> Any:
    y: Any = floats(x)
    last = dim[-1] % x.ndim
    for axis in reversed(dim):
        y = _along(y, axis % x.ndim, True)
    y = _scaled(y, math.prod(x.shape[d] for d in dim), norm)
    half = x.shape[last] // 2 + 1
    return _both(y, lambda v: slice_(v, last, 0, half)) if onesided else y


@on_complex("aten._fft_c2c.default")
def complex_to_complex(x: Complex, dim: Ints, norm: int, forward: bool) -> Any:
    y = x
    for axis in dim:
        y = _along(y, axis % x.re.ndim, forward)
    return _scaled(y, math.prod(x.re.shape[d] for d in dim), norm)


@on_complex("aten._fft_c2r.default")
def complex_to_real(x: Complex, dim: Ints, norm: int, last_dim_size: int) -> Any:
    """The real signal of half a spectrum. The other half of the last axis is the mirrored conjugate of the
    first half."""
    rank = x.re.ndim
    y, last = x, dim[-1] % rank
    for axis in dim[:-1]:
        y = _along(y, axis % rank, False)
    half = last_dim_size // 2 + 1
    first = _both(y, lambda v: slice_(v, last, 0, half))
    points = half if last_dim_size % 2 else half - 1  # points with a mirror image
    # points that are their own mirror image are real: autotensor ignores their imaginary parts, like other
    # libraries
    tail = Complex(_mirrored(first.re, last, points), ops.neg(_mirrored(first.im, last, points)))
    own = np.ones(half, x.re.dtype.numpy)
    own[0] = 0
    if last_dim_size % 2 == 0:
        own[-1] = 0
    shape = tuple(half if a == last else 1 for a in range(rank))
    im = ops.multiply(first.im, constant(own.reshape(shape)))
    whole = Complex(_joined(first.re, tail.re, last), _joined(im, tail.im, last))
    y = _scaled(
        _along(whole, last, False), math.prod([last_dim_size, *(x.re.shape[d] for d in dim[:-1])]), norm
    )
    return y.re


def _mirrored(x: GraphNode, axis: int, points: int) -> GraphNode:
    """Elements points - 1 … 1 of the axis, in this order."""
    return ops.slice(x, begin=(points - 1,), end=(0,), stride=(-1,), axes=(axis,))


def _joined(a: GraphNode, b: GraphNode, axis: int) -> Any:
    return ops.concat(a, b, axis=axis) if b.shape[axis] else a


def _scaled(x: Complex, count: int, norm: int) -> Complex:
    """Divides x according to norm: 0 by nothing, 1 by the root of the number of points, 2 by the number of
    points."""
    if norm == 0:
        return x
    by = constant(1 / math.sqrt(count) if norm == 1 else 1 / count, dtype=x.re.dtype)
    return _both(x, lambda v: ops.multiply(v, by))


Signal = Complex | GraphNode  # real signals need half the products


def _both(x: Complex, move: Callable[[GraphNode], Any]) -> Complex:
    return Complex(move(x.re), move(x.im))


def _each(x: Signal, move: Callable[[GraphNode], Any]) -> Any:
    """The signal with `move` applied to both parts, or to the only one."""
    return _both(x, move) if isinstance(x, Complex) else move(x)


def _shape(x: Signal) -> tuple[int, ...]:
    found: tuple[int, ...] = (x.re if isinstance(x, Complex) else x).shape
    return found


def _along(x: Signal, axis: int, forward: bool) -> Complex:
    """The transform of one axis, which is moved to the end and back."""
    extents = _shape(x)
    rank, n = len(extents), extents[axis]
    order = (*(a for a in range(rank) if a != axis), axis)
    back = tuple(order.index(a) for a in range(rank))
    lines = _each(x, lambda v: ops.reshape(ops.transpose(v, axes=order), shape=(-1, n)))
    y = _lines(lines, n, forward)
    shape = tuple(extents[a] for a in order)
    return _both(y, lambda v: ops.transpose(ops.reshape(v, shape=shape), axes=back))


def _lines(x: Signal, n: int, forward: bool) -> Complex:
    """The transform of each line of x [lines, n]."""
    a = _factor(n)
    if a == n:
        return _by_matrix(x, n, forward)
    lines, b = _shape(x)[0], n // a
    # a point is b*p + q, a frequency u + a*v: the first transform is over p, for every q
    apart = _each(x, lambda v: _regrouped(v, (lines, a, b), a))
    inner = _by_matrix(apart, a, forward)  # [lines*b, u]
    inner = _turned(inner, _turns(b, a, n, forward), lines, b, a)
    across = _both(inner, lambda v: _regrouped(v, (lines, b, a), b))
    outer = _lines(across, b, forward)  # [lines*a, v]
    return _both(outer, lambda v: _regrouped(v, (lines, a, b), n))


def _regrouped(x: GraphNode, shape: tuple[int, int, int], points: int) -> Any:
    """The last two axes exchanged, then reshaped to lines of `points` points."""
    return ops.reshape(ops.transpose(ops.reshape(x, shape=shape), axes=(0, 2, 1)), shape=(-1, points))


def _factor(n: int) -> int:
    """The greatest factor of n that one matrix transforms; n itself if n is small or prime."""
    if n <= WHOLE:
        return n
    small = [d for d in range(2, WHOLE + 1) if n % d == 0]
    if small:
        return max(small)
    if n > MOST:
        raise Unsupported(
            f"a Fourier transform of {n} points, whose factors are large, is not supported.",
            fix="Pad to a number of points with small factors.",
        )
    return n


def _turns(rows: int, columns: int, n: int, forward: bool) -> tuple[Array, Array]:
    """Cosine and sine of row*column/n turns, clockwise if `forward`. They are exact at quarters of a turn, so
    that exact zeros stay zero."""
    product = np.outer(np.arange(rows), np.arange(columns)) % n
    quarters = (4 * product + n // 2) // n
    rest = (4 * product - quarters * n) * (np.pi / 2 / n)
    c, s = np.cos(rest), np.sin(rest)
    cosine, sine = (np.choose(quarters % 4, v) for v in ((c, -s, -c, s), (s, c, -s, -c)))
    return cosine + 0.0, (-sine if forward else sine) + 0.0  # no negative zeros


def _by_matrix(x: Signal, n: int, forward: bool) -> Complex:
    cosine, sine = _turns(n, n, n, forward)
    if isinstance(x, Complex):
        w, both = np.block([[cosine, sine], [-sine, cosine]]), ops.concat(x.re, x.im, axis=1)
    else:
        w, both = np.block([[cosine, sine]]), x
    y = ops.matmul(both, constant(w.astype(both.dtype.numpy)))
    return Complex(slice_(y, 1, 0, n), slice_(y, 1, n, 2 * n))


def _turned(x: Complex, by: tuple[Array, Array], lines: int, b: int, a: int) -> Complex:
    """x [lines*b, a], multiplied by cosine + i*sine [b, a]."""
    c, s = (constant(v.astype(x.re.dtype.numpy)) for v in by)
    re, im = (ops.reshape(v, shape=(lines, b, a)) for v in (x.re, x.im))
    turned = (
        ops.subtract(ops.multiply(re, c), ops.multiply(im, s)),
        ops.add(ops.multiply(re, s), ops.multiply(im, c)),
    )
    return Complex(*(ops.reshape(v, shape=(lines * b, a)) for v in turned))
