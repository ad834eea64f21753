"""XGBModel: without data it is the prior; it is quick to fit; its predictions can be repeated; its spread is
right."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tables import described, table
from zoo import gemm

from autotensor.base.errors import InputError
from autotensor.search.score.boosted.ensemble import TOLD, centred, holds
from autotensor.search.score.boosted.xgb_model import MIN_ROWS, REFIT, XGBModel
from autotensor.search.score.cost_model import PRIOR_SPREAD, PriorModel
from autotensor.search.score.features import NAMES, SCHEMA


def test_without_data_the_model_is_the_prior() -> None:
    matrix, prior = described(gemm(40, 64, 32), 30)
    expected = PriorModel().predict(matrix, prior, "w")
    few = XGBModel()
    few.learn(*table(MIN_ROWS - 1), "w")
    for model in (XGBModel(), few):
        found = model.predict(matrix, prior, "w")
        assert found.mean.tolist() == expected.mean.tolist()
        assert found.spread.tolist() == expected.spread.tolist()
        assert found.valid.tolist() == [1.0] * len(prior)


def test_it_learns_what_the_prior_misses() -> None:
    model = XGBModel()
    model.learn(*table(400), "w")
    matrix, prior, seconds = table(200, seed=1)
    predicted = model.predict(matrix, prior, "w").seconds
    assert np.median(np.abs(predicted / seconds - 1.0)) < 0.1


def test_levels_of_workloads_are_kept_apart() -> None:
    matrix, prior, seconds = table(64)
    model = XGBModel()
    model.learn(matrix, prior, seconds, "a")
    model.learn(matrix, prior, seconds * 100.0, "b")
    a, b = model.predict(matrix, prior, "a"), model.predict(matrix, prior, "b")
    np.testing.assert_allclose(b.seconds / a.seconds, 100.0, rtol=1e-6)


def logged(workloads: int, alike: bool) -> XGBModel:
    """A model of this number of tasks. The prior's error is the same in all of them, or random in each."""
    model = XGBModel()
    for n in range(workloads):
        matrix, prior, seconds = table(60, seed=n)
        if not alike:
            seconds = prior * np.exp(0.3 * np.random.default_rng(n).standard_normal(len(prior)))
        model.learn(matrix, prior, (n + 1.0) * seconds, str(n))
    return model


def test_what_is_wrong_in_all_workloads_is_believed_of_another_one() -> None:
    model = logged(12, alike=True)
    there, elsewhere = model.ensemble("3"), model.ensemble("unknown")
    assert there is not None
    assert elsewhere is not None
    assert there.weight == 1.0
    assert elsewhere.weight > 0.9
    matrix, prior, seconds = table(100, seed=99)
    left = np.log(model.predict(matrix, prior, "unknown").seconds / seconds)
    assert np.std(left) < 0.4 * np.std(np.log(prior / seconds))


def test_what_is_chance_in_every_workload_is_not_believed_of_another_one() -> None:
    model = logged(12, alike=False)
    there, elsewhere = model.ensemble("3"), model.ensemble("unknown")
    assert there is not None
    assert elsewhere is not None
    assert there.weight == 1.0
    assert elsewhere.weight < 0.2
    assert elsewhere.noise == pytest.approx(0.3, abs=0.05)


def test_one_workload_says_nothing_of_another() -> None:
    model = logged(1, alike=True)
    matrix, prior, _ = table(50, seed=9)
    found = model.predict(matrix, prior, "unknown")
    assert np.ptp(found.mean - np.log(prior)) < 1e-12
    np.testing.assert_allclose(found.spread, PRIOR_SPREAD, rtol=1e-12)


def test_fast_rows_weigh_more() -> None:
    seconds = np.asarray([1.0, 2.0, 50.0, 3.0])
    groups = np.asarray(["a", "a", "a", "b"])
    labels, weights, levels = centred(np.log(seconds), np.zeros(4), seconds, groups)
    assert weights.tolist() == [1.0, 0.5, 0.1, 1.0]
    assert labels[1] == labels[3] == 0.0
    assert levels["b"] == pytest.approx(np.log(3.0))


@pytest.mark.parametrize("in_flight", [0, 40])
def test_predictions_do_not_depend_on_when_they_were_asked_for(in_flight: int) -> None:
    patient, curious = XGBModel(3), XGBModel(3)
    patient.rows_in_flight = curious.rows_in_flight = in_flight
    probe, prior, _ = table(50, seed=9)
    for n in range(9):
        rows = table(7, seed=n, failing=0.2)
        patient.learn(*rows, "w")
        curious.learn(*rows, "w")
        curious.predict(probe, prior, "w")
    assert patient.rows == 63 > 3 * REFIT
    late, early = patient.predict(probe, prior, "w"), curious.predict(probe, prior, "w")
    assert late.mean.tolist() == early.mean.tolist()
    assert late.spread.tolist() == early.spread.tolist()
    assert late.valid.tolist() == early.valid.tolist()


