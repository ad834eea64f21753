"""Features, prior and outcome of trials as one table: the same numbers that the search saw."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import TARGET, FakeMeasurer, task
from runs import CONVOLUTION, PRODUCT, run

from autotensor.search.feature_frames import NO_OPTION, NO_SKETCH, OUTCOME, PRIOR, feature_frame
from autotensor.search.journal import decisions_of
from autotensor.search.propose.tuner import Tuner
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.features import NAMES
from schedules.prior.rates import Rates
from tuning_db import SessionKind, StoreError, connect

pa = pytest.importorskip("pyarrow")


def test_a_row_has_what_the_search_saw_and_how_it_went() -> None:
    store = connect(":memory:")
    run([PRODUCT, CONVOLUTION], 64, store, FakeMeasurer(failing=0.2))
    table = pa.table(feature_frame(store, {}))
    assert table.schema.names == [*OUTCOME, PRIOR, *NAMES]
    rows = {row["trial"]: row for row in table.to_pylist()}
    records = {t.id: t for t in store.trials()}
    assert rows.keys() == records.keys()
    tuner = Tuner(task(PRODUCT), XGBModel(), Rates.guess(TARGET))
    for id, t in records.items():
        row = rows[id]
        assert (row["median_s"], row["status"], row["made_by"]) == (t.median_s, t.status, t.made_by)
        if t.workload == PRODUCT.key:
            candidate = tuner.candidate(t.sketch_hash, decisions_of(t))
            assert candidate is not None
            features, prior = tuner._features([tuner._place_of(candidate)])
            assert np.array_equal(features[0], [row[name] for name in NAMES])
            assert row[PRIOR] == prior[0]


def test_rows_are_chosen_and_columns_named() -> None:
    store = connect(":memory:")
    run([PRODUCT, CONVOLUTION], 32, store)
    found = pa.table(feature_frame(store, {"workload": PRODUCT.key, "kind": "search"}, ["median_s", "prior"]))
    assert found.schema.names == ["median_s", "prior"]
    (search,) = store.sessions(SessionKind.SEARCH)
    assert found.num_rows == store.count(PRODUCT.key, session=search.id)
    with pytest.raises(StoreError, match="table 'features' has no column 'x'"):
        feature_frame(store, {}, ["x"])


def test_trials_of_other_rules_are_left_out() -> None:
    store = connect(":memory:")
    run([PRODUCT], 16, store)
    from dataclasses import replace

    first = store.trials()[0]
    session = store.start_session(run_key="k", seed=0, machine=first.machine, environment=first.environment)
    store.add_trials([replace(first, session=session.id, round=None, sketch_hash="gone", id=None)])
    left_out = feature_frame(store, {"session": session.id})
    for _ in range(2):  # each use counts anew
        assert pa.table(left_out).num_rows == 0
        assert left_out.left_out == {NO_SKETCH: 1}
    decisions = {name: (99,) for name in first.decisions}
    other = replace(first, session=session.id, round=None, decisions=decisions, trace_hash="t", id=None)
    store.add_trials([other])
    both = feature_frame(store, {"session": session.id})
    assert pa.table(both).num_rows == 0
    assert both.left_out == {NO_SKETCH: 1, NO_OPTION: 1}
    whole = feature_frame(store, {})
    assert pa.table(whole).num_rows + whole.left_out.total() == len(store.trials())
