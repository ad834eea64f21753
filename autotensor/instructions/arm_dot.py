"""AArch64: sdot, udot and usdot add four products of bytes to each 32-bit integer, bfdot two of bfloat16.

Sums of products of bytes do not saturate. bfdot reads denormals as zeros, and its rounding differs from that
of additions.
Source: Arm Architecture Reference Manual for A-profile, "SDOT (vector)", "USDOT (vector)", "BFDOT (vector)".
"""

from __future__ import annotations

from autotensor import te
from autotensor.codegen.llvm.dots import call
from autotensor.instructions.declare import dot

COLUMNS = 4

for name, shared, own, sums, needs, function in (
    ("sdot", "int8", "int8", "int32", "dotprod", "sdot.v4i32.v16i8"),
    ("udot", "uint8", "uint8", "int32", "dotprod", "udot.v4i32.v16i8"),
    ("usdot", "uint8", "int8", "int32", "i8mm", "usdot.v4i32.v16i8"),
    ("sudot", "int8", "uint8", "int32", "i8mm", "usdot.v4i32.v16i8"),
    ("bfdot", "bfloat16", "bfloat16", "float32", "bf16", "bfdot.v4f32.v8bf16"),
):
    group = 2 if name == "bfdot" else 4
    A, B = te.placeholder((group,), shared), te.placeholder((COLUMNS, group), own)
    q = te.reduce_axis(group)
    C = te.compute((COLUMNS,), lambda j: te.sum(A[q].astype(sums) * B[j, q].astype(sums), axis=q))  # noqa: B023
    write = call(f"llvm.aarch64.neon.{function}", "bfloat" if group == 2 else "i8", swapped=name == "sudot")
    dot(f"aarch64.{name}", C, needs=(needs,), write=write)
