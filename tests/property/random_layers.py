"""Random small networks for the rules: one layer with weights, then views, functions and sums.

Extents of one, odd kernels, groups, one channel, a batch: cases that rules for large layers may forget. Drawn
by Hypothesis, so that a failure shrinks to a layer or two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from autotensor.graph.build import input, ops
from autotensor.graph.ir import Graph, GraphNode, Input, topological

CHANNELS = (1, 1, 2, 3, 4, 8, 16, 17, 32, 64)  # multiples of a vector, and others
EXTENTS = (1, 1, 2, 3, 5, 7, 8, 9, 16)
MOST = 1 << 15  # elements of a value
FUNCTIONS = ("relu", "tanh", "sigmoid", "gelu", "abs")
REDUCTIONS = ("sum", "mean", "max", "softmax", "argmax")


class Drawing:
    """One network being drawn."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def pick(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def each(self, count: int, *choices: Any) -> tuple[Any, ...]:
        return tuple(self.pick(*choices) for _ in range(count))

    def order(self, rank: int) -> tuple[int, ...]:
        return tuple(self._draw(st.permutations(range(rank))))

    def floats(self, *shape: int) -> np.ndarray:
        return self._rng.standard_normal(shape).astype(np.float32)


def convolution(d: Drawing) -> GraphNode:
    rank, transposed = d.pick(1, 2, 2, 3), d.pick(False, False, True)
    groups = d.pick(1, 1, 1, 2, 3, 4)
    each = d.pick((d.pick(*CHANNELS), d.pick(*CHANNELS)), (d.pick(16, 32, 64), d.pick(1, 1, 2, 3)))
    cin, cout = (groups * n for n in each)
    if d.pick(*[False] * 5, True):  # depthwise
        groups, cout = cin, cin * d.pick(1, 2)
    x = input((d.pick(1, 1, 2, 3), cin, *d.each(rank, *EXTENTS)))
    kernel, stride = d.each(rank, 1, 2, 3, 3, 5), d.each(rank, 1, 1, 2, 3)
    bias = d.floats(cout) if d.pick(True, False) else None
    assume(math.prod(x.shape) <= MOST and cin // groups * cout * math.prod(kernel) <= MOST)
    common: dict[str, Any] = {"stride": stride, "groups": groups}
    if transposed:
        assume(rank == 2)
        w = d.floats(cin, cout // groups, *kernel)
        return ops.conv2d_transpose(x, w, bias, padding=tuple(min(k - 1, 1) // 2 for k in kernel), **common)
    padding, dilation = d.each(rank, 0, 1, 2), d.each(rank, 1, 1, 2)
    reach = [(k - 1) * e + 1 for k, e in zip(kernel, dilation, strict=True)]
    assume(all(n + 2 * p >= r for n, p, r in zip(x.shape[2:], padding, reach, strict=True)))
    w = d.floats(cout, cin // groups, *kernel)
    return getattr(ops, f"conv{rank}d")(x, w, bias, padding=padding, dilation=dilation, **common)


def linear(d: Drawing) -> GraphNode:
    shape = (*d.each(d.pick(0, 1, 1, 2), 1, 1, 2, 3, 5), d.pick(*CHANNELS))
    x = input(shape)
    columns = d.pick(*CHANNELS)
    bias = [d.floats(columns)] if d.pick(True, False) else []
    y = ops.dense(ops.reshape(x, (math.prod(shape[:-1]), shape[-1])), d.floats(columns, shape[-1]), *bias)
    return ops.reshape(y, (*shape[:-1], columns)) if d.pick(True, False) else y


def product(d: Drawing) -> GraphNode:
    batch, m, n, k = d.each(4, 1, 1, 2, 3, 7, 16, 33)
    return ops.batch_matmul(input((batch, m, k), name="a"), input((batch, k, n), name="b"))


def function(d: Drawing, y: GraphNode) -> GraphNode:
    return getattr(ops, d.pick(*FUNCTIONS))(y)


def constant(d: Drawing, y: GraphNode) -> GraphNode:
    """A sum or product with numbers that broadcast, of any rank."""
    tail = y.shape[d.pick(*range(len(y.shape) + 1)) :]
    c = d.floats(*(d.pick(1, n) for n in tail))
    return d.pick(y + c, y * c, c - y)


def reshaped(d: Drawing, y: GraphNode) -> GraphNode:
    rest, shape = math.prod(y.shape), []
    for _ in range(d.pick(0, 1, 2, 3)):
        shape.append(d.pick(*(n for n in range(1, rest + 1) if rest % n == 0)))
        rest //= shape[-1]
    return ops.reshape(y, (*shape, rest) if rest > 1 else tuple(shape))


def squeezed(d: Drawing, y: GraphNode) -> GraphNode:
    return ops.reshape(y, tuple(n for n in y.shape if n > 1))


def transposed(d: Drawing, y: GraphNode) -> GraphNode:
    return ops.transpose(y, axes=d.order(len(y.shape))) if y.shape else y


def reduced(d: Drawing, y: GraphNode) -> GraphNode:
    if not y.shape:
        return y
    axis, op = d.pick(*range(len(y.shape))), d.pick(*REDUCTIONS)
    if op == "argmax":
        return ops.cast(ops.argmax(y, axis=axis), dtype="float32")
    more = {} if op == "softmax" else {"keepdims": d.pick(True, False)}
    return getattr(ops, op)(y, axis=axis, **more)


def cut(d: Drawing, y: GraphNode) -> GraphNode:
    if not y.shape:
        return y
    axis = d.pick(*range(len(y.shape)))
    begin = d.pick(*range(y.shape[axis]))
    end = d.pick(*range(begin + 1, y.shape[axis] + 1))
    return ops.slice(y, begin=(begin,), end=(end,), axes=(axis,))


def norm(d: Drawing, y: GraphNode) -> GraphNode:
    if not y.shape:
        return y
    n = y.shape[-1]
    mean = ops.mean(y, axis=-1, keepdims=True)
    away = y - mean
    return away / ops.sqrt(ops.mean(away * away, axis=-1, keepdims=True) + 1e-3) * d.floats(n) + d.floats(n)


def joined(d: Drawing, y: GraphNode) -> GraphNode:
    """Joins a value with a function of it, by a concatenation or an addition."""
    other = function(d, y)
    return (
        ops.concat(y, other, axis=d.pick(*range(len(y.shape))))
        if y.shape and d.pick(True, False)
        else y + other
    )


LAYERS = (convolution, convolution, convolution, linear, linear, product)
BEHIND = (function, constant, constant, reshaped, squeezed, transposed, reduced, cut, norm, joined)


@st.composite
def networks(draw: Any, most: int = 4) -> Graph:
    d = Drawing(draw)
    y = d.pick(*LAYERS)(d)
    for step in draw(st.lists(st.sampled_from(BEHIND), max_size=most)):
        y = step(d, y)
        assume(math.prod(y.shape) <= MOST)
    return Graph(tuple(n for n in topological((y,)) if isinstance(n, Input)), (y,), "drawn")
