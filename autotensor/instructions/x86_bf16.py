"""AVX512-BF16: vdpbf16ps adds two products of bfloat16 to each float32.

It reads denormals as zeros and never returns denormals. It rounds to nearest even in every rounding mode.
Source: Intel Architecture Instruction Set Extensions, "VDPBF16PS".
"""

from __future__ import annotations

from autotensor import te
from autotensor.codegen.llvm.dots import call
from autotensor.instructions.declare import dot

A, B = te.placeholder((2,), "bfloat16"), te.placeholder((16, 2), "bfloat16")
q = te.reduce_axis(2)
C = te.compute((16,), lambda j: te.sum(A[q].astype("float32") * B[j, q].astype("float32"), axis=q))
dot("x86.vdpbf16ps.512", C, needs=("avx512bf16",), write=call("llvm.x86.avx512bf16.dpbf16ps.512", "bfloat"))
