"""Elementwise operators: an output element from the input elements in its place, with NumPy's broadcasting.

    relu[i…] = max(x[i…], 0)          add[i…] = a[i…] + b[i…]

Functions without attributes are rows of the tables UNARY and BINARY; functions with attributes follow.
Mathematical functions of integers give float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.base.functions import FUNCTIONS, erf, power, sigmoid
from autotensor.ir.expr import Expr
from autotensor.ir.semantics import converted
from autotensor.operators.operator import Case, Kind, operator
from autotensor.operators.operator_helpers import axis_of, broadcast, float_type, require, stage
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]


def samples(low: float = -4.0, high: float = 4.0, *more: Case, **attrs: Any) -> tuple[Case, ...]:
    """Cases of a unary operator: a scalar and sizes that vectors do not divide."""
    shapes: tuple[tuple[int, ...], ...] = ((), (1,), (7, 17), (2, 3, 33))
    return (*(Case((s,), attrs, low=low, high=high) for s in shapes), *more)


def of_floats(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference of a function of floats; it first converts integers."""
    return lambda x, **attrs: reference(x.astype(np.float32) if x.dtype.kind in "iub" else x, **attrs)


# -- unary ---------------------------------------------------------------------------------------------------


def _softplus(v: Expr) -> Expr:
    return te.maximum(v, 0) + te.log1p(te.exp(-te.abs(v)))  # this never overflows


INTEGER = Case(((7, 3),), dtypes=("int32",), low=-9, high=9)

# name, value of an element, reference, cases
UNARY: tuple[tuple[str, Callable[[Expr], Any], Callable[[Array], Any], tuple[Case, ...]], ...] = (
    ("identity", lambda v: v, np.copy, samples(-4, 4, INTEGER)),
    ("relu", lambda v: te.maximum(v, 0), lambda x: np.maximum(x, 0), samples(-4, 4, INTEGER)),
    ("relu6", lambda v: te.minimum(te.maximum(v, 0), 6), lambda x: np.clip(x, 0, 6), samples(-9, 9)),
    ("silu", lambda v: v * te.sigmoid(v), of_floats(lambda x: x * sigmoid(x)), samples(-9, 9)),
    (
        "hardswish",
        lambda v: v * te.minimum(te.maximum(v + 3, 0), 6) / 6,
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        samples(),
    ),
    ("softplus", _softplus, lambda x: np.logaddexp(x, np.zeros_like(x)), samples(-90, 90)),
    ("neg", lambda v: -v, np.negative, samples(-4, 4, INTEGER)),
)


def unary(
    name: str, value: Callable[[Expr], Any], reference: Callable[..., Any], cases: tuple[Case, ...]
) -> None:
    @operator(name, kind=Kind.ELEMENTWISE, reference=reference, cases=cases)
    def compute(x: Tensor) -> Tensor:
        return stage(x.shape, lambda *i: value(x[i]), name)


for _row in UNARY:
    unary(*_row)


# -- functions of floats -------------------------------------------------------------------------------------

WHOLE = ("floor", "ceil", "round", "trunc")  # these do not change integers
DOMAINS: dict[str, tuple[Any, ...]] = {"sigmoid": (-9, 9), "log1p": (-0.5, 4)}
DOMAINS |= dict.fromkeys(("tan", "asin", "acos"), (-1, 1))
DOMAINS |= dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt"), (0.1, 4))
DOMAINS |= {"acosh": (1, 4), "atanh": (-0.9, 0.9), "abs": (-4, 4, INTEGER)}


def _function(name: str) -> Callable[[Expr], Any]:
    return lambda v: v if name in WHOLE and v.dtype.is_int else te.call(name, v)


for _name, _f in FUNCTIONS.items():
    if _f.arity == 1 and _name not in ("isinf", "rounded"):
        _reference = _f.numpy if _name in (*WHOLE, "abs") else of_floats(_f.numpy)
        unary(_name, _function(_name), _reference, samples(*DOMAINS.get(_name, ())))


# -- others --------------------------------------------------------------------------------------------------


@operator(
    "logical_not",
    kind=Kind.ELEMENTWISE,
    reference=np.logical_not,
    cases=(Case(((7, 17),), dtypes=("bool",)), Case(((1,),), dtypes=("bool",))),
)
def logical_not(x: Tensor) -> Tensor:
    require(x.dtype.is_bool, f"logical_not: x is {x.dtype}, expected bool.", "Compare it with 0 first.")
    return stage(x.shape, lambda *i: ~x[i], "logical_not")


@operator(
    "leaky_relu",
    kind=Kind.ELEMENTWISE,
    reference=of_floats(lambda x, alpha=0.01: np.where(x > 0, x, x * x.dtype.type(alpha))),
    cases=samples(alpha=0.2) + samples()[:1],
)
def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    return stage(x.shape, lambda *i: te.select(x[i] > 0, x[i], x[i] * alpha), "leaky_relu")


