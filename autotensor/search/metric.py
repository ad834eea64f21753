"""The metric that a run minimises. It makes a number, the figure, from a trial in the log.

    trial ──samples, build_s, assembly──▶ metric ──▶ figure      smaller is better; the median is in s

The search, its final races and its report use the figure. It is treated as seconds where tasks are compared
with one another, and in printed reports.
"""

from __future__ import annotations

from math import inf
from numbers import Real

from autotensor.base.doors import inside, name_of
from autotensor.base.errors import InputError
from autotensor.resolve import Metric
from autotensor.search.doors import METRICS
from tuning_db.records import Status, TrialRecord


def checked_metric(metric: str | Metric) -> Metric:
    """A metric, given by its name or as a function. A function from outside is checked at every call.

    The checked function raises InputError for a figure that is not a positive number.
    """
    judge = METRICS.get(metric)
    if isinstance(metric, str) and metric in METRICS.own:
        return judge

    def checked(trial: TrialRecord) -> float:
        with inside("metric", metric, "when it is called"):
            figure = judge(trial)
        if not (isinstance(figure, Real) and 0.0 < figure < inf):
            raise InputError(
                f"metric {name_of(metric)!r} gives {figure!r}.", fix="It must give a positive number."
            )
        return float(figure)

    return checked


def figure_of(trial: TrialRecord, metric: Metric) -> float | None:
    """The figure of a trial; None for a trial that failed."""
    return metric(trial) if trial.status is Status.OK else None


__all__ = ["checked_metric", "figure_of"]
