"""Inferences as a timeline: rows, rates, one inference after another; the file that trace viewers read."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cli_tools import cli

from autotensor.insight.inference_timeline import INFERENCES, inference_timeline


class Clock:
    """Two kernels on two threads, with times of its own."""

    kernels = ({"name": "a", "workload": "w1", "flops": 2e6}, {"name": "b", "workload": "w2", "flops": 0})

    def __init__(self) -> None:
        self.now = 100.0

    def spans(self) -> list[Any]:
        self.now += 50.0
        t = self.now
        return [((0, t, t + 0.001), (1, t, t + 0.0005)), ((0, t + 0.002, t + 0.003),)]


def test_rows_of_a_timeline() -> None:
    found = inference_timeline(Clock(), "model", peak=4e9)  # type: ignore[arg-type]
    assert found.workers == ("kernels", "thread 0", "thread 1")
    kernels = [s for s in found.spans if s.worker == 0]
    assert [s.name for s in kernels] == ["a", "b"] * INFERENCES
    first = kernels[0]
    assert (first.start_s, first.end_s) == (0.0, pytest.approx(0.001))
    assert first.details["GFLOP/s"] == pytest.approx(2.0)
    assert first.details["% of peak"] == pytest.approx(50.0)
    assert first.details["% of the threads' time at work"] == pytest.approx(75.0)
    assert "GFLOP/s" not in kernels[1].details
    assert found.seconds == pytest.approx(INFERENCES * 0.003)  # without what lies between inferences
    threads = [s for s in found.spans if s.worker == 2]
    assert [(s.name, pytest.approx(0.0005)) for s in threads] == [("a", s.end_s - s.start_s) for s in threads]


def test_the_file_of_bench(tmp_path: Path, own_log: None) -> None:
    path = tmp_path / "trace.json"
    said = cli("bench", "mlp", "--repeat", "3", "--threads", "1", "--trace", path, "--no-shipped")
    assert said.code == 0, said.err
    assert f"{path}: 3 kernels and their threads" in said.err
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {0: "kernels", 1: "thread 0"}
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == 2 * 3 * INFERENCES
    assert all(e["dur"] > 0.0 for e in spans)
    for row in names:
        mine = [e for e in spans if e["tid"] == row]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(mine))


def test_what_has_no_timeline_says_so(tmp_path: Path) -> None:
    said = cli("bench", "mlp", "--trace", tmp_path / "no" / "folder" / "trace.json")
    assert said.code == 1
    assert str(tmp_path / "no" / "folder") in said.err
    assert said.err.count("\n") == 1
