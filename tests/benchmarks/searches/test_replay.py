"""Measured spaces and the searches that are replayed against them, without a clock."""

from __future__ import annotations

import json
import math
import random

import pytest
import search_ablations
from replays import measured_space, replay
from replays.measured_space import Space, smaller
from replays.replay import POLICIES, Run, percentile, summarise
from replays.search_tasks import workload
from search.fakes import FakeMeasurer, bowl

from autotensor.base.target import parse
from schedules.generate import generate
from schedules.prior.rates import Rates

TARGET = parse("llvm -mcpu=x86-64-v4 -threads=2")


def made(name="odd", limit=60, **how):
    """A small space, measured by a fake, and the fake."""
    space = measured_space.cut(name, TARGET, Rates.guess(TARGET), limit, 0)
    cost = {c.trace.hash: bowl(c) for c in space.candidates}
    measurer = FakeMeasurer(lambda trace: cost[trace.hash], **how)
    measured_space.measure(space, measurer, "graph")
    return space, measurer


@pytest.fixture(scope="module")
def space():
    return made(limit=32)[0]


def test_a_space_is_cut_to_the_limit_and_keeps_the_defaults():
    sketches = generate(workload("odd").dag, TARGET)
    cut = smaller(sketches, 60, random.Random(0))
    assert sum(s.size for s in cut) <= 60
    assert [s.defaults() for s in cut] == [s.defaults() for s in sketches]
    assert [s.steps for s in cut] == [s.steps for s in sketches]
    assert smaller(sketches, 10**9, random.Random(0)) == sketches
    assert smaller(sketches, 60, random.Random(1)) != cut


def test_every_candidate_is_measured_once_and_the_best_again():
    space, measurer = made()
    assert space.whole()
    assert set(space.found["graph"]) == {c.trace.hash for c in space.candidates}
    default = space.default.trace.hash
    first = [h for h in measurer.measured if h != default]
    assert len(first) == len(set(first)) == len(space.candidates) - 1
    alone, finalists = measurer.races
    assert alone == (default,)
    assert len(finalists) == measured_space.FINALISTS + 1
    calls = len(measurer.calls)
    measured_space.measure(space, measurer, "graph")
    assert len(measurer.calls) == calls  # nothing is left to do


class Drifting(FakeMeasurer):
    """The machine's speed changes from call to call."""

    def __init__(self, *slowness):
        super().__init__()
        self.slowness = iter(slowness)

    def measure(self, *args, **how):
        factor = next(self.slowness)
        self.cost = lambda trace: factor * 1e-4
        return super().measure(*args, **how)


def test_a_slow_hour_does_not_make_candidates_slow():
    space = measured_space.cut("odd", TARGET, Rates.guess(TARGET), 60, 0)
    # alone; 31 candidates; the others, taken three times; the best again
    measurer = Drifting(1.0, 1.1, 3.0, 1.3, 2.0, 1.0)
    measured_space.measure(space, measurer, "graph")
    assert {round(v, 9) for v in space.found["graph"].values()} == {1e-4}
    assert len(measurer.calls) == 6


def test_on_a_machine_that_others_use_nothing_is_measured():
    space = measured_space.cut("odd", TARGET, Rates.guess(TARGET), 60, 0)
    with pytest.raises(SystemExit, match=r"odd: other programs use the cores: .* 4.0 times as long as alone"):
        measured_space.measure(space, Drifting(1.0, 5.0, 4.0, 6.0), "graph")
    assert len(space.found["graph"]) == 1


def test_failures_and_rejects_are_told_apart():
    space, _ = made(limit=32, failing=0.1, spilling=0.2)
    words = {v for v in space.found["graph"].values() if isinstance(v, str)}
    assert words == {"failed", "rejected"}
    run = replay.replay(space, "full", 0, 1000)
    rejected = sum(v == "rejected" for v in space.found["graph"].values())
    assert len(run.curve) == len(space.candidates) - rejected  # no trials


def test_a_space_survives_its_file(space, tmp_path):
    path = tmp_path / "odd.json"
    measured_space.save(space, path)
    (again,) = measured_space.spaces(tmp_path)
    assert again.sketches == space.sketches
    assert [s.hash for s in again.sketches] == [s.hash for s in space.sketches]
    assert again.rates == space.rates
    assert again.task == space.task
    assert again.best() == pytest.approx(space.best(), rel=1e-4)
    assert measured_space.spaces(tmp_path, ["layer2"]) == []
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))
    with pytest.raises(ValueError, match="has format 0; this version reads 1"):
        measured_space.load(path)


