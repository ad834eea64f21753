"""How much one instruction may bring from global to shared memory asynchronously."""

from __future__ import annotations

from autotensor.ir.affine import is_multiple
from autotensor.ir.expr import Expr, Ramp
from autotensor.ir.func import Buffer

COPY_BYTES = (16, 8, 4)  # of one instruction


def width_of_copy(buffer: Buffer, index: Expr, origin: Expr) -> int:
    """Elements that one instruction brings from one place to another; 0 if none can."""
    lanes = index.dtype.lanes
    bases = [x.base if isinstance(x, Ramp) and x.stride == 1 else x for x in (index, origin)]
    if any(b.dtype.lanes > 1 for b in bases):
        return 0
    for size in COPY_BYTES:
        width = size // buffer.dtype.bytes
        if width and lanes % width == 0 and all(is_multiple(b, width) for b in bases):
            return width
    return 0
