"""AMX: tdpbusd and tdpbf16ps add the product of two tiles of 16 rows of 64 bytes to 16 x 16 sums of 32 bits.

Rows of an operand may be any distance apart in memory, and tiles may have fewer rows and groups. autotensor
assigns the tile registers itself, not LLVM (`codegen/llvm/tiles.py`). tdpbf16ps reads denormals as zeros and
never returns denormals. A process must request tiles from Linux (`base/granted/tile_permission.py`).
Source: Intel Architecture Instruction Set Extensions, "TDPBUSD", "TDPBF16PS".
"""

from __future__ import annotations

from autotensor import te
from autotensor.codegen.llvm.dots import call_on_tiles
from autotensor.instructions.declare import dot

for name, left, right, sums, group, feature in (
    ("tdpbusd", "uint8", "int8", "int32", 4, "amx-int8"),
    ("tdpbf16ps", "bfloat16", "bfloat16", "float32", 2, "amx-bf16"),
):
    A, B = te.placeholder((16, 16 * group), left), te.placeholder((16, 16, group), right)
    k, q = te.reduce_axis(16), te.reduce_axis(group)

    def product(i, j):  # type: ignore[no-untyped-def]
        return te.sum(A[i, k * group + q].astype(sums) * B[k, j, q].astype(sums), axis=[k, q])  # noqa: B023

    C = te.compute((16, 16), product)
    dot(f"x86.{name}", C, needs=("amx-tile", feature), write=call_on_tiles(f"llvm.x86.{name}"))
