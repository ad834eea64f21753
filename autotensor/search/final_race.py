"""The final race: a task's best candidates and its default, measured again together before anything is used.

    trials of this run ──top 5──┐
    the log's best ─────────────┼──▶ one batch, more samples, side by side ──▶ session "race:…" in the log
    the default ────────────────┘

The smallest of a hundred noisy medians was lucky as well as fast. Times of one race may be compared; who wins
is decided where it is used (`resolve.race_order`), by the latest race, perhaps one inside a model. Nothing is
measured when every contestant has been in a race.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotensor.resolve import race_order
from autotensor.schedule.trace import Trace
from autotensor.search.journal import Journal
from autotensor.search.measuring.measure_request import Measurer
from autotensor.search.measuring.race_rule import FINAL_SAMPLES
from autotensor.search.races import contestants
from autotensor.search.task import Task
from tuning_db import RACE, TrialStore
from tuning_db.records import TrialRecord, distinct_traces

CHALLENGERS = 5  # beside the default; of 200 trials a dozen lie within the noise of the best
TIMING_S = 1.0  # of one race; building and checking take about as long
LEAST_SAMPLE_S = 0.002


@dataclass(frozen=True, slots=True)
class Final:
    """How a race ended; the winner is the default unless a challenger was faster beyond the noise."""

    winner: TrialRecord
    default_s: float | None  # None: the default does not work
    contestants: tuple[TrialRecord, ...]

    @property
    def seconds(self) -> float:
        assert self.winner.median_s is not None
        return self.winner.median_s


def final_race(
    task: Task, default_hash: str, journal: Journal, measurer: Measurer, timing_s: float = TIMING_S
) -> Final | None:
    """Races a task's best, if that has not been done. None when there is nothing to choose from."""
    place = (task.workload.key, task.target.key(), journal.session.machine)
    mine = journal.store.trials(*place[:2], session=journal.session.id)
    entered = entrants(mine, default_hash, journal.store.best(*place))
    if len(entered) < 2:
        return None
    raced = journal.store.last_race(*place)
    if not {c.trace_hash for c in entered} <= raced_traces(*place, journal.store):
        longest = sum(max(LEAST_SAMPLE_S, c.median_s or 0.0) for c in entered)
        repeat = max(FINAL_SAMPLES[0], min(FINAL_SAMPLES[1], int(timing_s / longest)))
        results = measurer.measure(task.workload, [Trace.from_json(c.trace) for c in entered], repeat)
        raced = journal.race(entered, results)
    order = race_order(raced, default_hash)
    if not order:
        return None
    default = next((r for r in order if r.trace_hash == default_hash), None)
    return Final(order[0], None if default is None else default.median_s, tuple(order))


def raced_traces(workload_key: str, target_key: str, machine: str, store: TrialStore) -> frozenset[str]:
    """Hashes of all traces that took part in any race of a task on a machine."""
    races = {s.id for s in store.sessions() if s.run_key.startswith(RACE)}
    rows = store.trials(workload_key, target_key, machine)
    return frozenset(r.trace_hash for r in rows if r.session in races)


def entrants(
    run: Iterable[TrialRecord], default_hash: str, known: Iterable[TrialRecord]
) -> tuple[TrialRecord, ...]:
    """The verified ones that meet: the best of a run's trials of a task, its default, the best of the log."""
    mine = sorted((t for t in run if t.verified), key=lambda t: (t.median_s or 0.0, t.id or 0))
    return distinct_traces((*contestants(mine, default_hash, CHALLENGERS + 1), *known), CHALLENGERS + 2)
