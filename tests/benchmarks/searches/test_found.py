"""Winners of a search, and the page that says how near the best known they are."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import found
import pytest
from contests import found_page
from contests.contest import Contestant, Field, Timing
from contests.published_table import FILE
from contests.results import Results
from jobs import metaschedule
from jobs.search_job import SearchJob
from peers import Spec
from replays import winners
from replays.search_tasks import workload
from replays.winners import Asked, Found, same_before, steps
from search.fakes import FakeMeasurer

from autotensor.base.target import host, parse
from autotensor.schedule.trace import Trace
from schedules.generate import default_trace, generate
from schedules.prior.rates import Rates

ASKED = Asked(24, 0, 2, "fast", "source")  # a seed whose first batch does not find its best
TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def cell(seconds):
    return {"median": seconds, "min": seconds, "rounds": [seconds], "error": 0.0}


def row(results, name, cells, curve, **more):
    search = {"trials": 24, "failures": 0, "wall_s": 2.0, "shares": {}, "seed": 0, "curve": curve}
    results.put(name, 0, {"family": "gemm", "flops": 1, "search": search, **more}, cells)


@pytest.fixture
def results(tmp_path):
    return Results.open(tmp_path / "found.json", 2, "Found")


CELLS = {
    f"{FILE}0": cell(24e-6),
    f"{FILE}8": cell(15e-6),
    f"{FILE}16": cell(12e-6),
    f"{FILE}24": {"skip": "as 16"},
    "torch": cell(12e-6),
    "openvino": {"failed": "no"},
}
CURVE = [[8, 0.8, 12.5e-6], [16, 1.6, 10e-6], [24, 2.4, 10e-6]]  # by the search's own clock


def test_steps_double_until_the_end():
    assert steps(64) == (0, 8, 16, 32, 64)
    assert steps(5) == (0, 5)
    assert steps(8) == (0, 8)


def test_a_winner_is_new_or_an_earlier_one():
    known = {0: "a", 8: "b", 16: "b", 24: "a"}
    assert [same_before(known, n) for n in known] == [None, None, 8, 0]


def test_a_search_is_kept_and_found_again(tmp_path):
    made = Found(ASKED, {0: "a", 8: "b"}, [(1, 0.5, 1e-3)], 1, 0, 0.5, {"search": 0.1})
    winners.write(made, tmp_path, "odd")
    assert winners.kept(tmp_path, "odd", ASKED) == made
    assert winners.kept(tmp_path, "square", ASKED) is None
    assert winners.kept(tmp_path, "odd", Asked(25, 0, 2, "fast", "source")) is None


def test_winners_are_what_so_many_trials_leave(monkeypatch):
    class Fast(FakeMeasurer):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    measurer = Fast(failing=0.1)
    monkeypatch.setattr(winners, "LocalMeasurer", lambda *a, **k: measurer)
    got = winners.search("odd", ASKED, TARGET, Rates.guess(TARGET))
    assert [n for n, _, _ in got.curve] == [8, 16, 24]
    assert got.trials == 24
    assert got.winners[0] == default_trace(workload("odd").dag, TARGET).to_json()
    best = [s for _, _, s in got.curve]
    assert best == sorted(best, reverse=True)
    assert measurer.cost(Trace.from_json(got.winners[0])) > best[-1]
    for n, _, seconds in got.curve:
        assert measurer.cost(Trace.from_json(got.winners[n])) == pytest.approx(seconds)
    alone = winners.search("odd", replace(ASKED, trials=8), TARGET, Rates.guess(TARGET))
    assert alone.winners == {0: got.winners[0], 8: got.winners[8]}


def test_a_time_is_reached_by_the_first_winner_that_has_it(results):
    row(results, "odd", CELLS, CURVE)
    (line,) = found_page.lines(results)
    assert line.ours == {0: 24e-6, 8: 15e-6, 16: 12e-6, 24: 12e-6}
    assert line.others == {"torch": 12e-6}
    assert line.best == "ours"  # on a tie
    assert [line.share(n) for n in (0, 8, 16)] == pytest.approx([0.5, 0.8, 1.0])
    assert line.near == 16
    assert line.reached(15e-6) == (8, 0.8)
    assert line.reached(30e-6) == (0, 0.0)
    assert line.reached(1e-6) is None


def test_a_faster_library_is_the_best_known(results):
    row(results, "odd", {**CELLS, "torch": cell(6e-6)}, CURVE)
    (line,) = found_page.lines(results)
    assert line.best == "torch"
    assert line.share(0) == pytest.approx(0.25)
    assert math.isinf(line.near)


def test_the_page_says_what_was_asked(results):
    row(results, "odd", CELLS, CURVE)
    row(results, "square", {**CELLS, "torch": cell(6e-6)}, CURVE)
    text = "\n".join(found_page.page(results))
    assert "| first guess | 37.5 % | 88 % | 25.0 % | 70 % |" in text
    assert "| best of 8 trials | 60.0 % | 96 % | 40.0 % | 88 % |" in text
    assert "median 16 (asked: at most 16), 90th percentile never (asked: at most 40); 1 of 2 did not" in text
    assert "| odd | 24.0 | 15.0 | **12.0** | **12.0** | **12.0** | 50 % | 80 % | 16 |" in text
    assert "* odd, openvino: no" in text
    assert "MetaSchedule\n" not in text


def test_metaschedule_is_compared_at_equal_speed(results):
    runs = {f"seed{n}": {"trials": 64, "failed": 1, "wall_s": 60.0, "best_s": 15e-6} for n in range(2)}
    both = {"tvm-seed0": cell(15e-6), "tvm-seed1": cell(15e-6)}
    row(results, "odd", {**CELLS, **both}, CURVE, metaschedule=runs)
    text = "\n".join(found_page.page(results))
    assert "| odd | 15.0 (15.0) | 12.0 | 64 | 8 | 60 | 0.8 | 8 | 60 |" in text
    assert "As fast in 1 of 1 tasks, there with 8 times fewer trials" in text


def test_a_wrong_answer_of_ours_withholds_the_task(results):
    row(results, "odd", {**CELLS, f"{FILE}8": {"refused": "differs"}}, CURVE)
    text = "\n".join(found_page.page(results))
    assert "WITHHELD: odd, file:8 differs" in text
    assert found_page.lines(results) == []


def test_winners_share_a_process_and_are_timed_apart(tmp_path):
    dag, target = workload("odd").dag, host().with_threads(1)
    traces = [s.fill(s.defaults()).to_json() for s in generate(dag, target)[:2]]
    known = {0: traces[0], 8: traces[1], 16: traces[1], 24: traces[0]}
    winners.write(Found(ASKED, known, [], 0, 0, 0.0, {}), tmp_path, "odd")
    spec = Spec("ours", 1, file=str(tmp_path))
    contestants = [
        Contestant("torch", Spec("numpy", 1)),  # the reference here: tests do not need torch
        *(Contestant(f"{FILE}{n}", spec, True, process="ours", variant=str(n)) for n in known),
    ]
    with Field(contestants, tmp_path, Timing(rounds=1, block_s=0.01, tries=1)) as field:
        assert len(field._children) == 2
        cells = field.unit("search", "odd")
        again = field.unit("search", "square")
    assert [cells[f"{FILE}{n}"]["error"] < 1e-5 for n in (0, 8)] == [True, True]
    assert cells[f"{FILE}0"]["rounds"] != cells[f"{FILE}8"]["rounds"]
    assert [cells[f"{FILE}{n}"]["skip"] for n in (16, 24)] == ["as 8", "as 0"]
    assert "square.json" in again[f"{FILE}0"]["failed"]  # it was never searched


def test_what_metaschedule_did_not_search_is_skipped(tmp_path, monkeypatch):
    from peers import Skip

    monkeypatch.setattr(metaschedule, "folder", lambda threads: tmp_path)
    assert metaschedule.contestants(2) == []
    assert metaschedule.searches("odd", 2) == {}
    with pytest.raises(Skip, match="MetaSchedule did not search this one"):
        SearchJob.named("odd@seed0").tvm(2)


def test_metaschedule_wants_an_environment_of_this_python(tmp_path):
    with pytest.raises(SystemExit, match="cannot be run"):
        metaschedule.packages_of(str(tmp_path / "python"))
    assert "site-packages" in metaschedule.packages_of(sys.executable)


def test_the_order_of_constants_has_what_is_summed_first():
    from jobs.metaschedule_child import constant_order

    assert constant_order(workload("layer2").dag)["a1"] == (1, 2, 3, 0)  # [out, in, kh, kw]
    assert constant_order(workload("square").dag) == {}


def test_a_budget_leaves_searches_for_later(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(winners, "search", lambda *a: pytest.fail("there is no time"))
    assert found.search_all(["odd"], ASKED, TARGET, tmp_path, deadline=0.0) == ()


def test_facts_of_a_row_can_be_written(tmp_path):
    winners.write(Found(ASKED, {0: "a"}, [(1, 0.5, 1e-3)], 1, 0, 0.5, {}), tmp_path, "odd")
    facts = found.facts("odd", tmp_path)
    assert json.loads(json.dumps(facts))["search"]["curve"] == [[1, 0.5, 1e-3]]
    assert facts["family"] == "gemm"
