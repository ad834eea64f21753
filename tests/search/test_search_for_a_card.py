"""A search for `opencl -device=gpu`, on PoCL: the search, log and model of the processor, said of a card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base.target import parse
from autotensor.runtime.device.devices import device_of
from autotensor.search.journal import GUESSED_OF_A_CARD
from tuning_db import SessionKind, connect

TARGET = "opencl -device=gpu"
pytestmark = [pytest.mark.opencl, pytest.mark.timeout(600)]


def test_trials_models_and_the_card_are_in_the_log(tmp_path: Path) -> None:
    a, b, k = (
        te.placeholder((96, 96), name="A"),
        te.placeholder((96, 96), name="B"),
        te.reduce_axis(96, name="k"),
    )
    c = te.compute((96, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    report = at.tune([a, b, c], 24, TARGET, db=tmp_path / "log.db", progress=False)
    store = connect(tmp_path / "log.db")
    (session,) = store.sessions(SessionKind.SEARCH)
    trials = store.trials(session=session.id)
    assert report.trials == len(trials) == 24
    assert session.options["prior"] == GUESSED_OF_A_CARD
    assert session.options["model"] == "xgb"
    assert sum(t.predicted is not None for t in trials) > 12
    card = device_of(parse(TARGET)).identity
    known = {m.device: m for m in store.machines()}
    assert (known[card.name].driver, known[card.name].memory) == (card.driver, card.memory)
    x, y = (np.random.default_rng(n).standard_normal((96, 96)).astype(np.float32) for n in (0, 1))
    np.testing.assert_allclose(
        at.build([a, b, c], target=TARGET, db=tmp_path / "log.db")(x, y), x @ y, atol=1e-3
    )


@pytest.mark.parametrize(
    ("target", "said"), [("llvm", {}), ("opencl", {}), (TARGET, {"prior": GUESSED_OF_A_CARD})]
)
def test_only_a_cards_prior_was_measured_nowhere(target: str, said: dict[str, str]) -> None:
    from autotensor.search.journal import prior_of

    assert prior_of(parse(target)) == said
