"""How many elements one instruction may copy from global to shared memory asynchronously."""

from __future__ import annotations

from autotensor.codegen.access import load_access, store_access
from autotensor.ir.expr import Expr
from autotensor.ir.func import Buffer

MOST_BYTES, LEAST_BYTES = 16, 4  # bytes that one instruction copies


def width_of_copy(buffer: Buffer, index: Expr, origin: Expr) -> int:
    """The number of elements that one instruction copies from `origin` to `index`; 0 if no instruction
    can."""
    most = MOST_BYTES // buffer.dtype.bytes
    width = min(store_access(buffer, index).width(most), load_access(buffer, origin).width(most))
    return width if width * buffer.dtype.bytes >= LEAST_BYTES else 0
