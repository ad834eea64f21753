"""Complex numbers inside a graph, as two tensors: real parts and imaginary parts.

    y = torch.fft.rfft(x); z = (y * filter).abs()      Complex(re, im) between, real tensors at the ends

Inputs and results of a model are real (`torch.view_as_real` makes them so); constants may be complex.
Operators that only move or add elements are done to both parts; arithmetic follows here, Fourier transforms
in `fourier.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from autotensor.frontends.torch.elementwise import atan2, floats
from autotensor.frontends.torch.registry import CONVERTERS, Unsupported, converts
from autotensor.frontends.torch.shape import select, stack
from autotensor.frontends.torch.types import alike, as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode
from autotensor.operators.common import broadcast_shape

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex tensor."""

    re: GraphNode
    im: GraphNode


ON_COMPLEX: dict[str, Callable[..., Any]] = {}  # converters of operators that read complex tensors
# operators on real tensors with complex results
MAKE_COMPLEX = frozenset(f"aten.{n}.default" for n in ("view_as_complex", "complex", "polar", "_fft_r2c"))


def on_complex(*targets: str) -> Callable[[F], F]:
    """Files a converter for operators (`aten.name.overload`) of which an argument is complex."""

    def file(function: F) -> F:
        ON_COMPLEX.update(dict.fromkeys(targets, function))
        return function

    return file


def _parts(x: Any) -> tuple[Any, Any]:
    if isinstance(x, Complex):
        return x.re, x.im
    return (x.real, x.imag) if isinstance(x, complex) else (x, 0)


def _of_each_part(name: str) -> None:
    """An operator that only moves elements, done to both parts."""

    @on_complex(name)
    def convert(*args: Any, **kwargs: Any) -> Any:
        made = []
        for n in range(2):
            own = [_part(a, n) for a in args]
            made.append(CONVERTERS[name](*own, **kwargs))
        if isinstance(made[0], tuple):
            return tuple(Complex(re, im) for re, im in zip(*made, strict=True))
        return Complex(*made)


def _part(x: Any, n: int) -> Any:
    if isinstance(x, list):
        return [_part(v, n) for v in x]
    return (x.re, x.im)[n] if isinstance(x, Complex) else x


for _name in (
    *("view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default"),
    *("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "permute.default"),
    *("transpose.int", "t.default", "expand.default", "repeat.default", "slice.Tensor", "select.int"),
    *("unbind.int", "split_with_sizes.default", "split.Tensor", "flip.default", "roll.default"),
    *("clone.default", "alias.default", "detach.default", "contiguous.default", "cat.default"),
    *("stack.default", "index_select.default", "constant_pad_nd.default", "view_copy.default"),
    *("sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "neg.default", "diagonal.default"),
):
    _of_each_part(f"aten.{_name}")


# -- in and out --------------------------------------------------------------------------------------------


@converts("aten.view_as_complex.default")
def view_as_complex(x: GraphNode) -> Any:
    return Complex(select(x, -1, 0), select(x, -1, 1))


@converts("aten.complex.default")
def from_parts(re: GraphNode, im: GraphNode) -> Any:
    x, y = alike(re, im)
    shape = broadcast_shape("complex", x.shape, y.shape)
    return Complex(_spread(x, shape), _spread(y, shape))


@converts("aten.polar.default")
def polar(size: GraphNode, angle: GraphNode) -> Any:
    return Complex(size * ops.cos(angle), size * ops.sin(angle))


def _spread(x: GraphNode, shape: tuple[int, ...]) -> GraphNode:
    found: GraphNode = x if x.shape == shape else ops.broadcast_to(x, shape=shape)
    return found


@on_complex("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(x: Complex) -> Any:
    return stack([x.re, x.im], -1)


@on_complex("aten.real.default")
def real(x: Complex) -> Any:
    return x.re


@on_complex("aten.imag.default")
def imag(x: Complex) -> Any:
    return x.im


@on_complex("aten._to_copy.default", "aten.to.dtype")
def to(x: Any, *args: Any, dtype: str | None = None, **_: Any) -> Any:
    """Of a real type: the real part. The importer makes the parts what torch says they are."""
    named = dtype or next((a for a in args if isinstance(a, str)), "complex64")
    re, im = _parts(x)
    if not named.startswith("complex"):
        return re
    re = floats(re)
    return Complex(re, im if isinstance(im, GraphNode) else ops.multiply(re, as_type(0, re.dtype)))


@on_complex("aten.abs.default")
def absolute(x: Complex) -> Any:
    """By the larger part, whose square might overflow."""
    a, b = ops.abs(x.re), ops.abs(x.im)
    large, small = ops.maximum(a, b), ops.minimum(a, b)
    share = ops.where(ops.greater(large, 0.0), ops.divide(small, large), small)
    return ops.multiply(large, ops.sqrt(ops.multiply(share, share) + 1.0))


@on_complex("aten.angle.default")
def angle(x: Complex) -> Any:
    return atan2(x.im, x.re)


# -- arithmetic --------------------------------------------------------------------------------------------


@on_complex(
    "aten._conj.default", "aten.conj.default", "aten.conj_physical.default", "aten._conj_physical.default"
)
def conj(x: Complex) -> Any:
    return Complex(x.re, ops.neg(x.im))


@on_complex("aten.resolve_conj.default", "aten.resolve_neg.default")
def resolved(x: Complex) -> Any:
    return x


@on_complex("aten.add.Tensor", "aten.add.Scalar")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _by_part(CONVERTERS["aten.add.Tensor"], a, b, alpha)


@on_complex("aten.sub.Tensor", "aten.sub.Scalar")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _by_part(CONVERTERS["aten.sub.Tensor"], a, b, alpha)


def _by_part(convert: Callable[..., Any], a: Any, b: Any, alpha: Any) -> Complex:
    """A sum or difference, one of whose sides may be real."""
    if isinstance(alpha, complex):
        raise Unsupported("a complex alpha is not supported.")
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    re = convert(ar, br, alpha)
    im = ai if isinstance(ai, GraphNode) and not isinstance(b, (Complex, complex)) else convert(ai, bi, alpha)
    return Complex(re, _spread(im, re.shape))


@on_complex("aten.mul.Tensor", "aten.mul.Scalar")
def mul(a: Any, b: Any) -> Any:
    times = CONVERTERS["aten.mul.Tensor"]
    (ar, ai), (br, bi) = _parts(a), _parts(b)
    if not isinstance(b, (Complex, complex)):
        return Complex(times(ar, br), times(ai, br))
    if not isinstance(a, (Complex, complex)):  # a is real
        return Complex(times(ar, br), times(ar, bi))
    minus, plus = CONVERTERS["aten.sub.Tensor"], CONVERTERS["aten.add.Tensor"]
    return Complex(minus(times(ar, br), times(ai, bi)), plus(times(ar, bi), times(ai, br)))


@on_complex("aten.div.Tensor", "aten.div.Scalar")
def div(a: Any, b: Any) -> Any:
    over = CONVERTERS["aten.div.Tensor"]
    if isinstance(b, (Complex, complex)):
        raise Unsupported("division by complex numbers is not supported.", fix="Write it with real parts.")
    return Complex(over(a.re, b), over(a.im, b))
