"""Fourier transforms and determinants.

In a graph a transform is a product with a matrix that is known now. A model that runs in parts calls NumPy's
fast transform between two parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autotensor.frontends.onnx.element_types import Array
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

LONGEST = 4096  # most points; the matrix has the square of this number of elements
LONGEST_FAST = 1 << 24


@converts("DFT")
def dft_attribute(c: Call) -> Value:
    return _dft(c, c.axis(1))


@converts("DFT", since=20)
def dft(c: Call) -> Value:
    return _dft(c, c.axes((int(c.scalar(2, -2)),))[0])


def _dft(c: Call, axis: int) -> GraphNode:
    """x: […, n, …, 1 or 2] (real, or real and imaginary) along the axis."""
    x = c[0]
    inverse, onesided = c.flag("inverse"), c.flag("onesided")
    back = inverse and onesided  # from half a spectrum to a real signal
    n = int(c.scalar(1, 2 * (x.shape[axis] - 1) if back else x.shape[axis]))
    longest = LONGEST_FAST if c.importer.runs else LONGEST
    if not 1 <= n <= longest or axis == x.ndim - 1:
        raise c.unsupported(
            f"a transform of length {n} along axis {axis} of {x.shape}.", f"At most {longest}."
        )
    if c.importer.runs:
        kind = np.fft.irfft if back else np.fft.ifft if inverse else np.fft.fft
        return c.on_host(lambda v: (_fast(v, kind, n, axis, onesided and not inverse),), [x])[0]
    wanted = n // 2 + 1 if back else n
    have = x.shape[axis]
    if have != wanted:
        pads = tuple((0, wanted - have) if a == axis else (0, 0) for a in range(x.ndim))
        x = ops.pad(x, pads=pads)
    real, imaginary = _real_rows(n, inverse, onesided)
    rank = x.ndim
    order = (*(a for a in range(rank - 1) if a != axis), axis, rank - 1)
    rows = ops.transpose(x, axes=order)  # […, n, parts]
    lead, parts = rows.shape[:-2], rows.shape[-1]
    flat = ops.reshape(rows, shape=(math.prod(lead), wanted * parts))
    # one product: columns are real and imaginary results, rows real and imaginary inputs
    columns = [real] if back else [real, imaginary]
    y = ops.reshape(_transformed(flat, columns, parts), shape=(*lead, -1, len(columns)))
    places = [order.index(a) for a in range(rank)]
    return ops.transpose(y, axes=tuple(places))


def _transformed(rows: GraphNode, columns: list[Array], parts: int) -> GraphNode:
    """rows: [lines, n*parts], columns: each [k, n, 2] ──▶ [lines, k*columns]."""
    matrix = np.stack([m[:, :, :parts] for m in columns], -1)  # [k, n, parts, results]
    matrix = matrix.transpose(1, 2, 0, 3).reshape(rows.shape[1], -1)
    return ops.matmul(rows, constant(matrix.astype(rows.dtype.numpy)))


def _fast(x: Array, kind: Callable[..., Array], n: int, axis: int, half: bool) -> Array:
    """NumPy's transform. `half` keeps only the frequencies up to the middle one."""
    signal = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    y = kind(signal, n, axis)
    if half:
        y = np.take(y, np.arange(n // 2 + 1), axis)
    parts = np.stack([y.real, y.imag], -1) if np.iscomplexobj(y) else y[..., None]
    return np.ascontiguousarray(parts, x.dtype)


def _real_rows(n: int, inverse: bool, onesided: bool) -> tuple[Array, Array]:
    """The weights for the real results and for the imaginary results, each [results, inputs, 2]. The last
    axis is the real and the imaginary input."""
    if inverse and onesided:
        k = np.arange(n // 2 + 1)
        # a frequency counts twice, because its mirror image is not given; the first (and for even n the last)
        # frequency has no mirror image
        twice = np.where((k == 0) | ((n % 2 == 0) & (k == n // 2)), 1.0, 2.0) / n
        angle = 2 * np.pi * np.outer(np.arange(n), k) / n
        real = np.stack([np.cos(angle) * twice, -np.sin(angle) * twice], -1)
        return real, np.zeros_like(real)
    count = n // 2 + 1 if onesided else n
    angle = (2 if inverse else -2) * np.pi * np.outer(np.arange(count), np.arange(n)) / n
    by = 1 / n if inverse else 1.0
    cos, sin = np.cos(angle) * by, np.sin(angle) * by
    return np.stack([cos, -sin], -1), np.stack([sin, cos], -1)


@converts("STFT")
def stft(c: Call) -> Value:
    """signal: [batch, length, 1 or 2] ──▶ [batch, frames, frequencies, 2]."""
    x, step = c[0], int(c.scalar(1))
    window = c.get(2)
    length = int(c.scalar(3, x.shape[1] if window is None else window.shape[0]))
    frames = (x.shape[1] - length) // step + 1
    if not (1 <= length <= LONGEST and step >= 1 and frames >= 1):
        raise c.malformed(f"frames of {length} every {step} do not fit a signal of shape {x.shape}.")
    places = np.arange(frames)[:, None] * step + np.arange(length)[None]
    cut = ops.take(x, constant(places.astype(np.int64)), axis=1)  # [batch, frames, length, parts]
    if window is not None:
        if window.shape != (length,):
            raise c.unsupported(f"a window of shape {window.shape} for frames of {length}.")
        cut = cut * ops.reshape(window, shape=(length, 1))
    onesided, parts = c.flag("onesided", True), x.shape[2]
    real, imaginary = _real_rows(length, False, onesided)
    flat = ops.reshape(cut, shape=(x.shape[0] * frames, length * parts))
    return ops.reshape(
        _transformed(flat, [real, imaginary], parts), shape=(x.shape[0], frames, real.shape[0], 2)
    )


@converts("Det")
def determinant(c: Call) -> Value:
    """Computed by NumPy between two compiled parts, because in an elimination with pivots the steps depend on
    the data."""
    if c.rank < 2 or c[0].shape[-1] != c[0].shape[-2]:
        raise c.malformed(f"x of shape {c[0].shape} holds no square matrices.")

    def run(x: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):  # no warnings for NaN and infinity, as in compiled code
            return (np.asarray(np.linalg.det(x), x.dtype),)

    return list(c.on_host(run, [c[0]]))


@converts("MelWeightMatrix")
def mel_weights(c: Call) -> Value:
    """Weights [spectrum, mel]: triangles of equal width on the mel scale."""
    bins, length, rate = int(c.scalar(0)), int(c.scalar(1)), int(c.scalar(2))
    low, high = float(c.scalar(3)), float(c.scalar(4))
    if not 1 <= bins <= LONGEST or not 1 <= length <= 1 << 20:
        raise c.malformed(f"{bins} bins of a transform of length {length}.")
    spectrum = length // 2 + 1
    if rate < 1 or not 0 <= low <= high <= rate:
        raise c.malformed(f"frequencies from {low} to {high} at {rate} samples a second.")
    mel_low, mel_high = (2595 * math.log10(1 + f / 700) for f in (low, high))
    mels = np.arange(bins + 2) * (mel_high - mel_low) / (bins + 2) + mel_low
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    if edges[-2] >= spectrum or edges[-1] > spectrum:
        raise c.malformed(f"frequencies up to {high} at {rate} samples a second.")
    out = np.zeros((spectrum, bins))
    for n in range(bins):
        first, middle, last = edges[n : n + 3]
        if middle == first:
            out[middle, n] = 1.0
        else:
            for k in range(first, middle + 1):
                out[k, n] = (k - first) / (middle - first)
        for k in range(middle, last):
            if last != middle:
                out[k, n] = (last - k) / (last - middle)
    return constant(out.astype(c.dtype_attr("output_datatype", 1).numpy))
