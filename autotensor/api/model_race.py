"""The last race: a task's best schedules race against each other inside the whole model, where they will run.

    for n = 1, 2, …: the model with every task's first choice
                     the model with every task's n-th choice          kernel by kernel, alternately
    ratios of both, task by task ──▶ a race in the log ──▶ `resolve` takes the winners

A kernel that is timed alone, even with weights from memory, is timed under other conditions: in the model,
the caches hold the data of its neighbours. Only two models are in memory at a time. The log keeps this race
in seconds: each ratio times the median of the first choice. So the machine's drift between two models
cancels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from autotensor.base.deadline import NEVER, Deadline
from autotensor.base.target import Target
from autotensor.resolve import IN_MODEL, decide, ranked, safe_default
from autotensor.runtime.device.kernel_times import DeviceKernelClock
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.kernel_times import KernelClock, by_workload, kernel_clock
from autotensor.runtime.place import here
from autotensor.runtime.sample_arrays import sample_inputs
from autotensor.runtime.timing_lock import timing_by
from autotensor.schedule.trace import Trace
from autotensor.search.machine.machine_entry import know_machine
from autotensor.search.races import Races, contestants
from autotensor.te.workload import Workload
from tuning_db import SessionKind, TrialStore
from tuning_db.records import Sample, TrialRecord

Build = Callable[[Mapping[str, Trace]], Artifact]  # links the model with these traces, by workload key

Clock = KernelClock | DeviceKernelClock

SCHEDULES = 4  # schedules of a task that are raced, its default among them
ROUNDS = (5, 15)  # least and greatest number of inferences of each model
BUDGET_S = 24.0  # for the whole race; linking takes a second or two for each model, more for the largest


def race_in_model(
    workloads: Sequence[Workload],
    target: Target,
    store: TrialStore,
    build: Build,
    budget_s: float = BUDGET_S,
    patience: Deadline = NEVER,
) -> int:
    """Races the best schedules of every task inside the model and stores the results. Gives the number of
    tasks that took part.

    patience: the time until which other processes may time first; a race that has not begun by then is not
    held. Nothing is measured if the last race of every task in the log was such a race.
    """
    entered = {w.key: entrants(w, target, store) for w in workloads}
    most = max((len(rows) for rows in entered.values()), default=0)
    if most < 2 or all(_settled(rows) for rows in entered.values()):
        return 0
    began = time.monotonic()
    first = {key: rows[0] for key, rows in entered.items() if rows}
    known = {w.key: safe_default(w, target) for w in workloads if not entered[w.key]}
    champion = _clock(build(known | _traces(first)), target)
    linking_s = time.monotonic() - began
    times: dict[str, list[list[float]]] = {key: [] for key in first}
    for n in range(1, most):
        left_s = began + budget_s - time.monotonic() - linking_s
        if left_s <= 0 and (n > 1 or patience.is_set):
            break
        chosen = {key: entered[key][min(n, len(entered[key]) - 1)] for key in first}
        challenger = _clock(build(known | _traces(chosen)), target)
        for key, samples in _compared(
            champion, challenger, left_s / (most - n) - linking_s, patience
        ).items():
            if key in first and n < len(entered[key]):
                times[key].append(samples)
    rows = [row for key, samples in times.items() if samples for row in _raced(entered[key], samples)]
    if rows:
        place = here(target)
        races = Races(store, know_machine(store, place), IN_MODEL, SessionKind.MODEL)
        races.add(rows)
        races.end("raced in the model")
        for w in workloads:
            if w.key in times:
                decide(store, place.task(w.key), safe_default(w, target).hash)
    return sum(bool(samples) for samples in times.values())


def entrants(workload: Workload, target: Target, store: TrialStore) -> tuple[TrialRecord, ...]:
    """The schedule that `resolve` takes, the default, then the others in their order; () without
    measurements."""
    default = safe_default(workload, target).hash
    known = ranked(store, here(target).task(workload.key), default)
    return contestants(known, default, SCHEDULES)


def _settled(rows: Sequence[TrialRecord]) -> bool:
    """Whether these schedules were already raced in a model."""
    return len(rows) < 2 or all(s.residency == IN_MODEL for r in rows for s in r.samples)


def _traces(rows: Mapping[str, TrialRecord]) -> dict[str, Trace]:
    return {key: Trace.from_json(r.trace) for key, r in rows.items()}


def _clock(artifact: Artifact, target: Target) -> Clock:
    """A clock that has run once: a device compiles a kernel at its first launch, which takes seconds and must
    not be timed."""
    clock = kernel_clock(
        artifact, sample_inputs(artifact.role("input"), artifact.index_range), target.num_cores
    )
    clock.round()
    return clock


def _compared(
    champion: Clock, challenger: Clock, budget_s: float, patience: Deadline
) -> dict[str, list[float]]:
    """For every workload the ratio of the challenger's seconds to the champion's, one per round; none if
    other processes kept the race from beginning in time."""
    ratios: dict[str, list[float]] = {}
    with timing_by(patience) as alone:
        if not alone:
            return {}
        champion.round()
        challenger.round()
        began = time.monotonic()
        for turn in range(ROUNDS[1]):
            if turn >= ROUNDS[0] and time.monotonic() - began > budget_s:
                break
            before, after = round_by_workload(champion), round_by_workload(challenger)
            for key, seconds in before.items():
                ratios.setdefault(key, []).append(after[key] / max(seconds, 1e-12))
    return ratios


def round_by_workload(clock: Clock) -> dict[str, float]:
    """Seconds of one inference by workload."""
    return by_workload(zip((k["workload"] for k in clock.kernels), clock.round(), strict=True))


def _raced(rows: Sequence[TrialRecord], ratios: Sequence[Sequence[float]]) -> list[TrialRecord]:
    """The rows with the samples of this race. All samples of the champion are its own median, so that the
    ratios to it are kept."""
    base = rows[0].median_s
    assert base is not None
    count = min(len(r) for r in ratios)
    out = []
    for row, mine in zip(rows, ([1.0] * count, *ratios), strict=False):  # some may not have been timed
        samples = tuple(Sample(base * r, IN_MODEL) for r in mine[:count])
        middle = median(s.seconds for s in samples)
        out.append(replace(row, median_s=middle, samples=samples))
    return out


__all__ = ["BUDGET_S", "IN_MODEL", "entrants", "race_in_model"]
