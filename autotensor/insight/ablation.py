"""Ablation: what each step of a trace contributes, found by measuring the schedule without that step.

    variants(dag, trace, sketch, decisions) ──▶ one variant per step ──ablate(…, measurer)──▶ ratios of times

Some steps cannot just be left out, because the rest needs them: a `split` whose loops are named by later
steps, for example. Then the decision of the step changes instead: to the default's option, or to the smallest
option if the schedule already has the default's. A split without a hole gets factors of 1. All variants are
measured in one batch, side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median

from autotensor.base.errors import ScheduleError
from autotensor.base.paired_times import Paired, paired
from autotensor.resolve import LEAST_GAIN
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Hole, Option, Sketch
from autotensor.schedule.step import refs
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import Measurer, MeasureResult
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Variant:
    """The schedule without one step, or without several steps if leaving out any of them gives the same
    schedule.
    """

    steps: tuple[int, ...]  # the positions of the steps in the trace, from 1
    calls: tuple[str, ...]
    how: str  # what was done: "left out", or the option that the decision has instead
    trace: Trace | None  # None: the step can neither be left out nor be changed
    reason: str = ""  # why `trace` is None


@dataclass(frozen=True, slots=True)
class Ablated:
    """A variant, and its time compared with the whole schedule's."""

    variant: Variant
    status: str  # status of its trial; "" if there is no schedule to measure
    seconds: float | None
    times: Paired | None  # the variant's time as a multiple of the whole schedule's, from runs side by side
    reason: str  # why `times` is None

    @property
    def same(self) -> bool:
        """Whether the step makes no difference beyond noise."""
        return self.times is not None and (
            self.times.lower <= 1.0 <= self.times.upper or abs(self.times.middle - 1.0) <= LEAST_GAIN
        )


def variants(
    dag: ComputeDAG, trace: Trace, sketch: Sketch | None = None, decisions: Mapping[str, Option] | None = None
) -> tuple[Variant, ...]:
    """One variant for each step of a trace, in order. Steps whose variants are equal share one variant.

    sketch: the sketch that gave the trace with these decisions; None if the sketch is not known.
    """
    found: dict[str, Variant] = {}
    for n, step in enumerate(trace.steps):
        v = _without(dag, trace, n, sketch, dict(decisions or {}))
        identity = v.trace.hash if v.trace is not None else f"step {n}"
        if identity == trace.hash:
            v = replace(v, trace=None, reason="it changes nothing")
            identity = f"step {n}"
        known = found.get(identity)
        v = replace(v, steps=(n + 1,), calls=(step.call(),))
        found[identity] = (
            v
            if known is None
            else replace(known, steps=(*known.steps, n + 1), calls=(*known.calls, step.call()))
        )
    return tuple(found.values())


def _without(
    dag: ComputeDAG, trace: Trace, n: int, sketch: Sketch | None, decisions: dict[str, Option]
) -> Variant:
    shorter = Trace((*trace.steps[:n], *trace.steps[n + 1 :]))
    reason = refusal(dag, shorter)
    if not reason:
        return Variant((), (), LEFT_OUT, shorter)
    step = trace.steps[n]
    open_ = () if sketch is None else refs(sketch.steps[n])
    for hole in sketch.holes if sketch is not None else ():
        other = another(hole, decisions[hole.name])
        if sketch is not None and other is not None and any(r.hole == hole.name for r in open_):
            changed = sketch.fill({**decisions, hole.name: other[0]})
            how = f"{hole.name} = {'x'.join(map(str, other[0]))} ({other[1]})"
            return _checked(dag, changed, how)
    if isinstance(step, SplitStep) and not open_ and step.nparts is None:
        ones = replace(step, factors=(1,) * len(step.factors))
        changed = Trace((*trace.steps[:n], ones, *trace.steps[n + 1 :]))
        return _checked(dag, changed, "factors of 1")
    return Variant((), (), "", None, reason)


def _checked(dag: ComputeDAG, trace: Trace, how: str) -> Variant:
    reason = refusal(dag, trace)
    return Variant((), (), how, None if reason else trace, reason)


def another(hole: Hole, chosen: Option) -> tuple[Option, str] | None:
    """The option to compare a choice with, and a name for it: the default's option, else the smallest one.

    >>> another(Hole("tile", ((8,), (4,), (1,)), (4,)), (8,))
    ((4,), "the default's")
    >>> another(Hole("tile", ((8,), (4,), (1,)), (4,)), (4,))
    ((1,), 'the smallest')
    """
    if hole.default != chosen:
        return hole.default, "the default's"
    smallest = min(hole.options, key=lambda o: (prod(o), o))
    return None if smallest == chosen else (smallest, "the smallest")


def refusal(dag: ComputeDAG, trace: Trace) -> str:
    """Why a trace is not a schedule of a computation; "" if the trace is one."""
    try:
        trace.replay(dag)
    except ScheduleError as e:
        return e.what
    return ""


def ablate(
    workload: Workload, trace: Trace, found: Sequence[Variant], measurer: Measurer
) -> tuple[MeasureResult, tuple[Ablated, ...]]:
    """Measures a schedule and its variants side by side. Returns the schedule's result and one for each
    variant.

    Raises MeasureError when nothing can be measured.
    """
    runnable = [v for v in found if v.trace is not None]
    traces = [trace, *(v.trace for v in runnable if v.trace is not None)]
    whole, *others = measurer.submit(workload, traces).result()
    results = dict(zip((v.steps for v in runnable), others, strict=True))
    return whole, tuple(_ablated(v, whole, results.get(v.steps)) for v in found)


def _ablated(v: Variant, whole: MeasureResult, result: MeasureResult | None) -> Ablated:
    if result is None:
        return Ablated(v, "", None, None, v.reason)
    if not result.ok:
        return Ablated(v, result.status.value, None, None, result.error or "no text")
    seconds = median(result.seconds)
    if not whole.ok:
        return Ablated(v, result.status.value, seconds, None, "the whole schedule has no time")
    return Ablated(v, result.status.value, seconds, paired(result.seconds, whole.seconds), "")
