"""Parts from outside: a run uses another cost model, policy and metric. Mistakes in them are reported in one
sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import TARGET, FakeMeasurer, chance
from runs import PRODUCT, SMALL_PRODUCT, run

from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.resolve import Metric, median_s, resolve
from autotensor.schedule.sketch import Sketch
from autotensor.schedule.trace import Trace
from autotensor.search.events import Event, Improved, Raced, RoundDone
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.metric import checked_metric
from autotensor.search.options import TuneOptions
from autotensor.search.propose.policy import Policy
from autotensor.search.run_identity import key_options
from autotensor.search.score.cost_model import Prediction, PriorModel
from autotensor.search.task import Candidate
from schedules import generate, registry
from tuning_db import connect
from tuning_db.records import TrialRecord


class Recorder(PriorModel):
    """Learns nothing, but records the workloads whose results it got, and its starting point."""

    learns = True
    made: list[Recorder]

    def __init__(self, seed: int = 0, target: Target | None = None) -> None:
        self.seed, self.target, self.told = seed, target, []
        Recorder.made.append(self)

    def learn(self, features: Any, prior: Any, seconds: Any, group: str) -> None:
        assert features.shape[0] == len(prior) == len(seconds)
        self.told.append(group)


class Forgetful(Recorder):
    learns = False


class Walk(Policy):
    """Random steps from the last that worked."""

    here: Candidate | None = None

    def propose(self, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
        while True:
            here = self.here or self.default()
            hole = here.sketch.holes[rng.integers(len(here.sketch.holes))]
            option = hole.options[rng.integers(len(hole.options))]
            yield Candidate(here.sketch, {**here.decisions, hole.name: option}, "walked")

    def tell(self, candidates: Any, seconds: Any) -> None:
        super().tell(candidates, seconds)
        self.here = next((c for c, s in zip(candidates, seconds, strict=True) if s is not None), self.here)


class Same(Policy):
    def propose(self, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
        while True:
            yield self.default()


def worst(trial: TrialRecord) -> float:
    return max(s.seconds for s in trial.samples)


class Spiky(FakeMeasurer):
    """The candidates with the smaller medians have one sample that takes ten times as long."""

    def _one(self, trace: Trace, repeat: int) -> MeasureResult:
        result = super()._one(trace, repeat)
        *others, last = result.seconds
        return result if last >= 1.5e-3 else replace(result, seconds=(*others, 10 * last))


@pytest.fixture(autouse=True)
def made() -> list[Recorder]:
    Recorder.made = []
    return Recorder.made


def test_the_loop_names_no_model() -> None:
    code = "import sys, autotensor.search.loop; print([m for m in sys.modules if 'boost' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- cost models ---------------------------------------------------------------------------------------------


def test_a_model_is_told_what_the_log_knows(made: list[Recorder]) -> None:
    store = connect(":memory:")
    run([SMALL_PRODUCT], 16, store, model=Recorder, seed=3)
    assert (made[0].seed, made[0].target, set(made[0].told)) == (3, TARGET, {SMALL_PRODUCT.key})
    run([PRODUCT], 16, store, model=Recorder)
    assert made[1].told[0] == SMALL_PRODUCT.key, "before anything is measured"
    assert set(made[1].told) == {SMALL_PRODUCT.key, PRODUCT.key}
    run([PRODUCT], 16, store, model=Recorder, warm_start=False, fresh=True)
    assert made[2].target is None
    assert set(made[2].told) == {PRODUCT.key}
    run([PRODUCT], 16, store, model=Forgetful)
    assert set(made[3].told) == {PRODUCT.key}


class Dumb:
    def __init__(self, seed: int, target: Target | None) -> None: ...

    def predict(self, features: Any, prior: Any, group: str) -> Prediction: ...


def test_what_is_no_model() -> None:
    with pytest.raises(
        InputError,
        match=r"cost model '[\w.]*test_parts:Dumb' gives <.*>, which lacks learn and learns\.",
    ):
        run([PRODUCT], 8, model=Dumb)
    with pytest.raises(InputError, match=r"<.*Recorder object at .*> is not a cost model"):
        TuneOptions(model=Recorder())  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"has no name\. Write it with"):
        run([PRODUCT], 8, model=lambda seed, target: PriorModel())


# -- policies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["prior", "xgb", Recorder])
def test_a_policy_proposes_and_continues_as_if_it_had_not_been_killed(model: Any) -> None:
    whole, parts, store = FakeMeasurer(failing=0.1), FakeMeasurer(failing=0.1), connect(":memory:")
    options = {"policy": Walk, "model": model, "patience": False}
    run([PRODUCT], 40, measurer=whole, **options)
    for trials in (8, 24, 40):
        report = run([PRODUCT], trials, store, parts, **options)
        assert report.trials == trials
    assert parts.measured == whole.measured
    assert len(set(whole.measured)) == 40
    made_by = [t.made_by for t in store.trials() if t.round is not None]
    assert set(made_by) == {"default", "walked"}
    assert made_by[0] == "default"


def test_seeds_and_policies_are_other_runs() -> None:
    store = connect(":memory:")
    run([PRODUCT], 16, store, policy=Walk)
    assert run([PRODUCT], 16, store, policy=Walk).reused == 16
    for other in ({"seed": 1}, {"policy": Same}, {"policy": "uniform"}, {}, {"metric": worst}):
        assert run([PRODUCT], 16, store, **{"policy": Walk, **other} if other else {}).reused == 0


def test_what_a_policy_leaves_is_drawn_evenly() -> None:
    store = connect(":memory:")
    report = run([SMALL_PRODUCT], 10_000, store, policy=Same, patience=False)
    assert {t.made_by for t in store.trials() if t.round is not None} == {"default", "random", "left over"}
    assert report.tasks[0].reason == "all candidates were measured"


@pytest.mark.parametrize("odd", [7, Candidate(Sketch(), {}, "odd"), "holes"])
def test_what_is_no_candidate(odd: Any) -> None:
    class Odd(Policy):
        def propose(self, count: int, rng: np.random.Generator) -> Iterable[Candidate]:
            return [Candidate(self.sketches[0], {}, "odd") if odd == "holes" else odd]

    with pytest.raises(
        InputError,
        match=rf"policy '.*:.*Odd' proposes no candidate of '{re.escape(PRODUCT.name)}'\. Take",
    ):
        run([PRODUCT], 8, policy=Odd)


def test_what_is_no_policy() -> None:
    for wrong in (Recorder, Walk.propose, 7):
        with pytest.raises(InputError, match=r"is not a search policy\. docs/extend\.md shows one\."):
            TuneOptions(policy=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'tunr' is unknown. Did you mean 'tuner'. Known: tuner, uniform."):
        TuneOptions(policy="tunr")


# -- metrics -------------------------------------------------------------------------------------------------


def test_a_metric_leads_the_search_its_race_and_its_report() -> None:
    store, heard = connect(":memory:"), list[Event]()
    measurer = Spiky(lambda t: 1e-3 * (1.0 + chance(t.hash)))
    report = run([PRODUCT], 48, store, measurer, heard.append, metric=worst, patience=False)
    trials = [t for t in store.trials() if t.round is not None and t.verified]
    best = min(trials, key=worst)
    assert best.trace_hash != min(trials, key=lambda t: t.median_s or 0.0).trace_hash
    (task,) = report.tasks
    assert task.best is not None
    assert task.best.trace.hash == best.trace_hash
    assert task.best_s == pytest.approx(worst(best))
    default = next(t for t in trials if t.made_by == "default")
    assert task.default_s == pytest.approx(worst(default))
    told = [s for e in heard if isinstance(e, RoundDone) for s in e.seconds]
    assert sorted(worst(t) for t in trials) == sorted(s for s in told if s is not None)
    assert [e.seconds for e in heard if isinstance(e, Improved)][-1] == worst(best)
    assert [e.seconds for e in heard if isinstance(e, Raced)] == [task.best_s]
    assert resolve(PRODUCT, TARGET, store, worst).trace.hash == best.trace_hash
    again = run([PRODUCT], 48, store, measurer, metric=worst, patience=False)
    assert (again.reused, again.tasks[0].best_s) == (48, task.best_s)


def test_each_metric_has_its_winner_in_one_log() -> None:
    """A race by one metric does not change the winner by another metric."""
    store, measurer = connect(":memory:"), Spiky(lambda t: 1e-3 * (1.0 + chance(t.hash)))
    winners: dict[Metric, float] = {}
    for metric in (median_s, worst, median_s, worst):
        name = "median" if metric is median_s else metric
        report = run([PRODUCT], 48, store, measurer, metric=name, patience=False, warm_start=False)
        best_s = report.tasks[0].best_s
        assert best_s is not None
        winners[metric] = min(best_s, winners.get(metric, best_s))
        for known, winner_s in winners.items():
            found = chance(resolve(PRODUCT, TARGET, store, known).trace.hash)
            assert 1e-3 * (1.0 + found) <= winner_s
            assert (found < 0.5) == (known is median_s)


def test_another_unit_ends_no_task_at_the_limit_of_the_machine() -> None:
    def small(trial: TrialRecord) -> float:
        return 1e-9 * worst(trial)

    report = run([PRODUCT, SMALL_PRODUCT], 64, metric=small)
    assert all(t.trials for t in report.tasks)
    assert not any("limit" in t.reason for t in report.tasks)


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), 0.0, -1.0, None, "fast"])
def test_what_is_no_figure(figure: Any) -> None:
    def odd(trial: TrialRecord) -> float:
        return figure

    with pytest.raises(
        InputError, match=rf"metric '.*:.*odd' gives {figure!r}. It must give a positive number."
    ):
        run([PRODUCT], 8, metric=odd)


# -- parts that fail -----------------------------------------------------------------------------------------


class OneArgument(PriorModel):
    def __init__(self) -> None: ...


def model_with(**methods: Any) -> type[PriorModel]:
    return type("Faulty", (PriorModel,), {"__module__": __name__, **methods})


def policy_with(**methods: Any) -> type[Policy]:
    return type("Faulty", (Policy,), {"__module__": __name__, **methods})


def fails(*what: Any, **more: Any) -> Any:
    return 1 // 0


def predicts(**fields: Any) -> type[PriorModel]:
    def predict(self: Any, features: Any, prior: Any, group: str) -> Prediction:
        ones = np.ones(len(prior))
        return replace(Prediction(ones, ones, ones), **{k: v(ones) for k, v in fields.items()})

    return model_with(predict=predict)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ({"model": OneArgument}, r"cost model '.*:OneArgument' fails while it is made \(TypeError: .*\)\."),
        (
            {"model": model_with(predict=fails)},
            r"model '.*:Faulty' fails in predict \(ZeroDivisionError: .*test_parts\.py:\d+\)\. docs/extend",
        ),
        ({"model": model_with(learn=fails)}, "fails in learn"),
        ({"model": model_with(predict=lambda self, features: None)}, "fails in predict .TypeError"),
        ({"policy": policy_with(__init__=lambda self: None)}, "policy '.*:Faulty' fails while it is made"),
        ({"policy": policy_with(propose=fails)}, "fails in propose"),
        ({"policy": policy_with(propose=lambda self, count, rng: None)}, "propose .TypeError: 'NoneType'"),
        ({"policy": policy_with(propose=lambda self, count, rng: [None])}, "proposes no candidate"),
        ({"policy": policy_with(propose=lambda self, count, rng: (1 // 0 for _ in "a"))}, "in propose"),
        ({"policy": policy_with(tell=fails)}, "fails in tell"),
        ({"policy": policy_with(outlook=fails)}, "fails in outlook"),
        ({"policy": policy_with(outlook=lambda self, count: 3)}, "has the outlook 3. outlook must give"),
        ({"metric": fails}, "metric '.*:fails' fails when it is called .ZeroDivisionError"),
    ],
)
def test_a_part_that_raises_an_error_is_named(part: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run([PRODUCT], 8, **part)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"mean": lambda ones: ones * np.nan}, r"mean that is not finite for \d+ of \d+ candidates"),
        ({"spread": lambda ones: ones[:1]}, r"spread of shape \(1,\) for \d+ candidates"),
        ({"valid": lambda ones: 1.0}, r"valid of shape \(\) for \d+ candidates"),
        ({"mean": lambda ones: ones.astype(str)}, "mean of type <U32, not of real numbers"),
        ({"mean": lambda ones: ones + 1j}, "mean of type complex128, not of real numbers"),
        ({"spread": lambda ones: -ones}, "a negative spread"),
        ({"valid": lambda ones: 7 * ones}, "valid outside 0 to 1"),
        ({"mean": lambda ones: [1.0, [2.0]]}, "mean that is not an array"),
    ],
)
def test_what_is_no_prediction(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=rf"cost model '.*:Faulty' predicts {fault}\. It must give"):
        run([PRODUCT], 8, model=predicts(**fields))


def test_a_prediction_may_be_lists() -> None:
    assert run([PRODUCT], 8, model=predicts(mean=list, spread=list)).trials == 8


def test_an_error_of_our_own_part_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PriorModel, "predict", fails)
    with pytest.raises(ZeroDivisionError):
        run([PRODUCT], 8, model="prior")


# -- identity ------------------------------------------------------------------------------------------------


def test_runs_of_before_there_were_parts_are_continued() -> None:
    before = {"model": "xgb", "batch": 8, "residency": "graph"}
    for options in ({}, {"policy": "tuner"}, {"metric": "median"}):
        assert key_options(TuneOptions(**options), TARGET, "graph") == before
    assert key_options(TuneOptions(model="random", policy="uniform"), TARGET, "graph") == {
        **before,
        "model": "random",
    }
    named = key_options(TuneOptions(model=Recorder, policy=Walk, metric=worst), TARGET, "graph")
    assert [str(named[part]).partition(":")[2] for part in ("model", "policy", "metric")] == [
        "Recorder",
        "Walk",
        "worst",
    ]


def test_a_run_with_a_rule_of_another_package_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a repeated call after the installation would measure nothing."""
    before = key_options(TuneOptions(), TARGET, "graph")
    monkeypatch.setattr(registry, "OUTSIDE", {})
    monkeypatch.setattr(generate, "OUTSIDE", registry.OUTSIDE)
    registry.sketch_rule("late", before="tile_cpu")(lambda state, stage, target: ())
    registry.sketch_rule("for cards", before="gpu_tile", devices=("cuda",))(lambda state, stage, target: [])
    assert key_options(TuneOptions(), TARGET, "graph") == before | {"rules": ["late"]}


def test_a_metric_may_be_an_object_that_has_no_hash() -> None:
    class Shifted:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, trial: TrialRecord) -> float:
            return worst(trial) + 1.0

    store = connect(":memory:")
    run([PRODUCT], 4, store)
    (row, *_) = [r for r in store.trials() if r.verified]
    assert checked_metric(Shifted())(row) == worst(row) + 1.0
