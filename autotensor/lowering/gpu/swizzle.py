"""swizzle: accesses of swizzled buffers get the indices at which their elements are stored.

    S[i] = …; … = S[j]     ──▶     S[i ^ i // 32 % 8 * 4] = …; … = S[j ^ j // 32 % 8 * 4]

One pass changes loads and stores, so neither can be forgotten. Vectors that lie within a chunk stay vectors.
"""

from __future__ import annotations

from autotensor.ir.affine import is_multiple
from autotensor.ir.expr import Expr, Load, Ramp
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Alloc, Stmt, Store
from autotensor.ir.swizzle import Swizzle, swizzled
from autotensor.ir.visit import collect


def swizzle(body: Stmt) -> Stmt:
    if not any(a.buffer.swizzle for a in collect(body, Alloc)):
        return body

    def visit(node: Node) -> Node | None:
        match node:
            case Load(buffer, (index,), mask) if buffer.swizzle:
                return Load(_done(buffer), (place(index, buffer.swizzle),), mask)
            case Store(buffer, (index,), value, mask) if buffer.swizzle:
                return Store(_done(buffer), (place(index, buffer.swizzle),), value, mask)
            case Alloc(buffer, inner) if buffer.swizzle:
                return Alloc(_done(buffer), inner)
        return None

    return transform(body, visit)


def place(index: Expr, sizes: Swizzle) -> Expr:
    """The indices at which the elements of an access are stored."""
    match index:
        case Ramp(base, 1, lanes) if sizes[0] % lanes == 0 and is_multiple(base, lanes):
            return Ramp(swizzled(base, sizes), 1, lanes)
    return swizzled(index, sizes)


def _done(b: Buffer) -> Buffer:
    return Buffer(b.name, b.shape, b.dtype, b.scope, b.strides, (), b.turns)
