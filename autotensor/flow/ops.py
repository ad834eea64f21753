"""Operations of static graphs, in TensorFlow 1's spelling.

    y = flow.nn.softmax(flow.matmul(x, W))
    loss = flow.reduce_mean(-flow.reduce_sum(y_ * flow.log(y), reduction_indices=[1]))

Each operation is an operator of the library (`at.ops`), which is applied when shapes are known. Numbers
become part of the code, arrays become constants. Elementwise operators have no function in this module:
`SPELLING` has them all, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of, float32
from autotensor.flow.nodes import (
    Array,
    Node,
    Operation,
    Placeholder,
    Source,
    Spec,
    alike,
    as_node,
    constant,
    elementwise,
    operation,
    product,
    spec_of,
)
from autotensor.graph.build import ops as library
from autotensor.graph.ir import GraphNode
from autotensor.operators.spelling import Spelling

Axes = int | Sequence[int] | None

# -- leaves ----------------------------------------------------------------------------------------------


def placeholder(dtype: Any, shape: Any = None, name: str = "placeholder") -> Placeholder:
    """A value that is fed. Extents may be None; without a shape, any array of the type may be fed."""
    return Placeholder(name, spec_of(dtype, shape))


def zeros(shape: Sequence[int], dtype: Any = "float32", name: str = "zeros") -> Node:
    return constant(np.zeros(tuple(shape), dtype_of(dtype).numpy), name=name)


def ones(shape: Sequence[int], dtype: Any = "float32", name: str = "ones") -> Node:
    return constant(np.ones(tuple(shape), dtype_of(dtype).numpy), name=name)


def fill(shape: Sequence[int], value: float, dtype: Any = "float32") -> Node:
    return constant(np.full(tuple(shape), value, dtype_of(dtype).numpy), name="fill")


def _drawn(
    name: str, shape: Sequence[int], seed: int | None, draw: Callable[[np.random.Generator], Array]
) -> Node:
    """float32 numbers, new in every run: from the session's generator, or from one with its own seed."""
    own = None if seed is None else np.random.default_rng(seed)
    return Source(
        name,
        Spec(float32, tuple(int(n) for n in shape)),
        lambda rng: np.asarray(draw(rng if own is None else own), np.float32),
    )


def random_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, seed: int | None = None
) -> Node:
    """Normally distributed float32 numbers, drawn anew in every run that needs them."""
    return _drawn("random_normal", shape, seed, lambda rng: rng.normal(mean, stddev, tuple(shape)))


def normal(shape: Sequence[int], stdev: float = 1.0) -> Node:
    """tinyflow's spelling of `random_normal`."""
    return random_normal(shape, 0.0, stdev)


def truncated_normal(
    shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0, seed: int | None = None
) -> Node:
    """Like `random_normal`, but numbers more than two deviations from the mean are drawn again."""

    def draw(rng: np.random.Generator) -> Array:
        x = rng.standard_normal(tuple(shape))
        while (wild := np.abs(x) > 2).any():
            x[wild] = rng.standard_normal(int(wild.sum()))
        return np.asarray(mean + stddev * x)

    return _drawn("truncated_normal", shape, seed, draw)


def random_uniform(
    shape: Sequence[int], minval: float = 0.0, maxval: float = 1.0, seed: int | None = None
) -> Node:
    """float32 numbers from [minval, maxval), drawn anew in every run that needs them."""
    return _drawn("random_uniform", shape, seed, lambda rng: rng.uniform(minval, maxval, tuple(shape)))


# -- elementwise -----------------------------------------------------------------------------------------

SPELLING = Spelling("flow", elementwise, {"negative": "neg", "pow": "power"})


def square(x: Any) -> Node:
    """x * x."""
    node = as_node(x)
    return node * node


def where(condition: Any, a: Any, b: Any) -> Node:
    """a where the condition holds, else b. Both sides are in the program; `cond` computes only one."""
    return operation("where", condition, *alike(a, b))


def cast(x: Any, dtype: Any) -> Node:
    return operation("cast", x, dtype=str(dtype_of(dtype)))


def clip_by_value(x: Any, low: float, high: float) -> Node:
    return operation("clip", x, min=low, max=high)


def add_n(nodes: Sequence[Any]) -> Node:
    """The sum of several nodes."""
    total = as_node(nodes[0])
    for n in nodes[1:]:
        total = total + n
    return total


