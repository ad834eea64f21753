"""Peers of tensor programs: they agree with NumPy in float64, and the page describes them."""

from __future__ import annotations

import numpy as np
import pytest
import tensor_programs
from contests.contest import REFERENCE, Field
from jobs.program_job import ProgramJob
from peers import KINDS, Skip, Spec
from peers.numba_programs import text
from suite.programs.drawn import drawn
from suite.programs.scans import SCANS

RELATIVE = 2e-5  # of the largest element
SMALL = range(16)


def check(job: ProgramJob, kind: str) -> None:
    _, output = KINDS[kind](job, Spec(kind, 1))
    found, right = output(), job.reference()
    assert np.abs(found - right).max() <= RELATIVE * np.abs(right).max()


@pytest.mark.torch
@pytest.mark.parametrize("number", SMALL)
def test_torch(number: int) -> None:
    pytest.importorskip("torch")
    check(ProgramJob(drawn(number, small=True)), "torch")


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["correlation", "hotspot", "pyramid", "table", "sixty steps of heat", "scatter"]
)
def test_torch_on_the_suites(name: str) -> None:
    pytest.importorskip("torch")
    check(ProgramJob.named(name), "torch")


@pytest.mark.torch
def test_opt_einsum_takes_part_where_there_is_an_einsum() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("opt_einsum")
    check(ProgramJob.named("mttkrp"), "opt_einsum")
    with pytest.raises(Skip, match="einsum"):
        KINDS["opt_einsum"](ProgramJob.named("jacobi-2d"), Spec("opt_einsum", 1))


@pytest.mark.parametrize("number", SMALL[::4])
def test_numba(number: int) -> None:
    pytest.importorskip("numba")
    check(ProgramJob(drawn(number, small=True)), "numba")


def test_loops_for_numba() -> None:
    """A value read once is written where it is read; columns are summed in parts."""
    code = text(ProgramJob.named("atax").dag, 2)
    assert "for p in numba.prange(2):" in code
    assert "total = (total + (a0[i0, r0] * a1[r0]))" in code
    assert code.count("np.empty") == 2
    assert text(ProgramJob.named("unsharp mask").dag, 2).count("np.empty") == 3
    with pytest.raises(Skip, match="nobody has written loops"):
        text(ProgramJob.named("sixty steps of heat").dag, 2)


def test_steps_of_recurrences() -> None:
    assert ProgramJob.named("filter of 64 channels").steps == 20_000
    assert ProgramJob.named("blur").steps == 0


@pytest.mark.parametrize("number", SMALL[::2])
def test_halide_is_right_however_it_is_written(number: int) -> None:
    pytest.importorskip("halide")
    halide(ProgramJob(drawn(number, small=True)))


@pytest.mark.parametrize("name", ["syrk", "hotspot", "demosaic", "scatter", "filter of 512 channels"])
def test_halide_on_the_suites(name: str) -> None:
    pytest.importorskip("halide")
    halide(ProgramJob.named(name))


def halide(job: ProgramJob) -> None:
    from peers.halide_programs import scheduled, writings

    right = job.reference()
    for writing in writings(job.dag):
        found = job.flat(tuple(scheduled(job.dag, "Mullapudi2016", writing, 2, job.inputs)()))
        assert np.abs(found - right).max() <= RELATIVE * np.abs(right).max(), writing


def test_halide_has_no_program_for_steps_with_sums() -> None:
    pytest.importorskip("halide")
    from peers.halide_programs import Writing, pipeline_of

    recurrent = next(p for p in SCANS if p.name == "recurrent layer")
    with pytest.raises(Skip, match="sums of its own"):
        pipeline_of(ProgramJob(recurrent).dag, Writing())


def test_the_reference_judges_torch_too(tmp_path) -> None:
    field = Field([], tmp_path)
    np.save(tmp_path / f"{REFERENCE}.npy", np.array([1.0, -2.0]))
    np.save(tmp_path / "torch.npy", np.array([1.0, -3.0]))
    cells: dict[str, dict[str, object]] = {"torch": {}, REFERENCE: {}}
    field._compare(cells)
    assert "refused" in cells["torch"]
    assert cells[REFERENCE]["error"] == 0.0


def test_the_page_counts_the_best_peer_and_the_best_autoscheduler() -> None:
    rows = {
        "blur": {"default": 2e-3, "jax": 4e-3, "halide-adams2019": 1e-3, "halide-li2018": 3e-3},
        "gemm": {"default": 1e-3, "torch": 2e-3, "halide-li2018": 9e-1},
        "far": {"default": 1e-6, "jax": 1e-3},
    }
    text = tensor_programs.page(rows)
    assert "| program | default | jax | torch | halide | peer ÷ default |" in text
    assert "| blur | 2.000 | 4.000 |  | 1.000 | 0.50 |" in text
    assert "default: 1.00 times the best peer in the geometric mean (ratios above 10 left out)" in text
    assert "ahead in 2 of 3. Worst: blur 0.50 (halide-adams2019), gemm 2.00 (torch), far" in text
    assert "default: 0.50 times Halide's best autoscheduler on image pipelines and stencils" in text
