"""Every program of the decks runs; each example checks the numbers that its deck promises."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from autotensor import flow
from autotensor.base import switches

DECKS = Path(__file__).parents[2] / "examples" / "decks"
PROGRAMS = sorted(DECKS.glob("*.py"))
SMALL = {
    "p05_logistic_regression": ["--steps", "200"],
    "p06_two_layers_adagrad": ["--steps", "100"],
}
PROMISED = {  # what a deck's reader looks for in the output
    "p01_backward_graph": "y = 247.691932, dy/dx1 = 368.037898, dy/dx2 = 489.383865",
    "p08_imperative_backward": "x.grad = tensor(2.)  y.grad = tensor(-2.)",
    "p10_eager_values": "v4 = tensor([ 10.1073",
    "p12_switch_merge": "switch_3_false: live",
    "p15_side_by_side": "D = [[12.0, 12.0], [12.0, 12.0]]",
    "p16_naive_gemm": "2.147 GFLOP",
    "p20_conv_batch_norm": "operators 4 ──▶ 2",
    "p21_sum_of_convolutions": "convolutions 2 ──▶ 1",
    "zero_memory": "120.0   31.4   16.6    1.9",
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_program(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program), *SMALL.get(program.stem, [])])
    monkeypatch.chdir(tmp_path)
    with flow.Graph().as_default(), switches.override(db=":memory:"):
        runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    assert PROMISED.get(program.stem, "") in printed


def test_all_programs_are_there() -> None:
    assert {f"p{n:02}" for n in range(1, 25)} <= {p.stem[:3] for p in PROGRAMS}
