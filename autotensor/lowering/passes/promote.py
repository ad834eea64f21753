"""promote: a private buffer whose every index is a constant lives in registers.

    C = local([6, 32]); C[0:16] = …     ──▶     C = register([6, 32]); C[0:16] = …

Backends keep one value per element of a REGISTER buffer; small programs of such buffers also compile faster.
"""

from __future__ import annotations

from autotensor.ir.expr import Const, Expr, Load, Ramp
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Alloc, Stmt, Store
from autotensor.ir.visit import walk

MAX_BYTES = 8 << 10  # two to four register files: beyond this everything would be spilled anyway


def promote(body: Stmt) -> Stmt:
    match body:
        case Alloc(buffer, inner):
            inner = promote(inner)
            if buffer.scope is not Scope.LOCAL or not _fits(inner, buffer):
                return Alloc(buffer, inner)
            near = Buffer(buffer.name, buffer.shape, buffer.dtype, Scope.REGISTER, buffer.strides)
            return Alloc(near, _moved(inner, buffer, near))
        case _:
            return map_children(body, lambda c: promote(c) if isinstance(c, Stmt) else c)


def _fits(body: Stmt, buffer: Buffer) -> bool:
    """Whether the buffer is small and every access is plain, at a constant place."""
    if buffer.bytes > MAX_BYTES:
        return False
    for node in walk(body):
        match node:
            case Load(b, (index,), mask) | Store(b, (index,), _, mask) if b is buffer:
                if mask is not None or not _fixed(index):
                    return False
    return True


def _fixed(index: Expr) -> bool:
    match index:
        case Const() | Ramp(Const(), 1, _):
            return True
        case _:
            return False


def _moved(body: Stmt, old: Buffer, new: Buffer) -> Stmt:
    def visit(node: Node) -> Node | None:
        match node:
            case Load(buffer, indices, mask) if buffer is old:
                return Load(new, indices, mask)
            case Store(buffer, indices, value, mask) if buffer is old:
                return Store(new, indices, value, mask)
            case _:
                return None

    return transform(body, visit)