def _elu_reference(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, 0)))


@operator(
    "elu",
    kind=Kind.ELEMENTWISE,
    reference=of_floats(_elu_reference),
    cases=samples(alpha=0.7) + samples()[:1],
)
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return stage(x.shape, lambda *i: te.select(x[i] > 0, x[i], te.expm1(x[i]) * alpha), "elu")


def _hardsigmoid_reference(x: Array, alpha: float = 1 / 6, beta: float = 0.5) -> Array:
    y: Array = np.clip(x * x.dtype.type(alpha) + x.dtype.type(beta), 0, 1)
    return y


@operator(
    "hardsigmoid",
    kind=Kind.ELEMENTWISE,
    reference=of_floats(_hardsigmoid_reference),
    cases=samples() + samples(alpha=0.2, beta=0.5)[2:],
)
def hardsigmoid(x: Tensor, alpha: float = 1 / 6, beta: float = 0.5) -> Tensor:
    """min(max(alpha*x + beta, 0), 1). The defaults are torch's; ONNX's are 0.2 and 0.5."""
    return stage(x.shape, lambda *i: te.minimum(te.maximum(x[i] * alpha + beta, 0), 1), "hardsigmoid")


def _gelu_reference(x: Array, approximate: str = "none") -> Array:
    wide = x.astype(np.float64)
    if approximate == "none":
        exact: Array = 0.5 * wide * (1 + erf(wide / math.sqrt(2)))
        return exact.astype(x.dtype)
    y: Array = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    return y.astype(x.dtype)


