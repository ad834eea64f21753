"""Reductions, positions of extremes, softmax and similar operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autotensor.frontends.onnx.families.shape import line_shape
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type, widened
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

Reduction = Callable[[GraphNode, "tuple[int, ...]"], GraphNode]  # keeps the axes, with extent 1


def _total(x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
    """The sum in the type of x. autotensor's operator sums integers in 64 bits."""
    return as_type(ops.sum(x, axis=axes, keepdims=True), x.dtype)


def _product(x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
    return as_type(ops.prod(x, axis=axes, keepdims=True), x.dtype)


def _extreme(ours: str) -> Reduction:
    find: Callable[..., GraphNode] = getattr(ops, ours)

    def reduction(x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
        if any(x.shape[a] == 0 for a in axes):
            return _nothing(ours, x, axes)
        if x.dtype.is_bool:
            return as_type(find(as_type(x, "uint8"), axis=axes, keepdims=True), "bool")
        return find(x, axis=axes, keepdims=True)

    return reduction


def _nothing(ours: str, x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
    """The greatest element of an empty set is the least value of the type, and the least is the greatest
    value."""
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    if x.dtype.is_float:
        value = -math.inf if ours == "max" else math.inf
    elif x.dtype.is_bool:
        value = ours == "min"
    else:
        limits = np.iinfo(x.dtype.numpy)
        value = limits.min if ours == "max" else limits.max
    return ops.broadcast_to(constant(value, dtype=x.dtype), shape=shape)


def _mean(x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
    if x.dtype.is_float:
        return ops.mean(x, axis=axes, keepdims=True)
    count = math.prod(x.shape[a] for a in axes)
    return ops.divide_trunc(_total(x, axes), constant(count, dtype=x.dtype))


def _log_sum_exp(x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
    """log Σ exp(x). The greatest element is subtracted first, so that exp does not overflow."""
    if any(x.shape[a] == 0 for a in axes):
        return _nothing("max", x, axes)
    if not x.dtype.is_float:
        return _by_floats(lambda wide: _log_sum_exp(wide, axes), x)
    top = ops.max(x, axis=axes, keepdims=True)
    limit = float(np.finfo(x.dtype.numpy).max)  # inf - inf would be NaN
    safe = ops.maximum(ops.minimum(top, limit), -limit)
    return ops.log(_total(ops.exp(x - safe), axes)) + safe


def _by_floats(ours: Callable[[GraphNode], GraphNode], x: GraphNode) -> GraphNode:
    """The result of a function that is defined for floats; integers are converted to float64 and back."""
    if x.dtype.is_float:
        return ours(x)
    return as_type(ours(as_type(x, "float64")), x.dtype)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _total,
    "ReduceProd": _product,
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceMean": _mean,
    "ReduceL1": lambda x, axes: _total(ops.abs(x), axes),
    "ReduceL2": lambda x, axes: _by_floats(ops.sqrt, _total(x * x, axes)),
    "ReduceSumSquare": lambda x, axes: _total(x * x, axes),
    "ReduceLogSum": lambda x, axes: _by_floats(ops.log, _total(x, axes)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _reduce(name: str) -> Callable[[Call], Value]:
    def convert(c: Call) -> Value:
        x = c[0]

        def reduction(x: GraphNode, axes: tuple[int, ...]) -> GraphNode:
            return widened(lambda x: REDUCTIONS[name](x, axes), x)

        given = c.ints_or_attr(1, "axes")
        if not given and c.attr("noop_with_empty_axes", 0):
            axes: tuple[int, ...] = ()
        else:
            axes = c.axes(given) if given else tuple(range(x.ndim))
        y = reduction(x, axes) if axes or not x.shape else reduction(ops.unsqueeze(x, axes=(0,)), (0,))
        if not axes and x.shape:
            return ops.reshape(y, shape=x.shape)  # with an empty list of axes, each element is its own result
        if c.attr("keepdims", 1) or not axes:
            return y
        return ops.reshape(y, shape=tuple(n for a, n in enumerate(x.shape) if a not in axes))

    return convert


for _name in REDUCTIONS:
    converts(_name)(_reduce(_name))


# -- positions -------------------------------------------------------------------------------------------


def _arg(ours: str) -> Callable[[Call], Value]:
    def convert(c: Call) -> Value:
        x, axis, keep = c[0], c.axis(0), c.flag("keepdims", True)
        if x.dtype.is_bool:
            x = as_type(x, "uint8")
        if not c.attr("select_last_index", 0):
            return getattr(ops, ours)(x, axis=axis, keepdims=keep)
        turned = ops.slice(x, begin=(None,), end=(None,), stride=(-1,), axes=(axis,))
        first = getattr(ops, ours)(turned, axis=axis, keepdims=keep)
        return constant(x.shape[axis] - 1, dtype="int64") - first

    return convert


converts("ArgMax")(_arg("argmax"))
converts("ArgMin")(_arg("argmin"))


# -- softmax ---------------------------------------------------------------------------------------------


def _over_rest(ours: str) -> Callable[[Call], Value]:
    def convert(c: Call) -> Value:
        """Before opset 13: over all axes from `axis` on, as if they were one."""
        x = c[0]
        axis = c.whole("axis", 1)
        at = axis % x.ndim if axis != x.ndim else axis
        flat = ops.reshape(x, shape=(math.prod(x.shape[:at]), math.prod(x.shape[at:])))
        return ops.reshape(_along(ours, flat, 1), shape=x.shape)

    return convert


def _over_one(ours: str) -> Callable[[Call], Value]:
    return lambda c: _along(ours, c[0], c.axis(-1))


def _along(ours: str, x: GraphNode, axis: int) -> GraphNode:
    if x.dtype.is_half and ours == "softmax":
        # as in the definition, each step is rounded to 16 bits; only the sum is computed in 32
        powers = ops.exp(x - ops.max(x, axis=axis, keepdims=True))
        total = as_type(ops.sum(as_type(powers, "float32"), axis=axis, keepdims=True), x.dtype)
        return powers / total
    if ours == "hardmax":
        first = ops.argmax(x, axis=axis, keepdims=True)
        numbers = np.arange(x.shape[axis]).reshape(line_shape(axis, x.ndim))
        return as_type(ops.equal(first, constant(numbers)), x.dtype)
    return ops.softmax(x, axis=axis) if ours == "softmax" else ops.log_softmax(x, axis=axis)


for _name, _ours in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax"), ("Hardmax", "hardmax")):
    converts(_name)(_over_rest(_ours))
    converts(_name, since=13)(_over_one(_ours))
