"""benchmarks/gpu.py where there is no card: what it says, and the parts that need none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from autotensor.base.errors import TargetError
from autotensor.base.target import parse


def test_without_a_card_it_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import gpu

    def no_card(_: object) -> None:
        raise TargetError("target 'cuda' finds no NVIDIA card here.", fix="Use --target opencl.")

    monkeypatch.setattr(gpu, "device_of", no_card)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "gpu.json")])
    with pytest.raises(SystemExit) as stopped:
        gpu.main()
    assert str(stopped.value) == "gpu.py: target 'cuda' finds no NVIDIA card here. Use --target opencl."
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.opencl
def test_the_parts_run_through_opencl() -> None:
    """A row of each part but `operators`, which tests/operators has: nothing in them is new on a card."""
    import gpu

    target = parse("opencl")
    rows = [
        next(gpu.products(target, 0, gpu.Clock(1.0), (64,))),
        next(gpu.memory(target, 1 << 12)),
        next(gpu.layers(target, True)),
        next(gpu.models(target, True)),
    ]
    json.dumps(rows)
    assert rows[0]["error"] < gpu.NEAR
    assert all(v > 0.0 for r in rows for name, v in r.items() if name.endswith("_s"))
