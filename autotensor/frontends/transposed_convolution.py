"""Transposed convolutions of any number of axes, with dilation. They become autotensor's own operator, or
plain convolutions of stride 1.

Along one axis, out[o] = sum_k x[i] * w[k] over o = i*s + k*d - before. Outputs o ≡ r (mod s) use only the
taps k with k*d ≡ r + before (mod s). These taps lie s/g apart, with g = gcd(s, d), and the first of them is
k0. With k = k0 + m*s/g and o = r + s*j

    out[r + s*j] = sum_m x[j + c - m*d/g] * w[k0 + m*s/g]        c = (r + before - k0*d) / s

which is a convolution of stride 1 and dilation d/g with these taps in reverse order. Each phase r is computed
alone, and then the phases are interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

import numpy as np

from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode, constant


@dataclass(frozen=True, slots=True)
class _Phase:
    """One axis of one phase."""

    first: int  # the first tap
    step: int  # the distance between taps
    taps: int  # 0: no input contributes to these outputs
    dilation: int
    before: int  # elements to add in front of x; if negative, elements to leave out
    after: int


def _phases(extent: int, kernel: int, stride: int, dilation: int, before: int, rows: int) -> list[_Phase]:
    """The phases of one axis. rows: the outputs of a phase."""
    g = gcd(stride, dilation)
    step, apart = stride // g, dilation // g
    found = []
    for r in range(stride):
        first = next((k for k in range(min(step, kernel)) if (r + before - k * dilation) % stride == 0), None)
        if first is None:
            found.append(_Phase(0, step, 0, apart, 0, 0))
            continue
        taps = -(-(kernel - first) // step)
        c = (r + before - first * dilation) // stride
        low = c - (taps - 1) * apart  # the first element of x that output 0 reads
        found.append(_Phase(first, step, taps, apart, -low, rows - 1 + c - (extent - 1)))
    return found


def transposed_convolution(
    x: GraphNode,
    w: GraphNode,
    bias: GraphNode | None,
    *,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """x: [n, Cin, spatial…], w: [Cin, Cout/groups, spatial…], bias: [Cout]; padding: (before, after) of each
    axis.

    The output has (extent - 1)*stride - padding + dilation*(kernel - 1) + 1 + output_padding elements along
    an axis.
    """
    extents, kernel, rank = x.shape[2:], w.shape[2:], x.ndim - 2
    plain = rank <= 2 and all(d == 1 for d in dilation) and min(min(p) for p in padding) >= 0
    if plain and all(e < s for e, s in zip(output_padding, stride, strict=True)):
        return _as_picture(x, w, bias, stride, padding, output_padding, groups)
    out = [
        (n - 1) * s - before - after + d * (k - 1) + 1 + more
        for n, k, s, d, (before, after), more in zip(
            extents, kernel, stride, dilation, padding, output_padding, strict=True
        )
    ]
    rows = [-(-o // s) for o, s in zip(out, stride, strict=True)]
    lines = [
        _phases(n, k, s, d, before, r)
        for n, k, s, d, (before, _), r in zip(extents, kernel, stride, dilation, padding, rows, strict=True)
    ]
    weights = _forward(w, groups)
    parts = [_phase(x, weights, phases, rows, groups) for phases in product(*lines)]
    y = parts[0] if len(parts) == 1 else _interleaved(parts, stride, rows)
    if tuple(y.shape[2:]) != tuple(out):
        y = ops.slice(y, begin=(0,) * rank, end=tuple(out), axes=tuple(range(2, rank + 2)))
    return y if bias is None else ops.bias_add(y, bias, axis=1)


def _as_picture(
    x: GraphNode,
    w: GraphNode,
    bias: GraphNode | None,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Uses autotensor's own operator, for which schedules exist. A line becomes a picture of height 1."""
    flat = x.ndim == 3
    x, w = (ops.unsqueeze(v, axes=(2,)) if flat else v for v in (x, w))
    one, none = ((1,), (0,)) if flat else ((), ())
    befores, afters = zip(*padding, strict=True)
    y = ops.conv2d_transpose(
        *(x, w, bias),
        stride=(*one, *stride),
        padding=(*none, *befores, *none, *afters),
        output_padding=(*none, *output_padding),
        groups=groups,
    )
    return ops.squeeze(y, axes=(2,)) if flat else y


def _forward(w: GraphNode, groups: int) -> GraphNode:
    """[Cin, Cout/groups, …] ──▶ [Cout, Cin/groups, …]"""
    (c, each), spatial = w.shape[:2], w.shape[2:]
    parts = ops.reshape(w, shape=(groups, c // groups, each, *spatial))
    turned = ops.transpose(parts, axes=(0, 2, 1, *range(3, 3 + len(spatial))))
    return ops.reshape(turned, shape=(groups * each, c // groups, *spatial))


def _phase(x: GraphNode, w: GraphNode, phases: Sequence[_Phase], rows: Sequence[int], groups: int) -> Any:
    """The outputs of one phase: [n, Cout, *rows]."""
    if any(p.taps == 0 for p in phases):
        nothing = constant(np.zeros((), x.dtype.numpy))
        return ops.broadcast_to(nothing, shape=(x.shape[0], w.shape[0], *rows))
    axes = tuple(range(2, x.ndim))
    last = tuple(p.first + (p.taps - 1) * p.step for p in phases)
    end = tuple(p.first - 1 if p.first else None for p in phases)
    taps = ops.slice(w, begin=last, end=end, stride=tuple(-p.step for p in phases), axes=axes)
    pads = ((0, 0), (0, 0), *((p.before, p.after) for p in phases))
    source = ops.pad(x, pads=pads) if any(v for pair in pads for v in pair) else x
    convolution = getattr(ops, f"conv{len(rows)}d")
    return convolution(source, taps, groups=groups, dilation=tuple(p.dilation for p in phases))


def _interleaved(parts: Sequence[GraphNode], stride: Sequence[int], rows: Sequence[int]) -> Any:
    """[n, c, *rows] of each phase, the last axis's phases first ──▶ [n, c, rows*stride …]."""
    n, c = parts[0].shape[:2]
    rank = len(rows)
    stacked = ops.concat(*(ops.unsqueeze(p, axes=(2,)) for p in parts), axis=2)
    apart = ops.reshape(stacked, shape=(n, c, *stride, *rows))
    pairs = [axis for a in range(rank) for axis in (2 + rank + a, 2 + a)]
    joined = ops.transpose(apart, axes=(0, 1, *pairs))
    return ops.reshape(joined, shape=(n, c, *(s * r for s, r in zip(stride, rows, strict=True))))
