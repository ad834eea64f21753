"""Results of runs that are continued, and their tables."""

from __future__ import annotations

import argparse
import json
import sys

import pytest
from contests import report
from contests.contest import Contestant, Timing
from contests.published_table import Table, is_mine
from contests.results import Results
from contests.table import Plan, Row, Tuning, backend, chosen, duration, make, measure_all, ours, units_left
from peers import Spec


def cell(seconds, **more):
    return {"median": seconds, "min": 0.9 * seconds, "rounds": [seconds], "error": 0.0, **more}


def unit(ours=1e-3, torch=2e-3, other=4e-3, fast=None):
    cells = {"default": cell(ours), "torch": cell(torch), "openvino": cell(other)}
    cells["default-fast"] = {"skip": "as strict"} if fast is None else cell(fast)
    return cells


@pytest.fixture
def results(tmp_path):
    return Results.open(tmp_path / "t.json", 2, "Title")


def page(results):
    return "\n".join(report._page(results, Table.of(results), 1e6, "us", []))


def test_a_table_says_how_sure_it_is(results):
    for n, factor in enumerate((1.0, 1.01, 0.99)):
        results.put("A.s0.b1", n, {"flops": 2e6}, unit(torch=2e-3 * factor))
        results.put("B.s0.b1", n, {"flops": 2e6}, unit(torch=0.5e-3 * factor, fast=0.25e-3))
    text = page(results)
    assert "| default | 1.00 (1 – 0 – 1) | 4.00 (2 – 0 – 0) | 1.00 (1 – 0 – 1) |" in text
    assert "| default-fast | 2.00 (2 – 0 – 0) |" in text  # where it is skipped it counts as strict
    medians = next(x for x in text.splitlines() if x.startswith("| A.s0.b1 |"))
    assert "| 2.00 | **1000** | 1000 | 2000 | 4000 | torch | 2.00 (≥ 1.97)" in medians


def test_one_process_claims_nothing(results):
    results.put("A.s0.b1", 0, {"flops": 2e6}, unit())
    assert "| default | 2.00 (0 – 1 – 0) |" in page(results)


def test_a_row_of_ours_that_differs_is_withheld(results):
    results.put("good", 0, {}, unit())
    wrong = unit()
    wrong["default"] = {"error": 0.5, "refused": "differs from torch by 5.0e-01"}
    results.put("bad", 0, {}, wrong)
    text = page(results)
    assert "| bad |" not in text
    assert "WITHHELD: bad, default differs from torch by 5.0e-01" in text


def test_a_peer_that_differs_or_fails_loses_its_cell_only(results):
    cells = unit()
    cells["openvino"] = {"error": 0.1, "refused": "differs from torch by 1.0e-01"}
    results.put("A.s0.b1", 0, {}, cells)
    cells = unit()
    cells["openvino"] = {"failed": "it was killed by SIGSEGV."}
    results.put("B.s0.b1", 0, {}, cells)
    results.put("C.s0.b1", 0, {}, unit())
    text = page(results)
    assert "| ≠ |" in text
    assert "| failed |" in text
    assert "* B.s0.b1, openvino: it was killed by SIGSEGV." in text


def test_results_are_continued_and_never_mixed(results, monkeypatch):
    names = ["default", "torch"]
    assert not results.has("A", 0, names)
    results.put("A", 0, {"flops": 1}, unit())
    again = Results.open(results.path, 2, "Title")
    assert again.has("A", 0, names)
    assert not again.has("A", 1, names)
    assert not again.has("A", 0, [*names, "tuned"])
    with pytest.raises(ValueError, match="another machine, other versions or 2 threads"):
        Results.open(results.path, 1, "Title")
    assert Results.open(results.path, 1, "Title", fresh=True).rows == {}
    monkeypatch.setattr("contests.results.machine", lambda: {"cpu": "another"})
    with pytest.raises(ValueError, match="Name another file with --json"):
        Results.open(results.path, 2, "Title")


def test_failures_are_measured_again_when_asked(results):
    cells = unit()
    cells["torch"] = {"failed": "x"}
    results.put("A", 0, {}, cells)
    contestants = [Contestant("torch", Spec("torch", 1))]
    plan = Plan("operators", [Row("A", dict)], contestants, Timing(), 1)
    assert units_left(plan, results) == []
    assert [n for n, _ in units_left(Plan(**{**vars(plan), "retry": True}), results)] == [0]


