"""AVX512-VNNI and AVX-VNNI: vpdpbusd adds four products of unsigned and signed bytes to each 32-bit integer.

Sums do not saturate. The operand that all columns share may be the unsigned one. A second instruction, with
another name, shares the signed one. Source: Intel Architecture Instruction Set Extensions, "VPDPBUSD".
"""

from __future__ import annotations

from autotensor import te
from autotensor.codegen.llvm.dots import call
from autotensor.instructions.declare import dot

GROUP = 4

for columns, feature, function in (
    (16, "avx512vnni", "llvm.x86.avx512.vpdpbusd.512"),
    (8, "avxvnni", "llvm.x86.avx512.vpdpbusd.256"),
):
    for shared, own in (("uint8", "int8"), ("int8", "uint8")):
        A, B = te.placeholder((GROUP,), shared), te.placeholder((columns, GROUP), own)
        q = te.reduce_axis(GROUP)
        C = te.compute(
            (columns,),
            lambda j: te.sum(A[q].astype("int32") * B[j, q].astype("int32"), axis=q),  # noqa: B023
        )
        name = f"x86.vpdpb{'us' if shared == 'uint8' else 'su'}d.{32 * columns}"
        dot(name, C, needs=(feature,), write=call(function, "i8", swapped=shared == "int8"))
