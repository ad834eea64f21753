"""AVX2 and AVX-512: vpmaddwd multiplies signed 16-bit integers and adds two products, without saturation.

Bytes are widened beforehand. vpmaddubsw takes bytes but saturates at 16 bits (255 * 127 * 2 does not fit), so
it is not used. Source: Intel 64 and IA-32 Architectures Software Developer's Manual, "PMADDWD".
"""

from __future__ import annotations

from autotensor import te
from autotensor.codegen.llvm.dots import call_and_add
from autotensor.instructions.declare import dot

for columns, feature, function in (
    (16, "avx512bw", "llvm.x86.avx512.pmaddw.d.512"),
    (8, "avx2", "llvm.x86.avx2.pmadd.wd"),
):
    A, B = te.placeholder((2,), "int16"), te.placeholder((columns, 2), "int16")
    q = te.reduce_axis(2)
    C = te.compute(
        (columns,),
        lambda j: te.sum(A[q].astype("int32") * B[j, q].astype("int32"), axis=q),  # noqa: B023
    )
    dot(f"x86.vpmaddwd.{32 * columns}", C, needs=(feature,), write=call_and_add(function, "i16"))
