"""The same seed and the same results give the same candidates in the same order in every run."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor.models import MODELS
from autotensor.search.propose.tuner import Tuner
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.cost_model import PriorModel, RandomModel
from schedules.prior.rates import Rates

HEAVY = 2  # of small_cnn's tasks, a convolution with thousands of candidates
RATES = Rates(1e11, (5e10, 4e10, 1.5e10), 2e10)


def candidates(make_model, seed: int, rounds: int = 3) -> list[str]:
    """Hashes of the traces that a tuner proposes, if every result depends on the trace alone."""
    task = at.plan_model(MODELS.get("small_cnn").build()).search_tasks()[HEAVY]
    tuner = Tuner(task, make_model(), RATES, seed=seed)
    asked: list[str] = []
    for _ in range(rounds):
        batch = tuner.ask(6)
        asked += [c.trace.hash for c in batch]
        told = [
            None if int(c.trace.hash[0], 16) == 3 else 1e-6 * (1 + int(c.trace.hash[:4], 16)) for c in batch
        ]
        tuner.tell(batch, told)
        np.random.default_rng().random()  # other people's random numbers change nothing
    return asked


@pytest.mark.parametrize(
    "make_model", [PriorModel, lambda: RandomModel(0), lambda: XGBModel(0)], ids=["prior", "random", "xgb"]
)
def test_same_seed_same_candidates(make_model):
    first = candidates(make_model, seed=5)
    assert first == candidates(make_model, seed=5)
    assert len(set(first)) == len(first)
    assert first != candidates(make_model, seed=6)
