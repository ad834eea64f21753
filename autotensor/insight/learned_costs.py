"""The cost model's prediction for a schedule: the contribution of each of its features to the predicted time.

    log ──▶ model, fitted to all trials of the subject's machine and target ──▶ seconds, and factors on it
    seconds = prior × factor of the task × factor of the first feature × factor of the second feature × …

If the explained schedule is a trial of the log, the model may be fitted to this trial too. The model is
fitted to a part of the log, the task's own trials first, because describing all trials takes longer than
people wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotensor.insight.explained_schedule import Subject
from autotensor.schedule.loop_picture import LoopPicture
from autotensor.search.knowledge import Knowledge, known_trials
from autotensor.search.score.boosted.xgb_model import MIN_ROWS, XGBModel
from autotensor.search.score.features import NAMES, features
from autotensor.te.workload import Workload
from schedules.prior.predict import predict
from tuning_db import TrialStore
from tuning_db.records import TrialRecord

Trials = tuple[Workload, Sequence[TrialRecord]]
# the model is fitted to this many tasks: describing their trials takes two seconds (2 cores, 2026-11)
TASKS = 16


@dataclass(frozen=True, slots=True)
class Contribution:
    """One feature: its value, as the model sees it, and its factor on the predicted time."""

    feature: str
    value: float
    factor: float


@dataclass(frozen=True, slots=True)
class Learned:
    """The prediction of a fitted model for one schedule."""

    rows: int  # number of trials that the model was fitted to
    tasks: int  # number of tasks that these trials belong to
    prior_s: float
    predicted_s: float
    spread: float  # standard deviation of the logarithm of the prediction
    # the factor that all schedules of this task share, for example because the prior is off there
    task_factor: float
    contributions: tuple[Contribution, ...]  # of all features, the most important one first


def learned(s: Subject, p: LoopPicture, store: TrialStore | None) -> Learned | str:
    """The prediction, or a sentence that says why the log has not enough trials for a model."""
    known = () if store is None else _nearest(known_trials(store, s.target, s.machine).found, s.workload.key)
    model = XGBModel()
    rows = Knowledge(known).teach(model, s.target, s.rates)
    ensemble = model.ensemble(s.workload.key)
    if ensemble is None:
        return f"the log has {rows} trials to learn from; a model needs {MIN_ROWS}."
    prior, terms = predict(p, s.target, s.rates)
    matrix = features(p, terms, prior, s.target)
    found = ensemble.predict(matrix, prior, s.workload.key)
    *each, _ = ensemble.contributions(matrix)[0]
    total = float(found.mean[0] - np.log(prior[0]))
    order = sorted(range(len(NAMES)), key=lambda n: -abs(each[n]))
    return Learned(
        ensemble.rows,
        len(known),
        float(prior[0]),
        float(found.seconds[0]),
        float(found.spread[0]),
        float(np.exp(total - sum(each))),
        tuple(Contribution(NAMES[n], float(matrix[0, n]), float(np.exp(each[n]))) for n in order),
    )


def _nearest(found: Sequence[Trials], key: str) -> tuple[Trials, ...]:
    """The task's own trials, then the trials of the tasks that were measured last."""
    newest = sorted(found, key=lambda f: (f[0].key != key, -max(r.id or 0 for r in f[1])))
    return tuple(newest[:TASKS])
