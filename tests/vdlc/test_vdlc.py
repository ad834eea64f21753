"""The simulated accelerator: declared instructions, answers, cycles, options, refusals."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest

import autotensor as at
import autotensor.vdlc
from autotensor import te
from autotensor.base.errors import (
    AutotensorError,
    CodegenError,
    InputError,
    LoweringError,
    ScheduleError,
    TargetError,
)
from autotensor.base.target import Target, parse
from autotensor.codegen.interp.interpreter import run_program
from autotensor.lowering.pipeline import lower
from autotensor.schedule.schedule import Schedule
from autotensor.search.machine import calibration

GEMM, COPY = "vdlc.fused_gemm8x8_add", "vdlc.dma_copy2d"


def product(m: int, n: int, h: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A, B = te.placeholder((h, m), name="A"), te.placeholder((h, n), name="B")
    k = te.reduce_axis((0, h), name="k")
    return A, B, te.compute((m, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")


def scheduled(
    args: tuple[te.Tensor, te.Tensor, te.Tensor],
    tile: int = 8,
    cached: bool = True,
    gemm: str = GEMM,
    copy: str = COPY,
    rows_first: bool = False,
) -> Schedule:
    A, B, C = args
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    yo, yi = s[C].split(C.op.axis[0], factor=tile)
    xo, xi = s[C].split(C.op.axis[1], factor=tile)
    s[C].reorder(yo, xo, yi, xi)
    s[CL].compute_at(s[C], xo)
    y, x = CL.op.axis
    ko, ki = s[CL].split(CL.op.reduce_axis[0], factor=tile)
    s[CL].reorder(ko, *((y, x, ki) if rows_first else (ki, y, x)))
    for tensor in (A, B) if cached else ():
        local = s.cache_read(tensor, "local", [CL])
        s[local].compute_at(s[CL], ko)
        if copy:
            s[local].tensorize(local.op.axis[0], copy)
    if gemm:
        s[CL].tensorize(y if rows_first else ki, gemm)
    s[C].tensorize(yi, COPY)
    return s


LISTING = """\
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


@pytest.mark.parametrize("rows_first", [False, True])
def test_the_decks_listing(rows_first: bool) -> None:
    args = product(16, 24, 32)
    assert at.build(scheduled(args, rows_first=rows_first), args, target="vdlc").source("vdlc") == LISTING


def test_the_default_schedule_is_the_decks() -> None:
    listing = at.build(product(16, 24, 32), target="vdlc").source("vdlc")
    assert re.sub(r"\bi0", "y", listing) == LISTING


def test_the_slides_write_back() -> None:
    args = product(16, 24, 32)
    inside = at.build(scheduled(args), args, target="vdlc -write-back=inside").source("vdlc")
    assert inside.splitlines()[-1] == "      vdlc.dma_copy2d(C[y.0*8:+8][x.0*8:+8], C.local)"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("shape", [(8, 16, 8), (16, 24, 32)])
def test_answers_and_counts(shape: tuple[int, int, int], inside: bool, overlap: bool) -> None:
    m, n, h = shape
    rng = np.random.default_rng(0)
    a, b = rng.random((h, m), dtype=np.float32), rng.random((h, n), dtype=np.float32)
    options = f"-overlap={'yes' if overlap else 'no'} -write-back={'inside' if inside else 'behind'}"
    f = at.build(product(m, n, h), target=f"vdlc {options}")
    np.testing.assert_allclose(f(a, b), a.T @ b, rtol=1e-5)
    tiles, steps = m * n // 64, m * n * h // 512
    copies = 2 * steps + (steps if inside else tiles)
    assert f.report.counts == {"vdlc.fill_zero": tiles, COPY: copies, GEMM: steps}
    assert f.report.busy == {"dma": 12 * copies, "matrix": 24 * steps + 8 * tiles}
    if overlap:
        assert max(f.report.busy.values()) <= f.report.cycles < sum(f.report.busy.values())
    else:
        assert f.report.cycles == sum(f.report.busy.values())


def test_scratch_pads_are_small() -> None:
    args = product(8, 16, 8)
    at.build(args, target="vdlc -inp-buffer=512")
    with pytest.raises(CodegenError, match="inp_buffer has 512 bytes, this schedule needs 1024"):
        at.build(args, target="vdlc -inp-buffer=512 -overlap=yes")


