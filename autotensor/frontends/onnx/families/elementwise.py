"""Operators that work element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from autotensor.base.functions import FUNCTIONS
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import constant, ops
from autotensor.graph.ir import GraphNode

# -- one operand -----------------------------------------------------------------------------------------

UNARY = {f.onnx: ours for ours, f in FUNCTIONS.items() if f.onnx} | {
    "BitwiseNot": "bitwise_not", "HardSwish": "hardswish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Sign": "sign", "Softplus": "softplus",
}  # fmt: skip


def _shrink(x: GraphNode, bias: float = 0.0, lambd: float = 0.5) -> GraphNode:
    inner = ops.where(ops.greater(x, lambd), x - bias, _like(0, x))
    return ops.where(ops.less(x, -lambd), x + bias, inner)


# functions of a tensor and of attributes with their defaults; fused and recurrent nodes name these functions,
# too
ACTIVATIONS: dict[str, Callable[..., GraphNode]] = {
    **{name: getattr(ops, ours) for name, ours in UNARY.items()},
    "LeakyRelu": lambda x, alpha=0.01: ops.leaky_relu(x, alpha=alpha),
    "Elu": lambda x, alpha=1.0: ops.elu(x, alpha=alpha),
    "Celu": lambda x, alpha=1.0: ops.maximum(x, 0.0) + ops.minimum(ops.expm1(x / alpha) * alpha, 0.0),
    "Selu": lambda x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: (
        ops.elu(x, alpha=alpha) * gamma
    ),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: ops.hardsigmoid(x, alpha=alpha, beta=beta),
    "Swish": lambda x, alpha=1.0: x * ops.sigmoid(x * alpha),
    "Gelu": lambda x, approximate="none": ops.gelu(x, approximate=approximate),
    "Mish": lambda x: x * ops.tanh(ops.softplus(x)),
    "Softsign": lambda x: x / (ops.abs(x) + 1.0),
    "Shrink": _shrink,
    "ThresholdedRelu": lambda x, alpha=1.0: ops.where(ops.greater(x, alpha), x, _like(0, x)),
}


def _activation(compute: Callable[..., GraphNode]) -> Callable[[Call], Value]:
    return lambda c: compute(c[0], **c.attrs)


for _name, _compute in ACTIVATIONS.items():
    converts(_name)(_activation(_compute))


@converts("Identity")
def identity(c: Call) -> Value:
    return c.value(0)


@converts("IsInf")
def is_inf(c: Call) -> Value:
    return ops.isinf(c[0], positive=c.flag("detect_positive", True), negative=c.flag("detect_negative", True))


def _like(number: float, x: GraphNode) -> GraphNode:
    return constant(number, dtype=x.dtype)


@converts("PRelu")
def prelu_by_channel(c: Call) -> Value:
    """Before opset 7 there is one slope for all channels, or one for each."""
    x, slope = c[0], c[1]
    shape = (-1, *(1,) * (c.rank - 2)) if slope.ndim == 1 and slope.shape != (1,) else slope.shape
    return ops.where(ops.less(x, _like(0, x)), x * ops.reshape(slope, shape=shape), x)


@converts("PRelu", since=7)
def prelu(c: Call) -> Value:
    x, slope = c[0], c[1]
    return ops.where(ops.less(x, _like(0, x)), x * slope, x)


@converts("Dropout")
def dropout(c: Call) -> Value:
    """Nothing is dropped, as always in inference."""
    if c.opset < 7 and not c.attr("is_test", 0):
        raise c.unsupported("is_test is off; models are run, not trained.")
    if c.get(2) is not None and bool(c.scalar(2)) and (c.get(1) is None or c.scalar(1) != 0):
        raise c.unsupported("training_mode is on; models are run, not trained.")
    mask = ops.broadcast_to(constant(True), shape=c[0].shape) if c.wants(1) else None
    return [c[0], mask]


# -- casts -----------------------------------------------------------------------------------------------


@converts("Cast")
def cast(c: Call) -> Value:
    return as_type(c[0], c.dtype_attr("to"))


@converts("CastLike")
def cast_like(c: Call) -> Value:
    return as_type(c[0], c[1].dtype)


@converts("BitCast")
def bit_cast(c: Call) -> Value:
    to = c.dtype_attr("to")
    known = c.known(0)
    if known is not None:
        return constant(known.view(to.numpy))
    if to == c[0].dtype:
        return c[0]
    if to.bytes != c[0].dtype.bytes:
        raise c.unsupported(f"from {c[0].dtype} to {to}, which has another size.")
    return list(c.on_host(lambda x: (np.ascontiguousarray(x).view(to.numpy).reshape(x.shape),), [c[0]]))


# -- two operands ----------------------------------------------------------------------------------------

BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "Equal": "equal",
    "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
}  # fmt: skip


def _binary(ours: str) -> Callable[[Call], Value]:
    def convert(c: Call) -> Value:
        a, b = _same_type(c)
        return getattr(ops, ours)(a, b)

    return convert


def _same_type(c: Call) -> tuple[GraphNode, GraphNode]:
    if c[0].dtype != c[1].dtype:
        raise c.malformed(f"operands are {c[0].dtype} and {c[1].dtype}; they must be of one type.")
    return c[0], _aligned(c) if c.opset < 7 else c[1]


def _aligned(c: Call) -> GraphNode:
    """The second operand, reshaped to broadcast. Before opset 7, with `broadcast`, its axes are those of the
    first operand from `axis` on."""
    a, b = c[0], c[1]
    if not c.attr("broadcast", 0):
        if a.shape != b.shape:
            raise c.malformed(f"operands have shapes {a.shape} and {b.shape}, and broadcast is off.")
        return b
    axis = c.whole("axis", a.ndim - b.ndim)
    axis = axis + a.ndim if axis < 0 else axis
    if axis + b.ndim > a.ndim:
        raise c.malformed(f"{b.shape} does not fit {a.shape} from axis {axis} on.")
    return ops.reshape(b, shape=(*b.shape, *(1,) * (a.ndim - axis - b.ndim)))


for _name, _ours in BINARY.items():
    converts(_name)(_binary(_ours))


@converts("Div")
def div(c: Call) -> Value:
    a, b = _same_type(c)
    return ops.divide_trunc(a, b) if a.dtype.is_int else ops.divide(a, b)


@converts("Mod")
def mod(c: Call) -> Value:
    a, b = _same_type(c)
    if c.attr("fmod", 0):
        return ops.mod_trunc(a, b)
    if a.dtype.is_float and c.opset < 28:  # onnxruntime refuses this, too
        raise c.malformed("a Mod of floats needs fmod=1 before opset 28.")
    return ops.mod_floor(a, b)


@converts("BitShift")
def bit_shift(c: Call) -> Value:
    a, b = _same_type(c)
    direction = c.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise c.malformed(f"direction {direction!r} is neither LEFT nor RIGHT.")
    return ops.shift_left(a, b) if direction == "LEFT" else ops.shift_right(a, b)


@converts("Pow")
def pow_(c: Call) -> Value:
    """The result has the type of the base. The exponent may have any type."""
    base, exponent = c[0], _aligned(c) if c.opset < 7 else c[1]
    value = c.known(1)
    if value is not None and value.size == 1 and base.dtype.is_float:
        e = float(value.reshape(-1)[0])
        if e in (2.0, 0.5) and value.ndim <= base.ndim:
            return base * base if e == 2.0 else ops.sqrt(base)
    wide = "float64" if base.dtype.is_int or base.dtype.bits == 64 else "float32"
    if base.dtype.is_int and exponent.dtype.is_int:
        # computed in the wider type; both types wrap around
        return as_type(ops.power(base, exponent), base.dtype)
    powered = ops.power(as_type(base, wide), as_type(exponent, wide))
    return as_type(powered, base.dtype)


# -- many operands ---------------------------------------------------------------------------------------


def _folded(ours: str) -> Callable[[Call], Value]:
    return lambda c: functools.reduce(getattr(ops, ours), c.tensors)


converts("Sum")(_folded("add"))
converts("Max")(_folded("maximum"))
converts("Min")(_folded("minimum"))


@converts("Mean")
def mean(c: Call) -> Value:
    return _folded("add")(c) / float(len(c.inputs))


@converts("Where")
def where(c: Call) -> Value:
    return ops.where(c[0], c[1], c[2])


@converts("Clip")
def clip_attributes(c: Call) -> Value:
    x, low, high = c[0], c.attr("min", -math.inf), c.attr("max", math.inf)
    y = x if low == -math.inf else ops.maximum(x, _like(low, x))
    return y if high == math.inf else ops.minimum(y, _like(high, x))


@converts("Clip", since=11)
def clip(c: Call) -> Value:
    x = c[0]
    low, high = c.get(1), c.get(2)
    for limit in (low, high):
        if limit is not None and math.prod(limit.shape) != 1:
            raise c.malformed(f"a limit has shape {limit.shape}; it must be one number.")
    y = x if low is None else ops.maximum(x, low)
    y = y if high is None else ops.minimum(y, high)  # if low > high, the upper limit wins
    return ops.identity(y) if y is x else y


@converts("Constant")
def constant_(c: Call) -> Value:
    if len(c.attrs) > 1:
        raise c.malformed(f"a constant given several times, by {', '.join(c.attrs)}.")
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        if name in c.attrs:
            kinds = {"f": np.float32, "i": np.int64}
            v = c.attrs[name]
            return constant(v if name == "value" else np.asarray(v, kinds[name.removeprefix("value_")[0]]))
    raise c.unsupported(f"a constant given by {', '.join(c.attrs) or 'nothing'}.")