# -- products, shapes ------------------------------------------------------------------------------------


def matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Node:
    """a [m, k], b [k, n] ──▶ [m, n]; with more axes, the leading ones broadcast."""
    return product(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


def reshape(x: Any, shape: Sequence[int]) -> Node:
    """x with other extents; one of them may be -1."""
    return operation("reshape", x, shape=tuple(int(n) for n in shape))


def transpose(x: Any, perm: Sequence[int] = ()) -> Node:
    return operation("transpose", x, axes=tuple(perm))


def expand_dims(x: Any, axis: int) -> Node:
    return operation("unsqueeze", x, axes=(axis,))


def squeeze(x: Any, axis: Sequence[int] = ()) -> Node:
    return operation("squeeze", x, axes=tuple(axis))


def concat(values: Sequence[Any], axis: int) -> Node:
    return operation("concat", *values, axis=axis)


def slice(x: Any, begin: Sequence[int], size: Sequence[int]) -> Node:
    """`size` elements from `begin` along every axis; a size of -1 means all that follow."""
    end = [b + n if n >= 0 else np.iinfo(np.int64).max for b, n in zip(begin, size, strict=True)]
    return operation("slice", x, begin=tuple(begin), end=tuple(int(e) for e in end))


def gather(x: Any, indices: Any, axis: int = 0) -> Node:
    return operation("take", x, indices, axis=axis)


def zeros_like(x: Any) -> Node:
    """Zeros of x's shape, which may be known only when x is fed."""
    return _filled(x, 0)


def ones_like(x: Any) -> Node:
    """Ones of x's shape, which may be known only when x is fed."""
    return _filled(x, 1)


def _filled(x: Any, value: int) -> Node:
    from autotensor.graph.build import constant as graph_constant

    def lower(node: GraphNode) -> GraphNode:
        one = graph_constant(np.full((1,) * len(node.shape), value, node.dtype.numpy))
        return library.broadcast_to(one, node.shape)

    return Operation("fill", lower, (as_node(x),))


def one_hot(indices: Any, depth: int, dtype: Any = "float32") -> Node:
    """[…] whole numbers ──▶ […, depth], 1 where the position equals the number."""
    target = str(dtype_of(dtype))

    def lower(node: GraphNode) -> GraphNode:
        from autotensor.graph.build import constant as graph_constant

        positions = graph_constant(np.arange(depth, dtype=np.int64))
        whole = library.cast(library.unsqueeze(node, axes=(len(node.shape),)), dtype="int64")
        return library.cast(library.equal(whole, positions), dtype=target)

    return Operation("one_hot", lower, (as_node(indices),))


# -- reductions ------------------------------------------------------------------------------------------


def _reduction(name: str, x: Any, axis: Axes, keepdims: bool, reduction_indices: Axes) -> Node:
    over = axis if reduction_indices is None else reduction_indices
    chosen = tuple(int(a) for a in over) if isinstance(over, (list, tuple)) else over
    return operation(name, x, what=f"reduce_{name}", axis=chosen, keepdims=keepdims)


def reduce_sum(x: Any, axis: Axes = None, keepdims: bool = False, reduction_indices: Axes = None) -> Node:
    """Sum over the given axes, or over all axes."""
    return _reduction("sum", x, axis, keepdims, reduction_indices)


def reduce_mean(x: Any, axis: Axes = None, keepdims: bool = False, reduction_indices: Axes = None) -> Node:
    """Mean over the given axes, or over all axes; for truth values, the share of true ones."""
    return _reduction("mean", x, axis, keepdims, reduction_indices)


def reduce_max(x: Any, axis: Axes = None, keepdims: bool = False, reduction_indices: Axes = None) -> Node:
    return _reduction("max", x, axis, keepdims, reduction_indices)


def reduce_min(x: Any, axis: Axes = None, keepdims: bool = False, reduction_indices: Axes = None) -> Node:
    return _reduction("min", x, axis, keepdims, reduction_indices)


def reduce_prod(x: Any, axis: Axes = None, keepdims: bool = False, reduction_indices: Axes = None) -> Node:
    return _reduction("prod", x, axis, keepdims, reduction_indices)


def argmax(x: Any, axis: int = 0) -> Node:
    """First position of the greatest element along an axis; int64."""
    return operation("argmax", x, axis=int(axis))


def argmin(x: Any, axis: int = 0) -> Node:
    return operation("argmin", x, axis=int(axis))
