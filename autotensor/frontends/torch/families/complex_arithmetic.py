"""Arithmetic of complex numbers by their parts: sums, quotients, matrix products, functions, constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotensor.frontends.errors import Unsupported
from autotensor.frontends.torch.families.complex import (
    REAL_TYPE,
    Complex,
    absolute,
    angle,
    on_complex,
    parts,
    spread,
    zeros_as,
)
from autotensor.frontends.torch.registry import CONVERTERS
from autotensor.graph.build import ops
from autotensor.graph.ir import GraphNode


@on_complex(
    "aten._conj.default", "aten.conj.default", "aten.conj_physical.default", "aten._conj_physical.default"
)
def conj(x: Complex) -> Any:
    return Complex(x.re, ops.neg(x.im))


@on_complex("aten.resolve_conj.default", "aten.resolve_neg.default")
def resolved(x: Complex) -> Any:
    return x


def _by_part(name: str) -> Callable[..., Complex]:
    """A sum or difference; one side may be real."""

    @on_complex(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def of_parts(a: Any, b: Any, alpha: Any = 1) -> Complex:
        if isinstance(alpha, complex):
            raise Unsupported("a complex alpha is not supported.")
        convert = CONVERTERS[f"aten.{name}.Tensor"]
        (ar, ai), (br, bi) = parts(a), parts(b)
        re = convert(ar, br, alpha)
        alone = isinstance(ai, GraphNode) and not isinstance(b, (Complex, complex))
        return Complex(re, spread(ai if alone else convert(ai, bi, alpha), re.shape))

    return of_parts


add, _ = _by_part("add"), _by_part("sub")


@on_complex("aten.mul.Tensor", "aten.mul.Scalar")
def mul(a: Any, b: Any) -> Any:
    times = CONVERTERS["aten.mul.Tensor"]
    (ar, ai), (br, bi) = parts(a), parts(b)
    if not isinstance(b, (Complex, complex)):
        return Complex(times(ar, br), times(ai, br))
    if not isinstance(a, (Complex, complex)):  # a is real
        return Complex(times(ar, br), times(ar, bi))
    minus, plus = CONVERTERS["aten.sub.Tensor"], CONVERTERS["aten.add.Tensor"]
    return Complex(minus(times(ar, br), times(ai, bi)), plus(times(ar, bi), times(ai, br)))


@on_complex("aten.div.Tensor", "aten.div.Scalar")
def div(a: Any, b: Any) -> Any:
    over, times = CONVERTERS["aten.div.Tensor"], CONVERTERS["aten.mul.Tensor"]
    if not isinstance(b, (Complex, complex)):
        return Complex(over(a.re, b), over(a.im, b))
    if isinstance(b, complex):
        return mul(a, 1 / b) if b else Complex(over(a.re, 0.0), over(a.im, 0.0))
    # both sides are divided by the larger part of b first, because its square might overflow
    large = ops.maximum(ops.abs(b.re), ops.abs(b.im))
    nothing = ops.equal(large, 0.0)
    scaled = Complex(ops.divide(b.re, large), ops.neg(ops.divide(b.im, large)))
    size = times(large, times(scaled.re, scaled.re) + times(scaled.im, scaled.im))
    top = mul(a, scaled)
    ar, ai = _both(a)
    return Complex(
        ops.where(nothing, over(ar, large), over(top.re, size)),
        ops.where(nothing, over(ai, large), over(top.im, size)),
    )


def _both(x: Any) -> tuple[GraphNode, GraphNode]:
    return (x.re, x.im) if isinstance(x, Complex) else (x, zeros_as(x))


@on_complex("aten.reciprocal.default")
def reciprocal(x: Complex) -> Any:
    return div(ops.add(zeros_as(x.re), 1.0), x)


@on_complex("aten.exp.default")
def exp(x: Complex) -> Any:
    size = ops.exp(x.re)
    return Complex(ops.multiply(size, ops.cos(x.im)), ops.multiply(size, ops.sin(x.im)))


@on_complex("aten.log.default")
def log(x: Complex) -> Any:
    return Complex(ops.log(absolute(x)), angle(x))


@on_complex("aten.pow.Tensor_Scalar")
def power(x: Complex, exponent: Any) -> Any:
    if exponent not in (1, 2, 3):
        raise Unsupported("powers of complex numbers other than 2 and 3 are not supported.", fix=_POLAR)
    y = x
    for _ in range(int(exponent) - 1):
        y = mul(y, x)
    return y


_POLAR = "Write them by torch.exp and torch.log."


# -- products of matrices ----------------------------------------------------------------------------------


def _product(name: str) -> Callable[..., Any]:
    """A product as four products of parts; two if one side is real."""

    @on_complex(name)
    def convert(a: Any, b: Any) -> Any:
        by = CONVERTERS[name]
        if not isinstance(b, Complex):
            return Complex(by(a.re, b), by(a.im, b))
        if not isinstance(a, Complex):
            return Complex(by(a, b.re), by(a, b.im))
        return Complex(ops.subtract(by(a.re, b.re), by(a.im, b.im)), ops.add(by(a.re, b.im), by(a.im, b.re)))

    return convert


_MATMUL = [_product(f"aten.{n}.default") for n in ("mm", "bmm", "mv", "dot", "matmul")][-1]


@on_complex("aten.addmm.default", "aten.baddbmm.default")
def addmm(c: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * c + alpha * (a @ b)."""
    y = _MATMUL(a, b)
    y = y if alpha == 1 else mul(y, alpha)
    return y if beta == 0 else add(y, c if beta == 1 else mul(c, beta))


# -- constants ---------------------------------------------------------------------------------------------


def _filled(name: str, at: int | None = None) -> None:
    """Registers a converter for tensors filled with one number. `at` is the index of the argument with this
    number, if there is one."""

    @on_complex(name)
    def convert(*args: Any, dtype: str | None = None, **kwargs: Any) -> Any:
        value = args[at] if at is not None else 0
        own = [parts(a)[0] if isinstance(a, (Complex, complex)) else a for a in args]
        re = CONVERTERS[name](*own, dtype=REAL_TYPE.get(str(dtype), dtype), **kwargs)
        if dtype is not None and dtype not in REAL_TYPE:
            return re
        im = value.imag if isinstance(value, complex) else 0
        return Complex(re, CONVERTERS["aten.full_like.default"](re, im))


for _name in (
    *("zeros.default", "ones.default", "empty.memory_format", "empty_permuted.default"),
    *("empty_strided.default", "zeros_like.default", "ones_like.default", "empty_like.default"),
    *("new_zeros.default", "new_ones.default", "new_empty.default", "new_empty_strided.default"),
):
    _filled(f"aten.{_name}")
for _name, _value in (("full", 1), ("full_like", 1), ("new_full", 2), ("scalar_tensor", 0)):
    _filled(f"aten.{_name}.default", _value)