def rows_known(model: XGBModel, batches: int) -> list[int]:
    """The numbers of rows to which its ensembles were fitted while this number of batches of eight arrive."""
    known: list[int] = []
    for n in range(batches):
        model.learn(*table(8, seed=n), "w")
        ensemble = model.ensemble("w")
        if ensemble is not None and ensemble.rows not in known:
            known.append(ensemble.rows)
    return known


def test_the_more_rows_are_in_flight_the_rarer_the_fits() -> None:
    """A fit need not be younger than half of the batches in flight, because it would be as old when the
    answer comes."""
    alone, fleet = XGBModel(), XGBModel()
    fleet.rows_in_flight = 48  # a step of 24
    assert rows_known(alone, 12) == [16, 32, 48, 64, 80, 96]
    assert rows_known(fleet, 38) == [16, 24, 48, 72, 96, 120, 144, 168, 192, 240]


def test_in_a_fleet_a_fit_is_used_a_step_after_its_last_row() -> None:
    model = XGBModel()
    model.rows_in_flight = 48
    for n in range(7):
        model.learn(*table(8, seed=n), "w")
        assert n < 5 or model.ensemble("w").rows == 24  # that of 48 rows has begun
    model.learn(*table(16, seed=7), "w")
    assert model.ensemble("w").rows == 48


def test_of_features_that_never_change_it_says_the_same_as_of_others() -> None:
    start = XGBModel(1)
    start.learn(*table(200, seed=1), "v")
    model = XGBModel(2, start.ensemble())
    probe, prior, _ = table(60, seed=9)
    fixed, fixed_prior = probe.copy(), prior.copy()
    fixed.setflags(write=False)
    fixed_prior.setflags(write=False)
    for n in range(6):
        anew, again = model.predict(probe, prior, "w"), model.predict(fixed, fixed_prior, "w")
        assert again is model.predict(fixed, fixed_prior, "w")
        assert anew.mean.tolist() == again.mean.tolist()
        assert anew.spread.tolist() == again.spread.tolist()
        assert anew.valid.tolist() == again.valid.tolist()
        model.learn(*table(12, seed=n, failing=0.2), "w")


def test_where_nothing_was_measured_it_is_less_sure() -> None:
    matrix, prior, seconds = table(400)
    near = matrix[:, 3] < 0.8
    noisy = seconds * np.exp(
        0.5 * np.random.default_rng(0).standard_normal(len(seconds)) * (matrix[:, 4] > 0.5)
    )
    model = XGBModel()
    model.learn(matrix[near], prior[near], noisy[near], "w")
    spread = model.predict(matrix, prior, "w").spread
    assert spread[matrix[:, 4] > 0.5].mean() > 1.2 * spread[matrix[:, 4] <= 0.5].mean()


def test_what_fails_is_predicted_to_fail() -> None:
    matrix, prior, seconds = table(300)
    seconds[matrix[:, 7] > 0.6] = np.nan
    model = XGBModel()
    model.learn(matrix, prior, seconds, "w")
    probe, prior, _ = table(100, seed=1)
    valid = model.predict(probe, prior, "w").valid
    assert (valid[probe[:, 7] > 0.65] < 0.3).all()
    assert (valid[probe[:, 7] < 0.55] > 0.7).all()
    assert model.predict(probe, prior, "another").valid.tolist() == [1.0] * len(
        prior
    )  # nothing is known about it


def test_when_everything_fails_it_says_so_and_stays_the_prior() -> None:
    matrix, prior, _ = table(64)
    model = XGBModel()
    model.learn(matrix, prior, np.full(64, np.nan), "w")
    assert model.predict(matrix, prior, "w").mean.tolist() == np.log(prior).tolist()


def test_a_refit_reads_the_newest_rows_only() -> None:
    """The older half says the opposite: a model that never saw it predicts the same."""
    features, prior, seconds = table(2 * REFIT)
    probe = table(8)[:2]
    model, young = XGBModel(most=REFIT), XGBModel(most=REFIT)
    model.learn(features[::-1], prior, 1.0 / seconds, "w")
    for one in (model, young):
        one.learn(features[:REFIT], prior[:REFIT], seconds[:REFIT], "w")
    assert model.predict(*probe, "w").mean.tolist() == young.predict(*probe, "w").mean.tolist()


