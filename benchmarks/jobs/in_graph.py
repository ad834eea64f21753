"""Does the tuner's timing rank candidates in the same order as the whole model?

    task's candidates ─┬─ LocalMeasurer, weights rotated ──▶ seconds ┐
    (from a log)       ├─ LocalMeasurer, everything hot ───▶ seconds ├─▶ Kendall's tau against the model
                       └─ linked into the model, n-th of all tasks ──▶ seconds of each kernel in its place

Kendall's tau is computed in two ways. By medians: both sides order every pair, and noise decides between
equals. By bounds, as tau-b: two candidates differ if the bounds of their times do not overlap
(`base.paired_times`). A pair that only one side cannot order is a tie of that side. A pair that neither side
can order does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt

from autotensor.api.model_race import round_by_workload
from autotensor.api.models import ModelPlan, default_traces, link_model
from autotensor.base.machine import host_machine
from autotensor.base.paired_times import Paired, paired
from autotensor.resolve import safe_default
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.kernel_times import KernelClock
from autotensor.runtime.sample_arrays import sample_inputs
from autotensor.runtime.timing_lock import timing_lock
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.te.workload import Workload
from tuning_db import TrialStore
from tuning_db.records import TrialRecord

MOST = 7  # most candidates of a task
SLOWEST = 3.0  # most times the best: slower candidates are easy to order
LEAST = 0.01  # a smaller relative difference is a tie, even if it is certain
Samples = Mapping[int, Sequence[float]]  # seconds by candidate and round


@dataclass(frozen=True)
class Agreement:
    """Counts of pairs of one task's candidates, by the tuner's order and the model's order."""

    concordant: int = 0
    discordant: int = 0
    tied_here: int = 0  # ties of the tuner only
    tied_there: int = 0  # ties of the model only

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.concordant + other.concordant,
            self.discordant + other.discordant,
            self.tied_here + other.tied_here,
            self.tied_there + other.tied_there,
        )

    @property
    def tau(self) -> float | None:
        """Kendall's tau-b; None if one side orders no pair.

        >>> Agreement(9, 1).tau
        0.8
        """
        decided = self.concordant + self.discordant
        here, there = decided + self.tied_there, decided + self.tied_here  # pairs that each side can order
        return (self.concordant - self.discordant) / sqrt(here * there) if here and there else None


def candidates(store: TrialStore, workload: Workload, plan: ModelPlan, most: int = MOST) -> list[Trace]:
    """The default, the best, and other candidates that take up to SLOWEST times as long as the best, evenly
    spaced by rank."""
    default = safe_default(workload, plan.target)
    best: dict[str, TrialRecord] = {}
    for t in store.trials(workload.key, plan.target.key(), machine=host_machine().fingerprint):
        known = best.get(t.trace_hash)
        if t.verified and t.median_s and (known is None or t.median_s < (known.median_s or inf)):
            best[t.trace_hash] = t
    rows = sorted(best.values(), key=lambda t: t.median_s or inf)
    rows = [t for t in rows if (t.median_s or inf) <= SLOWEST * (rows[0].median_s or inf)]
    rows = [t for t in rows if t.trace_hash != default.hash]
    count = min(most - 1, len(rows))
    chosen = [rows[round(n * (len(rows) - 1) / max(1, count - 1))] for n in range(count)]
    return [default, *(Trace.from_json(t.trace) for t in chosen)]


def measured(measurer: LocalMeasurer, workload: Workload, traces: Sequence[Trace], rounds: int) -> Samples:
    """The samples of the candidates that work."""
    results = measurer.measure(workload, traces, rounds)
    return {n: r.seconds for n, r in enumerate(results) if r.ok and len(r.seconds) == rounds}


def in_model(
    plan: ModelPlan, sets: Mapping[str, Sequence[Trace]], rounds: int, say: Callable[[str], None]
) -> dict[str, dict[int, Paired]]:
    """For every task, each candidate's time divided by the first candidate's, inside the model."""
    known = default_traces(plan)
    compiled = {}
    first = {k: t[0] for k, t in sets.items()}
    champion = _clock(link_model(plan, known | first, compiled), plan)
    found: dict[str, dict[int, Paired]] = {k: {0: Paired(1.0, 1.0, 1.0)} for k in sets}
    most = max((len(t) for t in sets.values()), default=0)
    for n in range(1, most):
        say(f"  in the model: {n} of {most - 1}")
        chosen = {k: t[min(n, len(t) - 1)] for k, t in sets.items()}
        challenger = _clock(link_model(plan, known | chosen, dict(compiled)), plan)
        with timing_lock():
            round_by_workload(champion), round_by_workload(challenger)  # warms up
            turns = [(round_by_workload(champion), round_by_workload(challenger)) for _ in range(rounds)]
        for key, traces in sets.items():
            if n < len(traces):
                found[key][n] = paired(
                    [after[key] for _, after in turns], [before[key] for before, _ in turns]
                )
    return found


def _clock(artifact: Artifact, plan: ModelPlan) -> KernelClock:
    return KernelClock(
        artifact, sample_inputs(artifact.role("input"), artifact.index_range), plan.target.num_cores
    )


def by_middle(ratio: Paired) -> int:
    """Which of the two is faster: -1 the first, 1 the second."""
    return -1 if ratio.middle < 1.0 else int(ratio.middle > 1.0)


def by_bounds(ratio: Paired) -> int:
    """Which of the two is faster: -1 the first, 1 the second, 0 not known."""
    if ratio.upper < 1.0 and ratio.middle < 1.0 - LEAST:
        return -1
    return 1 if ratio.lower > 1.0 and ratio.middle > 1.0 + LEAST else 0


def agreement(
    here: Samples, there: Mapping[int, Paired], faster: Callable[[Paired], int] = by_bounds
) -> Agreement:
    """The counts over all pairs of candidates that both sides have timed."""
    total = Agreement()
    for a, b in combinations(sorted(here.keys() & there.keys()), 2):
        x, y = faster(paired(here[a], here[b])), faster(_over(there[a], there[b]))
        total += Agreement(x * y > 0, x * y < 0, x == 0 and y != 0, y == 0 and x != 0)
    return total


def _over(a: Paired, b: Paired) -> Paired:
    """a / b. Both are ratios to the same third candidate."""
    return Paired(a.middle / b.middle, a.lower / b.upper, a.upper / b.lower)
