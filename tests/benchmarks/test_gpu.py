"""Items of benchmarks/gpu.py where there is no card, through OpenCL; the command itself is in card/."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
@pytest.mark.opencl
def test_items_of_every_stage_run_through_opencl() -> None:
    """One of each: nothing in them is new on a card."""
    from card.stages import STAGES, Setting

    setting = Setting("opencl", small=True, trials=6)
    rows = {name: stage.run(setting, stage.names(setting)[0]) for name, stage in STAGES.items()}
    json.dumps(rows)
    assert rows["products"]["of_hand"] > 0.0
    assert rows["tuning"]["trials"] == 2
    assert all(v > 0.0 for r in rows.values() for name, v in r.items() if name.endswith("_s"))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("target 'cuda' finds no driver for an NVIDIA card here (…).", "driver missing"),
        (
            "a kernel failed on X: cudaErrorIllegalAddress: an illegal memory access was encountered.",
            "kernel failed",
        ),
        ("a kernel failed on X: cudaErrorDevicesUnavailable: all devices are busy.", "lost device"),
        (
            "build: kernel 'C' needs 140 registers in each of its 1024 threads, target sm_80 offers 64.",
            "too few registers",
        ),
    ],
)
def test_failures_have_names(words: str, kind: str) -> None:
    from card.failures import kind_of

    from autotensor.base.errors import TargetError

    assert kind_of(TargetError(words)) == kind