@pytest.mark.parametrize("name", ["model.json", "model.json.gz"])
def test_a_saved_model_predicts_before_there_are_rows(tmp_path: Path, name: str) -> None:
    model = XGBModel()
    model.save(tmp_path / name)
    assert not (tmp_path / name).exists()  # there was nothing to save
    model = logged(12, alike=True)
    model.learn(*table(100, failing=0.1), "w")
    model.save(tmp_path / name)
    probe, prior, _ = table(50, seed=1)
    expected = model.predict(probe, prior, "unknown")
    assert np.ptp(expected.mean - np.log(prior)) > 0.1  # the trees change the prediction
    found = XGBModel.load(tmp_path / name).predict(probe, prior, "w")
    for a, b in ((found.mean, expected.mean), (found.spread, expected.spread), (found.valid, expected.valid)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_rows_correct_a_saved_model(tmp_path: Path) -> None:
    logged(12, alike=True).save(tmp_path / "seed.json")
    model = XGBModel.load(tmp_path / "seed.json")
    matrix, prior, seconds = table(200, seed=1)
    changed = seconds * (1.0 + 2.0 * (matrix[:, 9] > 0.5))  # on this machine something else is slow, too
    model.learn(matrix, prior, changed, "v")
    probe, prior, seconds = table(100, seed=2)
    truth = seconds * (1.0 + 2.0 * (probe[:, 9] > 0.5))
    before = np.abs(np.log(XGBModel.load(tmp_path / "seed.json").predict(probe, prior, "v").seconds / truth))
    after = np.abs(np.log(model.predict(probe, prior, "v").seconds / truth))
    assert after.mean() < 0.4 * before.mean()
    model.save(tmp_path / "both.json")  # two ensembles, one fitted to the error of the other
    np.testing.assert_allclose(
        XGBModel.load(tmp_path / "both.json").predict(probe, prior, "x").mean,
        model.predict(probe, prior, "x").mean,
        rtol=1e-6,
    )


def test_a_saved_model_counts_as_far_as_it_holds_here(tmp_path: Path) -> None:
    """If its predictions are the opposite of the measured times, the trees need not unlearn them first."""
    logged(12, alike=True).save(tmp_path / "seed.json")
    shares = {}
    for name, sign in (("agrees", 1.0), ("contradicts", -1.0)):
        model = XGBModel.load(tmp_path / "seed.json")
        matrix, prior, seconds = table(4 * TOLD, seed=1)
        model.learn(matrix, prior, prior * (seconds / prior) ** sign, "v")
        found = model.ensemble("v")
        assert found is not None
        shares[name] = found.share
        model.save(tmp_path / "both.json")
        kept = XGBModel.load(tmp_path / "both.json").ensemble("v")
        assert kept is not None
        assert kept.share == found.share
    assert shares["agrees"] > 0.7
    assert shares["contradicts"] == 0.0


@pytest.mark.parametrize(("agreed", "share"), [(1.0, 1.0), (0.5, 0.6), (0.0, 0.2), (-1.0, 0.0)])
def test_a_share_holds_as_if_some_rows_had_agreed_before(agreed: float, share: float) -> None:
    rng = np.random.default_rng(0)
    said = rng.permutation(np.linspace(-1.0, 1.0, 4 * TOLD))
    groups = np.repeat(["a", "b"], 2 * TOLD)
    y = agreed * said + np.where(groups == "a", 3.0, -5.0)  # levels do not count
    assert holds(y, said, groups) == pytest.approx(share)
    assert holds(y, np.zeros(len(y)), groups) == 1.0  # the prediction has no effect


def test_the_same_model_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        model = XGBModel(1)
        model.learn(*table(64), "w")
        model.save(tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    data = json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert data["schema"] == SCHEMA
    assert data["features"] == list(NAMES)


def test_a_model_of_other_features_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    model = XGBModel()
    model.learn(*table(64), "w")
    model.save(path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "schema": 1}))
    with pytest.raises(InputError, match=f"features of version 1; this is version {SCHEMA}"):
        XGBModel.load(path)
    path.write_text(json.dumps({**data, "boosters": [{}]}))
    with pytest.raises(InputError, match="is damaged"):
        XGBModel.load(path)
    for text in ("[]", "not JSON", "{}"):
        path.write_text(text)
        with pytest.raises(InputError, match="is not a saved cost model"):
            XGBModel.load(path)
    with pytest.raises(InputError, match="is not a saved cost model"):
        XGBModel.load(tmp_path / "missing.json.gz")
