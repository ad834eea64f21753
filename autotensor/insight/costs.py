"""How the prior divides a schedule's time, and how near the machine's limits the measured time is.

All times are in seconds, of the thread that has the most work. Arithmetic and traffic of a stage overlap in
part, and small stages inside other stages overlap with these. So the parts do not add up to the total.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.insight.explained_schedule import Subject
from autotensor.schedule.loop_picture import LoopPicture
from autotensor.search.score.roofline import fewest_operations, lower_bound
from autotensor.search.task import Task
from schedules.prior.predict import predict
from schedules.prior.terms import Terms


@dataclass(frozen=True, slots=True)
class StageCost:
    """The terms of the prior for one stage."""

    stage: str
    computing_s: float
    behind_s: tuple[float, ...]  # seconds for the bytes that come from beyond L1, L2, L3 …
    launch_s: float
    imbalance: float  # 1.0: all threads have the same amount of work
    total_s: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Predicted and measured times of a schedule."""

    stages: tuple[StageCost, ...]  # the most expensive first
    predicted_s: float
    measured_s: float | None
    bound_s: float  # the prior's lower bound: no schedule of the known sketches should be faster
    bound_by: str  # "operations" or "weights"
    bound_operations: float  # counted by the bound: the fewest of any sketch, whose algorithm may save some
    flops: float  # operations of the task as written, for any schedule
    peak: float | None  # measured FLOP/s of all threads; None: never measured

    @property
    def of_peak(self) -> float | None:
        """Share of the measured peak."""
        if self.measured_s is None or not self.peak or not self.flops:
            return None
        return self.flops / self.measured_s / self.peak


def costs(s: Subject, p: LoopPicture, peak: float | None) -> Costs:
    """The costs of a subject. peak: the measured FLOP/s of the target's threads."""
    total, terms = predict(p, s.target, s.rates)
    stages = [_stage_cost(stage.name, t) for stage, t in zip(p.stages, terms, strict=True)]
    task = Task(s.workload, s.target)
    bound = lower_bound(task, s.rates, cold=s.residency == "graph", sketches=s.sketches)
    arithmetic = lower_bound(task, s.rates, cold=False, sketches=s.sketches)
    return Costs(
        tuple(sorted(stages, key=lambda c: -c.total_s)),
        float(total[0]),
        s.seconds,
        bound,
        "operations" if bound == arithmetic else "weights",
        fewest_operations(s.workload.dag, s.sketches),
        float(s.workload.dag.flops()),
        peak,
    )


def _stage_cost(name: str, t: Terms) -> StageCost:
    computing, *behind = (float(part[0]) for part in t.parts)
    return StageCost(name, computing, tuple(behind), t.launch, float(t.imbalance[0]), float(t.total[0]))
