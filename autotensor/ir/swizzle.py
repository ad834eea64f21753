"""swizzle: exchanges chunks within lines of shared memory, so that the elements of a column lie in all banks.

    line r:  chunk c is stored at position c xor (r mod chunks of a line)

    i     ──▶     i ^ i // line % (line // chunk) * chunk

All sizes are powers of two, so the map is its own inverse, and vectors within a chunk stay together.
"""

from __future__ import annotations

from autotensor.ir.expr import Binary, Broadcast, Const, Expr, Op

Swizzle = tuple[int, ...]  # (chunk, line) in elements


def swizzled(index: Expr, swizzle: Swizzle) -> Expr:
    """The position at which element `index` is stored; a scalar or a vector.

    >>> from autotensor.ir.expr import Var
    >>> print(swizzled(Var("i"), (4, 32)))
    i ^ i // 32 % 8 * 4
    """
    chunk, line = swizzle
    row = Binary(Op.FLOORDIV, index, _like(line, index))
    moved = Binary(Op.MUL, Binary(Op.MOD, row, _like(line // chunk, index)), _like(chunk, index))
    return Binary(Op.XOR, index, moved)


def unswizzled(index: Expr) -> tuple[Expr, Swizzle]:
    """The plain index that was passed to `swizzled`, and its sizes; the sizes are () for any other index.

    >>> from autotensor.ir.expr import Var
    >>> unswizzled(swizzled(Var("i"), (4, 32)))[1]
    (4, 32)
    """
    match index:
        case Binary(Op.XOR, x, Binary(Op.MUL, Binary(Op.MOD, Binary(Op.FLOORDIV, y, line), _), chunk)) if (
            x is y
        ):
            return x, (_number(chunk), _number(line))
    return index, ()


def _like(value: int, index: Expr) -> Expr:
    one = Const(value, index.dtype.element)
    return one if index.dtype.lanes == 1 else Broadcast(one, index.dtype.lanes)


def _number(e: Expr) -> int:
    inner = e.a if isinstance(e, Broadcast) else e
    assert isinstance(inner, Const)
    return int(inner.value)
