"""promote: moves a private buffer into registers if every index into it will be a constant.

    C = local([6, 32]); for i in unrolled(6): C[i*32:i*32+16] = …     ──▶     C = register([6, 32]); …

Backends keep one value for each element of a REGISTER buffer; small programs with these buffers also compile
faster. The pass runs before loops are unrolled, while programs are still small: an index over unrolled loops
counts as a constant.
"""

from __future__ import annotations

from autotensor.ir.expr import Call, Expr, Load, Ramp, Var
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node, map_children
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Alloc, For, ForKind, Stmt, Store
from autotensor.ir.visit import any_node, collect, free_vars, walk

# two to four times the registers of a core: beyond this, all values would be spilled anyway
MAX_BYTES = 8 << 10


def promote(body: Stmt) -> Stmt:
    loops = collect(body, For)  # a stage may have several: to clear, add up and join
    running = {s.var for s in loops if s.kind is not ForKind.UNROLLED}
    return _visit(body, frozenset(s.var for s in loops) - running)


def _visit(s: Stmt, unrolled: frozenset[Var]) -> Stmt:
    match s:
        case Alloc(buffer, body):
            body = _visit(body, unrolled)
            if buffer.scope is not Scope.LOCAL or not _fits(body, buffer, unrolled):
                return Alloc(buffer, body)
            near = Buffer(buffer.name, buffer.shape, buffer.dtype, Scope.REGISTER, buffer.strides)
            return Alloc(near, _moved(body, buffer, near))
        case _:
            return map_children(s, lambda c: _visit(c, unrolled) if isinstance(c, Stmt) else c)


def _fits(body: Stmt, buffer: Buffer, unrolled: frozenset[Var]) -> bool:
    """Whether the buffer is small and unrolling makes every index into it constant."""
    if buffer.bytes > MAX_BYTES:
        return False
    for node in walk(body):
        match node:
            case Load(b, (index,), mask) | Store(b, (index,), _, mask) if b is buffer:
                if not _fixed(index, unrolled) or (mask is not None and isinstance(node, Load)):
                    return False  # masked stores are blends
    return True


def _fixed(index: Expr, unrolled: frozenset[Var]) -> bool:
    if index.dtype.lanes > 1 and not (isinstance(index, Ramp) and index.stride == 1):
        return False
    return free_vars(index) <= unrolled and not any_node(index, _unfolded)


def _unfolded(node: Node) -> bool:
    """Whether `simplify` may leave the node in place although all its variables are known."""
    return isinstance(node, (Load, Call)) or (isinstance(node, Expr) and node.dtype.is_float)


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
