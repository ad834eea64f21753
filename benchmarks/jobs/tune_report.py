"""The facts about a tuning run that a contestant's process returns."""

from __future__ import annotations

from typing import Any


def of_one_task(report: Any) -> dict[str, Any]:
    """A `TuneReport` of a single task as plain data; times in seconds."""
    (task,) = report.tasks
    return {
        "trials": report.trials,
        "reused": report.reused,
        "failures": task.failures,
        "elapsed_s": report.elapsed_s,
        "default_s": task.default_s,
        "best_s": task.best_s,
        "reason": task.reason,
    }
