"""A lesson from the log is made once. A new trial, other rates or other rules make a new lesson."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import TARGET
from runs import PRODUCT, RATES, run

from autotensor.base import switches
from autotensor.resolve import median_s
from autotensor.search import lessons
from autotensor.search.lessons import Lesson, teach
from tuning_db import connect
from tuning_db.records import TrialRecord


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switches.cache_dir.variable, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def rows() -> list[TrialRecord]:
    store = connect(":memory:")
    run([PRODUCT], 32, store)
    return [t for t in store.trials() if t.round is not None]


def taught(rows: list[TrialRecord], rates: Any = RATES) -> list[Any]:
    model = Lesson()
    assert teach(model, PRODUCT, TARGET, rates, rows, median_s) == len(rows)
    return [np.concatenate(part) for part in zip(*model.parts, strict=True)]


def test_the_second_time_nothing_is_described(
    rows: list[TrialRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = taught(rows)
    with monkeypatch.context() as patch:
        patch.setattr(lessons, "retell", lambda *a, **k: pytest.fail("described again"))
        for a, b in zip(first, taught(rows), strict=True):
            assert np.array_equal(a, b, equal_nan=True)
    assert list(first[2]) == [t.median_s for t in rows]


@pytest.mark.parametrize("change", ["row", "time", "rates"])
def test_what_a_lesson_depends_on_is_in_its_name(
    rows: list[TrialRecord], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    taught(rows)
    described = []
    whole = lessons.retell
    monkeypatch.setattr(lessons, "retell", lambda *a, **k: described.append(1) or whole(*a, **k))
    match change:
        case "row":
            taught(rows[:-1])
        case "time":
            taught([replace(rows[0], median_s=1.0), *rows[1:]])
        case _:
            taught(rows, replace(RATES, warm_weights=not RATES.warm_weights))
    assert described == [1]
