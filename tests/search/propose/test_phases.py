"""Phases: drafts until they gain nothing, then steps until they gain nothing, and so on."""

from __future__ import annotations

from math import log2

import pytest
from fakes import TARGET, bowl, drive, task, unknown_reduction
from runs import RATES
from zoo import gemm

from autotensor.search.propose.phases import FIRST, WORTH, Phase, phase, relative_gain
from autotensor.search.propose.population import encode
from autotensor.search.propose.tuner import TRANSPLANTED, SearchOptions, Tuner, is_general
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.cost_model import PriorModel
from autotensor.search.task import Candidate, Task

VERIFY, DESCEND = Phase.VERIFY, Phase.DESCEND
PRODUCT = gemm(96, 192, 64)


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((), VERIFY),
        ((1.0,), VERIFY),  # the first batch always gains
        ((1.0, 0.2), VERIFY),
        ((1.0, 0.0), DESCEND),
        ((1.0, WORTH / 2), DESCEND),
        ((1.0, 0.0, 0.3), DESCEND),
        ((1.0, 0.0, 0.3, 0.0), VERIFY),
        ((1.0, 0.0, 0.0, 0.0), DESCEND),
    ],
)
def test_a_phase_lasts_while_it_pays(gains: tuple[float, ...], expected: Phase) -> None:
    assert phase(gains) is expected
    assert FIRST == 2


def test_gains_are_shares_of_the_time_before() -> None:
    assert relative_gain(float("inf"), float("inf")) == 0.0
    assert relative_gain(2.0, 1.0) == 0.5
    assert relative_gain(1.0, 2.0) == 0.0


def steps_between(t: Tuner, a: Candidate, b: Candidate) -> int:
    """Holes in which two candidates differ; sketches with the same holes are one step apart."""
    if [h.name for h in a.sketch.holes] != [h.name for h in b.sketch.holes]:
        return 99
    differing = encode(a.sketch, a.decisions) != encode(b.sketch, b.decisions)
    return int(differing.sum()) + (a.sketch is not b.sketch)


def test_the_descent_takes_small_steps_from_the_best_two() -> None:
    t = Tuner(task(PRODUCT), XGBModel(), RATES)
    told: list[tuple[float, Candidate]] = []
    seen = 0
    for _ in range(9):
        best = [c for _, c in sorted(told, key=lambda x: x[0])[:2]]
        batch = t.ask(8)
        for c in (c for c in batch if c.made_by == "descent"):
            assert min(steps_between(t, c, b) for b in best) in (1, 2)
            assert c.predicted is not None
            seen += 1
        seconds = [bowl(c) for c in batch]
        told += zip(seconds, batch, strict=True)
        t.tell(batch, seconds)
    assert seen >= 8


@pytest.mark.parametrize("seed", range(3))
def test_the_descent_gets_lower_though_the_model_learns_nothing(seed: int) -> None:
    """Steps alone lead from the prior's choice towards the optimum. Candidates with the same loops are
    proposed only once; in this bowl they have different times."""
    t = Tuner(task(PRODUCT), PriorModel(), RATES, seed=seed)
    drive(t, bowl, 96)
    assert t.best_seconds <= 1.2e-4
    blind = Tuner(task(PRODUCT), PriorModel(), RATES, seed=seed, options=SearchOptions(descents=0))
    drive(blind, bowl, 96)
    assert t.best_seconds < blind.best_seconds


def test_sketches_of_rules_that_know_a_computation_are_bred_with_each_other_only() -> None:
    t = Tuner(task(PRODUCT), XGBModel(), RATES)
    assert not any(is_general(s) for s in t.sketches)
    sketch_of: dict[str, str] = {}
    for _ in range(6):
        batch = t.ask(8)
        for c in batch:
            assert c.made_by != "bred" or len({sketch_of[p.trace_hash] for p in c.parents}) == 2
            sketch_of[c.trace.hash] = c.sketch.hash
        t.tell(batch, [bowl(c) for c in batch])


def test_what_is_good_in_one_structure_is_tried_in_others() -> None:
    """A candidate of another sketch has the best candidate's decisions in all holes that have these
    options."""
    t, asked = Tuner(task(PRODUCT), PriorModel(), RATES, seed=0), dict[str, Candidate]()
    while len(asked) < 64:
        batch = t.ask(8)
        t.tell(batch, [bowl(c) for c in batch])
        asked |= {c.trace_hash: c for c in batch}
    brought = [(c, asked[p.trace_hash]) for c in asked.values() for p in c.parents if p.how == TRANSPLANTED]
    assert brought
    for child, parent in brought:
        assert child.sketch.hash != parent.sketch.hash
        for hole in child.sketch.holes:
            if parent.decisions.get(hole.name) in hole.options:
                assert child.decisions[hole.name] == parent.decisions[hole.name]


def test_unknown_computations_are_bred() -> None:
    """If the best candidate is far from the prior's choice, children of the best measured candidates are
    proposed, too."""
    general = Tuner(Task(unknown_reduction(), TARGET), XGBModel(), RATES)
    assert all(is_general(s) for s in general.sketches)
    told: set[str] = set()
    children: list[Candidate] = []
    for _ in range(10):
        batch = general.ask(8)
        bred = [c for c in batch if c.made_by == "bred"]
        assert all(p.trace_hash in told for c in bred for p in c.parents)
        children += bred
        told |= {c.trace.hash for c in batch}
        general.tell(batch, [large_tiles(c) for c in batch])
    assert children
    assert {len(c.parents) for c in children} <= {1, 2}
    assert {p.how for c in children for p in c.parents} <= {"mutated", "crossed"}


def large_tiles(candidate: Candidate) -> float:
    """Seconds: least when every tile has four to eight iterations."""
    return 1e-4 * (1 + sum(abs(log2(option[0]) - 2.5) for option in candidate.decisions.values()))
