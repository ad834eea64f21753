"""Rows of a tuning log in the form of a cost model's data: each trial's features, prior, time and network.

    sessions ──▶ networks (one run of the tuner each) ──▶ tasks ──▶ rounds ──▶ features, prior, seconds

Features are computed again from the decisions, with the same code by which a tuning run learns from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autotensor.base import log
from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.search.journal import decisions_of, retell
from autotensor.search.machine.calibration import rates_of
from autotensor.search.propose.tuner import Tuner
from autotensor.search.score.cost_model import PriorModel
from autotensor.search.score.features import NAMES, SCHEMA
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates, as_timed
from tuning_db import SessionKind, TrialStore
from tuning_db.records import Session, TrialRecord

COLUMNS = ("features", "prior", "seconds", "rounds", "families")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TaskRows:
    """The trials of one task in one run, in the order in which they were measured."""

    network: str  # the run, which says which tasks belong together
    group: str  # key of the workload
    name: str
    features: Floats  # [trials, features]
    prior: Floats  # seconds
    seconds: Floats  # NaN for a failure
    rounds: Ints
    families: Ints  # family of sketch and register tile; a batch should not have only one family

    @property
    def worked(self) -> npt.NDArray[np.bool_]:
        return np.isfinite(self.seconds)


class Recorder(PriorModel):
    """A cost model that keeps the rows from which it should learn."""

    def __init__(self) -> None:
        self.taught: list[tuple[Floats, Floats, Floats]] = []

    def learn(self, features: Floats, prior: Floats, seconds: Floats, group: str) -> None:
        self.taught.append((features, prior, seconds))


def load(store: TrialStore, rates: Rates | None = None) -> list[TaskRows]:
    """All tasks of all runs on the machine with the most rows in the log, without races.

    rates: the rates for the prior. None: the calibrated rates in the log, or guessed rates if there are none.
    """
    rows = store.trials()
    machines = [r.machine for r in rows]
    machine = max(sorted(set(machines)), key=machines.count)
    rows = tuple(r for r in rows if r.machine == machine)
    targets = {t.key: Target.from_json(t.text) for t in store.targets()}
    values = {n: c.value for n, c in store.calibration(machine).items()}
    known = {w.key: w for w in store.workloads()}
    runs = store.sessions(SessionKind.SEARCH)
    out = []
    for session in sorted(runs, key=lambda s: s.started):
        mine = sorted(
            (r for r in rows if r.session == session.id), key=lambda r: (r.workload, r.target, r.id or 0)
        )
        tasks = [(k, list(v)) for k, v in groupby(mine, key=lambda r: (r.workload, r.target))]
        network = _network(session, [known[w].name for (w, _), _ in tasks])
        for (key, target), trials in tasks:
            try:
                workload = Workload.from_text(known[key].text, known[key].name, key)
            except InputError as damaged:
                log.warn(f"left out: {damaged.what}")
                continue
            chosen = as_timed(
                rates or _rates(values, targets[target]), (s.residency for r in trials for s in r.samples)
            )
            found = _task(network, Task(workload, targets[target]), trials, chosen)
            out += [found] if found is not None else []
    return out


def _network(session: Session, names: Sequence[str]) -> str:
    return f"{session.id[:6]} ({len(names)} tasks: {', '.join(sorted(names)[:1])} …)"


def _rates(values: dict[str, float], target: Target) -> Rates:
    return rates_of(values, target) if "flops.core" in values else Rates.guess(target)


def _task(network: str, task: Task, trials: Sequence[TrialRecord], rates: Rates) -> TaskRows | None:
    recorder = Recorder()
    tuner = Tuner(task, recorder, rates)
    known = [r for r in trials if tuner.candidate(r.sketch_hash, decisions_of(r)) is not None]
    if not known:
        return None
    for _, batch in groupby(known, key=lambda r: r.round):
        retell(tuner, list(batch))
    features, prior, seconds = (np.concatenate(parts) for parts in zip(*recorder.taught, strict=True))
    tiles = [
        (r.sketch_hash, *sorted((k, v) for k, v in decisions_of(r).items() if k.endswith("/tile")))
        for r in known
    ]
    return TaskRows(
        network,
        task.workload.key,
        task.workload.name,
        features,
        prior,
        seconds,
        np.asarray([r.round or 0 for r in known]),
        np.unique(np.asarray([repr(t) for t in tiles]), return_inverse=True)[1].astype(np.int64),
    )


# -- as a table --------------------------------------------------------------------------------------------


def save_table(tasks: Sequence[TaskRows], path: Path) -> None:
    """Writes all rows as arrays of one file (NumPy's `.npz`), one row for each trial. Later rules do not
    matter for it."""
    count = [len(t.seconds) for t in tasks]
    words = {n: np.repeat([getattr(t, n) for t in tasks], count) for n in ("network", "group", "name")}
    columns = {
        n: np.concatenate([getattr(t, n) for t in tasks]) for n in ("prior", "seconds", "rounds", "families")
    }
    features = np.concatenate([t.features for t in tasks]).astype(np.float32)
    np.savez_compressed(path, schema=SCHEMA, names=NAMES, features=features, **words, **columns)


def load_table(path: Path) -> list[TaskRows]:
    """Reads such a file. Raises SystemExit if its features are not today's."""
    with np.load(path) as table:
        if list(table["names"]) != list(NAMES):
            raise SystemExit(f"{path} holds features of schema {table['schema']}; today's is {SCHEMA}.")
        arrays = {n: table[n] for n in table.files}
    network, group = arrays["network"], arrays["group"]
    begins = np.flatnonzero((network[1:] != network[:-1]) | (group[1:] != group[:-1])) + 1
    return [
        TaskRows(
            *(str(arrays[n][rows[0]]) for n in ("network", "group", "name")),
            *(arrays[n][rows] for n in COLUMNS),
        )
        for rows in np.split(np.arange(len(network)), begins)
    ]
