"""Compares the sum of the tuner's times over all tasks with the time of one inference of the linked model.

Σ weight × seconds of a task (tuner) ──▶ predicted      one inference ──▶ measured
If both differ by more than 10 %, `disagreement` names the tasks whose kernels take another time in the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

APART = 0.10  # share of the measured time: a larger difference is reported
NAMED = 3  # tasks that the report names, at most


@dataclass(frozen=True, slots=True)
class TaskTime:
    """All runs of one task in an inference, in seconds."""

    key: str  # the workload's key
    name: str
    tuner_s: float  # seconds, from the tuner's time of one run
    inside_s: float  # as timed inside the model, kernel by kernel

    @property
    def apart_s(self) -> float:
        """Above zero where the tuner's time is the longer one."""
        return self.tuner_s - self.inside_s


def task_times(
    weights: Mapping[str, tuple[str, float]], seconds: Mapping[str, float], inside: Mapping[str, float]
) -> tuple[TaskTime, ...]:
    """The times of all tasks. weights: name and weight of each task. seconds: the tuner's seconds of one run.
    inside: the seconds of all runs inside the model. The keys of all three are the workloads' keys.

    A task that the tuner did not time counts with its time inside the model.
    """
    return tuple(
        TaskTime(
            key, name, weight * seconds[key] if key in seconds else inside.get(key, 0.0), inside.get(key, 0.0)
        )
        for key, (name, weight) in weights.items()
    )


def predicted_s(times: Sequence[TaskTime]) -> float:
    """Seconds of one inference by the tuner's times."""
    return sum(t.tuner_s for t in times)


def disagreement(times: Sequence[TaskTime], measured_s: float) -> str:
    """A sentence that says which tasks differ if the predicted and measured times differ by more than 10 %;
    "" if the times agree.

    >>> disagreement([TaskTime("a", "conv2d", 1e-3, 2e-3), TaskTime("b", "pool", 1e-3, 1e-3)], 3e-3)
    'the tasks add up to 2 ms, 33 % less than measured; most of it in conv2d (1 ms alone, 2 ms in the model)'
    """
    sum_s = predicted_s(times)
    apart = sum_s / measured_s - 1.0
    if abs(apart) <= APART:
        return ""
    way = 1 if apart > 0 else -1  # a task that differs in the other direction explains nothing
    worst = [t for t in sorted(times, key=lambda t: -way * t.apart_s) if way * t.apart_s > 0.02 * measured_s]
    named = ", ".join(
        f"{t.name} ({_ms(t.tuner_s)} alone, {_ms(t.inside_s)} in the model)" for t in worst[:NAMED]
    )
    how = "more" if apart > 0 else "less"
    return (
        f"the tasks add up to {_ms(sum_s)}, {abs(apart) * 100:.0f} % {how} than measured; "
        f"most of it in {named or 'no single task'}"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


__all__ = ["TaskTime", "disagreement", "predicted_s", "task_times"]
