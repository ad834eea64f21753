"""How much a statement computes, over all its loops; this measure separates heavy kernels from light ones."""

from __future__ import annotations

from autotensor.ir.expr import Binary, Call, Const, Dot, Expr, Load, Unary
from autotensor.ir.func import Scope
from autotensor.ir.node import children
from autotensor.ir.stmt import Evaluate, For, If, Let, Seq, Stmt, Store


def operations(s: Stmt) -> int:
    """Arithmetic operations on values, plus elements stored outside registers; index arithmetic is free.

    This is an estimate: a condition counts as its heavier side (mostly it guards an edge), and a loop whose
    extent is not a constant counts as one iteration.

        for i in 0..10: C[i] = A[i] + 1      20: one sum and one store per iteration
    """
    match s:
        case For(_, _, extent, _, body):
            return (int(extent.value) if isinstance(extent, Const) else 1) * operations(body)
        case Store(buffer, _, value, _):
            moved = 0 if buffer.scope is Scope.REGISTER else value.dtype.lanes
            return _value_operations(value) + moved
        case If(_, then, otherwise):
            return max(operations(then), 0 if otherwise is None else operations(otherwise))
        case Let(_, value, body):
            return _value_operations(value) + operations(body)
        case Evaluate():
            return 0
        case Seq(stmts):
            return sum(operations(part) for part in stmts)
        case _:
            return sum(operations(c) for c in children(s) if isinstance(c, Stmt))


def _value_operations(e: Expr) -> int:
    """The work of one evaluation. A node that occurs twice is counted once, because it is computed once."""
    seen: set[Expr] = {e}
    stack = [e]
    count = 0
    while stack:
        node = stack.pop()
        if isinstance(node, Load):
            continue  # the load's indices are free
        if isinstance(node, (Binary, Unary, Call)):
            count += node.dtype.lanes
        elif isinstance(node, Dot):
            count += 2 * node.depth * node.dtype.lanes
        for child in children(node):
            if child not in seen and isinstance(child, Expr):
                seen.add(child)
                stack.append(child)
    return count
