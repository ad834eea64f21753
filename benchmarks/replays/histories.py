"""Searches read from a tuning log: for each task its batches in order, and the cost model's predictions after
each.

    for history in read("tuning.db", fewest=48):
        history.batches        the results, batch by batch
        history.best_s         the best of all batches: the best known
    told = retold(history, model, rates)      the same in today's tuner: best, predictions, seconds

A history belongs to one task in one run. Runs that stop tasks early have short histories; for long ones, tune
with `patience=False`. Candidates that today's rules do not make count as trials, but the model does not learn
from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotensor.base.machine import host_machine
from autotensor.base.target import Target
from autotensor.search.journal import retell
from autotensor.search.machine.calibration import calibrated, rates_of
from autotensor.search.propose.allocation import seconds_of
from autotensor.search.propose.phases import relative_gain
from autotensor.search.propose.tuner import Tuner
from autotensor.search.score.cost_model import CostModel, Prediction
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates, as_timed
from tuning_db import RACES, TrialStore
from tuning_db.records import Status, TrialRecord


@dataclass(frozen=True, slots=True)
class History:
    """The history of one task in one run."""

    session: str
    task: Task
    batches: tuple[tuple[TrialRecord, ...], ...]

    @property
    def trials(self) -> int:
        return sum(map(ran, self.batches))

    @property
    def best_s(self) -> float:
        """The best known time."""
        return min(map(best_of, self.batches))

    @property
    def finds(self) -> int:
        """The number of trials until the run had its best."""
        spent = 0
        for batch in self.batches:
            spent += ran(batch)
            if best_of(batch) <= self.best_s:
                return spent
        return spent


@dataclass(frozen=True, slots=True)
class Told:
    """The state of a task after a batch."""

    trials: int
    best_s: float
    gain: float  # relative gain by this batch
    left: Prediction | None  # predictions for candidates that are not measured
    told_s: tuple[float, ...]  # the times of all candidates so far
    seconds: float  # duration of the batch


def ran(batch: Sequence[TrialRecord]) -> int:
    """The number of trials in a batch. A candidate that was rejected and did not run is not a trial."""
    return sum(r.status is not Status.REJECTED for r in batch)


def best_of(batch: Sequence[TrialRecord]) -> float:
    return min((r.median_s for r in batch if r.verified and r.median_s is not None), default=float("inf"))


def read(store: TrialStore, fewest: int = 0) -> list[History]:
    """The histories of this machine with at least `fewest` trials, in the order in which they began."""
    known = {w.key: w for w in store.workloads()}
    races = {s.id for s in store.sessions(RACES)}
    rows = [r for r in store.trials(machine=host_machine().fingerprint) if r.session not in races]
    targets = {t.key: Target.from_json(t.text) for t in store.targets()}
    found: dict[tuple[str, str, str], dict[int, list[TrialRecord]]] = {}
    for r in rows:
        by_round = found.setdefault((r.session, r.workload, r.target), {})
        by_round.setdefault(r.round or 0, []).append(r)
    out = []
    for (session, key, target), by_round in found.items():
        w = known[key]
        batches = tuple(tuple(by_round[n]) for n in sorted(by_round))
        task = Task(Workload.from_text(w.text, w.name, key), targets[target], name=w.name)
        history = History(session, task, batches)
        if history.trials >= fewest and history.best_s < float("inf"):
            out.append(history)
    return out


def rates_in(store: TrialStore, history: History) -> Rates:
    """The machine's rates in the log."""
    values = {n: c.value for n, c in store.calibration(host_machine().fingerprint).items()}
    target = history.task.target
    found = rates_of(values, target) if "flops.core" in values else calibrated(None, target)
    return as_timed(found, (s.residency for batch in history.batches for r in batch for s in r.samples))


def retold(history: History, model: CostModel, rates: Rates, seed: int = 0) -> Iterator[Told]:
    """The state of the task after each of its batches, in today's tuner.

    Times are those of the log, including candidates that today's rules do not make.
    """
    tuner = Tuner(history.task, model, rates, seed=seed)
    trials, best_s = 0, float("inf")
    told_s: list[float] = []
    for batch in history.batches:
        before_s, best_s = best_s, min(best_s, best_of(batch))
        retell(tuner, batch)
        trials += ran(batch)
        told_s += (r.median_s for r in batch if r.median_s is not None)
        seconds = seconds_of([r.build_s for r in batch], [r.median_s for r in batch])
        gain = relative_gain(before_s, best_s)
        yield Told(trials, best_s, gain, tuner.unmeasured(), tuple(told_s), seconds)
