"""XGBModel: learns the prior's errors across workloads, and predicts with an uncertainty.

    seconds = prior × exp(level of the workload + trees(features))

    rows ──centred in each workload──▶ labels ──bootstrap──▶ BAGS boosters ──▶ mean, spread
    rows with failures ──────────────────────────────────▶ one classifier ──▶ P(valid)
    workloads, parts left out ───────────────────────────▶ weight in workloads without rows (tree_trust.py)

A model may `start` from an ensemble that was fitted before (shipped, or saved by another run). That ensemble
predicts until there are rows. Then the new trees learn its errors. Without rows and without a start, the
model predicts the prior.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
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

MIN_ROWS = 16  # fewer samples tell nothing that the prior does not
REFIT = 16  # new rows until the next fit: two batches
GROWTH = 4  # if results arrive late, the next fit comes after a fourth more rows
MAX_ROWS = 4000  # this many of a run's newest rows are kept, so that a refit takes less than a second


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """A prediction for a read-only array of candidates, kept for the next call."""

    features: Floats
    prior: Floats
    before: Floats | None  # residuals of the ensemble that the model started from
    by: Ensemble | None
    prediction: Prediction


class XGBModel:
    """Fits when needed to the first n rows, where n is a multiple of REFIT. So predictions depend only on the
    rows and their order, never on the time of the call. For each group, the last prediction for a read-only
    array of features is kept.

    In a fleet, the process that fits also keeps all workers busy. So fits are rarer there (`fit_when_late`),
    and each fit runs in a thread of its own: the ensemble of n rows is used from n + step rows on.
    """

    learns = True
    # rows that arrive between a batch and its results; a refit after fewer than half of these gains nothing,
    # because the results arrive that late in any case
    rows_in_flight = 0

    def __init__(self, seed: int = 0, start: Ensemble | None = None, most: int = MAX_ROWS) -> None:
        """start: an ensemble fitted before. most: this many of the newest rows are kept."""
        self.seed = seed
        self.most = most
        self.start = start
        self._rows: list[tuple[Floats, Floats, Floats, str]] = []  # features, prior, seconds, group
        self._count = 0
        self._fitted = 0  # number of rows that the ensemble was fitted to
        self._ensemble = start
        self._elsewhere: Ensemble | None = None  # the ensemble for workloads without rows
        self._said: dict[str, _Said] = {}  # by group
        self._fits: ThreadPoolExecutor | None = None  # one thread, used in a fleet
        # number of rows, and the fit to these
        self._begun: tuple[int, Future[Ensemble | None]] = (0, Future())

    @staticmethod
    def load(path: Path, seed: int = 0) -> XGBModel:
        """A model that starts from a saved one. Raises InputError for a file with other features."""
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
        """The ensemble for a workload ("": for an unknown one); None with too few rows and no start."""
        wanted = self._rows_to_know()
        if wanted >= MIN_ROWS and wanted != self._fitted:
            self._ensemble = self._fit(wanted) or self._ensemble
            self._elsewhere, self._fitted = None, wanted
        self._begin_next()
        if self._ensemble in (None, self.start) or (group and group in self._ensemble.levels):
            return self._ensemble
        if self._elsewhere is None:  # computed on first use, because every task soon has rows of its own
            self._elsewhere = self._ensemble.at(trust(*self._newest(self._fitted), self.seed, self.start))
        return self._elsewhere

    @property
    def _step(self) -> int:
        return max(REFIT, self.rows_in_flight // 2)

    def _rows_to_know(self) -> int:
        """The number of rows to fit to: the last multiple of the step; before that, a power of two."""
        step = self._step
        if self._count < step:
            return 1 << (self._count.bit_length() - 1) if self._count else 0
        if step > REFIT:
            return fit_when_late(max(step, self._count - step), step)
        return self._count - self._count % step

    def _begin_next(self) -> None:
        """In a fleet: starts the fit that is used one step later."""
        step = self._step
        if step == REFIT or self._count < 2 * step:
            return
        coming = fit_when_late(self._count, step)
        if coming not in (self._fitted, self._begun[0]):
            self._fits = self._fits or ThreadPoolExecutor(1, "autotensor fit")
            self._begun = coming, self._fits.submit(fit, *self._newest(coming), self.seed, self.start)

    def _fit(self, count: int) -> Ensemble | None:
        if count == self._begun[0]:
            return self._begun[1].result()
        return fit(*self._newest(count), self.seed, self.start)

    def _newest(self, count: int) -> tuple[npt.NDArray[np.float32], Floats, Floats, npt.NDArray[np.str_]]:
        """Features, prior, seconds and groups of the first `count` rows, without those that are too old."""
        kept = slice(max(0, count - self.most), count)
        x, prior, seconds = (np.concatenate([r[n] for r in self._rows])[kept] for n in range(3))
        groups = np.concatenate([np.full(len(s), g) for _, _, s, g in self._rows])[kept]
        return x.astype(np.float32), prior, seconds, groups

    def save(self, path: Path) -> None:
        """Saves the ensemble for other workloads and runs. Saves nothing until there are enough rows."""
        ensemble = self.ensemble()
        if ensemble is not None:
            save(ensemble, path)


def fit_when_late(count: int, step: int) -> int:
    """The rows of the last fit when there are `count` rows: each step has a fit, later each fourth more rows.

    >>> [fit_when_late(n, 80) for n in (80, 159, 400, 700, 800, 2000)]
    [80, 80, 400, 640, 800, 1760]
    """
    n = step
    while (later := n + step * max(1, n // (GROWTH * step))) <= count:
        n = later
    return n


def started(seed: int = 0, target: Target | None = None) -> XGBModel:
    """The model of a tuning run. It starts from the ensemble shipped for the target; None: from nothing."""
    return XGBModel(seed, None if target is None else start_model(target))


def start_model(target: Target) -> Ensemble | None:
    """The shipped cost model for this class of machines, or a similar one; None if there is none.

    A file with other features is not used. A warning says so, and the search begins with the prior alone.
    """
    path = shipped.cost_model(target)
    if path is None:
        return None
    try:
        return load(path)
    except InputError as error:
        log.warn(f"the cost model that comes with autotensor is not used: {error.what}")
        return None