def test_saved_and_loaded(tmp_path: Path) -> None:
    f = at.build(product(8, 16, 8), target="vdlc")
    f.save(tmp_path / "k.atm")
    g = at.load(tmp_path / "k.atm")
    a, b = np.ones((8, 8), np.float32), np.ones((8, 16), np.float32)
    assert g(a, b).tolist() == np.full((8, 16), 8.0).tolist()
    f(a, b)
    assert str(g.report) == str(f.report)


def test_the_interpreter_runs_the_loops_that_are_marked() -> None:
    args = product(16, 16, 16)
    a, b = np.random.default_rng(0).random((2, 16, 16), dtype=np.float32)
    arrays = {"A": a, "B": b, "C": np.empty((16, 16), np.float32)}
    run_program(lower(scheduled(args).state, parse("interp")), arrays)
    np.testing.assert_allclose(arrays["C"], a.T @ b, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gemm": ""}, CodegenError, r"vdlc has no instruction for\n(.|\n)*tensorize: vdlc.dma_copy2d, v"),
        ({"copy": ""}, CodegenError, r"vdlc has no instruction for\n"),
        ({"cached": False}, CodegenError, r"reads 'A' from memory.*cache_read it to the inp_buffer"),
        ({"tile": 4}, CodegenError, r"vdlc has no instruction for\n"),
        ({"tile": 4, "rows_first": True}, LoweringError, r"vdlc.\w+ does not fit\n(.|\n)*It computes\n"),
        ({"gemm": COPY}, LoweringError, r"tensorize: vdlc.dma_copy2d does not fit\n"),
        ({"gemm": "vdlc.conv"}, ScheduleError, r"'vdlc.conv' is unknown. Known: .*, vdlc.fused_gemm8x8_add"),
        ({"gemm": "toy.gemm"}, ScheduleError, r"'toy.gemm' is unknown. Known: mma.m16n8k8.tf32"),
    ],
)
def test_what_it_cannot_do(options: dict[str, object], error: type[AutotensorError], message: str) -> None:
    args = product(16, 16, 16)
    with pytest.raises(error, match=message):
        at.build(scheduled(args, **options), args, target="vdlc")  # type: ignore[arg-type]


def test_a_loop_is_marked_once() -> None:
    args = product(16, 16, 16)
    s = scheduled(args)
    with pytest.raises(ScheduleError, match=r"axis 'k.1' of stage 'C.local' is unrolled already"):
        s["C.local"].tensorize("k.1", GEMM)


def test_other_computations_get_one_sentence() -> None:
    A = te.placeholder((8, 8), name="A")
    with pytest.raises(CodegenError, match="vdlc has no instruction for"):
        at.build([A, te.compute((8, 8), lambda i, j: A[i, j] + 1.0)], target="vdlc")


def test_tuning_is_refused_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "calibrated", lambda *_, **__: pytest.fail("a processor was calibrated"))
    with pytest.raises(InputError, match=r"'vdlc' cannot be measured here.*build takes its default schedule"):
        at.tune(product(8, 8, 8), trials=4, target="vdlc", db=":memory:", progress=False)


def test_options() -> None:
    assert Target.parse("vdlc -overlap=yes").features.startswith("-overlap=yes,-write-back=behind")
    for text in ("-overlap=maybe", "-cores=2", "-inp-buffer=many"):
        with pytest.raises(TargetError, match=rf"'{text}' is unknown. Known: -overlap=no\|yes, .*=BYTES"):
            Target.parse(f"vdlc {text}")


def test_the_plug_in_is_small() -> None:
    """Counts lines as the documentation does: without empty lines, comments and docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    count = 0
    for file in Path(autotensor.vdlc.__file__).parent.glob("*.py"):
        lines: set[int] = set()
        before = tokenize.NEWLINE
        for t in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
            text = t.type == tokenize.STRING and before in skipped
            if t.type not in skipped and not text:
                lines.update(range(t.start[0], t.end[0] + 1))
            before = t.type
        count += len(lines)
    assert count < 300
