"""One task, with calls of `ask` and `tell`: determinism, no repetition, and better results than random
candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
from fakes import TARGET, bowl, chance, drive, task, unknown_reduction
from zoo import SMALL, conv, gemm, rows

from autotensor.compiler import compile_trace
from autotensor.schedule.sketch import Sketch
from autotensor.search.measuring.measure_request import source_sha
from autotensor.search.propose import tuner as tuning
from autotensor.search.propose.policy import Policy, Uniform
from autotensor.search.propose.population import encode
from autotensor.search.propose.tuner import Tuner, is_general
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.cost_model import CostModel, PriorModel, RandomModel
from autotensor.search.task import Candidate
from autotensor.te.workload import Workload
from schedules.generate import default_trace, generate
from schedules.prior.rates import Rates

RATES = Rates.guess(TARGET)
PRODUCT = gemm(96, 192, 64)
Cost = Callable[[Candidate], float | None]


def tuner(
    workload: Workload = PRODUCT, model: CostModel | None = None, seed: int = 0, random: bool = False
) -> Policy:
    policy = Uniform if random else Tuner
    return policy(task(workload), model or XGBModel(seed), RATES, seed=seed)


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_the_text_of_a_candidate_is_that_of_its_trace(workload: Workload) -> None:
    for sketch in generate(workload.dag, TARGET):
        c = Candidate(sketch, sketch.defaults())
        assert c.trace_text == c.trace.to_json()
        assert c.trace_hash == c.trace.hash


def failing_bowl(c: Candidate) -> float | None:
    return None if chance(c.key) < 0.2 else bowl(c)


@pytest.mark.parametrize("cost", [bowl, failing_bowl])
@pytest.mark.sample(1)
def test_same_seed_and_same_results_give_the_same_candidates(cost: Cost) -> None:
    assert drive(tuner(), cost, 72) == drive(tuner(), cost, 72)
    assert drive(tuner(seed=1), cost, 40) != drive(tuner(seed=2), cost, 40)


@pytest.mark.parametrize("cost", [bowl, failing_bowl])
@pytest.mark.parametrize("rounds", [1, 2, 5, 8])
@pytest.mark.sample(2)
def test_a_tuner_told_from_the_log_continues_as_the_first_would_have(cost: Cost, rounds: int) -> None:
    first, second = tuner(), tuner()
    for _ in range(rounds):
        asked = first.ask(8)
        first.tell(asked, [cost(c) for c in asked])
        again = [second.candidate(c.sketch.hash, dict(c.decisions), c.made_by) for c in asked]
        second.tell([c for c in again if c is not None], [cost(c) for c in asked])
        second.skip_round()
    assert [c.key for c in first.ask(8)] == [c.key for c in second.ask(8)]
    assert first.best_seconds == second.best_seconds


def test_the_default_comes_first() -> None:
    first = tuner().ask(8)[0]
    assert first.made_by == "default"
    assert first.trace == default_trace(PRODUCT.dag, TARGET)


@pytest.mark.parametrize("random", [False, True])
def test_nothing_is_asked_twice(random: bool) -> None:
    keys = drive(tuner(random=random), bowl, 160)
    assert len(set(keys)) == 160


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    "workload", [rows("softmax", 7, 100), gemm(13, 37, 19), conv(8, 6, 10, 3, layout="NCHW")]
)
def test_a_small_space_is_exhausted(workload: Workload, random: bool) -> None:
    t = tuner(workload, random=random)
    keys = drive(t, lambda c: 1e-4 * (1 + chance(c.key)), 10_000, batch=16)
    assert len(set(keys)) == len(keys) == t.space
    assert t.exhausted
    assert t.ask(8) == []


def test_what_looks_the_same_is_not_measured_first() -> None:
    """Loops of one iteration may be in any order: such candidates wait until nothing else is left."""
    t = tuner(gemm(16, 16, 16))
    for _ in range(3):
        asked = t.ask(8)
        t.tell(asked, [bowl(c) for c in asked])
        looks = [looks_of(t, c) for c in asked if c.made_by in ("drafted", "bred")]
        assert len(set(looks)) == len(looks)


def looks_of(t: Tuner, c: Candidate) -> bytes:
    number = t._number[c.sketch.hash]
    return t._described(number, encode(c.sketch, c.decisions)[None]).look(0)


def test_candidates_that_look_the_same_compile_to_the_same_code() -> None:
    """This holds nearly always, and candidates that look different compile to different code. Looking is
    cheap, and compiling is not."""
    workload = gemm(16, 32, 16)
    t = tuner(workload)
    by_look: dict[bytes, set[str]] = {}
    for c in tuner(workload, random=True).ask(60):
        code = source_sha(compile_trace(workload.dag, c.trace, TARGET))
        by_look.setdefault(looks_of(t, c), set()).add(code)
    mixed = sum(len(codes) > 1 for codes in by_look.values())
    assert mixed <= 0.05 * len(by_look)
    assert len(set.union(*by_look.values())) >= 0.95 * len(by_look)
    assert len(by_look) < 60


def test_failures_do_not_stop_it() -> None:
    t = tuner()
    drive(t, lambda c: None, 24)
    assert t.best is None
    assert t.best_seconds == float("inf")
    assert len(t.ask(8)) == 8


def test_batches_are_diverse() -> None:
    t = tuner()
    drive(t, bowl, 40)
    families = [(c.sketch.hash, c.decisions["t0/tile"]) for c in t.ask(8)]
    assert max(families.count(f) for f in families) <= 3


@pytest.mark.parametrize("workload", [unknown_reduction(), rows("softmax", 512, 1000)])
def test_batches_where_families_are_few_are_what_the_model_ranks(workload: Workload) -> None:
    t = tuner(workload)
    by: Counter[str] = Counter()
    for _ in range(6):
        asked = t.ask(8)
        by.update(c.made_by for c in asked)
        looks = [looks_of(t, c) for c in asked if c.made_by != "random"]
        assert len(set(looks)) == len(looks)
        t.tell(asked, [bowl(c) for c in asked])
    assert by["random"] <= (12 if t.space >= tuning.WIDE else 6)  # one of a batch, half of the first two
    assert by["default"] == 1


def test_of_wide_spaces_half_of_the_first_batches_is_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[int]:
        t, counts = tuner(unknown_reduction()), []
        for _ in range(4):
            asked = t.ask(8)
            counts.append(sum(c.made_by in ("random", "structure") for c in asked))
            t.tell(asked, [bowl(c) for c in asked])
        return counts

    assert tuner(unknown_reduction()).space < tuning.WIDE
    assert drawn() == [1, 1, 1, 1]
    monkeypatch.setattr(tuning, "WIDE", 1000)
    assert drawn() == [4, 4, 1, 1]


def test_the_first_batches_have_other_structures_as_rules_fill_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WIDE", 1)
    t = tuner(conv(16, 32, 32, 3))
    made: list[Counter[str]] = []
    seen: list[Candidate] = []
    for _ in range(3):
        asked = t.ask(8)
        made.append(Counter(c.made_by for c in asked))
        seen += [c for c in asked if c.made_by == "structure"]
        t.tell(asked, [bowl(c) for c in asked])
    assert [m["structure"] for m in made] == [4, 4, 0]
    assert all(c.decisions == c.sketch.defaults() for c in seen)
    assert len({c.sketch.hash for c in seen}) == len(seen)
    assert t.sketches[0].hash not in {c.sketch.hash for c in seen}  # that one is the default
    assert all(c.predicted is not None for c in seen)


def test_every_sketch_is_as_likely_by_chance() -> None:
    t = tuner(conv(16, 32, 32, 3))
    sizes = [s.size for s in t.sketches]
    assert max(sizes) > 20 * min(sizes)
    out: list[Candidate] = []
    t._random(np.random.default_rng(0), out, 40 * len(sizes), tries=1, by_size=False)
    drawn = Counter(c.sketch.hash for c in out)
    assert all(drawn[s.hash] >= min(s.size, 20) * 0.5 for s in t.sketches)


def test_candidates_in_one_corner_of_a_general_space_are_alike() -> None:
    t = tuner(unknown_reduction())
    assert all(is_general(s) for s in t.sketches)
    drive(t, bowl, 16)
    pool = t._pool_of_drafts()
    families = {(d.sketch, t._family(d, row)) for d in pool for row in range(len(d))}
    assert 8 < len(families) < sum(map(len, pool)) / 2


def test_a_record_of_other_rules_is_not_understood() -> None:
    t = tuner()
    c = t.ask(1)[0]
    assert t.candidate("no such sketch", dict(c.decisions)) is None
    assert t.candidate(c.sketch.hash, {**c.decisions, "t0/tile": (99, 99, 99, 99)}) is None
    assert t.candidate(c.sketch.hash, {}) is None
    again = t.candidate(c.sketch.hash, dict(c.decisions))
    assert again is not None
    assert again.key == c.key


def test_told_candidates_of_unknown_sketches_only_count() -> None:
    t = tuner()
    t.tell([Candidate(Sketch(made_by=("old",)), {})], [1e-5])
    assert t.best_seconds == 1e-5
    assert t.asked == 0


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_every_workload_can_be_asked_for(workload: Workload) -> None:
    keys = drive(tuner(workload), lambda c: 1e-4 * (1 + chance(c.key)), 24)
    assert len(set(keys)) == min(24, tuner(workload).space)


def best_after(model: CostModel, seed: int, trials: int, random: bool = False) -> float:
    t = tuner(model=model, seed=seed, random=random)
    drive(t, bowl, trials)
    return t.best_seconds


def test_the_model_beats_chance() -> None:
    guided = [best_after(XGBModel(s), s, 96) for s in range(3)]
    blind = [best_after(RandomModel(s), s, 96, random=True) for s in range(3)]
    assert median(guided) < median(blind)
    assert sum(g < b for g, b in zip(guided, blind, strict=True)) >= 2


def test_learning_beats_a_prior_that_is_wrong() -> None:
    learned = median(best_after(XGBModel(s), s, 72) for s in range(3))
    prior = median(best_after(PriorModel(), s, 72) for s in range(3))
    assert learned <= prior