def test_measuring_goes_by_sets_of_processes_and_stops_at_the_budget(results, capsys):
    contestants = [Contestant("torch", Spec("numpy", 1)), Contestant("default", Spec("ours", 1), mine=True)]
    rows = [Row("overhead_relu16", lambda: {"flops": 0}), Row("GMM.s0.b1", lambda: {"flops": 4194304})]
    plan = Plan("operators", rows, contestants, Timing(1, 0.01, 1), 2)
    assert not measure_all(plan, results, deadline=0.0)
    assert "4 of the units are left" in capsys.readouterr().out
    assert measure_all(plan, results, deadline=None)
    assert [len(r["units"]) for r in results.rows.values()] == [2, 2]
    assert units_left(plan, results) == []
    told = capsys.readouterr().out
    assert told.index("GMM.s0.b1 (1/2)") < told.index("overhead_relu16 (2/2)")
    assert json.loads(results.path.read_text())["rows"]["GMM.s0.b1"]["flops"] == 4194304


def test_contestants_are_chosen_by_name_and_torch_stays():
    everybody = [Contestant(n, Spec(n, 1)) for n in ("default", "torch", "openvino")]
    assert [c.name for c in chosen(everybody, "openvino")] == ["torch", "openvino"]
    with pytest.raises(SystemExit, match=r"no contestant is called 'tuned' \(tuned ones need --trials\)"):
        chosen(everybody, "tuned")


def test_tuning_by_trials_and_by_the_clock():
    assert not Tuning()
    assert Tuning(64).asked == {"trials": 64}
    assert Tuning(64, 300.0).asked == {"trials": 0, "limit_s": 300.0}
    assert Tuning(64).is_done({"asked": 64})
    assert not Tuning(128).is_done({"asked": 64})
    assert Tuning(0, 300.0).is_done({"asked_s": 300.0})
    assert not Tuning(0, 600.0).is_done({"asked_s": 300.0})
    assert Tuning(0, 300.0).is_done({"skip": "as strict"})


def test_who_takes_part_of_ours():
    assert [c.name for c in (*ours(2, "log", False), *backend(2, "log", False))] == [
        "default", "default-fast", "backend",
    ]  # fmt: skip
    names = [c.name for c in (*ours(2, "log", True), *backend(2, "log", True))]
    assert {"tuned", "tuned-fast", "backend-tuned"} <= set(names)
    assert all(is_mine(n) for n in names)


def test_rows_that_are_tuned_by_the_clock_are_whole_one_by_one(results, monkeypatch, capsys):
    """Tuned, measured, then the next; a row that would not fit the budget is not begun."""
    did = []

    def tuned(plan, results, tuning, seed, deadline):
        did.extend(f"tune {r.name} {tuning.limit_s:.0f}" for r in plan.rows)
        for r in plan.rows:
            results.data["tuning"][f"{r.name} tuned"] = {"asked_s": tuning.limit_s}

    def measured(plan, results, deadline):
        did.extend(f"measure {r.name}" for r in plan.rows)
        return True

    monkeypatch.setattr("contests.table.tune_all", tuned)
    monkeypatch.setattr("contests.table.measure_all", measured)
    contestants = [
        Contestant("torch", Spec("numpy", 1)),
        Contestant("tuned", Spec("ours", 1, log="l"), mine=True),
    ]
    plan = Plan("models", [Row("a", dict), Row("b", dict)], contestants, Timing(1, 0.01, 1), 1)
    options = argparse.Namespace(
        trials=0, json=results.path, threads=2, fresh=False, report=False, budget=None, seed=0
    )
    assert make(plan, options, "Title", lambda r: None, limit_s=300.0) == 0
    assert did == ["tune a 300", "measure a", "tune b 300", "measure b"]
    did.clear()
    options.budget = 200.0
    assert make(plan, options, "Title", lambda r: None, limit_s=300.0) == 3
    assert did == []
    assert "The budget has no room for a. The same command continues." in capsys.readouterr().out


def test_duration():
    assert [duration(s) for s in (3, 90, 3600, 5400)] == ["1 min", "2 min", "1 h 0 min", "1 h 30 min"]


@pytest.mark.torch
def test_the_whole_command(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    import operators

    file = tmp_path / "o.json"
    words = ["--only", "overhead_relu16", "--contestants", "default", "--threads", "1", "--tries", "1"]
    monkeypatch.setattr(
        sys, "argv", ["operators.py", *words, "--rounds", "1", "--block", "0.01", "--json", str(file)]
    )
    assert operators.main() == 0
    assert "1 units to measure" in capsys.readouterr().out
    assert "| overhead_relu16 |" in file.with_suffix(".md").read_text()
    assert operators.main() == 0
    assert "0 units to measure" in capsys.readouterr().out
