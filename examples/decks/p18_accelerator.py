"""P18: the product on an accelerator: scratch-pads, copies by DMA, an 8×8×8 matrix instruction.

The slide puts the write-back inside the loop over ko. The result is right, but every tile is written n/8
times. This program runs both versions, and then a version in which copies run while the matrix unit computes.
"""

import argparse

import numpy as np

import autotensor as at
from autotensor import te

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=64)
n = options.parse_args().size

A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
k = te.reduce_axis((0, n), name="k")
C = te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")

s = te.create_schedule(C.op)
CL = s.cache_write(C, "local")  # the instructions determine where their operands are stored
yo, yi = s[C].split(C.op.axis[0], factor=8)
xo, xi = s[C].split(C.op.axis[1], factor=8)
s[C].reorder(yo, xo, yi, xi)
s[CL].compute_at(s[C], xo)
y, x = CL.op.axis
ko, ki = s[CL].split(CL.op.reduce_axis[0], factor=8)
s[CL].reorder(ko, y, x, ki)
for tensor in (A, B):
    local = s.cache_read(tensor, "local", [CL])
    s[local].compute_at(s[CL], ko)
    s[local].tensorize(local.op.axis[0], "vdlc.dma_copy2d")
s[CL].tensorize(y, "vdlc.fused_gemm8x8_add")
s[C].tensorize(yi, "vdlc.dma_copy2d")
print("schedule:")
print(s.trace)

a, b = np.random.default_rng(0).random((2, n, n), dtype=np.float32)
reports = {}
for name, target in (
    ("inside", "vdlc -write-back=inside"),
    ("behind", "vdlc -write-back=behind"),
    ("behind, copies hidden", "vdlc -write-back=behind -overlap=yes"),
):
    f = at.build(s, [A, B, C], target=target)
    np.testing.assert_allclose(f(a, b), a.T @ b, rtol=1e-4)
    reports[name] = f.report
    if "hidden" not in name:
        print(f"\nwrite-back {name} the loop over ko:")
        print(f.source("vdlc"))
    print(f"\n{name}: {f.report}")

tiles = n // 8
copies = {name: report.counts["vdlc.dma_copy2d"] for name, report in reports.items()}
assert copies["inside"] == 3 * tiles**3
assert copies["behind"] == 2 * tiles**3 + tiles**2
assert reports["inside"].cycles - reports["behind"].cycles == 12 * (tiles**3 - tiles**2)
assert reports["behind, copies hidden"].cycles < 0.65 * reports["behind"].cycles
print(f"\nat 1024³ the slide's write-back moves {128**3:,} tiles where {128**2:,} would do")
