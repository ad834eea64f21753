"""The knowledge of a run: the trials of this machine and target that the log had when the run began.

    log ──▶ Knowledge ──teach──▶ cost model           every row: the error of the prior
                      └─seeds──▶ first candidates     the best rows of the nearest workloads (`transfer.py`)

Only trials measured before the run began count. So a run that was killed and continues has the same
knowledge, whatever was measured in between, and proposes the same candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autotensor.base import log
from autotensor.base.errors import InputError
from autotensor.base.target import Target
from autotensor.resolve import Metric, median_s
from autotensor.search.journal import Journal
from autotensor.search.lessons import teach
from autotensor.search.propose.policy import Policy
from autotensor.search.propose.transfer import seeds
from autotensor.search.score.cost_model import CostModel
from autotensor.search.task import Candidate
from autotensor.te.workload import Workload
from schedules.prior.rates import Rates, as_timed
from tuning_db import TrialStore
from tuning_db.records import Status, TrialRecord

MOST_ROWS = 4000  # the newest rows are used, at most this many


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Workloads with their verified trials."""

    found: Sequence[tuple[Workload, Sequence[TrialRecord]]]

    def seeds(self, tuner: Policy) -> tuple[Candidate, ...]:
        """Candidates that a tuner should propose first."""
        return seeds(tuner.task.workload, tuner.sketches, self.found)

    def teach(
        self,
        model: CostModel,
        target: Target,
        rates: Rates,
        known: Sequence[Policy] = (),
        metric: Metric = median_s,
    ) -> int:
        """Teaches the model all rows. Returns the number of usable rows. known: tuners with sketches."""
        mine = {t.task.workload.key: t for t in known}
        taught = 0
        for workload, rows in self.found:
            timed = as_timed(rates, (s.residency for r in rows for s in r.samples))
            taught += teach(model, workload, target, timed, rows, metric, mine.get(workload.key))
        return taught


def recall(journal: Journal, target: Target) -> Knowledge:
    """The trials of this machine and target that the log had when the journal's run began."""
    mine = journal.session
    return known_trials(journal.store, target, mine.machine, before=mine.started, without=mine.id)


def known_trials(
    store: TrialStore, target: Target, machine: str, *, before: datetime | None = None, without: str = ""
) -> Knowledge:
    """The newest verified trials of a machine and target. without: a session whose trials are left out."""
    known = {w.key: w for w in store.workloads()}
    by_workload: dict[str, list[TrialRecord]] = {}
    for row in store.trials(
        target_key=target.key(),
        machine=machine,
        status=Status.OK,
        limit=MOST_ROWS,
        newest=True,
        before=before,
    ):
        if row.verified and row.session != without:
            by_workload.setdefault(row.workload, []).append(row)
    found = []
    for key, rows in by_workload.items():
        try:
            found.append((Workload.from_text(known[key].text, known[key].name, key), tuple(rows)))
        except InputError as damaged:
            log.warn(f"nothing is learned from it: {damaged.what}")
    return Knowledge(tuple(found))
