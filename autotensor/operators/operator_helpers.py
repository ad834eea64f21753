"""Helpers that operators share: stages with types, broadcasting, padding, and attributes in one form.

stage(shape, body, "relu")              te.compute with one output, with a type
fold(te.sum, x, (1, 3), "total")        x[a, k, b, l] summed over k and l ──▶ total[a, b]
padded(x, ((0, 0), (1, 1)), 0)          select(inside, x, 0); x itself if there is no padding
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotensor import te
from autotensor.base.dtype import DType, dtype_of, float32
from autotensor.base.errors import TensorError
from autotensor.ir.expr import Expr, Load
from autotensor.operators.operator import TensorType
from autotensor.te import Tensor

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, int], ...]  # for each axis: before, after
# zero points of both operands, bytes that are summed in int32; None: operands of one type, summed in it
Zeros = tuple[int, int] | None


# -- stages --------------------------------------------------------------------------------------------------


def stage(shape: Sequence[int], body: Callable[..., Any], name: str, axes: Sequence[str] = ()) -> Tensor:
    """`te.compute` with one output. axes: the axes' names; () takes those of the function's parameters."""
    result: Tensor = te.compute(tuple(shape), body, name=name, axis_names=tuple(axes))
    return result


def reduced(reducer: Callable[..., Any], body: Any, axes: Sequence[Any]) -> Any:
    """`body` reduced over the axes, or the body itself if there are none."""
    return reducer(body, axis=tuple(axes)) if axes else body


def fold(
    reducer: Callable[..., Any],
    x: Tensor,
    over: Sequence[int],
    name: str,
    value: Callable[..., Any] = lambda element, kept: element,
) -> Tensor:
    """`value(x[…], kept indices)` reduced over the axes `over`, which the result lacks."""
    ks = [te.reduce_axis(x.shape[a], f"k{n}") for n, a in enumerate(over)]
    shape = [n for a, n in enumerate(x.shape) if a not in over]
    return stage(
        shape, lambda *i: reduced(reducer, value(x[interleave(over, ks, i)], i), ks), name, _names(len(shape))
    )


def interleave(over: Sequence[int], inner: Sequence[Any], kept: Sequence[Any]) -> tuple[Any, ...]:
    """The full index: `inner[n]` at position `over[n]`, and `kept` in order at the other positions.

    >>> interleave((1,), ("k",), ("a", "b"))
    ('a', 'k', 'b')
    """
    inside, outside = dict(zip(over, inner, strict=True)), iter(kept)
    return tuple(inside[a] if a in inside else next(outside) for a in range(len(inner) + len(kept)))


def kept(i: Sequence[Any], over: Sequence[int]) -> tuple[Any, ...]:
    """The indices at the positions that are not in `over`."""
    return tuple(v for a, v in enumerate(i) if a not in over)


def _names(rank: int) -> tuple[str, ...]:
    return tuple(f"i{n}" for n in range(rank))


def padded(x: Tensor, pads: Pairs, value: Any, axes: Sequence[str] = (), name: str = "pad") -> Tensor:
    """x with `before` and `after` more elements for each axis (fewer if negative); x if nothing changes.

    pads: one pair for each axis. value: a number or an expression.
    """
    if not any(b or a for b, a in pads):
        return x
    fill = value if isinstance(value, Expr) else te.const(value, x.dtype)

    def body(*i: Expr) -> Expr:
        inside: list[Any] = []
        for v, n, (before, after) in zip(i, x.shape, pads, strict=True):
            inside += [v >= before] if before > 0 else []
            inside += [v < before + n] if after > 0 else []
        element = x[tuple(v - b if b else v for v, (b, _) in zip(i, pads, strict=True))]
        return te.select(te.all(*inside), element, fill) if inside else element

    shape = [n + b + a for n, (b, a) in zip(x.shape, pads, strict=True)]
    return stage(shape, body, name, axes or _names(x.ndim))


def position(i: Any, stride: int, k: Any = None, dilation: int = 1) -> Any:
    """`i*stride + k*dilation` without the terms that do nothing; k = None means 0."""
    start = i if stride == 1 else i * stride
    if k is None:
        return start
    return start + (k if dilation == 1 else k * dilation)


def broadcast(op: str, value: Callable[..., Any], *tensors: Tensor) -> Tensor:
    """`value` of the elements in the same place, as NumPy broadcasts them."""
    shape = broadcast_shape(op, *(t.shape for t in tensors))
    return stage(shape, lambda *i: value(*(broadcast_load(t, i) for t in tensors)), op)


def float_type(op: str, *types: TensorType) -> tuple[TensorType] | None:
    """The type of a result that has the type of its operands, which are floats of one type; else None."""
    kinds = {t.dtype for t in types}
    if len(kinds) > 1 or not types[0].dtype.is_float:
        return None
    return (TensorType(broadcast_shape(op, *(t.shape for t in types)), types[0].dtype),)


def broadcast_load(x: Tensor, i: Sequence[Any]) -> Load:
    """x at the trailing indices of i, with 0 where x has extent 1 (NumPy's broadcasting)."""
    tail = i[len(i) - x.ndim :]
    return x[tuple(0 if n == 1 else v for v, n in zip(tail, x.shape, strict=True))]


# -- products of bytes and of 16-bit floats ------------------------------------------------------------------


def multiplied(a: Expr, b: Expr, zeros: Zeros, sums: str = "") -> Expr:
    """a * b, in the type `sums` if given; with zero points, the product of the bytes' values in int32."""
    if zeros is not None:
        return _centred(a, zeros[0]) * _centred(b, zeros[1])
    return te.cast(sums, a) * te.cast(sums, b) if sums else a * b


def _centred(byte: Expr, zero: int) -> Expr:
    wide = te.cast("int32", byte)
    return wide - zero if zero else wide


def factor_arrays(a: Array, b: Array, zeros: Zeros, sums: str = "") -> tuple[Array, Array]:
    """The factors: bytes minus their zero points, in 32 bits; other arrays in the type of the sums."""
    if zeros is None:
        return (a.astype(sums), b.astype(sums)) if sums else (a, b)
    return a.astype(np.int32) - zeros[0], b.astype(np.int32) - zeros[1]


def product(a: Array, b: Array) -> Array:
    """The product of the matrices in the last two axes; products of 16-bit floats are added up in 32 bits."""
    kind = np.result_type(a, b)
    if dtype_of(kind).is_float and kind.itemsize == 2:
        wide: Array = np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(kind)
        return wide
    return np.asarray(np.matmul(a, b))


def require_factors(op: str, a: Tensor, b: Tensor, zeros: Zeros, sums: str = "") -> None:
    """Raises TensorError for zero points, or a type of sums, that the operands do not allow.

    With zero points, operands must be bytes whose types hold these zero points. The type of sums must hold
    the operands.
    """
    if sums:
        wide = dtype_of(sums)
        require(
            zeros is None and wide.is_float and wide.holds(a.dtype) and wide.holds(b.dtype),
            f"{op}: sums={sums!r} of operands {a.dtype} and {b.dtype}.",
            'sums="float32" are of float16 and bfloat16; those of bytes are int32.',
        )
    if zeros is None:
        return
    for t, zero in zip((a, b), zeros, strict=True):
        require(
            t.dtype.is_byte,
            f"{op}: zeros={zeros} are given for operands {a.dtype} and {b.dtype}, expected int8 or uint8.",
        )
        require(is_int(zero), f"{op}: zero point {zero!r} is not an integer.")
        te.const(zero, t.dtype)


# -- types ---------------------------------------------------------------------------------------------------


def as_float(t: DType) -> DType:
    """The type of a quotient: integers become float32."""
    return t if t.is_float else float32


def broadcast_shape(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's common shape. Raises TensorError, which names the operator and the shapes, if there is none."""
    rank = max(len(s) for s in shapes)
    out = []
    for column in zip(*((1,) * (rank - len(s)) + s for s in shapes), strict=True):
        wide = {n for n in column if n != 1}
        if len(wide) > 1:
            raise TensorError(
                f"{op}: shapes {' and '.join(map(str, shapes))} do not broadcast.",
                fix="Aligned at the right, extents must be equal or 1.",
            )
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def require(condition: bool, what: str, fix: str = "") -> None:
    """Raises TensorError unless the condition holds."""
    if not condition:
        raise TensorError(what, fix=fix)


def require_rank(op: str, name: str, x: Tensor | TensorType, rank: int, meaning: str) -> None:
    require(len(x.shape) == rank, f"{op}: {name} has shape {x.shape}, expected {rank} axes {meaning}.")


# -- attributes ----------------------------------------------------------------------------------------------


def axis_of(op: str, axis: int, rank: int) -> int:
    """`axis`, counted from the front."""
    require(is_int(axis), f"{op}: axis {axis!r} is not an integer.")
    require(-rank <= axis < rank, f"{op}: axis {axis} does not exist; the input has {rank} axes.")
    return axis % rank


def axes_of(op: str, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes, counted from the front, in order; None means all."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    found = sorted(axis_of(op, a, rank) for a in given)
    require(len(set(found)) == len(found), f"{op}: axis {axis} names one axis twice.")
    return tuple(found)


def per_axis(op: str, attr: str, value: int | Sequence[int], rank: int, least: int = 1) -> tuple[int, ...]:
    """One int for each spatial axis; a single int is for all axes."""
    given = (value,) * rank if isinstance(value, int) else tuple(value)
    fits = len(given) == rank and all(is_int(v) and v >= least for v in given)
    require(fits, f"{op}: {attr}={value!r} must be an integer >= {least}, or {rank} of them.")
    return given


def paddings(op: str, value: int | Sequence[int], rank: int) -> Pairs:
    """(before, after) for each spatial axis; value: int | one per axis | all befores, then all afters.

    >>> paddings("conv2d", (1, 2), 2), paddings("conv2d", (0, 1, 2, 3), 2)
    (((1, 1), (2, 2)), ((0, 2), (1, 3)))
    """
    given = (value,) * rank if isinstance(value, int) else tuple(value)
    both = given * 2 if len(given) == rank else given
    require(
        len(both) == 2 * rank and all(is_int(v) and v >= 0 for v in both),
        f"{op}: padding={value!r} must be an integer >= 0, {rank} of them (one per axis), "
        f"or {2 * rank} (all befores, then all afters).",
    )
    return tuple(zip(both[:rank], both[rank:], strict=True))


def layout_of(op: str, layout: str, known: tuple[str, ...]) -> str:
    """The layout in lower case, which gives the axes' names."""
    require(layout in known, f"{op}: layout {layout!r} is unknown.", f"Known: {', '.join(known)}.")
    return layout.lower()


def by_layout(
    axes: Sequence[str], spatial: Sequence[str], around: Sequence[Any], inner: Sequence[Any]
) -> tuple[Any, ...]:
    """One entry for each axis: `around` at "n" and "c", `inner` at the spatial axes.

    >>> by_layout("nchw", "hw", (1, 3), (7, 8))
    (1, 3, 7, 8)
    """
    entry = {"n": around[0], "c": around[1], **dict(zip(spatial, inner, strict=True))}
    return tuple(entry[a] for a in axes)


def is_int(v: object) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def size(shape: Sequence[int]) -> int:
    return math.prod(shape)
