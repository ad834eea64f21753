"""flatten: `A[i][j]` becomes `A[i*n + j]`, one index in elements."""

from __future__ import annotations

from autotensor.ir.expr import Expr, Load, const
from autotensor.ir.func import Buffer
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Stmt, Store


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The position of an element in its buffer, from multi-dimensional indices; 0 for a scalar."""
    total: Expr = const(0)
    steps = runtime_strides(buffer) if buffer.extents else buffer.row_major()
    for index, step in zip(indices, steps, strict=True):
        total = total + index * step
    return total


def runtime_strides(buffer: Buffer) -> tuple[Expr, ...]:
    """The row-major strides of a buffer whose shape is known at run time."""
    out: list[Expr] = [const(1)]
    for extent in reversed(buffer.extents[1:]):
        out.append(out[-1] * extent)
    return tuple(reversed(out))


def flatten(body: Stmt) -> Stmt:
    def visit(node: Node) -> Node | None:
        match node:
            case Load(buffer, indices, mask):
                return Load(buffer, (flat_index(buffer, indices),), mask)
            case Store(buffer, indices, value, mask):
                return Store(buffer, (flat_index(buffer, indices),), value, mask)
            case _:
                return None

    return transform(body, visit)
