"""Expressions: values computed from variables, constants and loads.

    Var Const Binary Unary Compare Select Cast Call Dot Load Ramp Broadcast Reduce

Every expression has a `dtype` (with lanes). Operators on expressions (`a + b`, `i // 4`, `x < y`) build nodes
and convert both sides to a common type. `Select` evaluates only the side that it takes, so it may protect a
load. `Reduce` exists only in tensor expressions; lowering turns it into loops. Index arithmetic is int64;
`//` and `%` round towards minus infinity, as in Python. `semantics.py` defines every operation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from autotensor.base.dtype import DType, bool_, dtype_of, float32, int64, promote, uint64, wrap_int
from autotensor.base.errors import TensorError
from autotensor.base.functions import FUNCTIONS
from autotensor.ir.arithmetic import Arithmetic, Equality, constant_power, no_truth_value
from autotensor.ir.node import Node
from autotensor.ir.ops import Cmp as Cmp
from autotensor.ir.ops import Neg as Neg
from autotensor.ir.ops import Op as Op
from autotensor.ir.semantics import converted, integer, whole

NUMBERS = (int, float, np.number, np.bool_, np.generic)  # np.generic: bfloat16


class Expr(Arithmetic, Node):
    """Base of all expressions."""

    _derived: ClassVar[tuple[str, ...]] = ("dtype",)
    if False:  # for type checkers: filled by __derive__

        @property
        def dtype(self) -> DType: ...

    # NotImplemented lets the other side (an IterVar, a tensor of rank 0) answer. If that fails, too, Python
    # compares by identity.
    def __eq__(self, other: object) -> Any:
        return Equality(self, other, Cmp.EQ) if isinstance(other, (Expr, *NUMBERS)) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return Equality(self, other, Cmp.NE) if isinstance(other, (Expr, *NUMBERS)) else NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise no_truth_value()


# sets the slot although the class is frozen
_set_dtype: Any = Expr.dtype.__set__  # type: ignore[attr-defined]


class Var(Expr):
    """A loop index or parameter. It is interned by name and type: names are unique within one function."""

    name: str
    type: DType = int64

    def __derive__(self) -> None:
        _set_dtype(self, self.type)


class Symbol(Var):
    """An extent that is known when the program runs, from `least` to `most`.

    It gets its value outside a kernel.
    """

    least: int = 0
    most: int = 0


class Const(Expr):
    """A number. Vectors of one number are `Broadcast(Const)`."""

    value: int | float | bool
    type: DType = int64

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        value, dtype = args  # 0.0 and -0.0 are different keys, all NaNs are one key, and 1 and True differ
        return (value.hex() if isinstance(value, float) else (type(value), value), dtype)

    def __derive__(self) -> None:
        _set_dtype(self, self.type)


class Binary(Expr):
    op: Op
    a: Expr
    b: Expr

    def __derive__(self) -> None:
        if self.a.dtype is not self.b.dtype:
            raise TensorError(f"operands of {self.op.value!r} have types {self.a.dtype} and {self.b.dtype}.")
        _set_dtype(self, self.a.dtype)


class Unary(Expr):
    op: Neg
    a: Expr

    def __derive__(self) -> None:
        _set_dtype(self, self.a.dtype)


class Compare(Expr):
    op: Cmp
    a: Expr
    b: Expr

    def __derive__(self) -> None:
        if self.a.dtype is not self.b.dtype:
            raise TensorError(f"operands of {self.op.value!r} have types {self.a.dtype} and {self.b.dtype}.")
        _set_dtype(self, bool_.with_lanes(self.a.dtype.lanes))


class Select(Expr):
    """`then` if `cond` holds, else `otherwise`.

    Only the side taken is evaluated, so its loads are protected.
    """

    cond: Expr
    then: Expr
    otherwise: Expr

    def __derive__(self) -> None:
        if self.then.dtype != self.otherwise.dtype:
            raise TensorError(
                f"the two sides of a select have types {self.then.dtype} and {self.otherwise.dtype}."
            )
        _set_dtype(self, self.then.dtype)


class Cast(Expr):
    """The value converted (`semantics.converted`): to integers without fractions, to bool by `!= 0`."""

    type: DType
    a: Expr

    def __derive__(self) -> None:
        _set_dtype(self, self.type.with_lanes(self.a.dtype.lanes))


class Call(Expr):
    """A mathematical function by name (see `MATH`). The arguments and the result have the same type."""

    name: str
    args: tuple[Expr, ...]
    type: DType

    def __derive__(self) -> None:
        _set_dtype(self, self.type)


class Dot(Expr):
    """Sums of products, in the three types of an instruction: sums, left and right operands.

        sums[r, c] + Σ_k  a[r, k] * b[k // group, c, k % group]          r in rows, c in columns, k in depth

    All three are vectors, in this order; `depth` follows from their lanes. Products and sums have the type of
    the sums. Integers wrap, and floats are rounded after every addition, k by k. An instruction may add in
    another order and flush denormals.
    """

    sums: Expr
    a: Expr
    b: Expr
    rows: int
    group: int
    instruction: str  # its name in `codegen.dot_instructions.DOTS`

    @property
    def columns(self) -> int:
        return self.sums.dtype.lanes // self.rows

    @property
    def depth(self) -> int:
        return self.a.dtype.lanes // self.rows

    def __derive__(self) -> None:
        rows, lanes = self.rows, (self.sums.dtype.lanes, self.a.dtype.lanes, self.b.dtype.lanes)
        fits = lanes[0] % rows == lanes[1] % rows == 0 and lanes[2] == lanes[0] // rows * (lanes[1] // rows)
        if not fits or lanes[1] // rows % self.group:
            types = f"{self.sums.dtype}, {self.a.dtype} and {self.b.dtype}"
            raise TensorError(
                f"operands of a dot of {rows} rows in groups of {self.group} have types {types}."
            )
        _set_dtype(self, self.sums.dtype)


class Load(Expr):
    """`buffer[indices]`; 0 without an access if `mask` is given and false. One flat index may be a vector."""

    buffer: Any  # ir.func.Buffer, or te.Tensor while a tensor expression is being written
    indices: tuple[Expr, ...]
    mask: Expr | None = None

    def __derive__(self) -> None:
        lanes = max((i.dtype.lanes for i in self.indices), default=1)
        _set_dtype(self, self.buffer.dtype.with_lanes(lanes))


class Ramp(Expr):
    """The vector `base, base + stride, …` of `lanes` integers."""

    base: Expr
    stride: int
    lanes: int

    def __derive__(self) -> None:
        _set_dtype(self, self.base.dtype.with_lanes(self.lanes))


class Broadcast(Expr):
    """A scalar repeated `lanes` times."""

    a: Expr
    lanes: int

    def __derive__(self) -> None:
        _set_dtype(self, self.a.dtype.with_lanes(self.lanes))


class Combiner(Node):
    """How a reduction joins two partial results: `result` over `lhs` and `rhs`, with `identity` at first.

    All fields have one entry per output of a tuple reduction (argmax has two).
    """

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


class Reduce(Expr):
    """`sources` joined by `combiner` over axes (Vars); `index` chooses one output of a tuple reduction."""

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[Any, ...]  # te.IterVar while an expression is written
    index: int = 0

    def __derive__(self) -> None:
        _set_dtype(self, self.sources[self.index].dtype)


MATH = tuple(FUNCTIONS)  # floordiv and floormod are for floats; integers have operators for them


def as_expr(x: Any, dtype: DType | None = None) -> Expr:
    """An expression from an expression, a te tensor of rank 0, an IterVar, or a Python number.

    A bare number gets the type `dtype`, so that `x + 1` keeps the type of x. Without `dtype`, it is int64,
    float32 or bool.
    """
    if isinstance(x, Expr):
        return x
    if isinstance(x, Equality):
        return x.expr()
    if isinstance(x, NUMBERS):
        return _number(x, dtype)
    if isinstance(getattr(x, "var", None), Var):  # te.IterVar
        return x.var  # type: ignore[no-any-return]
    if getattr(x, "shape", None) == () and callable(x):  # te.Tensor of rank 0
        return as_expr(x())
    raise TensorError(
        f"{x!r} cannot be part of an expression.", fix="Index tensors with all their axes: A[i, j]."
    )


def _number(x: Any, dtype: DType | None) -> Expr:
    """A bare number, which gets the type `dtype` of the other operand.

    A number of a higher kind keeps its own type: 1.5 next to integers.
    """
    if isinstance(x, (bool, np.bool_)):
        return const(bool(x), dtype or bool_)
    if isinstance(x, (int, np.integer)):
        t = int64 if dtype is None or dtype.is_bool else dtype
        if t.is_int and wrap_int(int(x), t.element) != int(x):
            raise TensorError(
                f"{int(x)} does not fit in {t.element}.", fix="Convert the other operand with .astype."
            )
        return const(int(x), t)
    return const(float(x), dtype if dtype is not None and dtype.is_float else float32)


def const(value: float | int | bool, dtype: DType | str = int64) -> Expr:
    """A constant of the given type; a vector type gives a broadcast."""
    t = dtype_of(dtype)
    e = t.element
    v: Any = bool(value) if e.is_bool else int(value) if e.is_int else float(value)
    c = Const(v, e)
    return c if t.lanes == 1 else Broadcast(c, t.lanes)


def cast(dtype: DType, a: Expr) -> Expr:
    """`a` converted to `dtype`'s element type.

    No node is made if `a` has this type; constants convert now.
    """
    target = dtype.element.with_lanes(a.dtype.lanes)
    if a.dtype == target:
        return a
    if isinstance(a, Const) and target.is_int:
        return const(whole(a.value, target) if a.type.is_float else wrap_int(int(a.value), target), target)
    if isinstance(a, Const) and target.is_bool:
        return const(bool(a.value), target)
    if isinstance(a, Const) and target.is_float:  # a float32 constant is rounded to float32 first
        return const(float(converted(a.type.numpy.type(a.value), target)), target)
    return Cast(target, a)


def match_types(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands as expressions of one type and lane count; a bare number gets the other side's type."""
    x = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    y = as_expr(b, x.dtype)
    t = promote(x.dtype, y.dtype)
    x, y = cast(t, x), cast(t, y)
    lanes = max(x.dtype.lanes, y.dtype.lanes)
    return broadcast(x, lanes), broadcast(y, lanes)


def broadcast(a: Expr, lanes: int) -> Expr:
    """`a` with this number of lanes."""
    return a if a.dtype.lanes == lanes else Broadcast(a, lanes)


def binary(op: Op, a: Any, b: Any) -> Expr:
    x, y = match_types(a, b)
    if op in (Op.FLOORDIV, Op.MOD) and x.dtype.is_float:
        return call("floordiv" if op is Op.FLOORDIV else "floormod", x, y)
    if (x.dtype.is_bool and op not in _OF_BOOLS) or (x.dtype.is_float and op in _BITS):
        fix = "Convert it with .astype('int32')." if x.dtype.is_bool else ""
        raise TensorError(f"{op.value!r} is not defined for {x.dtype}.", fix=fix)
    if isinstance(x, Const) and isinstance(y, Const) and x.dtype.is_int:
        return const(integer(op, int(x.value), int(y.value), x.dtype), x.dtype)
    return Binary(op, x, y)


_OF_BOOLS = (Op.AND, Op.OR, Op.XOR, Op.MIN, Op.MAX)
_BITS = (Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR)


def divide(a: Any, b: Any) -> Expr:
    """True division; integers become float32 first."""
    x, y = match_types(a, b)
    if not x.dtype.is_float:
        x, y = cast(float32, x), cast(float32, y)
    return Binary(Op.DIV, x, y)


def negative(a: Expr) -> Expr:
    if a.dtype.is_bool:
        raise TensorError("'-' is not defined for bool.", fix="Convert it with .astype('int32').")
    return Unary(Neg.NEG, a)


def inverted(a: Expr) -> Expr:
    """Logical not of bools, all bits of integers."""
    if a.dtype.is_float:
        raise TensorError(f"'~' is not defined for {a.dtype}.")
    return Unary(Neg.NOT, a)


def compare(op: Cmp, a: Any, b: Any) -> Expr:
    """A comparison by value. No type holds both uint64 and signed integers; they compare by value, too."""
    x = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    y = as_expr(b, x.dtype)
    if {x.dtype.kind, y.dtype.kind} == {"int", "uint"} and uint64 in (x.dtype.element, y.dtype.element):
        return _compare_signs(op, x, y)
    x, y = match_types(x, y)
    return Compare(op, x, y)


def _compare_signs(op: Cmp, x: Expr, y: Expr) -> Expr:
    """Compares a signed integer with a uint64: a negative number is less than every uint64."""
    signed, other = (x, y) if x.dtype.kind == "int" else (y, x)
    lanes = max(x.dtype.lanes, y.dtype.lanes)
    negative_ = broadcast(Compare(Cmp.LT, signed, const(0, signed.dtype)), lanes)
    unsigned = cast(other.dtype, signed)
    a, b = (unsigned, other) if signed is x else (other, unsigned)
    plain = Compare(op, broadcast(a, lanes), broadcast(b, lanes))
    less = op in (Cmp.LT, Cmp.LE) if signed is x else op in (Cmp.GT, Cmp.GE)
    if less or op is Cmp.NE:
        return Binary(Op.OR, negative_, plain)
    return Binary(Op.AND, inverted(negative_), plain)


def select(cond: Any, then: Any, otherwise: Any) -> Expr:
    """`then` if `cond` else `otherwise`, evaluated lazily."""
    x, y = match_types(then, otherwise)
    c = as_expr(cond)
    if not c.dtype.is_bool:
        c = cast(bool_, c)
    return Select(c, x, y)


def call(name: str, *args: Any) -> Expr:
    """A function of `MATH`; integers become float32, except for `abs` and `pow` of two integers.

    Powers with small constant exponents are products, quotients and roots: see `constant_power`.
    """
    if name not in MATH:
        raise TensorError(f"function {name!r} is unknown.", fix=f"Known: {', '.join(MATH)}.")
    first = as_expr(args[0], args[1].dtype if len(args) > 1 and isinstance(args[1], Expr) else None)
    values = [first, *(as_expr(x, first.dtype) for x in args[1:])]
    t = values[0].dtype
    for v in values[1:]:
        t = promote(t, v.dtype)
    if not t.is_float and (name != "abs" and (name != "pow" or t.is_bool)):
        t = float32.with_lanes(t.lanes)
    cast_values = tuple(broadcast(cast(t, v), t.lanes) for v in values)
    if name == "pow" and isinstance(cast_values[1], Const):
        simple = constant_power(cast_values[0], cast_values[1].value)
        if simple is not None:
            return simple
    return Call(name, cast_values, bool_.with_lanes(t.lanes) if name in ("isnan", "isinf") else t)


def minimum(a: Any, b: Any) -> Expr:
    """The lesser of two values, or NaN if one is NaN; `te.min` reduces."""
    return binary(Op.MIN, a, b)


def maximum(a: Any, b: Any) -> Expr:
    """The greater of two values, or NaN if one is NaN; `te.max` reduces."""
    return binary(Op.MAX, a, b)


TRUE, FALSE = Const(True, bool_), Const(False, bool_)


def all_of(*conditions: Any) -> Expr:
    """True if every condition is true."""
    out: Expr | None = None
    for c in conditions:
        e = as_expr(c)
        if e is TRUE:
            continue
        out = e if out is None else binary(Op.AND, out, e)
    return TRUE if out is None else out


def conjuncts(cond: Expr) -> list[Expr]:
    """The conditions that a conjunction joins."""
    match cond:
        case Binary(Op.AND, a, b):
            return [*conjuncts(a), *conjuncts(b)]
        case _:
            return [cond]


def any_of(*conditions: Any) -> Expr:
    """True if some condition is true."""
    out: Expr | None = None
    for c in conditions:
        out = as_expr(c) if out is None else binary(Op.OR, out, as_expr(c))
    return FALSE if out is None else out


def min_value(dtype: DType) -> Expr:
    """The identity of max: the least number of the type (-inf for floats)."""
    if dtype.is_float:
        return const(float("-inf"), dtype)
    if dtype.is_bool:
        return const(False, dtype)
    return const(-(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0, dtype)


def max_value(dtype: DType) -> Expr:
    """The identity of min: the greatest number of the type (inf for floats)."""
    if dtype.is_float:
        return const(float("inf"), dtype)
    if dtype.is_bool:
        return const(True, dtype)
    return const((1 << (dtype.bits - (dtype.kind == "int"))) - 1, dtype)
