"""The operators of everything that can be used as an expression: nodes, te axes and tensors, comparisons.

    i + 1,  A[i] * 2,  j < n        ──▶     Binary, Compare, … over operands of one type

`==` is special: see `Equality`. `**` with a small constant exponent makes products: see `constant_power`. The
nodes that the operators build are in `expr.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from autotensor.base.dtype import DType, dtype_of, float32
from autotensor.base.errors import TensorError

if TYPE_CHECKING:
    from autotensor.ir.expr import Cmp, Expr


class Arithmetic:
    """Operators that build nodes, both sides converted to a common type."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy scalars leave the operators to us

    def __add__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.ADD, ir.as_expr(self), other)

    def __radd__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.ADD, other, ir.as_expr(self))

    def __sub__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.SUB, ir.as_expr(self), other)

    def __rsub__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.SUB, other, ir.as_expr(self))

    def __mul__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.MUL, ir.as_expr(self), other)

    def __rmul__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.MUL, other, ir.as_expr(self))

    def __truediv__(self, other: Any) -> Expr:
        return ir.divide(ir.as_expr(self), other)

    def __rtruediv__(self, other: Any) -> Expr:
        return ir.divide(other, ir.as_expr(self))

    def __floordiv__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.FLOORDIV, ir.as_expr(self), other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.FLOORDIV, other, ir.as_expr(self))

    def __mod__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.MOD, ir.as_expr(self), other)

    def __rmod__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.MOD, other, ir.as_expr(self))

    def __and__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.AND, ir.as_expr(self), other)

    def __rand__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.AND, other, ir.as_expr(self))

    def __or__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.OR, ir.as_expr(self), other)

    def __ror__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.OR, other, ir.as_expr(self))

    def __xor__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.XOR, ir.as_expr(self), other)

    def __lshift__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.SHL, ir.as_expr(self), other)

    def __rshift__(self, other: Any) -> Expr:
        return ir.binary(ir.Op.SHR, ir.as_expr(self), other)

    def __pow__(self, other: Any) -> Expr:
        return ir.call("pow", ir.as_expr(self), other)

    def __rpow__(self, other: Any) -> Expr:
        return ir.call("pow", other, ir.as_expr(self))

    def __neg__(self) -> Expr:
        return ir.negative(ir.as_expr(self))

    def __invert__(self) -> Expr:
        return ir.inverted(ir.as_expr(self))

    def __divmod__(self, other: Any) -> tuple[Expr, Expr]:
        return self // other, self % other

    def __round__(self, digits: int = 0) -> Expr:
        """To the nearest multiple of 10^-digits, half to even, as `numpy.round` does it."""
        if digits == 0:
            return ir.call("round", ir.as_expr(self))
        scale = 10.0 ** abs(digits)
        return round(self * scale) / scale if digits > 0 else round(self / scale) * scale

    def __abs__(self) -> Expr:
        return ir.call("abs", ir.as_expr(self))

    def __lt__(self, other: Any) -> Expr:
        return ir.compare(ir.Cmp.LT, ir.as_expr(self), other)

    def __le__(self, other: Any) -> Expr:
        return ir.compare(ir.Cmp.LE, ir.as_expr(self), other)

    def __gt__(self, other: Any) -> Expr:
        return ir.compare(ir.Cmp.GT, ir.as_expr(self), other)

    def __ge__(self, other: Any) -> Expr:
        return ir.compare(ir.Cmp.GE, ir.as_expr(self), other)

    def __matmul__(self, other: Any) -> NoReturn:
        raise TensorError(
            "te has no product @ of whole tensors.",
            fix="Write the sum: k = te.reduce_axis(n), then te.sum(A[i, k] * B[k, j], axis=k).",
        )

    __rmatmul__ = __matmul__

    def __index__(self) -> int:  # int(), range(), math.exp() and the index of a list ask for it
        raise TensorError(
            "an expression has no value while the program is being written.",
            fix="int(), range(), math.exp() and lists take numbers: write te.exp, a te.reduce_axis, or make "
            "the list an argument, te.placeholder(shape).",
        )

    def equal(self, other: Any) -> Expr:
        return ir.compare(ir.Cmp.EQ, ir.as_expr(self), other)

    def astype(self, dtype: DType | str) -> Expr:
        return ir.cast(dtype_of(dtype), ir.as_expr(self))


