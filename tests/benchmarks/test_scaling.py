"""Scaling: networks by batch and width, growth from a ladder's first rung, and the page."""

from __future__ import annotations

import argparse
import sys

import numpy as np
import pytest
import scaling
from contests import contestant as contest_child
from contests import scaling_page
from contests.contest import Contestant, Timing
from contests.results import Results
from contests.table import Plan, Row, sets
from jobs.networks import Network
from peers import Spec

LADDERS = (("net@b1", "net@b8", "net@b32"),)


@pytest.fixture
def results(tmp_path):
    found = Results.open(tmp_path / "scaling-t2.json", 2, "Scaling")

    def put(name, flops, seconds, setup_s, peak_mb):
        cell = {"median": seconds, "min": seconds, "rounds": [seconds], "setup_s": setup_s}
        memory = {"setup_bytes": peak_mb << 20, "run_bytes": peak_mb << 19}
        found.put(name, 0, {"flops": flops}, {c: cell | memory for c in ("default", "tuned", "torch")})

    put("net@b1", 1e9, 0.010, 2.0, 200)
    put("net@b8", 8e9, 0.088, 2.5, 300)
    found.data["tuning"] = {
        "net@b1 tuned": {"trials": 50, "reused": 0, "elapsed_s": 20.0},
        "net@b8 tuned": {"trials": 50, "reused": 10, "elapsed_s": 30.0},
    }
    return found


def test_names_say_batch_and_width():
    def said(name):
        n = Network.named(name)
        return n.model, n.batch, dict(n.sizes)

    assert said("resnet18") == ("resnet18", 1, {})
    assert said("resnet18@b8") == ("resnet18", 8, {})
    assert said("mlp@b32w10") == ("mlp", 32, {"widen": 10})
    assert said("mlp@w10") == ("mlp", 1, {"widen": 10})
    assert Network.named("mlp@b2w3").graph().outputs[0].shape == (2, 10)
    with pytest.raises(ValueError, match=r"'resnet18@8' is no network. Networks are called resnet18, "):
        Network.named("resnet18@8")


def test_time_grows_by_the_operation_and_the_rest_as_it_is(results):
    grown = {
        c.title: scaling_page.growth(c, results, "net@b8", "net@b1", "default") for c in scaling_page.COSTS
    }
    assert grown["Latency, ms"] == pytest.approx(1.1)
    assert grown["Set-up, s"] == pytest.approx(1.25)
    assert grown["Peak memory while setting up, MB"] == pytest.approx(1.5)
    assert grown["Tuning, s"] is None
    assert scaling_page.growth(scaling_page.COSTS[0], results, "net@b32", "net@b1", "default") is None


def test_the_page_has_what_is_known(results):
    text = "\n".join(scaling_page.page([results], LADDERS, drawn=False))
    assert "| net@b8 | 8.00 | 88.0 (x1.10) | 88.0 (x1.10) | 88.0 (x1.10) |" in text
    assert "| net@b8 | 8.00 | 300 (x1.50) |" in text
    tuning = text[text.index("### Tuning, s a trial") :]
    assert "| | GFLOP | tuned |" in tuning
    assert "| net@b1 | 1.00 | 0.400 |" in tuning
    assert "| net@b8 | 8.00 | – |" in tuning  # a part of its trials was known
    assert "net@b32" not in text


def test_the_picture(results, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    scaling_page.write([results], (*LADDERS, ("other@b1", "other@b8")), tmp_path / "scaling.md")
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert "![growth](scaling.png)" in (tmp_path / "scaling.md").read_text()
    assert "scaling.png" in capsys.readouterr().out


def test_rows_apart_have_processes_of_their_own():
    rows = [Row(n, dict) for n in "ab"]
    contestants = [Contestant("torch", Spec("torch", 1))]
    plan = Plan("scaling", rows, contestants, Timing(), 2, apart=True)
    units = [(n, row) for n in range(2) for row in rows]
    assert [(n, [r.name for r in mine]) for n, mine in sets(plan, units)] == [
        *((0, ["a"]), (0, ["b"])),
        *((1, ["a"]), (1, ["b"])),
    ]
    together = Plan("models", rows, contestants, Timing(), 2)
    assert [[r.name for r in mine] for _, mine in sets(together, units)] == [["a", "b"]] * 2
    assert sets(plan, []) == sets(together, []) == []


def test_words_of_the_command_line(tmp_path):
    assert scaling.counts("1,4") == (1, 4)
    with pytest.raises(argparse.ArgumentTypeError, match="'0' is no list of thread counts"):
        scaling.counts("0")
    assert scaling.file_of(tmp_path / "a.json", 2) == tmp_path / "a-t2.json"
    assert scaling.names_of("mlp@b32w1,resnet18@b8") == ["resnet18@b8", "mlp@b32w1"]
    assert len(scaling.names_of("")) == sum(map(len, scaling.LADDERS))
    with pytest.raises(SystemExit, match=r"no row is called 'resnet18'. Known: resnet18@b1, "):
        scaling.names_of("resnet18")
    plain = Contestant("inductor", Spec("inductor", 1, environment={"A": "b"}))
    assert scaling.uncached(plain).spec.environment == {"A": "b", **scaling.UNCACHED}


def test_the_peak_of_memory_can_be_forgotten():
    before = contest_child.peak_bytes()
    array = np.ones(64 << 17)  # 64 MB
    during = contest_child.peak_bytes()
    assert during >= before
    assert during > array.nbytes
    del array
    contest_child.forget_peak()
    assert contest_child.peak_bytes() <= during


@pytest.mark.torch
def test_the_whole_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "scaling.json"
    words = ["--only", "small_cnn@b32w1,mlp@b32w1", "--contestants", "default", "--threads", "1"]
    words += ["--tries", "1", "--rounds", "1", "--block", "0.01", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *words])
    assert scaling.main() == 0
    assert "2 units to measure" in capsys.readouterr().out
    text = file.with_suffix(".md").read_text()
    assert text.count("| mlp@b32w1 | 0.034 |") == 5
    assert "refused" not in text
    (unit,) = Results.read(scaling.file_of(file, 1)).rows["small_cnn@b32w1"]["units"]
    ours = unit["cells"]["default"]
    assert ours["error"] < 1e-5
    assert ours["setup_bytes"] >= ours["run_bytes"] / 2 > 1 << 20
    assert scaling.main() == 0
    assert "0 units to measure" in capsys.readouterr().out
