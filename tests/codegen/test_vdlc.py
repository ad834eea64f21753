"""The simulated accelerator: instructions found in loops, answers, cycles, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import te
from autotensor.base.errors import CodegenError
from autotensor.codegen.vdlc import Code, select
from autotensor.codegen.vdlc_machine import Machine
from autotensor.lowering.pipeline import lower_nest


def product(m: int, n: int, h: int, tile: int = 8, cached: bool = True) -> Code:
    A, B = te.placeholder((h, m), name="A"), te.placeholder((h, n), name="B")
    k = te.reduce_axis((0, h), name="k")
    C = te.compute((m, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    yo, yi = s[C].split(C.op.axis[0], factor=tile)
    xo, xi = s[C].split(C.op.axis[1], factor=tile)
    s[C].reorder(yo, xo, yi, xi)
    s[CL].compute_at(s[C], xo)
    y, x = CL.op.axis
    ko, ki = s[CL].split(CL.op.reduce_axis[0], factor=tile)
    s[CL].reorder(ko, y, x, ki)
    for tensor in (A, B) if cached else ():
        local = s.cache_read(tensor, "local", [CL])
        s[local].compute_at(s[CL], ko)
    return select(lower_nest(s.state))


def test_the_decks_listing() -> None:
    assert (
        str(product(16, 24, 32))
        == """\
acc_buffer C.local[8][8]
inp_buffer A.local[8][8]
inp_buffer B.local[8][8]
for y.0 in range(2):
  for x.0 in range(3):
    vdlc.fill_zero(C.local)
    for k.0 in range(4):
      vdlc.dma_copy2d(A.local, A[k.0*8:+8][y.0*8:+8])
      vdlc.dma_copy2d(B.local, B[k.0*8:+8][x.0*8:+8])
      vdlc.fused_gemm8x8_add(C.local, A.local, B.local)
    vdlc.dma_copy2d(C[y.0*8:+8][x.0*8:+8], C.local)"""
    )


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("shape", [(8, 16, 8), (16, 24, 32)])
def test_answers_and_counts(shape: tuple[int, int, int], overlap: bool) -> None:
    m, n, h = shape
    rng = np.random.default_rng(0)
    a, b = rng.random((h, m), dtype=np.float32), rng.random((h, n), dtype=np.float32)
    c = np.full((m, n), np.nan, np.float32)
    report = Machine().run(product(m, n, h), {"A": a, "B": b, "C": c}, overlap=overlap)
    np.testing.assert_allclose(c, a.T @ b, rtol=1e-5)
    tiles, steps = m * n // 64, m * n * h // 512
    assert report.counts == {"fill_zero": tiles, "dma_copy2d": 2 * steps + tiles, "fused_gemm8x8_add": steps}
    assert report.busy == {"dma": 12 * (2 * steps + tiles), "matrix": 24 * steps + 8 * tiles}
    if overlap:
        assert max(report.busy.values()) <= report.cycles < sum(report.busy.values())
    else:
        assert report.cycles == sum(report.busy.values())


def test_scratch_pads_are_small() -> None:
    code = product(8, 16, 8)
    arrays = {
        "A": np.zeros((8, 8), np.float32),
        "B": np.zeros((8, 16), np.float32),
        "C": np.zeros((8, 16), np.float32),
    }
    small = Machine(pad_bytes={"inp_buffer": 512, "acc_buffer": 512})
    small.run(code, arrays)
    with pytest.raises(CodegenError, match="inp_buffer has 512 bytes, this schedule needs 1024"):
        small.run(code, arrays, overlap=True)


@pytest.mark.parametrize(
    "make", [lambda: product(16, 16, 16, tile=4), lambda: product(16, 16, 16, cached=False)]
)
def test_loops_that_no_instruction_does(make) -> None:
    with pytest.raises(CodegenError, match=r"vdlc has no instruction for\n(.|\n)*multiplies 8x8 tiles"):
        make()
