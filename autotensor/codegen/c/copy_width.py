"""How much one instruction may bring from global to shared memory asynchronously."""

from __future__ import annotations

from autotensor.codegen.access import load_access, store_access
from autotensor.ir.expr import Expr
from autotensor.ir.func import Buffer

MOST_BYTES, LEAST_BYTES = 16, 4  # bytes that one instruction copies


def width_of_copy(buffer: Buffer, index: Expr, origin: Expr) -> int:
    """Elements that one instruction brings from one place to another; 0 if none can."""
    most = MOST_BYTES // buffer.dtype.bytes
    width = min(store_access(buffer, index).width(most), load_access(buffer, origin).width(most))
    return width if width * buffer.dtype.bytes >= LEAST_BYTES else 0
