"""Without a card, the report lists the parts that were found and the steps to take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from card.machine import what_is_here, what_to_do

ROOT = Path(__file__).parents[3]
NOTHING: dict[str, Any] = {
    "cards on the bus": [],
    "driver": None,
    "device files": [],
    "in WSL": False,
    "nvidia-smi": [],
    "CUDA_VISIBLE_DEVICES": None,
    "NVRTC": "12.9",
    "packages": {"cupy-cuda12x": "14.2.0"},
}
CARD = {"cards on the bus": ["0000:01:00.0"]}
READY = {**CARD, "driver": "NVRM version: 570", "device files": ["nvidia0"], "nvidia-smi": ["GPU 0: H200"]}


def a_machine(root: Path) -> None:
    """A card on the bus, another device of the same maker, and a driver."""
    for name, kind in (("0000:01:00.0", "0x030200"), ("0000:01:00.1", "0x040300")):
        device = root / "sys" / "bus" / "pci" / "devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text(f"{kind}\n")
    (root / "proc" / "driver" / "nvidia").mkdir(parents=True)
    (root / "proc" / "driver" / "nvidia" / "version").write_text("NVRM version: 570.1\nGCC version: 12\n")
    (root / "dev").mkdir()
    (root / "dev" / "nvidia0").touch()
    (root / "dev" / "nvidiactl").touch()


def test_what_is_here_is_read_from_the_system(tmp_path: Path) -> None:
    assert what_is_here(tmp_path)["cards on the bus"] == []
    a_machine(tmp_path)
    found = what_is_here(tmp_path)
    assert found["cards on the bus"] == ["0000:01:00.0"]
    assert found["driver"] == "NVRM version: 570.1"
    assert found["device files"] == ["nvidia0"]
    assert "numpy" in found["packages"]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "No NVIDIA card is on this machine"),
        (CARD, "install NVIDIA's driver"),
        ({**CARD, "nvidia-smi": ["NVIDIA-SMI has failed"]}, "install NVIDIA's driver"),
        ({**CARD, "driver": "NVRM version: 570"}, "--gpus all"),
        ({**READY, "packages": {}}, "CuPy is missing"),
        ({**READY, "NVRTC": None}, "NVRTC, the compiler, is missing"),
        ({**READY, "CUDA_VISIBLE_DEVICES": ""}, "unset it"),
        ({**READY, "packages": {"cupy-cuda12x": "14", "cupy-cuda13x": "14"}}, "several CuPys"),
    ],
)
def test_the_first_cause_is_said_with_its_remedy(found: dict[str, Any], words: str) -> None:
    assert words in what_to_do({**NOTHING, **found})[0]


def test_a_card_that_is_ready_needs_nothing() -> None:
    assert what_to_do({**NOTHING, **READY}) == []


def test_without_a_card_the_whole_command_says_so(tmp_path: Path) -> None:
    """In the output, in JSON and on the page. Items that did not run are counted, and not listed."""
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu.py", "--target", "cuda -arch=sm_80", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},  # hides a card of this machine
    )
    assert done.returncode == 100, done.stderr
    found = json.loads(out.read_text())
    assert found["card"] is None
    assert found["here"]["python"] == sys.version.split()[0]
    assert found["to_do"]
    assert all(f"To do: {step}" in done.stdout for step in found["to_do"])
    assert len(done.stdout.splitlines()) < 30
    page = out.with_suffix(".html").read_text()
    assert "<h2>What to do</h2>" in page
    assert "items were not run" in page
    assert page.count("<h3 class=bad>") == 1
