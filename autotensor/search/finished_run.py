"""The same command again: if the log has the complete run, it is read and not repeated.

    tasks, options ──session of this run, ended with nothing left to do──▶ rows and last races ──▶ TuneReport
                   └─ anything is open, new or different ──▶ None: search

The report is the same as the search would give if it measured nothing, but no tuner is built.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from autotensor.resolve import Metric, last_race, race_order
from autotensor.runtime.place import here
from autotensor.search.effort import COVERED, EFFORT_SPENT
from autotensor.search.final_race import entrants, known_best, met
from autotensor.search.journal import Journal, run_key
from autotensor.search.metric import checked_metric
from autotensor.search.options import TuneOptions
from autotensor.search.report import SPENT, TaskReport, TuneReport, finished_before
from autotensor.search.run_identity import final_reasons, key_options
from autotensor.search.task import Task, merge
from autotensor.search.task_ends import task_ends
from tuning_db import TrialStore
from tuning_db.records import Session, Status, TrialRecord


def known_run(
    tasks: Sequence[Task],
    options: TuneOptions,
    store: TrialStore,
    defaults: Mapping[str, str],
    residency: str = "graph",
    code: str = "",
) -> TuneReport | None:
    """The report of a run with nothing left to do; None if something is left.

    defaults: the hash of the rules' default trace for each workload key. A task whose rules have changed
    counts as new. code: as in `TuningRun`.
    """
    began = time.monotonic()
    merged = merge(tasks)
    session = _ended(merged, options, store, residency, code)
    if session is None or session.stop_reason is None:
        return None
    rows: dict[str, list[TrialRecord]] = {t.workload.key: [] for t in merged}
    for row in store.trials(target_key=merged[0].target.key(), session=session.id):
        rows.setdefault(row.workload, []).append(row)
    trials = sum(r.status is not Status.REJECTED for mine in rows.values() for r in mine)
    if session.stop_reason == SPENT and trials < options.trials:
        return None
    metric = checked_metric(options.metric)
    journal = Journal(store, session, session.environment, (), "")
    ends = task_ends(store, session.id)
    reports = []
    for task in merged:
        mine = rows[task.workload.key]
        report = _report(task, mine, journal, defaults[task.workload.key], session.stop_reason, metric, ends)
        if report is None:
            return None
        reports.append(report)
    elapsed = time.monotonic() - began
    return TuneReport(tuple(reports), trials, trials, elapsed, session.stop_reason)


def _ended(
    tasks: Sequence[Task], options: TuneOptions, store: TrialStore, residency: str, code: str
) -> Session | None:
    """The session of this run, if it ended with nothing left to do."""
    if options.fresh:
        return None
    target = tasks[0].target
    key = run_key(tasks, target.key(), key_options(options, target, residency, code), options.seed)
    session = store.find_session(key, here(target).fingerprint)
    if session is None:
        return None
    return session if session.stop_reason in {SPENT, *final_reasons(options)} else None


def _report(
    task: Task,
    rows: Sequence[TrialRecord],
    journal: Journal,
    default_hash: str,
    reason: str,
    metric: Metric,
    ends: Mapping[str, str],
) -> TaskReport | None:
    """The report of a task; None if something is left to do."""
    if not rows:
        left = reason == EFFORT_SPENT
        return TaskReport(task, None, None, None, 0, 0, COVERED) if left else None
    default = next((r for r in rows if r.trace_hash == default_hash), None)
    place = (task.workload.key, task.target.key(), journal.session.machine)
    known = known_best(journal.store, place, default_hash, metric)
    entered = entrants(rows, default_hash, known, metric)
    several = len(entered) > 1
    raced = last_race(metric, journal.store, place) if several else ()
    open_ = {c.trace_hash for c in entered} - {r.trace_hash for r in raced}
    if several and open_:  # the last race had other contestants
        open_ -= met(raced, open_, *place, journal.store, metric)
    if default is None or (several and open_):
        return None
    ran = [r for r in rows if r.status is not Status.REJECTED]
    order = race_order(raced, default_hash, metric) if several else entered
    return TaskReport(
        task,
        default_s=next((metric(r) for r in order if r.trace_hash == default_hash), None),
        best_s=metric(order[0]) if order else None,
        best=None,
        trials=len(ran),
        failures=sum(r.status is not Status.OK for r in ran),
        reason=finished_before(ends.get(task.workload.key)),
        raced=several,
        rejected=len(rows) - len(ran),
    )


__all__ = ["known_run"]
