"""Keeps the training rows of one workload on disk, because computing them for thousands of trials takes long.

    trials of a workload ──described by today's rules, prior and features──▶ Lesson ──learn──▶ model
          └─ the same trials, rates and sources as before ──────────────────▲ read

A row has the features, the prior and the seconds of a trial. A lesson holds exactly the rows that a cost
model would get if there were no lessons. So a model that learns from a lesson is equal to a model that learns
from the trials. The lesson's key contains the trials and their times. So a new trial of the workload makes a
new lesson, and trials of other workloads do not.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autotensor.base.target import Target
from autotensor.resolve import Metric
from autotensor.runtime.files.object_cache import default_cache, object_key
from autotensor.search.journal import retell
from autotensor.search.measuring.provenance import code_here
from autotensor.search.metric import figure_of
from autotensor.search.propose.policy import Policy
from autotensor.search.score.cost_model import CostModel, Prediction, PriorModel, tell_model
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates
from tuning_db.records import TrialRecord

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Lesson:
    """A cost model that only records the rows that it gets: features, prior and seconds of trials."""

    learns = True
    parts: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        self.parts.append((features, prior, seconds))

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        return PriorModel().predict(features, prior, group)

    def to_bytes(self) -> bytes:
        out = io.BytesIO()
        whole = [np.concatenate(part) for part in zip(*self.parts, strict=True)] if self.parts else []
        np.savez(out, *whole)
        return out.getvalue()

    @staticmethod
    def from_bytes(data: bytes) -> Lesson:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = [found[name] for name in found.files]
        return Lesson([(arrays[0], arrays[1], arrays[2])] if arrays else [])


def teach(
    model: CostModel,
    workload: Workload,
    target: Target,
    rates: Rates,
    rows: Sequence[TrialRecord],
    metric: Metric,
    known: Policy | None = None,
) -> int:
    """Teaches a model the trials of a workload. Returns the number of usable trials. known: a tuner whose
    sketches are used."""
    cache = default_cache()
    sketches = None if known is None else known.sketches
    hashes = "" if sketches is None else " ".join(s.hash for s in sketches)
    key = object_key(
        "lesson",
        workload.key,
        target.to_json(),
        repr(rates),
        hashes,
        code_here().sources,
        _facts(rows, metric),
    )
    data = cache.get(key)
    if data is None:
        lesson = Lesson()
        retell(Policy(Task(workload, target), lesson, rates, sketches=sketches), rows, metric)
        data = cache.put(key, lesson.to_bytes()) if code_here().sources else lesson.to_bytes()
    taught = 0
    for features, prior, seconds in Lesson.from_bytes(data).parts:
        tell_model(model, features, prior, seconds, workload.key)
        taught += len(seconds)
    return taught


def _facts(rows: Sequence[TrialRecord], metric: Metric) -> str:
    """The facts of the trials that a lesson depends on."""
    return " ".join(f"{r.session} {r.trace_hash} {figure_of(r, metric)!r}" for r in rows)
