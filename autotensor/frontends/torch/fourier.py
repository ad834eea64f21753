"""Fourier transforms, as products with constant matrices.

    [re | im] @ [[cos, -sin], [sin, cos]]        a line of n points, n <= 64 or prime

A longer line of n = a*b points is a transform of a points in strides, a rotation of each, and one of b
points: n*(a + b) steps instead of n². Source: Cooley and Tukey 1965.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotensor.frontends.torch.complex import Complex, on_complex
from autotensor.frontends.torch.elementwise import floats
from autotensor.frontends.torch.registry import Unsupported, converts
from autotensor.frontends.torch.shape import slice_
from autotensor.frontends.torch.types import Ints
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant

WHOLE = 64  # points that one matrix transforms
MOST = 2048  # of a prime number of points


@converts("aten._fft_r2c.default")
def real_to_complex(x: GraphNode, dim: Ints, norm: int, onesided: bool) -> Any:
    y: Any = Complex(floats(x), ops.multiply(floats(x), _like(x, 0.0)))
    last = dim[-1] % len(x.shape)
    y = complex_to_complex(y, dim, norm, True)
    half = x.shape[last] // 2 + 1
    return Complex(slice_(y.re, last, 0, half), slice_(y.im, last, 0, half)) if onesided else y


@on_complex("aten._fft_c2c.default")
def complex_to_complex(x: Complex, dim: Ints, norm: int, forward: bool) -> Any:
    y = x
    for axis in dim:
        y = _along(y, axis % len(x.re.shape), forward)
    return _scaled(y, math.prod(x.re.shape[d] for d in dim), norm)


@on_complex("aten._fft_c2r.default")
def complex_to_real(x: Complex, dim: Ints, norm: int, last_dim_size: int) -> Any:
    """The other half of the last axis is the mirrored conjugate of the first."""
    rank = len(x.re.shape)
    y, last = x, dim[-1] % rank
    for axis in dim[:-1]:
        y = _along(y, axis % rank, False)
    half = last_dim_size // 2 + 1
    first = Complex(slice_(y.re, last, 0, half), slice_(y.im, last, 0, half))
    points = half if last_dim_size % 2 else half - 1  # which have a mirror image
    # imaginary parts of what is its own image are passed over, as libraries do
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
    """Elements points - 1 … 1 of the axis."""
    found: GraphNode = ops.slice(x, begin=(points - 1,), end=(0,), stride=(-1,), axes=(axis,))
    return found


def _joined(a: GraphNode, b: GraphNode, axis: int) -> Any:
    return ops.concat(a, b, axis=axis) if b.shape[axis] else a


def _like(x: GraphNode, value: float) -> GraphNode:
    return constant(np.asarray(value, floats(x).dtype.numpy))


def _scaled(x: Complex, count: int, norm: int) -> Complex:
    """norm: 0 none, 1 by the root, 2 by the number of points."""
    if norm == 0:
        return x
    by = _like(x.re, 1 / math.sqrt(count) if norm == 1 else 1 / count)
    return Complex(ops.multiply(x.re, by), ops.multiply(x.im, by))


def _along(x: Complex, axis: int, forward: bool) -> Complex:
    """The transform of one axis, which is last meanwhile."""
    rank = len(x.re.shape)
    order = (*(a for a in range(rank) if a != axis), axis)
    back = tuple(order.index(a) for a in range(rank))
    n = x.re.shape[axis]
    lines = Complex(*(ops.reshape(ops.transpose(v, axes=order), shape=(-1, n)) for v in (x.re, x.im)))
    y = _lines(lines, n, forward)
    shape = tuple(x.re.shape[a] for a in order)
    return Complex(*(ops.transpose(ops.reshape(v, shape=shape), axes=back) for v in (y.re, y.im)))


def _lines(x: Complex, n: int, forward: bool) -> Complex:
    """x: [lines, n]."""
    a = _factor(n)
    if a == n:
        return _by_matrix(x, n, forward)
    lines, b = x.re.shape[0], n // a
    # point b*p + q, frequency u + a*v: first over p, for every q
    apart = Complex(
        *(
            ops.reshape(ops.transpose(ops.reshape(v, shape=(lines, a, b)), axes=(0, 2, 1)), shape=(-1, a))
            for v in (x.re, x.im)
        )
    )
    inner = _by_matrix(apart, a, forward)  # [lines*b, u]
    turn = np.outer(np.arange(b), np.arange(a)) * (2 * np.pi / n) * (-1 if forward else 1)
    inner = _turned(inner, turn, lines, b, a)
    across = Complex(
        *(
            ops.reshape(ops.transpose(ops.reshape(v, shape=(lines, b, a)), axes=(0, 2, 1)), shape=(-1, b))
            for v in (inner.re, inner.im)
        )
    )
    outer = _lines(across, b, forward)  # [lines*a, v]
    return Complex(
        *(
            ops.reshape(ops.transpose(ops.reshape(v, shape=(lines, a, b)), axes=(0, 2, 1)), shape=(-1, n))
            for v in (outer.re, outer.im)
        )
    )


def _factor(n: int) -> int:
    """The greatest factor that one matrix transforms; n itself where n is small, or prime."""
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


def _by_matrix(x: Complex, n: int, forward: bool) -> Complex:
    angle = np.outer(np.arange(n), np.arange(n)) % n * (2 * np.pi / n)
    cosine, sine = np.cos(angle), np.sin(angle) * (-1 if forward else 1)
    w = np.block([[cosine, sine], [-sine, cosine]]).astype(x.re.dtype.numpy)  # [2n in, 2n out]
    both = ops.matmul(ops.concat(x.re, x.im, axis=1), constant(w))
    return Complex(slice_(both, 1, 0, n), slice_(both, 1, n, 2 * n))


def _turned(x: Complex, angle: Any, lines: int, b: int, a: int) -> Complex:
    """x: [lines*b, a], each times exp(i * angle[b, a])."""
    c, s = (constant(f(angle).astype(x.re.dtype.numpy)) for f in (np.cos, np.sin))
    re, im = (ops.reshape(v, shape=(lines, b, a)) for v in (x.re, x.im))
    turned = (
        ops.subtract(ops.multiply(re, c), ops.multiply(im, s)),
        ops.add(ops.multiply(re, s), ops.multiply(im, c)),
    )
    return Complex(*(ops.reshape(v, shape=(lines * b, a)) for v in turned))
