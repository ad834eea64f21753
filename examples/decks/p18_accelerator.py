"""P18: the product on an accelerator: scratch-pads, copies by DMA, an 8×8×8 matrix instruction.

The slide indents the write-back inside the loop over ko: right, but every tile is then written n/8 times.
Both are run here, and then the copies hidden behind the matrix unit.
"""

import argparse
from dataclasses import replace

import numpy as np

from autotensor import te
from autotensor.codegen.vdlc import Instruction, Loop, select
from autotensor.codegen.vdlc_machine import Machine
from autotensor.lowering.pipeline import lower_nest

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=64)
n = options.parse_args().size


def scheduled(n):
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
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
    return s


def write_back_inside(body, pads):
    """Every copy to memory that follows a loop, moved to the end of that loop's body."""
    out = []
    for step in body:
        stores = isinstance(step, Instruction) and step.unit == "dma" and step.regions[0].buffer not in pads
        if stores and out and isinstance(out[-1], Loop):
            out[-1] = replace(out[-1], body=(*out[-1].body, step))
        elif isinstance(step, Loop):
            out.append(replace(step, body=write_back_inside(step.body, pads)))
        else:
            out.append(step)
    return tuple(out)


s = scheduled(n)
print("schedule:")
print(s.trace)
hoisted = select(lower_nest(s.state))
inside = replace(hoisted, body=write_back_inside(hoisted.body, hoisted.pads))
print("\nwrite-back behind the loop over ko:")
print(hoisted)
print("\nwrite-back inside, as on the slide:")
print(inside)

a, b = np.random.default_rng(0).random((2, n, n), dtype=np.float32)
reports = {}
for name, code, overlap in (
    ("inside", inside, False),
    ("behind", hoisted, False),
    ("behind, copies hidden", hoisted, True),
):
    c = np.full((n, n), np.nan, np.float32)
    reports[name] = Machine().run(code, {"A": a, "B": b, "C": c}, overlap=overlap)
    np.testing.assert_allclose(c, a.T @ b, rtol=1e-4)
    print(f"\n{name}: {reports[name]}")

tiles = n // 8
assert reports["inside"].counts["dma_copy2d"] == 3 * tiles**3
assert reports["behind"].counts["dma_copy2d"] == 2 * tiles**3 + tiles**2
assert reports["inside"].cycles - reports["behind"].cycles == 12 * (tiles**3 - tiles**2)
assert reports["behind, copies hidden"].cycles < 0.65 * reports["behind"].cycles
print(f"\nat 1024³ the slide's write-back moves {128**3:,} tiles where {128**2:,} would do")
