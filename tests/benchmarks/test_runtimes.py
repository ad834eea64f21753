"""The runtimes of README's table: their environments, and the text about them."""

from __future__ import annotations

import json
import sys

import pytest
from contests.contest import child_of
from contests.readme_table import page
from contests.table import SETUP_S, peers, why_missing
from peers import KINDS, RUNTIMES, Spec, environments
from peers.environments import ENVIRONMENTS, python_of


def test_every_runtime_has_a_home_and_a_guess_of_its_set_up():
    assert set(RUNTIMES) < set(KINDS)
    assert set(RUNTIMES) < set(SETUP_S)
    housed = [kind for e in ENVIRONMENTS.values() for kind in e.kinds]
    assert len(housed) == len(set(housed))
    assert set(housed) < set(KINDS)


def test_a_runtime_lives_in_its_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "cache_folder", lambda: str(tmp_path))
    assert python_of("torch") == sys.executable
    assert python_of("mnn") == str(tmp_path / "environments" / "files" / "bin" / "python")
    assert child_of(Spec("mnn", 1)).command[0] == python_of("mnn")
    assert why_missing("mnn") == "python benchmarks/peers/environments.py installs MNN."
    assert why_missing("numpy") == ""


def test_all_runtimes_are_asked_only_where_a_table_wants_them():
    names = [c.spec.kind for c in peers(2, "/nowhere", runtimes=True)]
    assert list(dict.fromkeys(names)) == list(RUNTIMES)
    assert {c.spec.kind for c in peers(2, "/nowhere")} == {"torch", "inductor", "onnxruntime", "openvino"}


def results(tmp_path, cpu, ours, tuned=None):
    def cell(seconds):
        return {"median": seconds, "min": seconds, "rounds": [seconds], "error": 0.0}

    cells = {"default-fast": cell(ours), "torch": cell(9e-3), "torch-cl": cell(8e-3), "ncnn": cell(4e-3)}
    cells["mnn"] = {"failed": "it was killed."}
    if tuned is not None:
        cells["tuned-fast"] = cell(tuned)
    row = {"units": [{"when": "2026-11-23", "cells": cells}]}
    path = tmp_path / f"{cpu}.json"
    path.write_text(json.dumps({"machine": {"cpu": cpu}, "threads": 2, "rows": {"resnet18": row}}))
    return path


def test_the_least_favourable_processor_stands_first(tmp_path):
    paths = [results(tmp_path, "Fast", 1e-3), results(tmp_path, "Slow", 5e-3)]
    lines = page(paths).splitlines()
    assert lines[0] == "Slow, 2 threads: 0.80 × the best peer in the geometric mean"
    assert lines[4] == "| ResNet-18 | 5.00 | – | ncnn 4.00 | torch-cl 8.00 | 0.80 × | 2 |"
    assert any(line.startswith("Fast, 2 threads: 4.00 ×") for line in lines)


def test_what_counts_is_the_tuned_time(tmp_path):
    """The tuned time counts even if it is the longer one, because a user who tunes gets that file."""
    lines = page([results(tmp_path, "Odd", 2e-3, tuned=2.5e-3)]).splitlines()
    assert lines[4] == "| ResNet-18 | 2.00 | 2.50 | ncnn 4.00 | torch-cl 8.00 | 1.60 × | 2 |"


@pytest.mark.slow
def test_environments_hold_what_their_runtimes_import():
    """Only those that were made on this machine."""
    import subprocess

    modules = {"mnn": "MNN", "iree": "iree.runtime", "xla": "torchax", "litert": "litert_torch"}
    for kind in (k for e in ENVIRONMENTS.values() for k in e.kinds):
        if not why_missing(kind):
            subprocess.run(
                [python_of(kind), "-c", f"import {modules.get(kind, kind.partition('-')[0])}"], check=True
            )
