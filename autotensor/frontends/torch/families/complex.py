"""Complex numbers inside a graph, as two tensors: real parts and imaginary parts.

    y = torch.fft.rfft(x); z = (y * filter).abs()      x and z are real, the values between are Complex

Inputs and results of a model are real (`torch.view_as_real` makes them so); constants may be complex.
An operator that only moves elements or adds them is applied to each part. Arithmetic is in
`complex_arithmetic.py`, Fourier transforms are in `fourier.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from autotensor.frontends.torch.element_types import alike
from autotensor.frontends.torch.families.elementwise import atan2, floats
from autotensor.frontends.torch.families.shape import select, stack
from autotensor.frontends.torch.registry import CONVERTERS, converts
from autotensor.frontends.values import as_type
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode
from autotensor.operators.operator_helpers import broadcast_shape

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex tensor, as its real and its imaginary part."""

    re: GraphNode
    im: GraphNode


# type of a complex tensor → type of its parts
REAL_TYPE = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
ON_COMPLEX: dict[str, Callable[..., Any]] = {}  # converters of operators that read complex tensors
# operators on real tensors with complex results
MAKE_COMPLEX = frozenset(f"aten.{n}.default" for n in ("view_as_complex", "complex", "polar", "_fft_r2c"))


def on_complex(*targets: str) -> Callable[[F], F]:
    """Registers a converter for operators (`aten.name.overload`) that have a complex argument."""

    def file(function: F) -> F:
        ON_COMPLEX.update(dict.fromkeys(targets, function))
        return function

    return file


def parts(x: Any) -> tuple[Any, Any]:
    """Real and imaginary parts; the imaginary part of a real tensor or number is the number 0."""
    if isinstance(x, Complex):
        return x.re, x.im
    return (x.real, x.imag) if isinstance(x, complex) else (x, 0)


def _of_each_part(name: str, data: tuple[int, ...] = (0,)) -> None:
    """Registers a converter that applies an operator to each part. The operator only moves elements or adds
    them. `data`: the positions of the arguments that hold elements. The other arguments are indices, sizes
    and axes."""

    @on_complex(name)
    def convert(*args: Any, **kwargs: Any) -> Any:
        made = []
        for n in range(2):
            own = [_part(a, n) if at in data else a for at, a in enumerate(args)]
            named = {k: REAL_TYPE.get(str(v), v) if k == "dtype" else _part(v, n) for k, v in kwargs.items()}
            made.append(CONVERTERS[name](*own, **named))
        if isinstance(made[0], tuple):
            return tuple(Complex(re, im) for re, im in zip(*made, strict=True))
        return Complex(*made)


def _part(x: Any, n: int) -> Any:
    """The real part (n = 0) or the imaginary part (n = 1) of x. The imaginary part of a real value is
    zero."""
    if isinstance(x, list):
        return [_part(v, n) for v in x]
    if isinstance(x, GraphNode) and n:
        return zeros_as(x)
    return parts(x)[n] if isinstance(x, (Complex, complex, int, float)) else x


def zeros_as(x: GraphNode) -> GraphNode:
    """A tensor of zeros with the type and shape of x."""
    zero = as_type(0, x.dtype)
    return ops.broadcast_to(zero, shape=x.shape) if x.shape else zero


for _name in (
    *("view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default"),
    *("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "permute.default"),
    *("transpose.int", "t.default", "expand.default", "repeat.default", "slice.Tensor", "select.int"),
    *("unbind.int", "split_with_sizes.default", "split.Tensor", "flip.default", "roll.default"),
    *("clone.default", "alias.default", "detach.default", "contiguous.default", "cat.default"),
    *("stack.default", "index_select.default", "view_copy.default"),
    *("sum.dim_IntList", "sum.default", "mean.dim", "mean.default", "neg.default", "diagonal.default"),
    *("gather.default", "index.Tensor", "_unsafe_index.Tensor", "cumsum.default", "tril.default"),
    "triu.default",
):
    _of_each_part(f"aten.{_name}")
for _name in ("slice_scatter.default", "select_scatter.default"):
    _of_each_part(f"aten.{_name}", (0, 1))
for _name in ("constant_pad_nd.default", "index_put.default", "_unsafe_index_put.default"):
    _of_each_part(f"aten.{_name}", (0, 2))
for _name in ("index_copy.default", "index_add.default", "scatter.src", "scatter_add.default"):
    _of_each_part(f"aten.{_name}", (0, 3))
_of_each_part("aten.where.self", (1, 2))


# -- in and out --------------------------------------------------------------------------------------------


@converts("aten.view_as_complex.default")
def view_as_complex(x: GraphNode) -> Any:
    return Complex(select(x, -1, 0), select(x, -1, 1))


@converts("aten.complex.default")
def from_parts(re: GraphNode, im: GraphNode) -> Any:
    x, y = alike(re, im)
    shape = broadcast_shape("complex", x.shape, y.shape)
    return Complex(spread(x, shape), spread(y, shape))


@converts("aten.polar.default")
def polar(size: GraphNode, angle: GraphNode) -> Any:
    return Complex(size * ops.cos(angle), size * ops.sin(angle))


def spread(x: GraphNode, shape: tuple[int, ...]) -> GraphNode:
    """x, broadcast to the shape."""
    return x if x.shape == shape else ops.broadcast_to(x, shape=shape)


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
    """A cast. A cast to a real type keeps the real part. The importer sets the types of the parts."""
    named = dtype or next((a for a in args if isinstance(a, str)), "complex64")
    re, im = parts(x)
    if not named.startswith("complex"):
        return re
    re = floats(re)
    return Complex(re, im if isinstance(im, GraphNode) else zeros_as(re))


@on_complex("aten.copy.default")
def copy(x: Any, source: Any, *_: Any) -> Any:
    """The source in the type and shape of x."""
    into = CONVERTERS["aten.copy.default"]
    if not isinstance(x, Complex):
        return into(x, source.re)
    return Complex(into(x.re, _part(source, 0)), into(x.im, _part(source, 1)))


@on_complex("aten.abs.default")
def absolute(x: Complex) -> Any:
    """Divides by the larger part first, because its square might overflow."""
    a, b = ops.abs(x.re), ops.abs(x.im)
    large, small = ops.maximum(a, b), ops.minimum(a, b)
    share = ops.where(ops.greater(large, 0.0), ops.divide(small, large), small)
    return ops.multiply(large, ops.sqrt(ops.multiply(share, share) + 1.0))


@on_complex("aten.angle.default")
def angle(x: Complex) -> Any:
    return atan2(x.im, x.re)