_authors_code: ContextVar[bool] = ContextVar("authors_code", default=False)


def called(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function with which the author of a program writes expressions."""
    token = _authors_code.set(True)
    try:
        return function(*args)
    finally:
        _authors_code.reset(token)


def _ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this project, which compares nodes to see whether they are the same."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("autotensor", "schedules", "tuning_db")


def no_truth_value() -> TensorError:
    return TensorError(
        "an expression has no truth value while the program is being written.",
        fix="Use te.if_then_else, te.all, te.any, & and | instead of if, and, or, not, in.",
    )


class Equality(Arithmetic):
    """`a == b` or `a != b`, before it is decided whether this is an expression or an identity test.

    Authors need an expression, and dicts need the answer to "the same node?". So used as a bool, the object
    is an identity test, and used as an operand, it is a Compare (as in TVM). In a function of the program's
    author, `if i == j` is an error, because the test would decide for all elements.
    """

    __slots__ = ("a", "b", "op")

    def __init__(self, a: Any, b: Any, op: Cmp) -> None:
        self.a, self.b, self.op = a, b, op

    def __bool__(self) -> bool:
        same = self.a is self.b
        if not same and _authors_code.get() and not _ours(sys._getframe(1)):
            raise no_truth_value()
        return same == (self.op is ir.Cmp.EQ)

    def expr(self) -> Expr:
        return ir.compare(self.op, self.a, self.b)


def constant_power(x: Expr, n: float) -> Expr | None:
    """x**n without the function `pow`, of the type of x; None if `pow` has to compute it.

    For floats, n is -3, -2, -1, 1, 2, 3, 4 or ±0.5, and for integers 1, 2, 3 or 4. (x**0 keeps reading x.)
    The results are those of C99's `pow`, also for zeros, infinities and NaN, with an error of at most 2 units
    in the last place (x**-4 could have 3).

    >>> x = ir.Var("x", float32)
    >>> str(constant_power(x, 3.0)), str(constant_power(x, -1.0)), constant_power(x, 5.0)
    ('x * x * x', '1.0 / x', None)
    """
    t = x.dtype
    if not t.is_float:
        return _product(x, int(n)) if n in (1, 2, 3, 4) else None
    if n == 1:
        return x
    wide = ir.cast(float32, x) if t.bits == 16 else x  # 16-bit floats are rounded once
    if n in (2, 3, 4):
        return ir.cast(t, _product(wide, int(n)))
    if n in (-1, -2, -3):
        return ir.cast(t, _reciprocal_power(wide, int(-n)))
    if abs(n) == 0.5:
        # pow(-inf, 0.5) is inf, pow(-0.0, 0.5) is 0.0: the sign of -inf changes, and -0.0 + 0.0 is 0.0
        sign = ir.select(ir.compare(ir.Cmp.EQ, wide, float("-inf")), ir.const(-1.0, wide.dtype), 1.0)
        return ir.cast(t, ir.call("sqrt" if n > 0 else "rsqrt", wide * sign + 0.0))
    return None


def _product(x: Expr, n: int) -> Expr:
    square = x * x
    return (x, square, square * x, square * square)[n - 1]


def _reciprocal_power(x: Expr, n: int) -> Expr:
    """x**-n. Reciprocals of x are multiplied: 1 / (x * x) would be 0 already where x * x is infinite."""
    once = 1.0 / x
    return (once, once * once, once / (x * x))[n - 1]


from autotensor.ir import expr as ir  # noqa: E402  # operators build nodes, and nodes have these operators
