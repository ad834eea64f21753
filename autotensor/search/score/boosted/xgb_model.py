"""XGBModel: learns what the prior gets wrong, across workloads, and says how sure it is.

    seconds = prior × exp(level of the workload + trees(features))

    rows ──centred in each workload──▶ labels ──bootstrap──▶ BAGS boosters ──▶ mean, spread
    rows with failures ──────────────────────────────────▶ one classifier ──▶ P(valid)
    workloads, parts left out ───────────────────────────▶ weight of both in one without rows (tree_trust.py)

A model may `start` from an ensemble that was fitted before (shipped, or saved by another run): that predicts
before there are rows, and what is learned then is what *it* gets wrong. With neither, the model is the prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autotensor.base import log
from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.search.score.boosted.ensemble import Ensemble, fit, trust
from autotensor.search.score.boosted.ensemble_file import load, save
from autotensor.search.score.cost_model import Floats, Prediction, PriorModel
from schedules import shipped

MIN_ROWS = 16  # fewer samples say nothing that the prior does not
REFIT = 16  # new rows until the next fit: two batches
MAX_ROWS = 4000  # of a run, newest kept: a refit stays below a second


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """A prediction for candidates that stay the same."""

    features: Floats
    prior: Floats
    before: Floats | None  # by the ensemble that the model started from
    by: Ensemble | None
    prediction: Prediction


class XGBModel:
    """Fitted lazily to the first n rows, n being a multiple of REFIT: what it predicts depends on the rows
    and their order, never on when it was asked. Predictions for features that cannot be written to are kept:
    the last ones of each group.
    """

    learns = True
    # rows that arrive between a batch and its answer: a fit that is younger than half of that would have been
    # as old by then
    rows_in_flight = 0

    def __init__(self, seed: int = 0, start: Ensemble | None = None, most: int = MAX_ROWS) -> None:
        """start: what was learned before. most: of the newest rows, are kept."""
        self.seed = seed
        self.most = most
        self.start = start
        self._rows: list[tuple[Floats, Floats, Floats, str]] = []  # features, prior, seconds, group
        self._count = 0
        self._fitted = 0  # rows that the ensemble knows
        self._ensemble = start
        self._elsewhere: Ensemble | None = None  # the same, for workloads of which it knows no row
        self._said: dict[str, _Said] = {}  # by group

    @staticmethod
    def load(path: Path, seed: int = 0) -> XGBModel:
        """A model that starts where a saved one ended. Raises InputError for a file of other features."""
        return XGBModel(seed, load(path))

    @property
    def rows(self) -> int:
        return self._count

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        if len(seconds):
            self._rows.append((features.astype(np.float32), prior, seconds, group))
            self._count += len(seconds)

    def predict(self, features: Floats, prior: Floats, group: str) -> Prediction:
        known = self.ensemble(group)
        if features.flags.writeable or prior.flags.writeable:
            return (known or PriorModel()).predict(features, prior, group)
        said = self._said.get(group)
        same = said is not None and said.features is features and said.prior is prior
        if said is None or not same or said.by is not known:
            before = said.before if said is not None and same else self._before(features)
            found = (
                PriorModel().predict(features, prior, group)
                if known is None
                else known.predict(features, prior, group, None if known is self.start else before)
            )
            said = self._said[group] = _Said(features, prior, before, known, found)
        return said.prediction

    def _before(self, features: Floats) -> Floats | None:
        return None if self.start is None else self.start.residuals(features.astype(np.float32))

    def ensemble(self, group: str = "") -> Ensemble | None:
        """What is known now of a workload ("": of one that is not known); None before there are enough rows,
        without a seed.
        """
        wanted = self._rows_to_know()
        if wanted >= MIN_ROWS and wanted != self._fitted:
            self._ensemble = fit(*self._newest(wanted), self.seed, self.start) or self._ensemble
            self._elsewhere, self._fitted = None, wanted
        if self._ensemble in (None, self.start) or (group and group in self._ensemble.levels):
            return self._ensemble
        if self._elsewhere is None:  # when it is first asked for: every task has rows of its own soon
            self._elsewhere = self._ensemble.at(trust(*self._newest(self._fitted), self.seed, self.start))
        return self._elsewhere

    def _rows_to_know(self) -> int:
        """Number of rows to fit to: the last multiple of the step, before the first one the last doubling."""
        step = max(REFIT, self.rows_in_flight // 2)
        if self._count >= step:
            return self._count - self._count % step
        return 1 << (self._count.bit_length() - 1) if self._count else 0

    def _newest(self, count: int) -> tuple[npt.NDArray[np.float32], Floats, Floats, npt.NDArray[np.str_]]:
        """Features, prior, seconds and groups of the first `count` rows, less those that are too old."""
        kept = slice(max(0, count - self.most), count)
        x, prior, seconds = (np.concatenate([r[n] for r in self._rows])[kept] for n in range(3))
        groups = np.concatenate([np.full(len(s), g) for _, _, s, g in self._rows])[kept]
        return x.astype(np.float32), prior, seconds, groups

    def save(self, path: Path) -> None:
        """What is known now, for other workloads and runs; nothing before there are enough rows."""
        ensemble = self.ensemble()
        if ensemble is not None:
            save(ensemble, path)


def started(seed: int = 0, target: Target | None = None) -> XGBModel:
    """The model of a tuning run: it starts from what is shipped for a target; None: from nothing."""
    return XGBModel(seed, None if target is None else start_model(target))


def start_model(target: Target) -> Ensemble | None:
    """The cost model that learned on this class of machines, or on one like it; None when there is none.

    One of other features is of no use: that is said, and the search begins with the prior alone.
    """
    path = shipped.cost_model(target)
    if path is None:
        return None
    try:
        return load(path)
    except InputError as error:
        log.warn(f"the cost model that comes with autotensor is not used: {error.what}")
        return None