def test_an_unfinished_space_is_not_replayed(space, tmp_path):
    half = Space(space.task, space.sketches, space.rates, found={"graph": {}})
    measured_space.save(half, tmp_path / "odd.json")
    assert measured_space.spaces(tmp_path) == []


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.sample(4)
def test_every_policy_finds_the_best_when_it_may_ask_for_everything(space, name):
    if name == "hot-only":
        space.found["hot"] = space.found["graph"]
    run = replay.replay(space, name, 0, 10_000)
    assert min(run.curve) == run.best_s == space.best()
    assert len(run.curve) == len(space.candidates)  # each once
    assert run.curve[0] == run.default_s


def test_a_replay_depends_on_its_seed_only(space):
    one, again = (replay.replay(space, "full", 0, 24) for _ in range(2))
    assert one == again
    by_chance, otherwise = (replay.replay(space, "random", seed, 24) for seed in (0, 1))
    assert by_chance.curve != otherwise.curve


def test_blind_and_prior_differ_in_order(space):
    assert replay.replay(space, "no-prior", 0, 24).curve != replay.replay(space, "no-model", 0, 24).curve


def test_a_warm_search_has_learned_from_the_others(space, monkeypatch):
    other = made("square", 40)[0]
    taught = []
    teach = replay.teach
    monkeypatch.setattr(replay, "teach", lambda m, o, s: taught.append(o.name) or teach(m, o, s))
    replay.replay(space, "warm", 0, 8, [other, space])
    assert taught == ["square"]  # never its own times
    replay.replay(space, "full", 0, 8, [other])
    assert taught == ["square"]


def test_hot_only_is_told_the_hot_times_and_judged_by_the_others(space):
    best = space.best()
    space.found["hot"] = {k: (1e-9 if v != best else 1e-6) for k, v in space.found["graph"].items()}
    run = replay.replay(space, "hot-only", 0, 16)
    assert min(run.curve) >= best


def test_a_run_says_how_soon():
    run = Run("s", "full", 0, best_s=1.0, default_s=2.0, curve=(2.0, 1.5, 1.04, 1.0))
    assert [run.share(n) for n in (0, 1, 2, 9)] == [0.5, 0.5, 1 / 1.5, 1.0]
    assert run.trials_to(0.05) == 3
    assert run.trials_to(0.0) == 4
    assert Run("s", "full", 0, 1.0, 1.04, (1.04,)).trials_to(0.05) == 0
    assert Run("s", "full", 0, 1.0, 2.0, (2.0,)).trials_to(0.05) is None


def test_summaries_count_those_who_never_came_near():
    near, far = (Run("s", "full", n, 1.0, 2.0, (2.0, s)) for n, s in enumerate((1.0, 1.8)))
    s = summarise([near, near, far], (0, 8))
    assert s.to_five == (2.0, math.inf)
    assert s.shares[0] == (0.5, 0.5)
    assert percentile([1.0], 0.9) == 1.0


def test_the_command_replays_what_is_missing_and_says_what_came_out(space, tmp_path, monkeypatch, capsys):
    measured_space.save(space, tmp_path / "spaces" / "odd.json")
    words = ["--spaces", str(tmp_path / "spaces"), "--json", str(tmp_path / "a.json")]
    words += ["--only", "full,no-model,random", "--seeds", "2", "--trials", "16"]
    monkeypatch.setattr("sys.argv", ["search_ablations.py", *words, "--budget", "0"])
    assert search_ablations.main() == 3
    monkeypatch.setattr("sys.argv", ["search_ablations.py", *words])
    assert search_ablations.main() == 0
    text = capsys.readouterr().out
    assert text.count("odd/full/") == 2
    assert "| random | uniform over all candidates |" in (tmp_path / "a.md").read_text()
    assert "## XGBoost's own share" in text
    assert search_ablations.main() == 0
    assert "odd/full/0:" not in capsys.readouterr().out  # nothing is done twice
    monkeypatch.setattr("sys.argv", ["search_ablations.py", "--only", "magic"])
    with pytest.raises(SystemExit, match="no policy is called 'magic'"):
        search_ablations.main()


def test_without_spaces_the_command_says_how_to_get_some(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["search_ablations.py", "--spaces", str(tmp_path)])
    with pytest.raises(SystemExit, match="--exhaust measures some"):
        search_ablations.main()