@operator(
    "gelu",
    kind=Kind.ELEMENTWISE,
    reference=of_floats(_gelu_reference),
    cases=samples() + samples(approximate="tanh"),
)
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Φ(x), computed with erf or with the tanh approximation."""
    require(
        approximate in ("none", "tanh"),
        f"gelu: approximate={approximate!r} is unknown.",
        "Known: 'none', 'tanh'.",
    )

    def value(v: Expr) -> Expr:
        if approximate == "none":
            return v * 0.5 * (te.erf(v * math.sqrt(0.5)) + 1.0)
        return v * 0.5 * (te.tanh((v + v * v * v * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)

    return stage(x.shape, lambda *i: value(x[i]), "gelu")


def _clip_reference(x: Array, min: float | None = None, max: float | None = None) -> Array:
    y = x if min is None else np.maximum(x, x.dtype.type(min))
    return y if max is None else np.minimum(y, x.dtype.type(max))


@operator(
    "clip",
    kind=Kind.ELEMENTWISE,
    reference=_clip_reference,
    cases=(
        *samples(min=-1.0, max=2.5),
        *samples(min=0.5)[2:3],
        *samples(max=0.5)[2:3],
        Case(((7,),), {"min": -2, "max": 3}, dtypes=("int32",), low=-9, high=9),
    ),
)
def clip(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """min(max(x, min), max), in the type of x; None leaves that side open."""
    require(min is None or max is None or min <= max, f"clip: min={min} is greater than max={max}.")

    def value(v: Expr) -> Expr:
        low = v if min is None else te.maximum(v, te.const(min, x.dtype))
        return low if max is None else te.minimum(low, te.const(max, x.dtype))

    return stage(x.shape, lambda *i: value(x[i]), "clip")


@operator(
    "cast",
    kind=Kind.ELEMENTWISE,
    reference=lambda x, dtype, as_read=False: converted(x, dtype_of(dtype)),
    cases=(
        *samples(-90, 90, dtype="int32"),
        *samples(dtype="float64")[2:3],
        *samples(dtype="bool")[2:3],
        Case(((7, 17),), {"dtype": "float32"}, dtypes=("int8",), low=-90, high=90),
        Case(((33,),), {"dtype": "int64"}, dtypes=("bool",)),
        Case(((5, 17),), {"dtype": "float32", "as_read": True}, dtypes=("bfloat16",)),
    ),
)
def cast(x: Tensor, dtype: str, as_read: bool = False) -> Tensor:
    """x as another type. From float to int, the fraction is dropped; to bool means `!= 0`.

    as_read: in a graph, every kernel that reads the result converts the elements of x that it loads.
    """
    target = dtype_of(dtype)
    return stage(x.shape, lambda *i: te.cast(target, x[i]), "cast")


# -- binary --------------------------------------------------------------------------------------------------


def pairs(low: float = -4.0, dtype: str = "float32") -> tuple[Case, ...]:
    """Cases of a binary operator: equal shapes, and broadcasting of either operand."""
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((7, 17), (7, 17)),
        ((2, 1, 33), (3, 1)),
        ((1, 17), (7, 1)),
        ((5,), ()),
    )
    return tuple(Case(s, dtypes=(dtype, dtype), low=low, high=4.0) for s in shapes)


INTEGERS = pairs(dtype="int32")[1:2]


def _divide(a: Array, b: Array) -> Array:
    y = np.true_divide(a, b)
    return y if np.result_type(a, b).kind == "f" else y.astype(np.float32)


# name, value from two elements, reference, cases
BINARY: tuple[tuple[str, Callable[[Any, Any], Any], Callable[..., Any], tuple[Case, ...]], ...] = (
    ("add", lambda a, b: a + b, np.add, pairs() + INTEGERS),
    ("subtract", lambda a, b: a - b, np.subtract, pairs() + INTEGERS),
    ("multiply", lambda a, b: a * b, np.multiply, pairs() + INTEGERS),
    ("divide", lambda a, b: a / b, _divide, pairs(0.5) + pairs(1, "int32")[1:2]),
    ("maximum", te.maximum, np.maximum, pairs() + INTEGERS),
    ("minimum", te.minimum, np.minimum, pairs() + INTEGERS),
    ("power", te.pow, power, pairs(0.5) + pairs(0, "int32")[1:2]),
    ("equal", lambda a, b: a.equal(b), np.equal, pairs(dtype="int32") + pairs()[1:2]),
    ("not_equal", lambda a, b: ~a.equal(b), np.not_equal, pairs(dtype="int32") + pairs()[1:2]),
    ("less", lambda a, b: a < b, np.less, pairs() + INTEGERS),
    ("less_equal", lambda a, b: a <= b, np.less_equal, pairs() + INTEGERS),
    ("greater", lambda a, b: a > b, np.greater, pairs() + INTEGERS),
    ("greater_equal", lambda a, b: a >= b, np.greater_equal, pairs() + INTEGERS),
)


# for floats, the result is a float of the same type
ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def binary(
    name: str, value: Callable[[Any, Any], Any], reference: Callable[..., Any], cases: tuple[Case, ...]
) -> None:
    infer = partial(float_type, name) if name in ARITHMETIC else None

    @operator(name, kind=Kind.ELEMENTWISE, reference=reference, cases=cases, infer=infer)
    def compute(a: Tensor, b: Tensor) -> Tensor:
        return broadcast(name, value, a, b)


for _row2 in BINARY:
    binary(*_row2)


def _logical(name: str, value: Callable[[Expr, Expr], Expr], reference: Callable[..., Any]) -> None:
    @operator(name, kind=Kind.ELEMENTWISE, reference=reference, cases=pairs(dtype="bool"))
    def compute(a: Tensor, b: Tensor) -> Tensor:
        both = a.dtype.is_bool and b.dtype.is_bool
        require(both, f"{name}: inputs are {a.dtype} and {b.dtype}, expected bool.", "Compare them first.")
        return broadcast(name, value, a, b)


_logical("logical_and", lambda a, b: a & b, np.logical_and)
_logical("logical_or", lambda a, b: a | b, np.logical_or)
_logical("logical_xor", lambda a, b: a ^ b, np.logical_xor)


# -- others ------------------------------------------------------------------------------------------------


@operator(
    "where",
    kind=Kind.ELEMENTWISE,
    reference=np.where,
    cases=(
        Case(((7, 17), (7, 17), (7, 17)), dtypes=("bool", "float32", "float32")),
        Case(((3, 1), (2, 1, 33), ()), dtypes=("bool", "float32", "float32")),
        Case(((1, 1, 7, 7), (2, 3, 7, 7), (1,)), dtypes=("int32", "float32", "float32"), low=0, high=2),
    ),
)
def where(cond: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a if cond holds (is not 0), else b; only the side taken is read."""
    return broadcast("where", te.select, cond, a, b)


def _bias_reference(x: Array, b: Array, axis: int = -1) -> Array:
    return np.moveaxis(np.moveaxis(x, axis, -1) + b, -1, axis)


@operator(
    "bias_add",
    kind=Kind.ELEMENTWISE,
    reference=_bias_reference,
    constants=(1,),
    cases=(
        Case(((7, 17), (17,))),
        Case(((1, 5, 3, 3), (5,)), {"axis": 1}),
        Case(((33,), (33,)), {"axis": 0}),
    ),
)
def bias_add(x: Tensor, b: Tensor, axis: int = -1) -> Tensor:
    """x + b along one axis."""
    at = axis_of("bias_add", axis, x.ndim)
    require(
        b.shape == (x.shape[at],),
        f"bias_add: b has shape {b.shape}, expected ({x.shape[at]},) for axis {axis} of x {x.shape}.",
    )
    return stage(x.shape, lambda *i: x[i] + b[i[at]], "bias_add")
