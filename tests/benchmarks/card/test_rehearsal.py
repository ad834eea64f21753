"""`benchmarks/gpu.py --rehearse`: the whole command on a card made of NumPy, with failures planted in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from autotensor.codegen.c import nvrtc

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.skipif(nvrtc.library() is None, reason=f"NVRTC is not installed. {nvrtc.INSTALL}."),
    pytest.mark.timeout(900),
]

PLANTED = {  # of an item each; more are of the card itself
    "kernels/elementwise": "wrong number",
    "kernels/vectors": "hang",
    "kernels/matmul": "launch error",
    "kernels/padded_rows": "out of memory",
    "kernels/aligned_rows": "lost device",
    "kernels/swizzled_rows": "too few registers",
    "kernels/copied_ahead": "compile error",
    "kernels/row_sums": "child killed",
    "kernels/warp_sums": "NaN",
    "kernels/block_sums": "old driver",
}
UNENDED = "Timeout ("  # says a program that was stopped, and where it was
OF_THE_CARD = ("driver missing", "another capability", "compiler missing")
SOME = (
    "elementwise",
    "vectors",
    "matmul",
    "row_sums",
    "warp_sums",
    "arg_max",
    "softmax",
    "split_k",
    "untouched",
)


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "benchmarks/gpu.py", "--rehearse", "--out", str(out / "gpu.json"), *more]


def run(out: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(command(out, *more), cwd=ROOT, capture_output=True, text=True, check=False)
    assert (out / "gpu.json").exists(), done.stderr
    found: dict[str, Any] = json.loads((out / "gpu.json").read_text())
    assert done.returncode == len(found["failures"]), done.stderr
    assert "<h1>autotensor on a card</h1>" in (out / "gpu.html").read_text()
    return found


def executed(failure: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs the failure's own program by itself, without this test's environment."""
    assert len(failure["repro"].splitlines()) <= 10
    alone = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CARD_ITEM")}
    command = [sys.executable, "-c", failure["repro"]]
    return subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)


def shown_again(failure: dict[str, Any]) -> str:
    """The output of the program, and its exit code."""
    found = executed(failure)
    assert found.returncode != 0, "the repro does not fail"
    return f"{found.stderr}\nended with {found.returncode}"


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*PLANTED], marks=pytest.mark.slow, id="all"),
        pytest.param(["kernels/elementwise", "kernels/matmul", "kernels/row_sums"], id="some"),
    ],
)
def test_planted_failures_of_items_are_each_reported_by_name(tmp_path: Path, names: list[str]) -> None:
    planted = {name: PLANTED[name] for name in names}
    items = [*planted, "kernels/arg_max"]
    plant = json.dumps(planted)
    found = run(tmp_path, "--stages", "kernels", "--only", *items, "--plant", plant, "--item-s", "6")
    assert {f"{f['stage']}/{f['item']}": f["kind"] for f in found["failures"]} == planted
    assert set(found["stages"]["kernels"]["rows"]) == {"arg_max"}, "the rest goes on"
    one = next(f for f in found["failures"] if f["kind"] == "launch error")
    assert "CUDA_ERROR_INVALID_VALUE" in shown_again(one)


@pytest.mark.slow
def test_every_repro_shows_its_failure_again(tmp_path: Path) -> None:
    given = ("--stages", "kernels", "--only", *PLANTED, "--plant", json.dumps(PLANTED), "--item-s", "6")
    for failure in run(tmp_path, *given)["failures"]:
        words = failure["what"].split(":")[-1].strip()
        assert (UNENDED if failure["kind"] == "hang" else words) in shown_again(failure), failure


@pytest.mark.sample(1)
@pytest.mark.parametrize("fault", OF_THE_CARD)
def test_a_card_that_does_not_fit_ends_nothing_in_a_trace(tmp_path: Path, fault: str) -> None:
    plant = json.dumps({"*": fault})
    given = ("--target", "cuda -arch=sm_80", "--stages", "kernels", "--only", "kernels/matmul")
    found = run(tmp_path, *given, "--plant", plant)
    assert [(f["stage"], f["kind"]) for f in found["failures"]] == [("card", fault), ("kernels", "not run")]
    of_the_card, not_run = found["failures"]
    assert of_the_card["what"].split(":")[-1].strip() in shown_again(of_the_card)
    assert not_run["repro"] == of_the_card["repro"], "what keeps it from running is shown"


@pytest.mark.slow
def test_a_stage_that_is_too_slow_is_left_at_its_limit(tmp_path: Path) -> None:
    plant = json.dumps({"kernels/matmul": "time limit"})
    items = ("kernels/elementwise", "kernels/matmul", "kernels/row_sums")
    found = run(tmp_path, "--stages", "kernels", "--only", *items, "--plant", plant, "--stage-s", "20")
    assert [(f["item"], f["kind"]) for f in found["failures"]] == [
        ("matmul", "time limit"),
        ("row_sums", "time limit"),
    ]
    assert set(found["stages"]["kernels"]["rows"]) == {"elementwise"}
    too_slow, without_time = found["failures"]
    assert UNENDED in shown_again(too_slow)
    assert "right" in without_time["what"]
    assert "worst" in executed(without_time).stdout, "alone it is right"
    again = run(tmp_path, "--stages", "kernels", "--only", *items)
    assert not again["failures"], "what had no time gets it when the command is given again"
    assert set(again["stages"]["kernels"]["rows"]) == {i.partition("/")[2] for i in items}


@pytest.mark.sample(1)
@pytest.mark.parametrize("moment", range(20))
def test_killed_it_goes_on_where_it_was(tmp_path: Path, moment: int) -> None:
    """The command is killed when its journal has `moment` lines. In every other case, the last line is cut
    off."""
    given = ("--stages", "kernels", "--only", *(f"kernels/{n}" for n in SOME))
    journal = tmp_path / "gpu.jsonl"
    process = subprocess.Popen(command(tmp_path, *given), cwd=ROOT, stdout=subprocess.DEVNULL)
    while process.poll() is None and lines_of(journal) < moment:
        time.sleep(0.005)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.3)  # its child ends when it does
    before = journal.read_bytes() if journal.exists() else b""
    if moment % 2:
        journal.write_bytes(before[:-7])
    found = run(tmp_path, *given)
    assert not found["failures"]
    assert set(found["stages"]["kernels"]["rows"]) == set(SOME)
    settled = [e["item"] for e in entries_of(journal) if "status" in e and e["stage"] == "kernels"]
    assert len(settled) == len(SOME), "what was done is not done again"


def lines_of(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def entries_of(journal: Path) -> list[dict[str, Any]]:
    found = []
    for line in journal.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(4000)
def test_the_whole_command_is_green(tmp_path: Path) -> None:
    from card.stages import STAGES

    found = run(tmp_path, "--trials", "6")
    assert not found["failures"]
    assert list(found["stages"]) == list(STAGES)
    assert all(stage["right"] > 0 for stage in found["stages"].values())
