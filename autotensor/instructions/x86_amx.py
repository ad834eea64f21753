"""AMX: tdpbusd and tdpbf16ps add the product of two tiles of 16 rows of 64 bytes to 16 x 16 sums of 32 bits.

Rows of the left tile follow one another in memory, so a schedule packs it. The contents of a tile travel as a
vector between instructions; LLVM configures the tiles. tdpbf16ps takes denormals for zeros and gives none.
No rule uses them, and they have run on no machine yet. Loading them requests tiles from Linux
(`runtime/linking/tile_permission.py`).
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
    dot(f"x86.{name}", C, needs=("amx-tile", feature), write=call_on_tiles(f"llvm.x86.{name}.internal"))
