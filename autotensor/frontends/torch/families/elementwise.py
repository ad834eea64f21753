"""Elementwise operators. The converters apply torch's rules for mixed types (`element_types.common`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotensor import te
from autotensor.base.dtype import float32
from autotensor.base.functions import FUNCTIONS
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.element_types import alike, common
from autotensor.frontends.torch.registry import converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import call, ops
from autotensor.graph.ir import GraphNode
from autotensor.operators.operator_helpers import broadcast
from autotensor.te import Tensor


def floats(x: GraphNode) -> GraphNode:
    """x, cast to float32 if it is not of a float type, as torch's mathematical functions do."""
    return x if x.dtype.is_float else as_type(x, float32)


def as_bool(x: GraphNode) -> GraphNode:
    return as_type(x, "bool")


def _same(x: GraphNode) -> GraphNode:
    return x


# operators of one tensor → the cast before autotensor's operator of the same name; exact functions take
# integers, too
UNARY: dict[str, Callable[[GraphNode], GraphNode]] = {
    **{n: floats if f.ulps else _same for n, f in FUNCTIONS.items() if f.arity == 1 and n != "rounded"},
    "reciprocal": floats,
    "logical_not": as_bool,
    **dict.fromkeys(("relu", "neg", "relu6", "silu", "hardswish", "hardsigmoid"), _same),
}


def _unary(aten: str, ours: str, prepare: Callable[[GraphNode], GraphNode]) -> None:
    @converts(f"aten.{aten}.default")
    def convert(x: GraphNode) -> Any:
        return getattr(ops, ours)(prepare(x))


for _name, _prepare in UNARY.items():
    _unary(_name, _name, _prepare)
_unary("_neg_view", "neg", _same)


@converts("aten.bitwise_not.default")
def bitwise_not(x: GraphNode) -> Any:
    return ops.logical_not(x) if x.dtype.is_bool else ops.bitwise_not(x)


@converts("aten.sign.default")
def sign(x: GraphNode) -> Any:
    """The sign; 0 for not-a-number, as in torch. NumPy's and autotensor's `sign` keep not-a-number."""
    return ops.where(ops.isnan(x), as_type(0, x.dtype), ops.sign(x)) if x.dtype.is_float else ops.sign(x)


@converts("aten.gelu.default")
def gelu(x: GraphNode, approximate: str = "none") -> Any:
    return ops.gelu(x, approximate=approximate)


@converts("aten.leaky_relu.default")
def leaky_relu(x: GraphNode, negative_slope: float = 0.01) -> Any:
    return ops.leaky_relu(x, alpha=negative_slope)


