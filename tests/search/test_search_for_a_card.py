"""A search for `opencl -device=gpu`, on PoCL: the search, log and cost model of the processor, for a card.

Only the prior differs: no card's rates were ever measured, and the log says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.runtime.place import here
from autotensor.search.knowledge import known_trials
from autotensor.search.score.boosted.xgb_model import XGBModel
from schedules.prior.rates import Rates
from tuning_db import SessionKind, TrialStore, connect

pytestmark = [pytest.mark.opencl, pytest.mark.timeout(600)]

CARD = "opencl -device=gpu"
TRIALS = 24


def product() -> list[te.Tensor]:
    a, b = te.placeholder((96, 48), name="A"), te.placeholder((48, 64), name="B")
    k = te.reduce_axis(48, name="k")
    return [a, b, te.compute((96, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db: Path = tmp_path_factory.mktemp("log") / "log.db"
    assert at.tune(product(), TRIALS, CARD, db=db, progress=False).trials == TRIALS
    return db


@pytest.fixture
def store(log: Path) -> Iterator[TrialStore]:
    with connect(log) as found:
        yield found


def test_trials_are_checked_and_the_best_is_used(log: Path, store: TrialStore) -> None:
    (session,) = store.sessions(SessionKind.SEARCH)
    trials = store.trials(session=session.id)
    assert len(trials) == TRIALS
    assert all(t.verified for t in trials)
    assert {(t.target, t.machine) for t in trials} == {(parse(CARD).key(), here(parse(CARD)).fingerprint)}
    assert session.options["model"] == "xgb"
    assert sum(t.predicted is not None for t in trials) > TRIALS // 2
    x, y = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((96, 48), (48, 64)))
    np.testing.assert_allclose(at.build(product(), target=CARD, db=log)(x, y), x @ y, atol=1e-3)


def test_the_log_tells_device_driver_and_memory(store: TrialStore) -> None:
    place = here(parse(CARD))
    assert place.device is not None
    machine = next(m for m in store.machines() if m.fingerprint == place.fingerprint)
    told = (machine.device, machine.driver, machine.memory)
    assert told == (place.device.name, place.device.driver, place.device.memory)
    assert all(told)


def test_the_log_tells_that_the_prior_is_guessed(store: TrialStore) -> None:
    (session,) = store.sessions(SessionKind.SEARCH)
    assert session.options["rates"] == "guessed"
    assert not store.calibration(session.machine)


def test_the_next_run_for_the_card_begins_with_it_and_the_processors_does_not(store: TrialStore) -> None:
    card, cores, model = parse(CARD), parse("opencl"), XGBModel()
    known = known_trials(store, card, here(card).fingerprint)
    assert known.teach(model, card, Rates.guess(card)) >= TRIALS
    assert model.ensemble() is not None
    assert not known_trials(store, cores, here(cores).fingerprint).found
