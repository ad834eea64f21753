"""The report of one run, or of two runs whose tasks are compared as by `db compare`."""

from __future__ import annotations

from autotensor.api.log_comparison import TaskComparison, compare
from autotensor.insight.report.figures import figures
from autotensor.insight.report.page import Pair
from autotensor.insight.report.report import Report
from autotensor.insight.report.run_rows import find_run
from tuning_db import TrialStore


def run_report(store: TrialStore, run: str | None, against: str | None) -> Report:
    """The report. run, against: as for `LogHandle.report`. Raises InputError when there is no such run."""
    first = find_run(store, run)
    mine = figures(store, first)
    if against is None:
        return Report(mine)
    second = find_run(store, against)
    compared = (c for c in compare(store, first.key, second.key) if c.first.machine == mine.machine)
    return Report(mine, figures(store, second), tuple(map(_pair, compared)))


def _pair(c: TaskComparison) -> Pair:
    a_s, b_s, r = c.first.median_s or 0.0, c.second.median_s or 0.0, c.ratio
    return Pair(c.name, a_s, b_s, r.middle, r.lower, r.upper, c.verdict.value)