@converts("aten.elu.default")
def elu(x: GraphNode, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    y = ops.elu(x if input_scale == 1 else x * float(input_scale), alpha=float(alpha))
    return y if scale == 1 else y * float(scale)


@converts("aten.softplus.default")
def softplus(x: GraphNode, beta: float = 1.0, threshold: float = 20.0) -> Any:
    if beta == 1:
        return ops.where(ops.greater(x, float(threshold)), x, ops.softplus(x))
    steep = x * float(beta)
    return ops.where(ops.greater(steep, float(threshold)), x, ops.softplus(steep) * (1 / beta))


@converts("aten.clamp.default")
def clamp(x: GraphNode, min: Any = None, max: Any = None) -> Any:
    t = common(*(v for v in (x, min, max) if v is not None))
    # a limit is NaN, or min > max; then max wins
    if min is not None and max is not None and not min <= max:
        return ops.minimum(ops.maximum(as_type(x, t), as_type(min, t)), as_type(max, t))
    return ops.clip(as_type(x, t), min=min, max=max)


converts("aten.clamp_min.default")(clamp)
converts("aten.hardtanh.default")(lambda x, min_val=-1, max_val=1: clamp(x, min_val, max_val))
converts("aten.clamp_max.default")(lambda x, max: clamp(x, None, max))


@converts("aten.clamp.Tensor")
def clamp_tensor(x: GraphNode, min: GraphNode | None = None, max: GraphNode | None = None) -> Any:
    low = x if min is None else ops.maximum(*alike(x, min))
    return low if max is None else ops.minimum(*alike(low, max))


# -- two operands ----------------------------------------------------------------------------------------


@converts("aten.add.Tensor", "aten.add.Scalar")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    x, y = alike(a, _scaled(b, alpha))
    return ops.logical_or(x, y) if x.dtype.is_bool else ops.add(x, y)


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return ops.subtract(*alike(a, _scaled(b, alpha)))


@converts("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return sub(b, a, alpha)


def _scaled(x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else mul(x, alpha) if isinstance(x, GraphNode) else x * alpha


@converts("aten.mul.Tensor", "aten.mul.Scalar")
def mul(a: Any, b: Any) -> Any:
    x, y = alike(a, b)
    return ops.logical_and(x, y) if x.dtype.is_bool else ops.multiply(x, y)


# torch writes true_divide and square itself, for numbers among a compiled function's arguments
@converts("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(a: Any, b: Any) -> Any:
    t = common(a, b)
    t = t if t.is_float else float32
    return ops.divide(as_type(a, t), as_type(b, t))


@converts("aten.square.default")
def square(a: Any) -> Any:
    return mul(a, a)


@converts("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    x, y = alike(a, b)
    if rounding_mode is None:
        return div(a, b)
    if rounding_mode == "floor":
        return ops.floor_divide(x, y)
    return ops.trunc(ops.divide(x, y)) if x.dtype.is_float else ops.divide_trunc(x, y)


@converts("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)) and isinstance(a, GraphNode) and common(a, b).is_float:
        x = as_type(a, common(a, b))
        match float(b):
            case 1.0:
                return x
            case 2.0:
                return ops.multiply(x, x)
            case 3.0:
                return ops.multiply(ops.multiply(x, x), x)
            case 0.5:
                return ops.sqrt(x)
            case -0.5:
                return ops.rsqrt(x)
            case -1.0:
                return ops.reciprocal(x)
    return ops.power(*alike(a, b))


@converts("aten.atan2.default")
def atan2(y: GraphNode, x: GraphNode) -> Any:
    return call(_angles, *(floats(v) for v in alike(y, x)), name="atan2")


def _angles(y: Tensor, x: Tensor) -> Tensor:
    return broadcast("atan2", te.atan2, y, x)


# operators of two operands in their common type: ATen's name, its overloads, autotensor's name
_EACH = ("Tensor", "Scalar")
_SIDES = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
BINARY: tuple[tuple[str, Sequence[str], str], ...] = (
    ("maximum", ("default",), "maximum"),
    ("minimum", ("default",), "minimum"),
    ("eq", _EACH, "equal"),
    ("ne", _EACH, "not_equal"),
    ("lt", _EACH, "less"),
    ("le", _EACH, "less_equal"),
    ("gt", _EACH, "greater"),
    ("ge", _EACH, "greater_equal"),
    ("floor_divide", ("default",), "floor_divide"),
    ("remainder", _EACH, "mod_floor"),
    ("fmod", _EACH, "mod_trunc"),
    ("bitwise_left_shift", _SIDES, "shift_left"),
    ("bitwise_right_shift", _SIDES, "shift_right"),
    ("__lshift__", _EACH, "shift_left"),  # a << b
    ("__rshift__", _EACH, "shift_right"),
)


def _binary(aten: str, overloads: Sequence[str], ours: str) -> None:
    @converts(*(f"aten.{aten}.{o}" for o in overloads))
    def convert(a: Any, b: Any) -> Any:
        return getattr(ops, ours)(*alike(a, b))


for _row in BINARY:
    _binary(*_row)


def _logical(name: str) -> None:
    @converts(f"aten.logical_{name}.default")
    def logical(a: GraphNode, b: GraphNode) -> Any:
        return getattr(ops, f"logical_{name}")(as_bool(a), as_bool(b))

    @converts(*(f"aten.bitwise_{name}.{kind}" for kind in _EACH))
    def bitwise(a: Any, b: Any) -> Any:
        x, y = alike(a, b)
        return getattr(ops, f"logical_{name}" if x.dtype.is_bool else f"bitwise_{name}")(x, y)


for _name in ("and", "or", "xor"):
    _logical(_name)


@converts("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(condition: GraphNode, a: Any, b: Any) -> Any:
    return ops.where(condition, *alike(a, b))


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(x: GraphNode, mask: GraphNode, value: Any) -> Any:
    return ops.where(mask, as_type(value, x.dtype), x)


# -- the same values -------------------------------------------------------------------------------------


@converts(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
)
def same(x: GraphNode, **_: Any) -> Any:
    return x


@converts("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten._to_copy")
@converts("prims.convert_element_type.default")
def to(x: GraphNode, *args: Any, dtype: str | None = None, **_: Any) -> Any:
    named = dtype or next((a for a in args if isinstance(a, str)), None)
    return x if named is None else as_type(x, named)


@converts("aten.type_as.default")
def type_as(x: GraphNode, other: GraphNode) -> Any:
    return as_type(x, other.dtype)


@converts("aten.copy.default")
def copy(x: GraphNode, source: GraphNode, non_blocking: bool = False) -> Any:
    y = as_type(source, x.dtype)
    return y if y.shape == x.shape else ops.broadcast_to(y, shape=x.shape)


@converts("aten.dropout.default", "aten.native_dropout.default")
def dropout(x: GraphNode, p: float, train: bool | None) -> Any:
    if train and p > 0:
        raise Unsupported("dropout is random in training mode.", fix="Call .eval() on the module.")
    return x
